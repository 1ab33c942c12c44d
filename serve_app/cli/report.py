"""``tagae report``: write a recorded incident as one file, HTML or Markdown."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.console import Tally, print_note
from serve_app.cli.options import Assignments, ConfigFile, parse_time, read_settings
from serve_app.cli.reading import WarmUps, notes, score_snapshots
from serve_app.web.formats import ReportFormat, read_zone

if TYPE_CHECKING:
    from serve_app.api.schemas.verdict import IncidentDocument
    from serve_app.stores.scored_snapshot import ScoredSnapshot

STDOUT = Path("-")


def report(
    recording: Annotated[Path, typer.Argument(metavar="RECORDING", help="Folder of the recording.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File for the report; - is stdout. Default: report.FORMAT, or stdout for Markdown."
        ),
    ] = None,
    form: Annotated[
        ReportFormat, typer.Option("--format", help="HTML, to read, send or print, or Markdown for a post-mortem.")
    ] = ReportFormat.HTML,
    incident: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the incident. Default: the worst one.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Choose the worst incident that was open at this time; UTC.")
    ] = None,
    timezone: Annotated[
        str, typer.Option(metavar="ZONE", help="Time zone of the times in the report, such as Europe/Berlin.")
    ] = "UTC",
    warmup: WarmUps = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint instead of the shipped one.")] = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Write one incident of a recording as HTML, or as Markdown for a post-mortem.

    The report shows the affected services, the spread, the time around the incident, and the suspects with their
    reasons and metrics. The file has no scripts and needs no other file.

    \b
    Example:
      tagae report out/shop -o incident.html
      tagae report out/shop --at 2026-03-01T03:12Z --format markdown > postmortem.md
    """
    from serve_app.errors import UnknownIncident
    from serve_app.recordings.segments import open_recording
    from serve_app.web.report import report as write
    from serve_app.web.report.windows import IncidentWindow, worst_window

    instant, zone = parse_time(at) if at else None, read_zone(timezone)
    settings = read_settings(config, assignments, {"model.weights": weights})
    warmups, source, tally = [open_recording(path) for path in warmup or ()], open_recording(recording), Tally()

    def is_selected(window: IncidentWindow) -> bool:
        matches = incident is None or window.incident.id == incident
        return matches and (instant is None or window.incident.since <= instant <= window.last)

    window = worst_window(_count(score_snapshots(settings, "", warmups, source), tally), is_selected)
    for note in notes([*warmups, source]):
        print_note(note)
    if window is None:
        choice = " ".join(filter(None, [incident and f"with the id {incident}", at and f"open at {at}"]))
        raise UnknownIncident(
            f"{recording}: expected an incident{f' {choice}' if choice else ''} in {tally.statuses.total()} snapshots, "
            f"got {'others: ' + ', '.join(tally.incidents) if tally.incidents else 'none'}"
        )
    default = STDOUT if form is ReportFormat.MARKDOWN else Path(f"report.{form}")
    target, text = output or default, write(recording.name, window.moments, window.incident.id, form, zone=zone)
    if target == STDOUT:
        typer.echo(text, nl=False)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    destination = "stdout" if target == STDOUT else target
    print_note(f"wrote incident {window.incident.id} to {destination}")
    for document in tally.incidents.values():
        if document.id != window.incident.id:
            print_note(f"other incident: {_line(document)}")


def _count(moments: "Iterator[ScoredSnapshot]", tally: Tally) -> "Iterator[ScoredSnapshot]":
    for moment in moments:
        tally.add(moment.verdict)
        yield moment


def _line(incident: "IncidentDocument") -> str:
    first = incident.suspects[0].service if incident.suspects else "no suspect"
    return f"{incident.id}  {incident.severity}  score {incident.score:.1f}  {incident.headline or first}"
