"""``tagae doctor``: checks the installation, or the telemetry of a mesh."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import spinner
from serve_app.cli.mesh_options import PrometheusUrl, select_mesh

if TYPE_CHECKING:
    from serve_app.doctor.installation import Finding

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    config: ConfigFile = None,
    settings: Assignments = None,
    mesh: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Check the telemetry of this mesh of the settings instead."),
    ] = None,
    prometheus: PrometheusUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of a table.")] = False,
) -> None:
    """Check that the service can run here: packages, weights, device, store, port. With --source or --prometheus, check
    which metrics of a mesh are missing, and what that costs.

    Nothing is started or changed. The exit code is 1 if there is a problem; warnings are advice.

    \b
    Example:
      tagae doctor
      tagae doctor --set scorer.device=cuda --json
      tagae doctor --prometheus http://127.0.0.1:9090
    """
    from serve_app.doctor.installation import check_installation

    with spinner(f"checking {f'the telemetry of {mesh or prometheus}' if mesh or prometheus else 'this installation'}"):
        if mesh or prometheus:
            findings = _telemetry(config, settings, mesh, prometheus)
        else:
            findings = check_installation(config, overrides(settings))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        table = Table(box=None, show_header=False, padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for finding in findings:
            style = STYLES[finding.outcome]
            text = finding.found + (f"\n[{style}]{finding.remedy}[/]" if finding.remedy else "")
            table.add_row(f"[{style}]{finding.outcome}[/]", finding.subject, text)
        Console(highlight=False).print(table)
    if any(finding.outcome == "problem" for finding in findings):
        raise typer.Exit(1)


def _telemetry(config: ConfigFile, settings: Assignments, mesh: str | None, url: str | None) -> "list[Finding]":
    from serve_app.doctor.telemetry import check_telemetry
    from serve_app.settings import load

    chosen = load(config, overrides(settings))
    _, selected = select_mesh(chosen, url, mesh)
    at = datetime.now(UTC) - timedelta(seconds=chosen.collector.behind_seconds)
    return list(check_telemetry(selected, chosen.collector, at))
