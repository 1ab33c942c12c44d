"""``tagae report``: one incident of a recording as one file of HTML."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import Tally, for_people
from serve_app.cli.live import instant
from serve_app.cli.reading import judged, notes, recorded

if TYPE_CHECKING:
    from serve_app.api.schemas.verdict import IncidentDocument
    from serve_app.web.moments import Moment


def report(
    recording: Annotated[Path, typer.Argument(metavar="RECORDING", help="Folder of the recording.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the report.")] = Path("report.html"),
    incident: Annotated[
        str | None, typer.Option(metavar="ID", help="Of this incident; by default of the worst one.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of the worst incident that was open then; UTC.")
    ] = None,
    warmup: Annotated[
        list[Path] | None,
        typer.Option(metavar="RECORDING", help="Normal traffic that sets baselines first; any time. Repeatable."),
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint instead of the shipped one.")] = None,
    config: ConfigFile = None,
    settings: Assignments = None,
) -> None:
    """Write one incident of a recording as a page to read, send or print.

    The graph of who is affected and how it spread, the time around it, the suspects with their reasons and what was
    measured. The file has no scripts and needs nothing from elsewhere.

    \b
    Example:
      tagae report out/shop -o incident.html
      tagae report out/shop --at 2026-03-01T03:12Z
    """
    from serve_app.errors import UnknownIncident
    from serve_app.recordings.reader import RecordingReader
    from serve_app.settings import load
    from serve_app.web.report import report as page
    from serve_app.web.report.windows import IncidentWindow, worst_window

    when = instant(at) if at else None
    chosen = load(config, overrides(settings, weights=("model.weights", weights)))
    warmups, source, tally = [RecordingReader(path) for path in warmup or ()], recorded(recording), Tally()

    def wanted(window: IncidentWindow) -> bool:
        known = incident is None or window.incident.id == incident
        return known and (when is None or window.incident.since <= when <= window.last)

    window = worst_window(_told(judged(chosen, "", warmups, source), tally), wanted)
    for note in notes([*warmups, source]):
        for_people().print(note)
    if window is None:
        asked = " ".join(filter(None, [incident and f"with the id {incident}", at and f"open at {at}"]))
        raise UnknownIncident(
            f"{recording}: expected an incident{f' {asked}' if asked else ''} in {tally.statuses.total()} snapshots, "
            f"came {'other ones: ' + ', '.join(tally.incidents) if tally.incidents else 'none'}"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page(recording.name, window.moments, window.incident.id), encoding="utf-8")
    for_people().print(f"{output}: incident {window.incident.id}", soft_wrap=True)
    for other in tally.incidents.values():
        if other.id != window.incident.id:
            for_people().print(f"also seen: {_line(other)}", soft_wrap=True)


def _told(moments: "Iterator[Moment]", tally: Tally) -> "Iterator[Moment]":
    for moment in moments:
        tally.add(moment.verdict)
        yield moment


def _line(incident: "IncidentDocument") -> str:
    first = incident.suspects[0].service if incident.suspects else "no suspect"
    return f"{incident.id}  {incident.severity}  score {incident.score:.1f}  {first}"
