"""The report: one page without scripts and without anything from elsewhere, to be read, sent, printed."""

import importlib.metadata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import escape

from serve_app.web.html import document, figure, key
from serve_app.web.moments import Moment
from serve_app.web.report.case import ReportedIncident, find
from serve_app.web.report.graph import SHADES, graph
from serve_app.web.report.style import STYLE
from serve_app.web.report.suspects import arrows, suspects
from serve_app.web.report.timeline import timeline


def report(
    mesh: str, moments: Sequence[Moment], incident: str | None = None, *, made_at: datetime | None = None
) -> str:
    """An incident as one file of HTML.

    Suspects are told as of the moment of the incident's highest score.

    Args:
        mesh: its name.
        moments: around the incident, oldest first.
        incident: its id; None: the worst of those that were open last.
        made_at: when the report was made; None: now.

    Raises:
        UnknownIncident: no moment has one, or this one.
    """
    case = find(mesh, moments, incident)
    body = (
        f"{_head(case)}<h2>How it spread</h2>{figure(graph(case), _of_graph())}"
        f"<h2>Since when</h2>{figure(timeline(case), _OF_TIMELINE)}"
        f"<h2>Who may have begun it, and why</h2>{_as_of(case)}{suspects(case)}"
        f"<h2>Who says so</h2>{_judge(case, made_at or datetime.now(UTC))}"
    )
    return document(f"{case.first or 'Incident'} · {mesh} · {case.incident.since:%Y-%m-%d %H:%M} UTC", body, STYLE)


def _head(case: ReportedIncident) -> str:
    """What a tired person reads first."""
    incident = case.incident
    why = incident.suspects[0].reasons[0].text if incident.suspects and incident.suspects[0].reasons else ""
    until = f"over by {case.ended:%H:%M:%S}" if case.ended else "still open in the last snapshot"
    lasted = _span((case.ended or case.last) - incident.since)
    tiles = (
        ("since", f"{incident.since:%H:%M:%S}", f"{incident.since:%Y-%m-%d}, UTC"),
        ("lasted" if case.ended else "lasts", lasted, until),
        ("affected", f"{len(incident.affected)}", "service" if len(incident.affected) == 1 else "services"),
        ("probability", f"{case.worst.verdict.probability:.0%}", "of an incident, at its worst"),
    )
    cells = "".join(f"<div><dt>{a}</dt><dd>{escape(b)}<small>{escape(c)}</small></dd></div>" for a, b, c in tiles)
    return (
        f'<header class="{escape(incident.severity)}"><p class="kicker"><strong>{escape(incident.severity)}</strong> '
        f"incident of mesh {escape(case.mesh)}</p>"
        f'<h1>{escape(case.first or "No single suspect")}</h1><p class="why">{escape(arrows(why))}</p>'
        f"<p>{escape(_way(case))}</p><dl>{cells}</dl>{_planned(case)}</header>"
    )


def _way(case: ReportedIncident) -> str:
    """How far it went, in a sentence."""
    direct = [hop.caller for hop in case.hops if hop.distance == 1]
    if not direct:
        called = _called(case)
        return "Nobody affected calls it" + (f"; it calls {_some(called)}, who are." if called else ".")
    whom = "its caller" if len(direct) == 1 else "its callers"
    beyond = len(case.hops) - len(direct)
    return f"It reached {whom} {_some(direct)}" + (f", and through them {beyond} more." if beyond else ".")


def _called(case: ReportedIncident) -> list[str]:
    """Affected services that the first suspect calls."""
    names, affected = case.calling.node_ids, set(case.incident.affected)
    calls = case.calling.edge_index.T[[names[i] == case.first for i in case.calling.edge_index[0].tolist()]]
    return [names[i] for _, i in calls.tolist() if names[i] in affected and names[i] != case.first]


def _some(names: Sequence[str]) -> str:
    """The first three by name."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _planned(case: ReportedIncident) -> str:
    """Whether somebody planned it, and what Kubernetes told."""
    incident = case.incident
    changes = [change.text for change in incident.changes]
    told = [f'<p class="planned">Planned near it: {escape("; ".join(changes))}.</p>'] if changes else []
    if not changes:
        told.append('<p class="planned none">No planned change is known near it.</p>')
    if incident.events:
        told.append(f"<p>Kubernetes: {escape('; '.join(event.text for event in incident.events))}.</p>")
    return "".join(told)


def _as_of(case: ReportedIncident) -> str:
    at = case.worst.verdict.observed_at
    return (
        f'<p class="about">As of {at:%H:%M:%S} UTC, when the incident scored highest ({case.incident.score:.1f}).</p>'
    )


def _judge(case: ReportedIncident, made_at: datetime) -> str:
    """What has to be known to judge the judge."""
    verdict, first, last = case.worst.verdict, case.moments[0].verdict, case.moments[-1].verdict
    missing = ", ".join(map(str, verdict.missing_parts)) or "none"
    rows = (
        ("mesh", f"{case.mesh}, {case.worst.snapshot.num_nodes:,} services, {case.worst.snapshot.num_edges:,} calls"),
        ("incident", case.incident.id),
        (
            "seen",
            f"{len(case.moments)} snapshots, {first.observed_at:%Y-%m-%d %H:%M:%S} to "
            f"{last.observed_at:%Y-%m-%d %H:%M:%S} UTC; snapshot {verdict.sequence} of the mesh is told here",
        ),
        ("coverage", f"{verdict.coverage:.0%} of the services were scored; missing parts: {missing}"),
        ("model", verdict.model),
        ("made", f"{made_at:%Y-%m-%d %H:%M:%S} UTC by tagae {importlib.metadata.version('tagae')}"),
    )
    return f'<dl class="judge">{"".join(f"<dt>{a}</dt><dd>{escape(b)}</dd>" for a, b in rows)}</dl>'


def _span(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    minutes = seconds // 60
    if seconds < 120:
        return f"{seconds} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def _of_graph() -> str:
    """How to read the graph."""
    shades = "".join(key(f"s{i}") for i in range(len(SHADES) + 1))
    return (
        f"The large ringed service is the first suspect; dashed, it is gone. {shades} services and calls from usual to "
        f"very strange, {key('s-')} not scored. {key('hop')} how it spread: from the called to the calling, numbered "
        "by distance. Small services are neighbours and no part of it; discs are namespaces."
    )


_OF_TIMELINE = (
    f"{key('line')} how improbable the strangest thing in the mesh was, in decades, {key('dashed')} its threshold, "
    f"{key('incident')} the incident, {key('flag')} planned changes near it, {key('tick')} other ones."
)
