"""Sentences about an incident that the HTML and the Markdown report share, as plain text."""

import importlib.metadata
from collections.abc import Sequence
from datetime import datetime, timedelta

from model.names import list_first
from serve_app.api.number_text import share_text, span_text
from serve_app.api.schemas.verdict import IncidentDocument, SuspectDocument
from serve_app.api.subject import likely_suspects
from serve_app.web.report.case import ReportedIncident
from serve_app.web.report.event_log import reporting_delay


def title(case: ReportedIncident) -> str:
    """Return the headline; verdicts of earlier versions have none."""
    return case.incident.headline or case.incident.first_suspect or "No single suspect"


def next_step(case: ReportedIncident) -> tuple[str, str]:
    """Return a label and the next step; both empty in verdicts of earlier versions. Once the incident has ended, the
    step is the one that was right at its highest score."""
    step = case.incident.next_step
    return ("What to do" if case.ended is None else "Next step at its highest score", step) if step else ("", "")


def other_alerts(case: ReportedIncident, cases: Sequence[ReportedIncident]) -> list[tuple[IncidentDocument, str]]:
    """Return the alerts that were open at this incident's highest score and are not in the report, each with a
    sentence."""
    ids = {other.incident.id for other in cases}
    return [
        (alert, f"{alert.severity}, since {case.local(alert.since):%H:%M:%S %Z}: {alert.headline or alert.id}")
        for alert in case.worst.verdict.alerts
        if alert.id not in ids
    ]


def end_text(case: ReportedIncident) -> str:
    if case.ended_unseen:
        return f"closed, outcome unknown; last seen at {case.local(case.last):%H:%M:%S}"
    if case.ended:
        return f"ended by {case.local(case.ended):%H:%M:%S}"
    if case.newest.is_unseen:
        return "state unknown: no telemetry in the last snapshot"
    if case.newest.recovering:
        return "recovering in the last snapshot"
    course = f", {case.newest.trend}" if case.newest.trend else ""
    return f"still open in the last snapshot{course}"


def suspects_heading(case: ReportedIncident) -> str:
    """Return the heading above the suspects. A traffic incident's suspects are where the requests enter."""
    return "Entry points" if case.incident.scope else "Likely causes"


def duration(case: ReportedIncident) -> str:
    """Return how long the incident lasted, or has lasted; up to the last snapshot with it if its end was not seen."""
    if case.ended_unseen:
        return f"at least {span(case.last - case.incident.since)}"
    return span((case.ended or case.last) - case.incident.since)


def spread(case: ReportedIncident) -> str:
    """Return a sentence on how far the incident spread."""
    callers, callees = ([hop.far for hop in case.hops if hop.distance == 1 and hop.is_down == down] for down in (0, 1))
    direct = " and ".join(filter(None, (_name_role("caller", callers), _name_role("callee", callees))))
    if not direct:
        return "It has no affected callers or callees."
    beyond = len(case.hops) - len(callers) - len(callees)
    return f"It spread to {direct}" + (f", and through them to {beyond} more." if beyond else ".")


def highest_at(case: ReportedIncident) -> str:
    return f"{case.local(case.worst.verdict.observed_at):%H:%M:%S %Z}"


def summary(case: ReportedIncident) -> list[tuple[str, str]]:
    """Return the facts at the top of a report: names and values."""
    incident, delay = case.incident, reporting_delay(case)
    label, step = next_step(case)
    impact = incident.impact.text if incident.impact else f"{len(incident.affected)} services affected"
    return [
        ("severity", incident.severity),
        ("kind", incident.kind.replace("_", " ")),
        ("first suspect", case.incident.first_suspect or "none"),
        *([(label.lower(), step)] if step else []),
        *([("team", ", ".join(filter(None, (incident.team, incident.contact))))] if incident.team else []),
        ("since", f"{case.local(incident.since):%Y-%m-%d %H:%M:%S %Z}"),
        ("duration", f"{duration(case)}, {end_text(case)}"),
        *([] if delay is None else [("reported after", span(delay))]),
        ("impact", impact),
        *(("error budget", budget.text) for budget in case.newest.error_budgets),
        ("probability", f"{share_text(case.worst.verdict.probability)} at the highest score"),
    ]


def facts(case: ReportedIncident, made_at: datetime) -> list[tuple[str, str]]:
    """Return the data and the model behind the report: names and values."""
    verdict, first, last = case.worst.verdict, case.moments[0].verdict, case.moments[-1].verdict
    services, calls = case.worst.of_mesh or (case.worst.snapshot.num_nodes, case.worst.snapshot.num_edges)
    missing = ", ".join(map(str, verdict.missing_parts)) or "none"
    return [
        ("mesh", f"{case.mesh}, {services:,} services, {calls:,} calls"),
        ("incident", case.incident.id),
        (
            "data",
            f"{len(case.moments)} snapshots, {case.local(first.observed_at):%Y-%m-%d %H:%M:%S} to "
            f"{case.local(last.observed_at):%Y-%m-%d %H:%M:%S %Z}; this report shows snapshot {verdict.sequence}",
        ),
        ("coverage", f"{share_text(verdict.coverage)} of the services were scored; missing parts: {missing}"),
        ("model", verdict.model),
        ("made", f"{case.local(made_at):%Y-%m-%d %H:%M:%S %Z} by tagae {importlib.metadata.version('tagae')}"),
    ]


def span(time: timedelta) -> str:
    """Write a duration: 90 s, 12 min, 3 h 5 min."""
    return span_text(time.total_seconds())


def _name_role(role: str, services: Sequence[str]) -> str:
    """Return services with their role: ``its callers shop/web, shop/bff``; empty if there is none."""
    return f"its {role}{'' if len(services) == 1 else 's'} {list_first(services, 3)}" if services else ""


def listed_suspects(case: ReportedIncident) -> list[tuple[int, SuspectDocument]]:
    """Return the likely suspects, with their ranks."""
    likely = likely_suspects(case.incident.suspects)
    return [(place, suspect) for place, suspect in enumerate(case.incident.suspects, 1) if suspect.service in likely]


def other_suspects(case: ReportedIncident) -> list[str]:
    """Return the services of the unlikely suspects."""
    likely = likely_suspects(case.incident.suspects)
    return [suspect.service for suspect in case.incident.suspects if suspect.service not in likely]


def arrows(text: str) -> str:
    """Write the calls in a text with arrows, without a line break before the arrow."""
    return text.replace(" -> ", "\u00a0→ ")
