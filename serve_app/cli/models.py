"""``tagae models``: change the model registry, and the models that a running service uses."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from serve_app.cli.console import bars, print_note, print_table, reporter, spinner
from serve_app.cli.options import Assignments, ConfigFile, blame, of_service, read_settings
from serve_app.errors import BadSettings

if TYPE_CHECKING:
    from serve_app.api.client import Client
    from serve_app.api.schemas.models import (
        ComparisonOfModels,
        IntervalDocument,
        ModelCard,
        ModelPin,
        RolloutDocument,
    )
    from serve_app.models.registry import Registry
    from serve_app.settings import Settings

RegistryPlace = Annotated[
    str | None, typer.Option("--registry", metavar="PLACE", help="Folder or URL of the registry: models.registry.")
]
FromRegistry = Annotated[
    str | None,
    typer.Option("--registry", metavar="PLACE", help="Folder or URL of a registry to read, instead of a service."),
]
OfSidecars = Annotated[
    str | None,
    typer.Option("--registry", metavar="PLACE", help="Change the model of this registry's sidecars, not of a service."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Version = Annotated[str, typer.Argument(metavar="VERSION", help="Model version; its first digits are enough.")]

app = typer.Typer(no_args_is_help=True, help="Keep models in a registry, and change the model of a running service.")


@app.command("list")
@of_service
def list_models(
    client: "Client",
    registry: FromRegistry = None,
    as_json: AsJson = False,
) -> None:
    """List the models of a running service's registry, oldest first, or the models of another registry.

    \b
    Example:
      tagae models list
      tagae models list --registry s3://bucket/models
    """
    cards, rollout = _models(client, registry)
    if as_json:
        for card in cards:
            typer.echo(card.model_dump_json())
        return
    table = Table(box=None, pad_edge=False)
    for name in ("version", "in use", "created (UTC)", "parent", "MB", "trained on", "results"):
        table.add_column(name)
    for card in cards:
        table.add_row(*map(escape, _row(card, rollout)))
    if cards:
        print_table(table)
    print_note(f"{len(cards)} model{'' if len(cards) == 1 else 's'}")


@app.command()
@of_service
def show(
    client: "Client",
    version: Version,
    registry: FromRegistry = None,
) -> None:
    """Print a model's card as JSON: provenance, inputs and training results.

    \b
    Example:
      tagae models show 20197a28
    """
    cards, _ = _models(client, registry)
    typer.echo(find_version(cards, version).model_dump_json(indent=2))


@app.command()
def add(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Path or URL of a checkpoint; s3:// and others work.")
    ],
    sha256: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="SHA-256 of the file; needed unless the card beside a path has it."),
    ] = None,
    parent: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Version that it replaces. Default: the one in its card.")
    ] = None,
    registry: RegistryPlace = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Add a model to the registry, after checking its SHA-256 and that this version can read it.

    No mesh uses it before `tagae models canary` or `promote`. The version is printed; adding a model twice changes
    nothing. A signed URL works; its query appears in no message.

    \b
    Example:
      tagae models add out/mine.safetensors --registry /var/lib/tagae/models
      tagae models add https://models.example/tagae.safetensors --sha256 DIGEST
    """
    from serve_app.models.card import describe, path_of_card
    from serve_app.models.download import check_sha256, check_source, display_name, read_checked
    from serve_app.models.registry import load_content

    settings = read_settings(config, assignments)
    place = registry or _configured(settings)
    beside = _read_card(path_of_card(Path(source))) if "://" not in source else None
    if sha256 is None and beside is None:
        raise typer.BadParameter(
            f"expected the SHA-256 of {display_name(source)}, got none, and no card beside it; `sha256sum FILE` prints "
            "it for a file that you trust",
            param_hint="--sha256",
        )
    with blame("--sha256"):
        digest = check_sha256(sha256 or (beside.sha256 if beside else ""))
    with blame("SOURCE"):
        check_source(source)
    content = read_checked(source, digest)
    card = describe(
        load_content(content, settings.model.network),
        content,
        created_at=beside.created_at if beside else None,
        parent=parent or (beside.parent if beside else None),
        figures=beside.figures if beside else None,
    )
    is_new = _open(place).add(content, card)
    typer.echo(card.version)
    print_note(f"added {card.version} to {place}" if is_new else f"{place} has {card.version} already")


@app.command()
def fetch(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Path or URL of a checkpoint.")],
    target: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, for `model.weights`.")],
    sha256: Annotated[str, typer.Option(metavar="DIGEST", help="SHA-256 of the file, 64 hexadecimal digits.")],
) -> None:
    """Copy weights to a file, for example before a pod starts, with the checks of `add`. No registry is needed.

    FILE is replaced atomically. If it already has these weights, nothing is fetched.

    \b
    Example:
      tagae models fetch https://models.example/tagae.safetensors /var/lib/tagae/weights.safetensors --sha256 DIGEST
    """
    from serve_app.models.download import check_sha256, check_source, read_checked
    from serve_app.models.registry import load_content

    with blame("--sha256"):
        digest = check_sha256(sha256)
    with blame("SOURCE"):
        check_source(source)
    if not target.parent.is_dir():
        raise typer.BadParameter(
            f"expected a folder that exists, got {target.parent}; create it first", param_hint="FILE"
        )
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == digest:
        print_note(f"{target} already has these weights")
        return
    content = read_checked(source, digest)
    version = load_content(content).digest  # raises IncompatibleWeights
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    print_note(f"wrote {target}: model_version {version}")


@app.command()
@of_service
def compare(
    client: "Client",
    version: Version,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Model to compare it with, over recordings. Default: the one in use."),
    ] = None,
    recording: Annotated[
        list[Path] | None,
        typer.Option(metavar="RECORDING", help="Recording to score with both. Repeatable. Default: the live trial."),
    ] = None,
    registry: RegistryPlace = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Show how a model differs from another one: alerts, culprits and scores, with 95% intervals.

    By default it compares the live results of a trial's two models. With --recording, it scores recordings with both
    models here, and needs no service. The default baseline is then the model that the settings name.

    \b
    Example:
      tagae models compare 5b7d9e2f
      tagae models compare 5b7d9e2f --recording out/march --recording out/april --registry /var/lib/tagae/models
    """
    if recording:
        from serve_app.models.recorded_comparison import compare_over_recordings

        settings = read_settings(config, assignments)
        models = _open(registry or _configured(settings), settings.model.network)
        candidate = find_version(models.cards(), version)
        baseline_card = None if baseline is None else find_version(models.cards(), baseline)
        comparison = compare_over_recordings(models, candidate, baseline_card, recording, settings)
    else:
        if baseline is not None:
            raise typer.BadParameter("expected recordings too, got none", param_hint="--baseline")
        comparison = client.compare_models(_version(client, version))
    if as_json:
        typer.echo(comparison.model_dump_json())
        return
    _print_comparison(comparison)


@app.command()
def tune(
    mesh: Annotated[str, typer.Argument(metavar="MESH", help="Name of the mesh; its settings apply.")],
    recording: Annotated[
        Path, typer.Option(metavar="RECORDING", help="Recording of this mesh, as `tagae record` writes it.")
    ],
    steps: Annotated[int, typer.Option(metavar="N", min=10, help="Training steps.")] = 300,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Model to start from. Default: the one that the settings name."),
    ] = None,
    registry: RegistryPlace = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Train the network further on a recording of one mesh, and add it to the registry as a candidate.

    It learns from the first two thirds of the recording, except times with alerts. The last third is the test: the
    candidate must predict it better than the previous model, and stay within a trial's limits. Otherwise it is not
    added. No mesh uses a candidate before `tagae models promote --mesh`.

    \b
    Example:
      tagae record out/shop --mesh shop --snapshots 2000
      tagae models tune shop --recording out/shop --registry /var/lib/tagae/models
    """
    import torch

    from lab.training.tune import tune as train_further
    from model.checkpoint import SHIPPED, load
    from serve_app.errors import UnfitModel
    from serve_app.models.admin import broken_limit
    from serve_app.models.card import describe
    from serve_app.models.comparison import compare as compare_trials
    from serve_app.models.recorded_comparison import trial_over
    from serve_app.models.registry import content_of, load_content
    from serve_app.pipeline import options
    from serve_app.recordings.segments import open_recording

    settings = read_settings(config, assignments)
    torch.set_num_threads(settings.model.threads)
    place, network = registry or _configured(settings), settings.model.network
    models, snapshots = _open(place, network), open_recording(recording).snapshots
    if baseline is None:
        before = load(settings.weights_of(mesh) or SHIPPED, network=network)
    else:
        card = find_version(models.cards(), baseline)
        before = models.load(card.version, card.sha256)
    with bars() as progress_bars:
        result = train_further(before, snapshots, options(settings, mesh), steps, reporter(progress_bars))
    provenance = {**before.provenance, "tuned": f"{steps} steps on {recording.resolve().name}"}
    content = content_of(replace(result.checkpoint, provenance=provenance))
    after = load_content(content, network)
    with spinner("judging the candidate by the last third"):
        trial = trial_over(mesh, snapshots(), after, before, settings, since=result.held_out_from)
    comparison = compare_trials(after.digest, before.digest, [trial], settings.alert.budget)
    _print_comparison(comparison)
    print_note(f"loss on the last third: {result.loss:.4f}, before {result.loss_before:.4f}")
    problem = "" if result.loss < result.loss_before else "it expects the last third no better than the model before"
    if problem := problem or broken_limit(comparison, settings.models):
        raise UnfitModel(
            f"model {after.digest}: not added to {place}: {problem}; give a longer recording of quiet time"
        )
    figures = {"loss": result.loss, "loss_before": result.loss_before}
    models.add(content, describe(after, content, parent=before.digest, figures=figures))
    typer.echo(after.digest)
    print_note(f"added to {place}; `tagae models promote {after.digest} --mesh {mesh}` puts it to use")


@app.command()
@of_service
def canary(
    client: "Client",
    version: Version,
    share: Annotated[
        float | None,
        typer.Option(metavar="SHARE", min=0, max=1, help="Share of meshes; 0: only in the shadow. Default: 0.1."),
    ] = None,
    registry: OfSidecars = None,
) -> None:
    """Try a model on a share of a running service's meshes, or, with --registry, on a share of its sidecars.

    Each mesh is also scored by the other model, in the shadow: without alerts. `tagae models compare` shows the
    differences. Run it again to change the share. Sidecars have no shadow.

    \b
    Example:
      tagae models canary 5b7d9e2f --share 0
      tagae models canary 5b7d9e2f --share 0.1
      tagae models canary 5b7d9e2f --share 0.1 --registry s3://bucket/models
    """
    if registry is not None:
        from serve_app.models.admin import CANARY_SHARE
        from serve_app.models.rollout import start_canary

        pin, canary_share = _pin(registry, version), CANARY_SHARE if share is None else share
        _change_sidecars(registry, lambda rollout: start_canary(rollout, pin, canary_share))
        return
    _print_rollout(client.try_model(_version(client, version), share))


@app.command()
@of_service
def promote(
    client: "Client",
    version: Version,
    mesh: Annotated[str | None, typer.Option(metavar="NAME", help="The only mesh that uses it. Default: all.")] = None,
    registry: OfSidecars = None,
) -> None:
    """Make a running service use a model in all meshes, or in one, from the next snapshot on. With --registry, make its
    sidecars use it, within half a minute.

    Meshes keep their state, and need no warm-up. A model that reads other inputs is refused.

    \b
    Example:
      tagae models promote 5b7d9e2f
      tagae models promote 5b7d9e2f --mesh shop
    """
    if registry is not None:
        from serve_app.models import rollout as changes

        pin = _pin(registry, version)
        _change_sidecars(registry, lambda rollout: changes.promote(rollout, pin, mesh=mesh))
        return
    _print_rollout(client.promote_model(_version(client, version), mesh))


@app.command()
@of_service
def rollback(
    client: "Client",
    mesh: Annotated[str | None, typer.Option(metavar="NAME", help="Only this mesh: it gives up its own model.")] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason, for other people.")] = "",
    registry: OfSidecars = None,
) -> None:
    """End a model's trial, or go back to the previous model, from the next snapshot on.

    \b
    Example:
      tagae models rollback --reason "alerts at every deployment"
    """
    if registry is not None:
        from serve_app.models.rollout import roll_back

        _change_sidecars(registry, lambda rollout: roll_back(rollout, reason=reason, mesh=mesh))
        return
    _print_rollout(client.roll_back_model(mesh, reason))


def _models(client: "Client", registry: str | None) -> "tuple[list[ModelCard], RolloutDocument]":
    """Return a registry's models and its sidecars' rollout, or a running service's models and its meshes' rollout."""
    if registry is not None:
        return _open(registry).cards(), _open(registry).rollout()
    document = client.models()
    return document.models, document.rollout


def _version(client: "Client", version: str) -> str:
    return find_version(client.models().models, version).version


def find_version(cards: "list[ModelCard]", version: str) -> "ModelCard":
    """Return the card of the only version that starts with these digits."""
    matches = [card for card in cards if version and card.version.startswith(version)]
    if len(matches) != 1:
        requirement = "more digits" if matches else "a version of the registry"
        names = ", ".join(card.version for card in matches or cards) or "none"
        raise typer.BadParameter(f"expected {requirement} ({names}), got {version!r}", param_hint="VERSION")
    return matches[0]


def _print_comparison(comparison: "ComparisonOfModels") -> None:
    """Print a table on stdout, and the amount of data on stderr."""
    table = Table(box=None, pad_edge=False)
    for name in ("", comparison.candidate, comparison.baseline):
        table.add_column(name)
    budget = "" if comparison.budget_per_day is None else f", budget {comparison.budget_per_day:.2g}"
    table.add_row(
        f"alerts per day and mesh{budget}",
        _interval(comparison.candidate_alerts_per_day),
        _interval(comparison.baseline_alerts_per_day),
    )
    table.add_row(
        "snapshots that it could not score",
        _interval(comparison.candidate_failed),
        _interval(comparison.baseline_failed),
    )
    for name, value in (
        ("snapshots with the same status", comparison.same_status),
        ("alerts with the same culprit", comparison.same_culprit),
        ("difference of the mesh scores", comparison.score_difference),
    ):
        table.add_row(name, _interval(value), "")
    print_table(table)
    meshes = f"{comparison.meshes} mesh{'' if comparison.meshes == 1 else 'es'}"
    print_note(
        f"{comparison.snapshots} snapshots of {meshes}, {comparison.days:.2g} days together; 95% intervals in brackets"
    )


def _interval(figure: "IntervalDocument") -> str:
    if figure.value is None:
        return "unknown"
    text = f"{figure.value:.3g}"
    return text if figure.low is None else f"{text} ({figure.low:.3g} to {figure.high:.3g})"


def _pin(place: str, version: str) -> "ModelPin":
    """Return a registry's model by the first digits of its version, after checking that sidecars can switch to it."""
    from model.checkpoint import load
    from serve_app.api.schemas.models import ModelPin
    from serve_app.models.served import require_same_neighbours

    models = _open(place)
    card = find_version(models.cards(), version)
    require_same_neighbours(load(), models.load(card.version, card.sha256))
    return ModelPin(version=card.version, sha256=card.sha256)


def _change_sidecars(place: str, change: "Callable[[RolloutDocument], RolloutDocument]") -> None:
    """Change and print the rollout that a registry's sidecars follow."""
    models = _open(place)
    rollout = change(models.rollout())
    models.write_rollout(rollout)
    _print_rollout(rollout, "sidecars")


def _print_rollout(rollout: "RolloutDocument", of: str = "meshes") -> None:
    from serve_app.models.rollout import model_name

    trial = rollout.trial
    beside = ("", "") if of == "sidecars" else ("; {} runs beside it", "; each runs beside the other")
    if trial is None:
        typer.echo(f"all {of} use {model_name(rollout.active)}")
    elif trial.share >= 1:
        typer.echo(f"all {of} use {model_name(trial.candidate)}{beside[0].format(model_name(trial.baseline))}")
    else:
        typer.echo(
            f"{trial.share:.0%} of the {of} use {model_name(trial.candidate)}, the others "
            f"{model_name(trial.baseline)}{beside[1]}"
        )
    for mesh, pin in sorted(rollout.meshes.items()):
        typer.echo(f"mesh {mesh} uses {model_name(pin)}")


def _use(version: str, rollout: "RolloutDocument") -> str:
    """Return the meshes that use a version, in words."""
    trial, uses = rollout.trial, []
    active, candidate = (rollout.active, None) if trial is None else (trial.baseline, trial.candidate)
    share = 0.0 if trial is None else trial.share
    if active is not None and active.version == version and share < 1:
        uses.append("all" if share == 0 else "the others")
    if candidate is not None and candidate.version == version:
        uses.append("all" if share >= 1 else f"{share:.0%}" if share else "shadow")
    uses += [mesh for mesh, pin in sorted(rollout.meshes.items()) if pin.version == version]
    return ", ".join(uses)


def _open(place: str, network: str | None = None) -> "Registry":
    from serve_app.models.registry import Registry

    return Registry(place, network)


def _configured(settings: "Settings") -> str:
    if settings.models.registry is None:
        raise BadSettings("models.registry: no folder or URL is set; set it, or use --registry")
    return settings.models.registry


def _read_card(path: Path) -> "ModelCard | None":
    from serve_app.models.card import decode_card

    return decode_card(path.read_bytes(), str(path)) if path.is_file() else None


def _row(card: "ModelCard", rollout: "RolloutDocument") -> tuple[str, ...]:
    figures = card.figures
    results = []
    if "culprit_first" in figures:
        results.append(f"culprit first in {figures['culprit_first']:.0%}")
    if "false_alerts_per_day" in figures:
        results.append(f"{figures['false_alerts_per_day']:.1f} false alerts per day")
    return (
        card.version,
        _use(card.version, rollout),
        f"{card.created_at:%Y-%m-%d %H:%M}",
        card.parent or "",
        f"{card.size_bytes / 1e6:.1f}",
        ", ".join(filter(None, (card.data.get("simulated"), card.data.get("recorded")))),
        "; ".join(results),
    )
