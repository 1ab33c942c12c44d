"""The report as HTML, one page without scripts that needs no other file, and as Markdown to edit for a post-mortem."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from model.names import readable
from serve_app.alerts.annotations import first_service
from serve_app.alerts.links import Links, incident_subject
from serve_app.api.number_text import anomaly_text, score_text
from serve_app.api.schemas.actions import KeptActionDocument
from serve_app.api.schemas.incidents import ArchivedIncidentDocument
from serve_app.stores.scored_snapshot import ScoredSnapshot
from serve_app.web.formats import ReportFormat
from serve_app.web.report import sentences
from serve_app.web.report.case import ReportedIncident, find_all
from serve_app.web.report.event_log import event_log
from serve_app.web.report.graph import graph
from serve_app.web.report.picture import TEMPLATES, incident_picture
from serve_app.web.report.timeline import timeline

LINK_NAMES = {
    "page_url": "Page",
    "dashboard_url": "Dashboard",
    "traces_url": "Traces",
    "logs_url": "Logs",
    "runbook_url": "Runbook",
    "verdict_url": "Verdict",
}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~&$@])")


def report(
    mesh: str,
    moments: Sequence[ScoredSnapshot],
    incident: str | None = None,
    form: ReportFormat = ReportFormat.HTML,
    *,
    archived: Mapping[str, ArchivedIncidentDocument] | None = None,
    links: Links | None = None,
    made_at: datetime | None = None,
    zone: tzinfo = UTC,
) -> str:
    """Return the report on an incident, with the suspects at its highest score.

    Args:
        moments: snapshots around the incident, oldest first.
        incident: its id; None: all that were open last, the worst first.
        form: HTML; the same facts as Markdown (CommonMark with tables), to edit; or the picture as SVG.
        archived: incidents by id, with people's actions and feedback and with similar earlier incidents; None: the
            report has no such facts.
        links: to the page and to other tools.
        made_at: time of the report; None: now.
        zone: of times. Reasons in words stay in UTC, and say so.

    Raises:
        UnknownIncident: no snapshot has it.
    """
    if form is ReportFormat.SVG:
        return incident_picture(mesh, moments, incident, zone)
    cases, archive = find_all(mesh, moments, incident, zone), archived or {}
    chapters = [
        {
            "case": case,
            "archived": archive.get(case.incident.id) or ArchivedIncidentDocument.from_object(case.incident),
            "links": _named_links(case, links) if links else [],
        }
        for case in cases
    ]
    first = cases[0]
    subject = first.incident.first_suspect or "Incident" if len(cases) == 1 else f"{len(cases)} incidents"
    title = f"{subject} · {mesh} · {first.local(first.incident.since):%Y-%m-%d %H:%M %Z}"
    template = _MARKDOWN if form is ReportFormat.MARKDOWN else _HTML
    return template.render(mesh=mesh, title=title, cases=cases, chapters=chapters, made_at=made_at or datetime.now(UTC))


def _named_links(case: ReportedIncident, links: Links) -> list[tuple[str, str]]:
    """Return the names and URLs of an incident's links, each URL once."""
    incident = case.incident
    service = first_service(incident)
    urls = links.urls(incident_subject(case.mesh, incident.id, service, incident.kind, incident.since, case.last))
    names: dict[str, str] = {}
    for key, url in urls.items():
        names.setdefault(url, LINK_NAMES[key])
    return [(name, url) for url, name in names.items()]


def _event_rows(case: ReportedIncident, actions: Sequence[KeptActionDocument]) -> list[tuple[str, str]]:
    return [(f"{case.local(step.at):%Y-%m-%d %H:%M:%S}", step.text) for step in event_log(case, actions)]


def _template(name: str, write: Callable[[str], str]) -> Template:
    """Return a template that converts its values to the format with ``write``, unless they are markup already."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=name.endswith(".html"),
        finalize=lambda value: value if not isinstance(value, str) or isinstance(value, Markup) else write(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        anomaly_text=anomaly_text, event_rows=_event_rows, graph=graph, score_text=score_text,
        sentences=sentences, timeline=timeline,
    )  # fmt: skip
    environment.filters.update(arrows=sentences.arrows, address=_address)
    return environment.get_template(name)


def _plain(text: str) -> str:
    """Escape a text, so that other systems' names and notes cannot become markup. It stays on one line, and has
    original names instead of ids."""
    return _SPECIAL.sub(r"\\\1", " ".join(readable(text).split()))


def _address(url: str) -> Markup:
    """Escape characters that would end a link in angle brackets."""
    return Markup(url.replace("<", "%3C").replace(">", "%3E").replace(" ", "%20"))


_HTML, _MARKDOWN = _template("report.html", readable), _template("report.md", _plain)
