"""``tagae doctor``: check the installation, its speed, a mesh's telemetry, or the drift of a service's meshes."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from model.names import list_first
from serve_app.cli.console import spinner
from serve_app.cli.options import (
    Assignments,
    CaFile,
    ConfigFile,
    PrometheusUrl,
    TokenFile,
    connect,
    mesh_of_settings,
    overrides,
    read_settings,
)

if TYPE_CHECKING:
    from serve_app.collect.base import Finding
    from serve_app.doctor.picture import MeshPicture
    from serve_app.doctor.telemetry import TelemetryReport

ENTRIES_SHOWN = 10
WIDE = 70  # minimum columns for printing texts beside their subjects
STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    config: ConfigFile = None,
    assignments: Assignments = None,
    mesh: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Check the telemetry of this mesh of the settings instead."),
    ] = None,
    prometheus: PrometheusUrl = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Check the drift of this running service's meshes instead."),
    ] = None,
    bench: Annotated[
        bool, typer.Option("--bench", help="Measure how fast this machine scores the stored meshes instead.")
    ] = False,
    of_mesh: Annotated[
        str | None, typer.Option("--mesh", metavar="NAME", help="With --url or --bench: only this mesh.")
    ] = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Check that the service can run here: packages, weights, device, store, port. With --source or --prometheus, check
    a mesh's telemetry: existing and missing series, what you lose without them, delays, and the mesh that results. With
    --url, check how far a running service's meshes have drifted. With --bench, push the stored snapshots of the largest
    meshes again, to a temporary store, and report the time and memory that they need.

    Nothing is started or changed. The exit code is 1 if there is a problem; warnings are advice. For a mesh, it is 1
    only if nothing can be read.

    \b
    Example:
      tagae doctor
      tagae doctor --set scorer.device=cuda --json
      tagae doctor --prometheus http://127.0.0.1:9090
      tagae doctor --url http://127.0.0.1:8000 --mesh shop
      tagae doctor --bench
    """
    from serve_app.doctor.installation import check_installation

    if of_mesh and not (url or bench):
        raise typer.BadParameter(
            "expected --url or --bench with --mesh; a mesh of the settings is --source", param_hint="--mesh"
        )
    if sum(map(bool, (url, bench, mesh or prometheus))) > 1:
        raise typer.BadParameter(
            "expected one of --url, --bench and a source of telemetry, got several; leave the others out",
            param_hint="--bench" if bench else "--url",
        )
    picture: MeshPicture | None = None
    findings: Sequence[Finding]
    subject = f"the telemetry of {mesh or prometheus}" if mesh or prometheus else url or "this installation"
    subject = "the speed of this machine" if bench else subject
    with spinner(f"checking {subject}"):
        if mesh or prometheus:
            report = _telemetry(config, assignments, mesh, prometheus)
            findings, picture = report.findings, report.mesh
        elif url:
            findings = _drift(url, of_mesh, token_file, ca_file)
        elif bench:
            findings = _speed(config, assignments, of_mesh)
        else:
            findings = check_installation(config, overrides(assignments))
    if as_json:
        documents = [asdict(finding) for finding in findings]
        report_document = {"findings": documents, "mesh": asdict(picture) if picture else None}
        typer.echo(json.dumps(report_document if mesh or prometheus else documents, indent=1, ensure_ascii=False))
    else:
        console = Console(highlight=False)
        _print_findings(console, findings)
        if picture:
            _print_picture(console, picture)
        _print_verdict(console, findings, _verdict_words(mesh or prometheus, url, bench=bench))
    if any(finding.outcome == "problem" for finding in findings):
        raise typer.Exit(1)


def _print_findings(console: Console, findings: "Sequence[Finding]") -> None:
    """Print a table; on a narrow terminal, each finding's text is below its subject."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    is_wide = console.width >= WIDE
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=is_wide, overflow="fold")
    if is_wide:
        table.add_column(overflow="fold")
    for finding in findings:
        style = STYLES[finding.outcome]
        text = Text(finding.found)
        if finding.remedy:
            text.append(f"\n{finding.remedy}", style)
        if finding.toml:
            text.append(f"\n{finding.toml}", "cyan")
        outcome, subject = Text(finding.outcome, style), Text(finding.subject, "" if is_wide else "bold")
        if is_wide:
            table.add_row(outcome, subject, text)
        else:
            table.add_row(outcome, subject.append("\n").append_text(text))
    console.print(table)


def _verdict_words(source: str | None, url: str | None, *, bench: bool) -> tuple[str, str]:
    """Return the verdict in words, without and with a problem."""
    if source:
        return "TAGAE can watch this mesh", "TAGAE cannot watch this mesh yet"
    if url:
        return "the meshes of this service can be judged", "the meshes of this service cannot be judged"
    if bench:
        return "this machine was measured", "this machine cannot be measured"
    return "the service can run here", "the service cannot run here with these settings"


def _print_verdict(console: Console, findings: "Sequence[Finding]", words: tuple[str, str]) -> None:
    """Print a summary line, and the first thing to do: about a problem, or else about a warning."""
    by_weight = {kind: [finding for finding in findings if finding.outcome == kind] for kind in ("problem", "warning")}
    urgent = [finding for kind in by_weight.values() for finding in kind]
    style = STYLES[urgent[0].outcome if urgent else "ok"]
    counts = [
        f"{len(matches)} {kind}{'' if len(matches) == 1 else 's'}" for kind, matches in by_weight.items() if matches
    ]
    verdict = words[1] if by_weight["problem"] else words[0]
    tally = f" ({', '.join(counts)})" if counts else ""
    console.print(Text.assemble("\n ", ("Verdict", style), f": {verdict}{tally}"))
    if urgent:
        first = next((finding for finding in urgent if finding.remedy), urgent[0])
        console.print(Text.assemble(" ", ("First", style), f": {first.subject}: {first.remedy or first.found}"))


def _print_picture(console: Console, picture: "MeshPicture") -> None:
    busiest = Table.grid(padding=(0, 2))
    busiest.add_column(overflow="fold")
    busiest.add_column(justify="right", overflow="fold")
    for service in picture.busiest:
        busiest.add_row(Text(service.id), f"{service.request_rate:,.1f} requests/s")
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("services", str(picture.services))
    table.add_row("calls", str(picture.calls))
    table.add_row("entry points", Text(list_first(picture.entry_points, ENTRIES_SHOWN) or "none"))
    if picture.busiest:
        table.add_row("busiest", busiest)
    table.add_row("looks wrong", Text("\n".join(picture.odd), "yellow") if picture.odd else Text("nothing", "green"))
    console.print("\n The mesh", style="bold")
    console.print(table)


def _telemetry(config: ConfigFile, assignments: Assignments, mesh: str | None, url: str | None) -> "TelemetryReport":
    from serve_app.doctor.telemetry import check_telemetry

    settings = read_settings(config, assignments)
    name, mesh_settings = mesh_of_settings(settings, url, mesh)
    at = datetime.now(UTC) - timedelta(seconds=settings.collector.behind_seconds)
    return check_telemetry(mesh_settings, settings.collector, at, name)


def _drift(url: str, mesh: str | None, token_file: Path | None, ca_file: Path | None) -> "list[Finding]":
    from serve_app.doctor.drift import check_drift

    with connect(url, token_file, ca_file) as client:
        return check_drift(client, mesh)


def _speed(config: ConfigFile, assignments: Assignments, mesh: str | None) -> "list[Finding]":
    from serve_app.doctor.speed import check_speed

    return list(check_speed(read_settings(config, assignments), mesh))
