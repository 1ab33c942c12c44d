"""``tagae rules``: print rules for a mesh's Prometheus: recording rules, and alerts for objectives."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.options import Assignments, ConfigFile, read_settings

if TYPE_CHECKING:
    from serve_app.settings import Settings


def rules(
    config: ConfigFile = None,
    assignments: Assignments = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            "--match",
            metavar="LABEL=VALUE",
            help="Record only these series, as in the mesh's settings. Repeatable.",
        ),
    ] = None,
    cluster_label: Annotated[
        str,
        typer.Option("--cluster-label", metavar="LABEL", help="Keep clusters apart, as in the mesh's settings."),
    ] = "",
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="KIND",
            help="Kind of mesh, as in the settings. Repeatable. Default: istio, opentelemetry, linkerd and envoy.",
        ),
    ] = None,
    objectives: Annotated[
        bool,
        typer.Option("--objectives", help="Print rules for the objectives of the settings' meshes instead."),
    ] = False,
) -> None:
    """Print recording rules for a mesh with thousands of calls. Prometheus then computes each query once per interval.

    Load the rules into the mesh's Prometheus. The collector finds them, and uses them if the mesh has 2,000 calls or
    more. The rate window and the interval come from the settings. Istio with and without sidecars has the same metrics:
    load the rules of only one of the two. Recorded series get the labels of --match. For native histograms, append
    -native to the kind. The rules of all kinds together are too large for kubectl apply.

    With --objectives: rules with alerts on burn rates, for the objectives in the settings (meshes.NAME.objectives).
    Each mesh's kind and matchers come from the settings; --source names the kind where they leave it to be recognized.

    \b
    Example:
      tagae rules --source istio > recording.rules.yaml
      tagae rules --config tagae.toml --objectives > objectives.rules.yaml
    """
    from serve_app.collect.prometheus.clusters import name_clusters_of
    from serve_app.collect.prometheus.dialects.shipped import KNOWN, SHIPPED_RULES
    from serve_app.collect.prometheus.native import SUFFIX, native
    from serve_app.collect.prometheus.query import Match
    from serve_app.collect.prometheus.rules import render_rules

    kinds = source or SHIPPED_RULES
    if unknown := [name for name in kinds if name.removesuffix(SUFFIX) not in KNOWN]:
        names = ", ".join(KNOWN)
        raise typer.BadParameter(f"expected one of {names}, got {unknown[0]!r}", param_hint="--source")
    settings = read_settings(config, assignments)
    if objectives:
        if match or cluster_label:
            raise typer.BadParameter("expected none with --objectives; set match and cluster_label of the mesh")
        typer.echo(_objective_rules(settings, source or ()), nl=False)
        return
    collector = settings.collector
    dialects = {name: KNOWN.get(name) or native(KNOWN[name.removesuffix(SUFFIX)]) for name in kinds}
    if cluster_label:
        dialects = {name: name_clusters_of(dialect, cluster_label) for name, dialect in dialects.items()}
    matchers = Match({label: (value,) for label, value in map(_matcher, match or ())})
    typer.echo(render_rules(dialects, collector.interval_seconds, collector.window_seconds, matchers), nl=False)


def _objective_rules(settings: "Settings", source: Sequence[str]) -> str:
    """Return the rules for all meshes with objectives."""
    from serve_app.collect.prometheus.clusters import name_clusters_of
    from serve_app.collect.prometheus.dialects.shipped import KNOWN
    from serve_app.collect.prometheus.objective_rules import MeshObjectives, render_objective_rules
    from serve_app.collect.prometheus.query import Match
    from serve_app.errors import BadSettings

    objectives = []
    for name, mesh in settings.meshes.items():
        if not mesh.service_objectives:
            continue
        kind = (*source, *mesh.sources)[0]
        if kind not in KNOWN:
            raise BadSettings(
                f"meshes.{name}.source: expected one of {', '.join(KNOWN)} for rules, got {kind!r}; set it, or give "
                "--source"
            )
        dialect = name_clusters_of(KNOWN[kind], mesh.cluster_label) if mesh.cluster_label else KNOWN[kind]
        objectives.append(MeshObjectives(name, dialect, mesh.service_objectives, Match(mesh.match)))
    if not objectives:
        raise BadSettings(
            "meshes.NAME.objectives: expected at least one objective for rules, got none; add "
            '[meshes.NAME.objectives."NAMESPACE/NAME"]'
        )
    try:
        return render_objective_rules(objectives)
    except ValueError as error:
        raise BadSettings(f"meshes.NAME.objectives: {error}") from None


def _matcher(text: str) -> tuple[str, str]:
    label, equals, value = text.partition("=")
    if not equals or not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", label):
        raise typer.BadParameter(f"expected LABEL=VALUE, got {text!r}", param_hint="--match")
    return label, value
