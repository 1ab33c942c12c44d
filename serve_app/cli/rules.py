"""``tagae rules``: recording rules for the Prometheus of a large mesh."""

from typing import Annotated

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides


def rules(
    config: ConfigFile = None,
    settings: Assignments = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", metavar="KIND", help="Kind of mesh, as in the settings. Repeatable. Default: all but ambient."
        ),
    ] = None,
) -> None:
    """Print recording rules for a mesh with thousands of calls. Prometheus then computes each query once an interval.

    Load the rules into this Prometheus. The collector finds them, and uses them for collector.recorded_from_calls calls
    and more. The rate window and the interval come from the settings. Istio with and without sidecars uses the same
    metrics: take the rules of one of the two. For native histograms, append -native to the kind.

    \b
    Example:
      tagae rules --source istio > recording.rules.yaml
    """
    from serve_app.collect.prometheus.dialects.known import KNOWN
    from serve_app.collect.prometheus.native import SUFFIX, native
    from serve_app.collect.prometheus.rules import render_rules
    from serve_app.settings import load

    kinds = source or [name for name in KNOWN if name != "istio-ambient"]
    if unknown := [name for name in kinds if name.removesuffix(SUFFIX) not in KNOWN]:
        names = ", ".join(KNOWN)
        raise typer.BadParameter(f"expected one of {names}, came {unknown[0]!r}", param_hint="--source")
    collector = load(config, overrides(settings)).collector
    chosen = {name: KNOWN.get(name) or native(KNOWN[name.removesuffix(SUFFIX)]) for name in kinds}
    typer.echo(render_rules(chosen, collector.interval_seconds, collector.window_seconds), nl=False)
