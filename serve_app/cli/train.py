"""``tagae train``: train a checkpoint on simulated and recorded traffic."""

import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.console import bars, print_note, reporter
from serve_app.cli.options import blame


def train(
    output: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="Checkpoint to write; OUT.card.json describes it."),
    ],
    recording: Annotated[
        list[Path] | None,
        typer.Option(metavar="RECORDING", help="Additional recording of normal traffic. Repeatable."),
    ] = None,
    meshes: Annotated[int, typer.Option(metavar="N", min=6, help="Simulated meshes; every third has no fault.")] = 96,
    snapshots: Annotated[int, typer.Option(metavar="N", min=200, help="Snapshots of each simulated mesh.")] = 400,
    steps: Annotated[int, typer.Option(metavar="N", min=10, help="Training steps of the autoencoder.")] = 1800,
    meta_steps: Annotated[int, typer.Option(metavar="N", min=10, help="Training steps of the meta-model.")] = 2000,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Random seed; on the same machine it gives the same weights.")
    ] = 0,
    parent: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Version that it replaces, for its card.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Parallel processes that prepare meshes.")] = 2,
    network: Annotated[
        str | None,
        typer.Option(metavar="MODULE:CLASS", help="Train another package's network, not the built-in one."),
    ] = None,
) -> None:
    """Train the network on normal traffic, and the meta-model on injected faults.

    This takes half an hour on two cores. OUT.card.json records the provenance of the weights. `tagae models add` adds
    both files to a registry. Without one, use the result with --weights or as model.weights in the settings.

    \b
    Example:
      tagae train out/mine.safetensors
      tagae train out/mine.safetensors --recording out/quiet --seed 3
      tagae train out/mine.safetensors --network mypackage.network:MyNetwork
      tagae score out/shop --weights out/mine.safetensors
    """
    import torch

    from lab.training.dataset import recorded_runs
    from lab.training.meshes import TrainingMeshes, simulated_runs
    from lab.training.reference import reference_of
    from lab.training.train import TrainingOptions, processes
    from lab.training.train import train as learn
    from model.checkpoint import network_class, save
    from serve_app.models.card import write_card

    torch.set_num_threads(1)  # for reproducible sums
    trained_class = network_class(network)
    output.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    plan = TrainingMeshes(meshes, snapshots, seed)
    with blame("--recording"):
        runs = [*simulated_runs(plan), *recorded_runs(recording or ())]
    options = TrainingOptions(seed=seed, steps=steps, meta_steps=meta_steps)
    provenance = {
        "seed": str(seed),
        "simulated": f"{meshes} meshes of {snapshots} snapshots",
        "recorded": ", ".join(path.name for path in recording or ()),
        "steps": f"{steps} autoencoder, {meta_steps} meta-model",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("tagae", "torch", "numpy")),
    }
    with processes(jobs) as pool, bars() as progress_bars:
        checkpoint, report = learn(runs, options, provenance, reporter(progress_bars), trained_class, pool)
        reference = reference_of(checkpoint.network, runs, pool, reporter(progress_bars))
    save(replace(checkpoint, reference=reference), output)
    figures = {
        "false_alerts_per_day_budget": report.pages_promised_per_day,
        "false_alerts_per_day": report.pages_observed_per_day,
        "culprit_first": report.culprit_first,
    }
    card = write_card(output, parent=parent, figures=figures, network=network)
    print_note(
        f"wrote {output}, version {card.version}, trained in {time.monotonic() - began:.0f} s\n"
        f"false alerts per day on normal training traffic: budget {report.pages_promised_per_day:.1f}, observed "
        f"{report.pages_observed_per_day:.1f}; culprit ranked first in {report.culprit_first:.0%} of faulty snapshots"
    )
