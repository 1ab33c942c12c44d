"""``tagae doctor``: what is installed, what is found, what is missing."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from serve_app.cli.configure import Assignments, ConfigFile, overrides

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    config: ConfigFile = None,
    settings: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
) -> None:
    """Look whether the service can run here: packages, weights, device, store, port.

    Nothing is started or changed. Exit code 1 where a problem was found; warnings are advice.

    \b
    Example:
      tagae doctor
      tagae doctor --set scorer.device=cuda --json
    """
    from serve_app.inventory import look

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
