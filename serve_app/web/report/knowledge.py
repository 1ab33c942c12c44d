"""What TAGAE knew when: state, score and first suspect of an incident over time."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from serve_app.api.number_text import anomaly_text, score_text
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.web.report.case import ReportedIncident

MAX_ROWS = 60  # of the table; of a longer incident, the first and the last


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What was known from one snapshot on, until the next one.

    Attributes:
        at: time of the snapshot.
        state: the severity, ``recovering``, or ``unknown`` if the first suspect sends no telemetry.
        suspect: the first one; empty if there is none.
        suspicion: its score, 0 to 1.
        score: of the incident, in decades.
        affected: number of services.
        zone: in which the time is written.
    """

    at: datetime
    state: str
    suspect: str
    suspicion: float
    score: float
    affected: int
    zone: tzinfo = UTC

    @property
    def time(self) -> str:
        """The time of the snapshot in the zone of the report."""
        return f"{self.at.astimezone(self.zone):%H:%M:%S}"

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of a table, see :func:`head`."""
        suspect = f"{self.suspect} ({score_text(self.suspicion)})" if self.suspect else "none"
        return self.time, self.state, suspect, anomaly_text(self.score), f"{self.affected:,}"


def head(case: ReportedIncident) -> tuple[str, ...]:
    """Return the names of the columns of :attr:`Knowledge.row`."""
    return f"time ({case.local(case.last):%Z})", "state", "first suspect", "score", "affected"


def all_knowledge(case: ReportedIncident) -> list[Knowledge]:
    """Return what was known in each kept snapshot with the incident, oldest first."""
    return [
        replace(_known(moment.verdict.observed_at, one), zone=case.zone)
        for moment in case.moments
        for one in moment.verdict.incidents
        if one.id == case.incident.id
    ]


def news(case: ReportedIncident) -> list[Knowledge]:
    """Return the snapshots in which the state or the first suspect changed, the one of the highest score, and the last
    one."""
    known = all_knowledge(case)
    top, last = case.worst.verdict.observed_at, known[-1].at
    found = [
        now
        for before, now in zip([None, *known], known, strict=False)
        if before is None or (before.state, before.suspect) != (now.state, now.suspect) or now.at in (top, last)
    ]
    half = MAX_ROWS // 2
    return found if len(found) <= MAX_ROWS else [*found[:half], *found[-half:]]


def _known(at: datetime, incident: IncidentDocument) -> Knowledge:
    first = incident.suspects[0] if incident.suspects else None
    state = "unknown" if incident.is_unseen else "recovering" if incident.recovering else incident.severity
    return Knowledge(
        at,
        state,
        first.service if first else "",
        first.score if first else 0.0,
        incident.score,
        len(incident.affected),
    )
