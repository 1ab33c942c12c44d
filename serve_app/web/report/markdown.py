"""The report as Markdown, for a post-mortem: the same facts as the page, as text to edit."""

import importlib.metadata
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo

from model.names import readable
from serve_app.alerts.links import Links
from serve_app.api.number_text import score_text, share_text
from serve_app.api.schemas.actions import KeptFeedbackDocument
from serve_app.api.schemas.verdict import SuspectDocument
from serve_app.web.report import sentences
from serve_app.web.report.case import ReportedIncident, find_all
from serve_app.web.report.event_log import event_log, reporting_delay
from serve_app.web.report.knowledge import head, news
from serve_app.web.report.links import named_links
from serve_app.web.report.suspects import arrows, listed_suspects
from serve_app.web.scored_snapshot import ScoredSnapshot

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~&$@])")


def markdown_report(
    mesh: str,
    moments: Sequence[ScoredSnapshot],
    incident: str | None = None,
    *,
    seen_before: Mapping[str, str] | None = None,
    feedback: Sequence[KeptFeedbackDocument] = (),
    links: Links | None = None,
    made_at: datetime | None = None,
    zone: tzinfo = UTC,
) -> str:
    """Return the report on an incident as Markdown (CommonMark with tables).

    Args:
        mesh: its name.
        moments: snapshots around the incident, oldest first.
        incident: its id; None: all that were open last, the worst first.
        seen_before: earlier incidents that resemble one, in words, by its id.
        feedback: on the mesh; other incidents are ignored.
        links: to the page and to other tools; None: no links.
        made_at: time of the report; None: now.
        zone: in which times are written. Reasons in words stay in UTC, and say so.

    Raises:
        UnknownIncident: no snapshot has it.
    """
    made, seen = made_at or datetime.now(UTC), seen_before or {}
    cases = find_all(mesh, moments, incident, zone)
    chapters = [_chapter(case, cases, seen.get(case.incident.id, ""), feedback, links, made) for case in cases]
    return "\n\n---\n\n".join(chapters) + "\n"


def _chapter(
    case: ReportedIncident,
    cases: Sequence[ReportedIncident],
    seen_before: str,
    feedback: Sequence[KeptFeedbackDocument],
    links: Links | None,
    made_at: datetime,
) -> str:
    others = [text for _, text in sentences.others(case, cases)]
    parts = [
        f"# {_plain(sentences.title(case))}",
        _table(("", ""), _summary(case)),
        *([f"{_plain(seen_before)}."] if seen_before else []),
        *(["Also open then:", _list(others)] if others else []),
        f"## Timeline ({case.local(case.last):%Z})",
        _table(
            ("time", "what happened"),
            ((f"{case.local(step.at):%Y-%m-%d %H:%M:%S}", step.text) for step in event_log(case)),
        ),
        "## What was known when",
        _table(head(case), (one.row for one in news(case))),
        f"## {sentences.suspects_heading(case)}",
        f"At {case.local(case.worst.verdict.observed_at):%H:%M:%S %Z}, when the score was highest.",
        *(_suspect(place, one) for place, one in listed_suspects(case)),
        "## Affected services",
        _plain(sentences.spread(case)),
        _list(case.incident.affected),
        "## Changes and events nearby",
        _list([f"▲ {one.text}" for one in case.incident.changes] + [one.text for one in case.incident.events])
        or "No deploys, changes or Kubernetes events of these services.",
        "## Feedback",
        _feedback(case, feedback),
        *(_links(named_links(case, links)) if links else []),
        "## About this report",
        _table(("", ""), [*sentences.facts(case), ("made", _maker(case.local(made_at)))]),
    ]
    return "\n\n".join(parts)


def _summary(case: ReportedIncident) -> list[tuple[str, str]]:
    incident, seconds = case.incident, reporting_delay(case)
    label, step = sentences.what_to_do(case)
    impact = incident.impact.text if incident.impact else f"{len(incident.affected)} services affected"
    return [
        ("severity", incident.severity),
        ("kind", incident.kind.replace("_", " ")),
        ("first suspect", case.first or "none"),
        *([(label.lower(), step)] if step else []),
        *([("team", ", ".join(filter(None, (incident.team, incident.contact))))] if incident.team else []),
        ("since", f"{case.local(incident.since):%Y-%m-%d %H:%M:%S %Z}"),
        ("duration", f"{sentences.duration(case)}, {sentences.end_text(case)}"),
        *([] if seconds is None else [("reported after", sentences.span(seconds))]),
        ("impact", impact),
        *(("error budget", one.text) for one in case.newest.error_budgets),
        ("probability", f"{share_text(case.worst.verdict.probability)} at the highest score"),
    ]


def _suspect(place: int, suspect: SuspectDocument) -> str:
    reasons = [reason.text for reason in (*suspect.reasons, *suspect.context)]
    lines = [f"{place}. **{_plain(suspect.service)}**, score {score_text(suspect.score)}"]
    return "\n".join([*lines, *(f"   - {_plain(arrows(reason))}" for reason in reasons)])


def _feedback(case: ReportedIncident, given: Sequence[KeptFeedbackDocument]) -> str:
    found = next((one for one in given if one.incident == case.incident.id), None)
    if found is None:
        return "None was given."
    verdict = "Confirmed as an incident." if found.was_incident else "Marked as a false alarm."
    culprit = f" Culprit: {found.culprit}." if found.culprit else ""
    note = f" Note: {found.note}" if found.note else ""
    return _plain(verdict + culprit + note)


def _links(named: Sequence[tuple[str, str]]) -> list[str]:
    lines = [f"- {name}: <{_address(url)}>" for name, url in named]
    return ["## Links", "\n".join(lines)] if lines else []


def _maker(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S %Z} by tagae {importlib.metadata.version('tagae')}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list(texts: Sequence[str]) -> str:
    return "\n".join(f"- {_plain(text)}" for text in texts)


def _plain(text: str) -> str:
    """Escape a text, so that names and notes of other systems cannot become markup. It stays on one line, and has
    original names instead of ids."""
    return _SPECIAL.sub(r"\\\1", " ".join(readable(text).split()))


def _address(url: str) -> str:
    """Escape what would end a link in angle brackets."""
    return url.replace("<", "%3C").replace(">", "%3E").replace(" ", "%20")
