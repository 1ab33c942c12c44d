"""The links of a report: to the page of this service, and to other tools."""

from serve_app.alerts.links import Links, incident_subject
from serve_app.web.report.case import ReportedIncident

NAMES = {
    "page_url": "Page",
    "dashboard_url": "Dashboard",
    "traces_url": "Traces",
    "logs_url": "Logs",
    "runbook_url": "Runbook",
    "verdict_url": "Verdict",
}


def named_links(case: ReportedIncident, links: Links) -> list[tuple[str, str]]:
    """Return the names and URLs of an incident's links, each URL once."""
    incident = case.incident
    service = case.first or next(iter(incident.affected), "")
    urls = links.urls(incident_subject(case.mesh, incident.id, service, incident.kind, incident.since, case.last))
    names: dict[str, str] = {}
    for key, url in urls.items():
        names.setdefault(url, NAMES[key])
    return [(name, url) for url, name in names.items()]
