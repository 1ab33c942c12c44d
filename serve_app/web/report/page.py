"""The report: one page without scripts that needs no other file."""

import importlib.metadata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from html import escape

from serve_app.alerts.links import Links
from serve_app.api.number_text import anomaly_text, share_text
from serve_app.drawing.html import document, key, readable_html
from serve_app.drawing.severity import severity_icon
from serve_app.web.report import sentences
from serve_app.web.report.case import ReportedIncident, find_all
from serve_app.web.report.graph import SHADES, graph, narrow_graph
from serve_app.web.report.knowledge import head, knowledge_picture, news
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
    seen_before: Mapping[str, str] | None = None,
    links: Links | None = None,
    made_at: datetime | None = None,
    zone: tzinfo = UTC,
) -> str:
    """Return the report on an incident as HTML, with the suspects at its highest score.

    Args:
        mesh: its name.
        moments: snapshots around the incident, oldest first.
        incident: its id; None: all that were open last, the worst first.
        seen_before: earlier incidents that resemble one, in words, by its id.
        links: to the page and to other tools; None: no links.
        made_at: time of the report; None: now.
        zone: in which times are written. Reasons in words stay in UTC, and say so.

    Raises:
        UnknownIncident: no snapshot has it.
    """
    cases = find_all(mesh, moments, incident, zone)
    made, seen = made_at or datetime.now(UTC), seen_before or {}
    chapters = []
    for case in cases:
        text = _chapter(case, cases, seen.get(case.incident.id, ""), links, made)
        chapters.append(f'<article id="{escape(case.incident.id)}">{text}</article>')
    first = cases[0]
    what = first.first or "Incident" if len(cases) == 1 else f"{len(cases)} incidents"
    title = f"{what} · {mesh} · {first.local(first.incident.since):%Y-%m-%d %H:%M %Z}"
    return document(title, _together(cases) + "".join(chapters), STYLE)


def _together(cases: Sequence[ReportedIncident]) -> str:
    """The incidents of the report, with a link to each; empty if there is one."""
    if len(cases) == 1:
        return ""
    lines = "".join(
        f"<li>{severity_icon(case.incident.severity)} {escape(case.incident.severity)}: "
        f'<a href="#{escape(case.incident.id)}">{readable_html(sentences.title(case))}</a></li>'
        for case in cases
    )
    together = f"{len(cases)} incidents of mesh {escape(cases[0].mesh)} are open at the same time"
    return f'<nav class="together" aria-label="Incidents"><p><strong>{together}</strong></p><ol>{lines}</ol></nav>'


def _chapter(
    case: ReportedIncident, cases: Sequence[ReportedIncident], seen_before: str, links: Links | None, made_at: datetime
) -> str:
    return (
        f"{_head(case, seen_before)}{_others(case, cases)}{_links(case, links)}"
        f"<h2>Spread</h2>{_figure(graph(case), narrow_graph(case), _graph_caption())}"
        f"<h2>Timeline</h2>{_figure(timeline(case), timeline(case, PHONE), _TIMELINE_CAPTION)}"
        f"<h2>What was known when</h2>"
        f"{_figure(knowledge_picture(case), knowledge_picture(case, PHONE), _KNOWLEDGE_CAPTION)}{_knowledge(case)}"
        f"<h2>{sentences.suspects_heading(case)}</h2>{_as_of(case)}{suspects(case)}{_affected_services(case)}"
        f"<h2>About this report</h2>{_about(case, made_at)}"
    )


def _head(case: ReportedIncident, seen_before: str) -> str:
    """The summary at the top."""
    incident, since = case.incident, case.local(case.incident.since)
    tiles = [
        ("since", f"{since:%H:%M:%S}", f"{since:%Y-%m-%d, %Z}"),
        ("duration", sentences.duration(case), sentences.end_text(case)),
        ("affected", f"{len(incident.affected)}", sentences.affected_caption(incident)),
        ("probability", share_text(case.worst.verdict.probability), "of an incident, at the highest score"),
    ]
    if incident.team or incident.contact:
        tiles.append(("team", incident.team or incident.contact, incident.contact if incident.team else ""))
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{readable_html(value)}<small>{readable_html(more)}</small></dd></div>"
        for name, value, more in tiles
    )
    return (
        f'<header class="{escape(incident.severity)}">{severity_icon(incident.severity, 36)}'
        f'<p class="kicker"><strong>{escape(incident.severity)}</strong> '
        f"{'in' if incident.is_notice else 'incident of'} mesh {escape(case.mesh)}</p>"
        f"<h1>{readable_html(sentences.title(case))}</h1>"
        f"{_what_to_do(case)}<p>{readable_html(sentences.spread(case))}</p><dl>{cells}</dl>{_error_budgets(case)}"
        f"{_changes_and_events(case)}"
        f"{f'<p>{readable_html(seen_before)}.</p>' if seen_before else ''}</header>"
    )


def _what_to_do(case: ReportedIncident) -> str:
    """The next step."""
    label, step = sentences.what_to_do(case)
    return f"<p><strong>{label}:</strong> {readable_html(step)}</p>" if step else ""


def _others(case: ReportedIncident, cases: Sequence[ReportedIncident]) -> str:
    """The other incidents that were open at the highest score of this one."""
    lines = "".join(
        f"<li>{severity_icon(one.severity)} {readable_html(text)}</li>" for one, text in sentences.others(case, cases)
    )
    return f'<div class="together"><p>Also open then:</p><ol>{lines}</ol></div>' if lines else ""


def _knowledge(case: ReportedIncident) -> str:
    """What was known when, as a table."""
    names = "".join(f'<th scope="col">{name}</th>' for name in head(case))
    rows = "".join(
        "<tr>" + "".join(f"<td>{readable_html(cell)}</td>" for cell in one.row) + "</tr>" for one in news(case)
    )
    return f'<div class="wide"><table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table></div>'


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
        parts.append('<p class="planned none">No deploys or changes of these services.</p>')
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
    at = case.local(case.worst.verdict.observed_at)
    return (
        f'<p class="about">At {at:%H:%M:%S %Z}, when the score was highest ({anomaly_text(case.incident.score)}).</p>'
    )


def _about(case: ReportedIncident, made_at: datetime) -> str:
    """The data and the model behind the report."""
    made = f"{case.local(made_at):%Y-%m-%d %H:%M:%S %Z} by tagae {importlib.metadata.version('tagae')}"
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


_KNOWLEDGE_CAPTION = (
    "Above: the severity, or whether it was recovering. In the middle: the first suspect. Below: the anomaly score of "
    "the incident (log10), with a dot at the highest. The table has the snapshots that changed something."
)
_TIMELINE_CAPTION = (
    f"{key('line')} anomaly score of the mesh (log10), {key('dashed')} threshold, {key('incident')} the incident, "
    f"{key('flag')} planned changes near it, {key('tick')} other changes."
)
