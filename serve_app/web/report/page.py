"""The report: one page without scripts that needs no other file."""

import importlib.metadata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import escape

from serve_app.api.headline import share_text
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.web.html import document, figure, key
from serve_app.web.moments import Moment
from serve_app.web.report.case import ReportedIncident, find
from serve_app.web.report.graph import SHADES, graph
from serve_app.web.report.style import STYLE
from serve_app.web.report.suspects import suspects
from serve_app.web.report.timeline import timeline


def report(
    mesh: str, moments: Sequence[Moment], incident: str | None = None, *, made_at: datetime | None = None
) -> str:
    """Return the report on an incident as HTML, with the suspects at its highest score.

    Args:
        mesh: its name.
        moments: snapshots around the incident, oldest first.
        incident: its id; None: the worst of those that were open last.
        made_at: time of the report; None: now.

    Raises:
        UnknownIncident: no snapshot has it.
    """
    case = find(mesh, moments, incident)
    body = (
        f"{_head(case)}<h2>Spread</h2>{figure(graph(case), _graph_caption())}"
        f"<h2>Timeline</h2>{figure(timeline(case), _TIMELINE_CAPTION)}"
        f"<h2>Likely causes</h2>{_as_of(case)}{suspects(case)}"
        f"<h2>About this report</h2>{_about(case, made_at or datetime.now(UTC))}"
    )
    return document(f"{case.first or 'Incident'} · {mesh} · {case.incident.since:%Y-%m-%d %H:%M} UTC", body, STYLE)


def _head(case: ReportedIncident) -> str:
    """The summary at the top."""
    incident = case.incident
    still_open = "recovering in the last snapshot" if case.recovering else "still open in the last snapshot"
    until = f"ended by {case.ended:%H:%M:%S}" if case.ended else still_open
    duration = _span((case.ended or case.last) - incident.since)
    tiles = (
        ("since", f"{incident.since:%H:%M:%S}", f"{incident.since:%Y-%m-%d}, UTC"),
        ("duration", duration, until),
        ("affected", f"{len(incident.affected)}", _affected(incident)),
        ("probability", f"{case.worst.verdict.probability:.0%}", "of an incident, at the highest score"),
    )
    cells = "".join(f"<div><dt>{a}</dt><dd>{escape(b)}<small>{escape(c)}</small></dd></div>" for a, b, c in tiles)
    return (
        f'<header class="{escape(incident.severity)}"><p class="kicker"><strong>{escape(incident.severity)}</strong> '
        f"{'in' if incident.is_notice else 'incident of'} mesh {escape(case.mesh)}</p>"
        f"<h1>{escape(incident.headline or case.first or 'No single suspect')}</h1>"
        f"<p>{escape(_spread(case))}</p><dl>{cells}</dl>{_planned(case)}</header>"
    )


def _affected(incident: IncidentDocument) -> str:
    """What the number of affected services counts, with the share of front-door requests."""
    services = "service" if len(incident.affected) == 1 else "services"
    share = incident.impact.front_door_share if incident.impact else None
    return services if share is None else f"{services}, {share_text(share)} of front-door requests"


def _spread(case: ReportedIncident) -> str:
    """How far the incident spread, in a sentence."""
    direct = [hop.caller for hop in case.hops if hop.distance == 1]
    if not direct:
        callees = _affected_callees(case)
        return "No affected service calls it" + (
            f"; it calls {_some(callees)}, which are affected." if callees else "."
        )
    callers = "its caller" if len(direct) == 1 else "its callers"
    beyond = len(case.hops) - len(direct)
    return f"It spread to {callers} {_some(direct)}" + (f", and through them to {beyond} more." if beyond else ".")


def _affected_callees(case: ReportedIncident) -> list[str]:
    """Affected services that the first suspect calls."""
    names, affected = case.calling.node_ids, set(case.incident.affected)
    calls = case.calling.edge_index.T[[names[i] == case.first for i in case.calling.edge_index[0].tolist()]]
    return [names[i] for _, i in calls.tolist() if names[i] in affected and names[i] != case.first]


def _some(names: Sequence[str]) -> str:
    """The first three names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _planned(case: ReportedIncident) -> str:
    """Planned changes and Kubernetes Events near the incident."""
    incident = case.incident
    changes = [change.text for change in incident.changes]
    parts = [f'<p class="planned">Planned changes: {escape("; ".join(changes))}.</p>'] if changes else []
    if not changes:
        parts.append('<p class="planned none">No deploys or changes around then.</p>')
    if incident.events:
        parts.append(f"<p>Kubernetes: {escape('; '.join(event.text for event in incident.events))}.</p>")
    return "".join(parts)


def _as_of(case: ReportedIncident) -> str:
    at = case.worst.verdict.observed_at
    return f'<p class="about">At {at:%H:%M:%S} UTC, when the score was highest ({case.incident.score:.1f}).</p>'


def _about(case: ReportedIncident, made_at: datetime) -> str:
    """The data and the model behind the report."""
    verdict, first, last = case.worst.verdict, case.moments[0].verdict, case.moments[-1].verdict
    missing = ", ".join(map(str, verdict.missing_parts)) or "none"
    rows = (
        ("mesh", f"{case.mesh}, {case.worst.snapshot.num_nodes:,} services, {case.worst.snapshot.num_edges:,} calls"),
        ("incident", case.incident.id),
        (
            "data",
            f"{len(case.moments)} snapshots, {first.observed_at:%Y-%m-%d %H:%M:%S} to "
            f"{last.observed_at:%Y-%m-%d %H:%M:%S} UTC; this report shows snapshot {verdict.sequence}",
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


def _graph_caption() -> str:
    """The caption of the graph."""
    shades = "".join(key(f"s{i}") for i in range(len(SHADES) + 1))
    return (
        f"The large ringed service is the first suspect; a dashed ring means that it disappeared. {shades} services "
        f"and calls from normal to very unusual, {key('s-')} not scored. {key('hop')} spread from callee to caller, "
        "numbered by distance. Small services are unaffected neighbours; discs are namespaces."
    )


_TIMELINE_CAPTION = (
    f"{key('line')} anomaly score of the mesh (log10), {key('dashed')} threshold, {key('incident')} the incident, "
    f"{key('flag')} planned changes near it, {key('tick')} other changes."
)
