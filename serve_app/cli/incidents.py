"""``tagae incidents``: list a running service's incidents, show one, and record a person's actions."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

import typer
from rich.console import Console

from serve_app.cli.console import print_incident, print_note, what_to_do
from serve_app.cli.options import UNITS, MeshName, mesh_of_service, of_service, parse_span, parse_time

if TYPE_CHECKING:
    from serve_app.api.client import Client
    from serve_app.api.schemas.incidents import ArchivedIncidentDocument

app = typer.Typer(no_args_is_help=True, help="List a mesh's incidents, show one, and record your actions.")


@app.command("list")
@of_service
def list_incidents(
    client: "Client",
    mesh: MeshName = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Start: a time, UTC, or days or hours before the newest snapshot, such as 30d or 12h."
        ),
    ] = "7d",
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="End, in the same form. Default: the newest snapshot.")
    ] = None,
    service: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only incidents of this service (namespace/name).")
    ] = None,
    team: Annotated[str | None, typer.Option(metavar="NAME", help="Only incidents that belong to this team.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each incident.")] = False,
) -> None:
    """List a mesh's incidents, the newest first: open ones, and those in the running service's archive.

    \b
    Example:
      tagae incidents list
      tagae incidents list --mesh shop --since 30d --service shop/cart
      tagae incidents list --since 30d --team checkout
      tagae incidents list --since 2026-03-01 --until 2026-03-08 --json | jq -r .headline
    """
    document = mesh_of_service(client, mesh)
    begin = _parse(since, document.observed_at, "--since")
    end = None if until is None else _parse(until, document.observed_at, "--until")
    if end is not None and end <= begin:
        raise typer.BadParameter(
            f"expected a time after --since, {begin:%Y-%m-%d %H:%M} UTC, got {end:%Y-%m-%d %H:%M} UTC",
            param_hint="--until",
        )
    incidents = client.incidents(document.mesh, since=begin, until=end, service=service, team=team)
    if as_json:
        for incident in incidents:
            typer.echo(incident.model_dump_json())
    else:
        _show(list(incidents), document.mesh, begin, service, team)


@app.command()
@of_service
def show(
    client: "Client",
    incident: Annotated[str, typer.Argument(metavar="ID", help="Id of an incident, open or archived.")],
    mesh: Annotated[str | None, typer.Option(metavar="NAME", help="The mesh. Default: look in all of them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the incident as one line of JSON.")] = False,
) -> None:
    """Show one incident: cause, symptom, suspects, course, and the address of its page.

    \b
    Example:
      tagae incidents show 20260301T031200Z-1f3870be
    """
    from serve_app.errors import UnknownIncident

    names = [document.mesh for document in client.meshes()] if mesh is None else [mesh]
    for name in names:
        try:
            document = client.incident(name, incident)
        except UnknownIncident:
            continue
        if as_json:
            typer.echo(document.model_dump_json())
        else:
            _show_one(document, name, client.url)
        return
    raise UnknownIncident(
        f"incident {incident!r}: unknown in {', '.join(names) or 'this service, which has no mesh'}; list incidents "
        "with `tagae incidents list --since 90d`"
    )


@app.command()
@of_service
def act(
    client: "Client",
    kind: Annotated[
        Literal["acknowledge", "note", "done", "accept"],
        typer.Argument(metavar="KIND", help="acknowledge, note, done or accept."),
    ],
    incident: Annotated[str, typer.Argument(metavar="ID", help="Id of an incident, open or archived.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text for other people; needed for note and done.")] = "",
    mesh: MeshName = None,
) -> None:
    """Record an action on an incident: you are on it (acknowledge), a note, or what helped (done).

    accept makes an open incident's present level normal: the incident ends with the next snapshot. This cannot be
    undone. For a false alarm, give feedback instead.

    \b
    Example:
      tagae incidents act acknowledge 20260301T031200Z-1f3870be
      tagae incidents act note 20260301T031200Z-1f3870be "the pool of connections is full"
      tagae incidents act done 20260301T031200Z-1f3870be "restarted shop/cart"
      tagae incidents act accept 20260301T031200Z-1f3870be "the new release needs 200 ms" --mesh shop
    """
    from serve_app.api.codec.mistakes import validate_document
    from serve_app.api.schemas.actions import ActionDocument

    action = validate_document({"kind": kind, "text": text}, ActionDocument)
    record = client.act(mesh_of_service(client, mesh).mesh, incident, action)
    follows = "; the incident ends with the next snapshot" if kind == "accept" else ""
    print_note(f"{record.incident}: {record.words}{follows}")


def _parse(text: str, newest: datetime | None, option: str) -> datetime:
    """Parse a time, or a span before the newest snapshot."""
    if text[-1:] not in UNITS:
        return parse_time(text)
    if newest is None:
        raise typer.BadParameter("expected a time, since the mesh has no snapshot yet", param_hint=option)
    return newest - parse_span(text)


def _show(
    incidents: "list[ArchivedIncidentDocument]", mesh: str, since: datetime, service: str | None, team: str | None
) -> None:
    """Print incidents on stdout, and their number on stderr."""
    of = f"mesh {mesh} since {since:%Y-%m-%d %H:%M} UTC" + (f" with {service}" if service else "")
    of += f" of team {team}" if team else ""
    if not incidents:
        print_note(f"no incidents of {of}; try an earlier --since")
        return
    console = Console(highlight=False)
    for incident in incidents:
        facts = _facts(incident, f"team {incident.team}" if incident.team else "")
        step = what_to_do(incident) if incident.until is None else ""
        print_incident(console, incident, facts, step, _course(incident))
    print_note(f"{len(incidents)} of {of}")


def _show_one(incident: "ArchivedIncidentDocument", mesh: str, url: str) -> None:
    from model.names import list_first, readable

    suspects = [
        f"{rank}. {suspect.service} ({suspect.score:.0%})"
        + "".join(f"; {reason.text}" for reason in suspect.reasons[:3])
        for rank, suspect in enumerate(incident.suspects[:5], 1)
    ]
    page = f"{url.rstrip('/')}/#mesh={quote(mesh, safe='')}&incident={quote(incident.id, safe='')}"
    history = incident.seen_before
    notes = (
        what_to_do(incident),
        incident.trend,
        _course(incident),
        *suspects,
        incident.affected and f"affected: {readable(list_first(incident.affected, 20))}",
        *(change.text for change in incident.changes[:5]),
        history and history.text,
        *(remedy.words for remedy in (history.helped if history else [])),
        *(f"{action.at:%Y-%m-%d %H:%M} UTC  {action.words}" for action in incident.actions),
        page,
    )
    facts = _facts(incident, f"mesh {mesh}")
    print_incident(Console(highlight=False), incident, facts, *(note for note in notes if note))


def _facts(incident: "ArchivedIncidentDocument", more: str) -> list[str]:
    kind = incident.kind.replace("_", " ")
    return [f"{incident.since:%Y-%m-%d %H:%M} UTC", incident.severity, kind, *([more] if more else [])]


def _course(incident: "ArchivedIncidentDocument") -> str:
    """Return the duration, the time of the alert, people's feedback, and who is on it."""
    from serve_app.web.report.sentences import span

    alert = f"alert after {span(incident.opened_at - incident.since)}" if incident.opened_at else ""
    if incident.replayed:
        alert = "replayed, no notification was sent"
    feedback = incident.feedback.text if incident.feedback else ""
    kinds = ("accept",) if incident.lasted else ("accept", "acknowledge")
    heads = dict.fromkeys(action.head for action in incident.actions if action.kind in kinds)
    duration = f"lasted {incident.lasted}" if incident.lasted else "open"
    return "; ".join(filter(None, (duration, alert, feedback, *heads)))
