"""The incident of a report, found among the kept snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from model.snapshot import EdgeMetric
from model.verdict import Severity
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.errors import UnknownIncident
from serve_app.stores.scored_snapshot import ScoredSnapshot
from serve_app.web.graph.propagation import Hop, spread

MAX_INCIDENTS = 5  # of one report


@dataclass(frozen=True, slots=True, eq=False)
class ReportedIncident:
    """An incident with its snapshots.

    Attributes:
        moments: all kept snapshots, oldest first.
        worst: snapshot of the incident's highest score.
        incident: as of ``worst``.
        ended: time of the first snapshot without it; None: it is open in the last one.
        ended_unseen: whether it was closed because no data about it was received for too long.
        last: time of the last snapshot with it.
        newest: the incident as of ``last``.
        hops: its spread.
        zone: time zone of the report.
    """

    mesh: str
    moments: tuple[ScoredSnapshot, ...]
    worst: ScoredSnapshot
    incident: IncidentDocument
    ended: datetime | None
    ended_unseen: bool
    last: datetime
    newest: IncidentDocument
    hops: tuple[Hop, ...]
    zone: tzinfo = UTC

    def local(self, at: datetime) -> datetime:
        """Return a time in the report's zone; its ``%Z`` is the zone's name."""
        return at.astimezone(self.zone)


def rank(incident: IncidentDocument) -> tuple[int, float]:
    """Return a sort key; worse incidents are greater."""
    return Severity(incident.severity).rank, incident.score


def find(
    mesh: str, moments: Sequence[ScoredSnapshot], incident: str | None = None, zone: tzinfo = UTC
) -> ReportedIncident:
    """Find an incident by its id; without an id, the most urgent of those that were open last.

    Raises:
        UnknownIncident: no snapshot has it.
    """
    selected = incident or _last_open(mesh, moments)
    rows = [(i, row) for i, moment in enumerate(moments) for row in moment.verdict.incidents if row.id == selected]
    if not rows:
        ids = dict.fromkeys(row.id for moment in moments for row in moment.verdict.incidents)
        raise UnknownIncident(
            f"expected an incident of the {len(moments)} snapshots kept of mesh {mesh!r} "
            f"({', '.join(ids) or 'none'}), got {selected!r}"
        )
    worst, strongest = max(rows, key=lambda row: (not row[1].recovering, row[1].score))
    last, newest = rows[-1]
    following = moments[last + 1].verdict if last + 1 < len(moments) else None
    return ReportedIncident(
        mesh,
        tuple(moments),
        moments[worst],
        strongest,
        None if following is None else following.observed_at,
        following is not None and selected in following.lost,
        moments[last].verdict.observed_at,
        newest,
        _spread(moments[: worst + 1], strongest),
        zone,
    )


def find_all(
    mesh: str, moments: Sequence[ScoredSnapshot], incident: str | None = None, zone: tzinfo = UTC
) -> list[ReportedIncident]:
    """Find an incident by its id; without an id, all that were open last and raise an alert, the most urgent first, or
    the first notice.

    Raises:
        UnknownIncident: no snapshot has it.
    """
    first = find(mesh, moments, incident, zone)
    if incident is not None or first.incident.is_notice:
        return [first]
    last = next(moment.verdict for moment in reversed(moments) if moment.verdict.incidents)
    return [find(mesh, moments, alert.id, zone) for alert in last.alerts[:MAX_INCIDENTS]]


def _last_open(mesh: str, moments: Sequence[ScoredSnapshot]) -> str:
    for moment in reversed(moments):
        if moment.verdict.incidents:
            return moment.verdict.incidents[0].id
    raise UnknownIncident(
        f"expected an incident in the {len(moments)} snapshots kept of mesh {mesh!r}, got none; choose another "
        "recording or time"
    )


def _spread(moments: Sequence[ScoredSnapshot], incident: IncidentDocument) -> tuple[Hop, ...]:
    """Return an incident's spread, by the calls of the newest snapshot with its first suspect, which may be gone."""
    first, newest = incident.first_suspect, moments[-1].snapshot
    snapshot = next((moment.snapshot for moment in reversed(moments) if first in moment.snapshot.node_ids), newest)
    rates = snapshot.edge_features[:, EdgeMetric.REQUESTS_PER_SECOND]
    return spread(incident.began_at, set(incident.affected), snapshot.node_ids, snapshot.edge_index, rates)
