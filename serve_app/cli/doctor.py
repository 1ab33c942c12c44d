"""``tagae doctor``: what is installed, what is found, what is missing."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.live import PrometheusUrl, mesh_of

if TYPE_CHECKING:
    from serve_app.doctor.installation import Finding

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    config: ConfigFile = None,
    settings: Assignments = None,
    mesh: Annotated[
        str | None, typer.Option("--source", metavar="NAME", help="Look at this collected mesh's telemetry instead.")
    ] = None,
    prometheus: PrometheusUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
) -> None:
    """Look whether the service can run here: packages, weights, device, store, port. Or which metrics of a mesh are
    there, which are missing, and what that costs.

    Nothing is started or changed. Exit code 1 where a problem was found; warnings are advice.

    \b
    Example:
      tagae doctor
      tagae doctor --set scorer.device=cuda --json
      tagae doctor --prometheus http://127.0.0.1:9090
    """
    from serve_app.doctor.installation import look

    if mesh or prometheus:
        findings = _telemetry(config, settings, mesh, prometheus)
    else:
        findings = look(config, overrides(settings))
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
    from serve_app.doctor.telemetry import look_at
    from serve_app.settings import load

    chosen = load(config, overrides(settings))
    _, asked = mesh_of(chosen, url, mesh)
    at = datetime.now(UTC) - timedelta(seconds=chosen.collector.behind_seconds)
    return list(look_at(asked, chosen.collector, at))
