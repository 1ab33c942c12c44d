"""A detector's verdicts aligned with a recording's snapshots, and its alerts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from lab.evaluation.measures.located import AlertRecord
from lab.evaluation.measures.truth import TICK, Flags, Floats, GroundTruth, Window, microseconds
from model.verdict import Incident, Severity, Status, Verdict

NEAREST = timedelta(seconds=30)  # largest distance between a verdict and its snapshot, besides half a step
LARGEST = 1e300  # stands for an infinite score
MISSING = "missing"
MERGE_GAP = 2  # quiet snapshots that still belong to the same alarm event
MAX_SUSPECTS = 5  # in an alert by a detector that opens no incidents


@dataclass(frozen=True, slots=True)
class Followed:
    """An incident over several snapshots: its first time, and its state at the highest score."""

    begin: datetime
    strongest: Incident

    @property
    def record(self) -> AlertRecord:
        """The incident as a person receives it."""
        suspects = tuple(suspect.service for suspect in self.strongest.suspects)
        return AlertRecord(self.strongest.id, self.begin, suspects, frozenset(self.strongest.affected))


@dataclass(frozen=True, slots=True)
class VerdictSeries:
    """A detector's verdicts on a recording's snapshots; all ``[T]``.

    Attributes:
        status: one of :class:`~model.verdict.Status`, or ``missing``.
        score: the mesh score; the lowest of all if there is none.
        probability: NaN if there is none.
        suspects: names and scores, best first.
        pages: the alerts, one per incident.
        notices: incidents while they raised no alert.
        unplaced: number of verdicts that belong to no snapshot.
    """

    status: tuple[str, ...]
    score: Floats
    probability: Floats
    suspects: tuple[tuple[tuple[str, float], ...], ...]
    pages: tuple[AlertRecord, ...]
    notices: tuple[AlertRecord, ...]
    unplaced: int

    @property
    def alarm(self) -> Flags:
        """Whether the status is anomalous."""
        return np.array([status == Status.ANOMALOUS for status in self.status], np.bool_)

    @property
    def on_duty(self) -> Flags:
        """Whether the detector gave a verdict, neither missing nor warming up."""
        return np.array([status not in (Status.WARMING_UP, MISSING) for status in self.status], np.bool_)

    def suspects_in(self, window: Window) -> tuple[str, ...]:
        """Return the suspects at the incident's snapshot with the highest score, best first, whatever its status."""
        at = window.inside if len(window.inside) else window.wide
        return tuple(name for name, _ in self.suspects[at[np.argmax(self.score[at])]]) if len(at) else ()


def align_verdicts(verdicts: Iterable[Verdict], truth: GroundTruth) -> VerdictSeries:
    """Match each snapshot with the nearest verdict; of several at the same time, the last.

    A snapshot without a verdict is ``missing``: lowest score, no alarm.
    """
    by_time = {microseconds(verdict.observed_at): verdict for verdict in verdicts}
    times = np.array(sorted(by_time), np.int64)
    matches: list[Verdict | None] = [None] * len(truth.times)
    if len(times):
        right = np.searchsorted(times, truth.times)
        left, right = np.maximum(right - 1, 0), np.minimum(right, len(times) - 1)
        before, after = np.abs(truth.times - times[left]), np.abs(times[right] - truth.times)
        nearest = times[np.where(before < after, left, right)]
        fits = np.minimum(before, after) <= min(truth.step / 2, NEAREST) / TICK
        matches = [by_time[int(time)] if fit else None for time, fit in zip(nearest, fits, strict=True)]
    pairs = [(truth.instant(i), verdict) for i, verdict in enumerate(matches) if verdict is not None]
    return VerdictSeries(
        status=tuple(MISSING if v is None else v.status.value for v in matches),
        score=_finite(np.array([np.nan if v is None else v.mesh_score for v in matches], np.float64)),
        probability=np.array([np.nan if v is None else v.probability for v in matches], np.float64),
        suspects=tuple(() if v is None else tuple((s.service, s.score) for s in v.suspects) for v in matches),
        pages=alert_records(pairs),
        notices=_records([(time, verdict.notices) for time, verdict in pairs]),
        unplaced=len(by_time) - len({microseconds(verdict.observed_at) for _, verdict in pairs}),
    )


def alert_records(verdicts: Sequence[tuple[datetime, Verdict]]) -> tuple[AlertRecord, ...]:
    """Return one alert for each incident id, without notices.

    It begins at the first snapshot in which the incident raises an alert, which can be later than ``since``: evidence
    before the alert helped no one. It names the suspects at the incident's highest score. A detector that opens no
    incidents raises one alert per alarm event, with its first suspects. Each verdict has the time of its snapshot.
    """
    alerts = _alerts([verdict for _, verdict in verdicts])
    return _records([(time, incidents) for (time, _), incidents in zip(verdicts, alerts, strict=True)])


def follow(followed: dict[str, Followed], time: datetime, incidents: Iterable[Incident]) -> None:
    """Add the incidents of one more snapshot, in place, by id."""
    for incident in incidents:
        before = followed.get(incident.id)
        if before is None or incident.score > before.strongest.score:
            followed[incident.id] = Followed(before.begin if before else time, incident)


def _records(incidents: Iterable[tuple[datetime, tuple[Incident, ...]]]) -> tuple[AlertRecord, ...]:
    """Return one record for each id, from the incidents of each snapshot."""
    followed: dict[str, Followed] = {}
    for time, snapshot_incidents in incidents:
        follow(followed, time, snapshot_incidents)
    return tuple(incident.record for incident in followed.values())


def _alerts(verdicts: Sequence[Verdict]) -> list[tuple[Incident, ...]]:
    if any(verdict.incidents for verdict in verdicts):
        return [verdict.alerts for verdict in verdicts]
    alerts: list[tuple[Incident, ...]] = []
    event, quiet = 0, MERGE_GAP + 1
    for verdict in verdicts:
        if verdict.status is not Status.ANOMALOUS:
            quiet += 1
            alerts.append(())
            continue
        event, quiet = event + (quiet > MERGE_GAP), 0
        first = verdict.suspects[:MAX_SUSPECTS]
        alerts.append(
            (
                Incident(
                    id=f"{event}",
                    since=verdict.observed_at,
                    severity=Severity.MINOR,
                    score=verdict.mesh_score,
                    suspects=first,
                    affected=(),
                ),
            )
        )
    return alerts


def _finite(score: Floats) -> Floats:
    finite = score[np.isfinite(score)]
    lowest = float(finite.min()) if len(finite) else 0.0
    return np.where(np.isfinite(score), score, np.where(score == np.inf, LARGEST, lowest))
