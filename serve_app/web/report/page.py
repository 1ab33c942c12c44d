"""The report: one page without scripts that needs no other file."""

import importlib.metadata
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from serve_app.alerts.links import Links
from serve_app.drawing.html import document, key, readable_html
from serve_app.web.report import sentences
from serve_app.web.report.case import ReportedIncident, find
from serve_app.web.report.graph import SHADES, graph, narrow_graph
from serve_app.web.report.links import named_links
from serve_app.web.report.style import STYLE
from serve_app.web.report.suspects import suspects
from serve_app.web.report.timeline import PHONE, timeline
from serve_app.web.scored_snapshot import ScoredSnapshot


def report(
    mesh: str,
    moments: Sequence[ScoredSnapshot],
    incident: str | None = None,
    *,
    seen_before: str = "",
    links: Links | None = None,
    made_at: datetime | None = None,
) -> str:
    """Return the report on an incident as HTML, with the suspects at its highest score.

    Args:
        mesh: its name.
        moments: snapshots around the incident, oldest first.
        incident: its id; None: the worst of those that were open last.
        seen_before: earlier incidents that resemble it, in words.
        links: to the page and to other tools; None: no links.
        made_at: time of the report; None: now.

    Raises:
        UnknownIncident: no snapshot has it.
    """
    case = find(mesh, moments, incident)
    body = (
        f"{_head(case, seen_before)}{_links(case, links)}"
        f"<h2>Spread</h2>{_figure(graph(case), narrow_graph(case), _graph_caption())}"
        f"<h2>Timeline</h2>{_figure(timeline(case), timeline(case, PHONE), _TIMELINE_CAPTION)}"
        f"<h2>{sentences.suspects_heading(case)}</h2>{_as_of(case)}{suspects(case)}{_affected_services(case)}"
        f"<h2>About this report</h2>{_about(case, made_at or datetime.now(UTC))}"
    )
    return document(f"{case.first or 'Incident'} · {mesh} · {case.incident.since:%Y-%m-%d %H:%M} UTC", body, STYLE)


def _head(case: ReportedIncident, seen_before: str) -> str:
    """The summary at the top."""
    incident = case.incident
    tiles = (
        ("since", f"{incident.since:%H:%M:%S}", f"{incident.since:%Y-%m-%d}, UTC"),
        ("duration", sentences.duration(case), sentences.end_text(case)),
        ("affected", f"{len(incident.affected)}", sentences.affected_caption(incident)),
        ("probability", f"{case.worst.verdict.probability:.0%}", "of an incident, at the highest score"),
    )
    cells = "".join(f"<div><dt>{a}</dt><dd>{escape(b)}<small>{escape(c)}</small></dd></div>" for a, b, c in tiles)
    return (
        f'<header class="{escape(incident.severity)}"><p class="kicker"><strong>{escape(incident.severity)}</strong> '
        f"{'in' if incident.is_notice else 'incident of'} mesh {escape(case.mesh)}</p>"
        f"<h1>{readable_html(incident.headline or case.first or 'No single suspect')}</h1>"
        f"<p>{readable_html(sentences.spread(case))}</p><dl>{cells}</dl>{_error_budgets(case)}"
        f"{_changes_and_events(case)}"
        f"{f'<p>{readable_html(seen_before)}.</p>' if seen_before else ''}</header>"
    )


def _links(case: ReportedIncident, links: Links | None) -> str:
    """The links in one line."""
    named = [] if links is None else named_links(case, links)
    anchors = [f'<a href="{escape(url)}" rel="noopener noreferrer">{readable_html(name)}</a>' for name, url in named]
    return f'<p class="links">{" · ".join(anchors)}</p>' if anchors else ""


def _error_budgets(case: ReportedIncident) -> str:
    """What the incident has used of the error budgets of front doors."""
    return "".join(f"<p>It {readable_html(one.text)}.</p>" for one in case.newest.error_budgets)


def _changes_and_events(case: ReportedIncident) -> str:
    """Planned changes and Kubernetes Events near the incident."""
    incident = case.incident
    changes = [change.text for change in incident.changes]
    parts = [f'<p class="planned">Planned changes: {readable_html("; ".join(changes))}.</p>'] if changes else []
    if not changes:
        parts.append('<p class="planned none">No deploys or changes around then.</p>')
    if incident.events:
        parts.append(f"<p>Kubernetes: {readable_html('; '.join(event.text for event in incident.events))}.</p>")
    return "".join(parts)


def _figure(wide: str, narrow: str, caption: str) -> str:
    """Return a picture in two forms: for paper and large screens, and for phones. The style shows one of them."""
    return (
        f'<figure><div class="large">{wide}</div><div class="small">{narrow}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _affected_services(case: ReportedIncident) -> str:
    """The names of the affected services, since the pictures show only those that fit."""
    names = "".join(f"<li>{readable_html(name)}</li>" for name in case.incident.affected)
    return f'<h2>Affected services</h2><ul class="affected">{names}</ul>' if names else ""


def _as_of(case: ReportedIncident) -> str:
    at = case.worst.verdict.observed_at
    return f'<p class="about">At {at:%H:%M:%S} UTC, when the score was highest ({case.incident.score:.1f}).</p>'


def _about(case: ReportedIncident, made_at: datetime) -> str:
    """The data and the model behind the report."""
    made = f"{made_at:%Y-%m-%d %H:%M:%S} UTC by tagae {importlib.metadata.version('tagae')}"
    rows = [*sentences.facts(case), ("made", made)]
    return f'<dl class="judge">{"".join(f"<dt>{a}</dt><dd>{readable_html(b)}</dd>" for a, b in rows)}</dl>'


def _graph_caption() -> str:
    """The caption of the graph."""
    shades = "".join(key(f"s{i}") for i in range(len(SHADES) + 1))
    return (
        f"The large ringed service is the first suspect; a dashed ring means that it disappeared. {shades} services "
        f"and calls from normal to very unusual, {key('s-')} not scored. {key('hop')} spread to callers and callees, "
        "numbered by distance. Small services are unaffected neighbours; discs are namespaces."
    )


_TIMELINE_CAPTION = (
    f"{key('line')} anomaly score of the mesh (log10), {key('dashed')} threshold, {key('incident')} the incident, "
    f"{key('flag')} planned changes near it, {key('tick')} other changes."
)
