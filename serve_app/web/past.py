"""The page's queries about a mesh's past: any period, and any moment. They only read."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from model.snapshot import MeshSnapshot
from model.state.mesh_state import MeshState
from model.verdict import Status
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.api.views import Deviations
from serve_app.errors import InvalidParameter, UnknownInstant
from serve_app.stores.archive import unpack_document
from serve_app.stores.history import mesh_row
from serve_app.stores.history_files import MINUTE, TEN_MINUTES, MeshRow, PastSeries
from serve_app.stores.history_reader import HistoryReader
from serve_app.stores.records import IncidentFilter
from serve_app.stores.repository import MeshRepository
from serve_app.stores.rows import ONE_STEP
from serve_app.stores.scored_snapshot import ScoredSnapshot
from serve_app.stores.state_store import StateStore
from serve_app.web.comparison import Focus, PeriodSample, comparison
from serve_app.web.history import instant, metric_table, row_of, score_of
from serve_app.web.moment import Moment
from serve_app.web.period import Ends, RangeSteps, Subject, TimeRange
from serve_app.web.range import (
    ARCHIVE,
    DAY,
    DAYS_BEFORE,
    PROMETHEUS,
    SNAPSHOTS,
    incident_row,
    mesh_columns,
    series_columns,
    usual_range,
)

MAX_INCIDENTS, MAX_UNUSUAL = 500, 20  # in a range
MAX_ROWS_COMPARED = 120  # minutes in a period; longer periods are compared by rows of ten minutes
DAYS_COMPARED = 7  # before two periods, which show how much they usually differ


class PastQueries:
    """Answers questions about the past of a session's meshes. Each raises ``UnknownMesh`` for an unknown mesh."""

    def __init__(self, store: StateStore, meshes: MeshRepository) -> None:
        self._store, self._meshes = store, meshes

    def range(
        self,
        mesh: str,
        period: TimeRange,
        subject: Subject | None,
        past: tuple[RangeSteps, PastSeries] | None = None,
        problem: str | None = None,
    ) -> bytes:
        """Return JSON of a ``RangeDocument``.

        Args:
            subject: the service or calls whose metrics to return; None: none.
            past: metrics of the subject from the mesh's Prometheus; None: from the store.
            problem: why Prometheus gave no metrics.
        """
        state = self._meshes.load_state(mesh)
        window, reader = state.window, HistoryReader(self._store, mesh)
        oldest, newest = window[0].observed_at, window[-1].observed_at
        begin, end = period.start.timestamp(), min(period.end, newest).timestamp()
        history_from = reader.first(TEN_MINUTES)
        is_kept = history_from is None or period.start >= oldest
        spans = [] if is_kept else reader.plan(int(begin), int(end) + 1, int((end - begin) / period.points))
        tail_from = _time(reader.end(spans, begin)) - ONE_STEP
        tail = [moment for moment in self._meshes.load_window(mesh, state, tail_from) if moment.at <= period.end]
        rows = [*reader.mesh_rows(spans), *map(mesh_row, tail)]
        series, expected = None, None
        if past is not None:
            steps, series = past
        elif is_kept:
            steps = RangeSteps.of_snapshots([row.at for row in rows], state.interval_seconds, period.points)
        else:
            is_call = subject is not None and subject.source is not None  # calls have rows of ten minutes only
            longest = max(TEN_MINUTES if is_call else span.step for span in spans)
            steps = RangeSteps.of_rows(begin, end, longest, period.points)
        query = IncidentFilter(since=period.start, until=period.end, limit=MAX_INCIDENTS)
        incidents = self._store.incidents(mesh, query)
        if subject is not None and past is None:
            series = PastSeries.join(
                subject.metrics, [reader.series(spans, subject.service, subject.source), *_tail_series(tail, subject)]
            )
            expected = usual_range(_days_before(reader, subject, begin, steps), steps)
        return msgspec.json.encode(
            {
                "source": PROMETHEUS if past is not None else SNAPSHOTS if is_kept else ARCHIVE,
                "problem": problem,
                "complete_from": instant(self._known_from(reader, state)),
                "step_seconds": steps.seconds,
                "observed_at": [instant(_time(at)) for at in steps.times.tolist()],
                "mesh": mesh_columns(steps, rows),
                "service": None if series is None else series_columns(steps, series, expected),
                "unusual": [] if subject is not None else _most_unusual(reader.highest_scores(spans), tail),
                "incidents": [incident_row(incident, newest) for incident in incidents],
                "changes": _changes(rows, period),
            }
        )

    def moment(self, mesh: str, at: datetime) -> Moment:
        """Return the mesh at a past time, with the incidents of that time.

        Raises:
            UnknownInstant: nothing of this time is stored.
        """
        state = self._meshes.load_state(mesh)
        snapshot = next((snapshot for snapshot in reversed(state.window) if snapshot.observed_at <= at), None)
        if snapshot is not None and (at - snapshot.observed_at).total_seconds() < state.interval_seconds:
            scored_snapshot = self._meshes.load_scored(mesh, state, snapshot.observed_at)
            return replace(
                Moment.of(scored_snapshot),
                source=SNAPSHOTS,
                step_seconds=state.interval_seconds,
                mesh_score=scored_snapshot.verdict.mesh_score,
                threshold=scored_snapshot.verdict.threshold,
            )
        reader = HistoryReader(self._store, mesh)
        past = reader.moment(int(at.timestamp() // 1))
        if past is None:
            first = reader.first(TEN_MINUTES)
            raise UnknownInstant(
                f"mesh {mesh!r}: nothing is stored of {at.isoformat()}; "
                + ("it has no history yet" if first is None else f"its history begins at {_time(first).isoformat()}")
                + "; choose a time from its range"
            )
        row, incidents = past.row, self._incidents(mesh, past.snapshot.observed_at, past.step)
        return Moment(
            past.snapshot, past.deviations, row.status, incidents, _suspects(incidents), ARCHIVE, past.step,
            row.highest_score, row.threshold,
        )  # fmt: skip

    def wrap(self, mesh: str, snapshot: MeshSnapshot) -> Moment:
        """Return a past moment from a snapshot that was not scored."""
        unknown, step = Deviations.unpack(b"", snapshot), self._meshes.load_state(mesh).interval_seconds
        incidents = self._incidents(mesh, snapshot.observed_at, 0.0)
        return Moment(snapshot, unknown, Status.PARTIAL, incidents, _suspects(incidents), PROMETHEUS, step)

    def comparison(self, mesh: str, first: Ends, second: Ends, service: str | None = None) -> bytes:
        """Return JSON of the differences between two periods; with ``service``, only for this service, its other
        versions, and its callers.

        Raises:
            InvalidParameter: a period has no snapshot, or none of them has the service.
        """
        state, reader = self._meshes.load_state(mesh), HistoryReader(self._store, mesh)
        samples = self._sample(reader, state, first), self._sample(reader, state, second)
        for name, (begin, end), sample in zip(("first", "second"), (first, second), samples, strict=True):
            if not sample.snapshots:
                raise InvalidParameter(
                    f"query: expected a {name} period with a snapshot in it, got {instant(begin)} to {instant(end)}; "
                    f"the kept snapshots are {instant(self._known_from(reader, state))} to "
                    f"{instant(state.window[-1].observed_at)}"
                )
        if service is None:
            return comparison(*samples)
        focus = Focus.of(samples, service)
        days = []
        for number in range(1, DAYS_COMPARED + 1):
            shift = timedelta(days=number)
            earlier = [(begin - shift, end - shift) for begin, end in (first, second)]
            pair = [self._sample(reader, state, ends, focus.services) for ends in earlier]
            if all(sample.snapshots for sample in pair):
                days.append((pair[0], pair[1]))
        return comparison(*samples, focus, days)

    def _sample(
        self, reader: HistoryReader, state: MeshState, ends: Ends, services: Collection[str] | None = None
    ) -> PeriodSample:
        """Return the snapshots of a period: kept ones, or rows of the history."""
        begin, end = ends
        if begin >= state.window[0].observed_at or reader.first(TEN_MINUTES) is None:
            snapshots = [snapshot for snapshot in state.window if begin <= snapshot.observed_at <= end]
            return PeriodSample(snapshots, state.interval_seconds)
        min_seconds = int((end - begin).total_seconds() / MAX_ROWS_COMPARED)
        spans = reader.plan(int(begin.timestamp()), int(end.timestamp()) + 1, min_seconds)
        rows = [moment.snapshot for span in spans for moment in reader.moments(span, services)]
        step = max((span.step for span in spans), default=MINUTE)
        written_to = _time(reader.end(spans, begin.timestamp()))
        newest = [snapshot for snapshot in state.window if max(begin, written_to) <= snapshot.observed_at <= end]
        return PeriodSample([*rows, *newest], step)

    def known_from(self, mesh: str) -> datetime:
        """The time from which anything is stored of a mesh."""
        return self._known_from(HistoryReader(self._store, mesh), self._meshes.load_state(mesh))

    def _known_from(self, reader: HistoryReader, state: MeshState) -> datetime:
        first, oldest = reader.first(TEN_MINUTES), state.window[0].observed_at
        return oldest if first is None else min(oldest, _time(first))

    def _incidents(self, mesh: str, begin: datetime, seconds: float) -> list[IncidentDocument]:
        """Return the archived incidents of a time, the most severe first."""
        until = begin + max(timedelta(seconds=seconds), ONE_STEP)
        incidents = self._store.incidents(mesh, IncidentFilter(since=begin, until=until, limit=MAX_INCIDENTS))
        return [unpack_document(row.document) for row in sorted(incidents, key=lambda row: -row.severity)]


def _suspects(incidents: Iterable[IncidentDocument]) -> list[str]:
    return [suspect.service for incident in incidents for suspect in incident.suspects]


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _tail_series(tail: Sequence[ScoredSnapshot], subject: Subject) -> list[PastSeries]:
    values = metric_table([moment.snapshot for moment in tail], subject)
    if values is None:
        return []
    times = np.array([moment.snapshot.observed_at.timestamp() for moment in tail])
    scores = [score_of(moment.deviations, row_of(moment.snapshot, subject), subject) for moment in tail]
    return [PastSeries(subject.metrics, times, values, np.array(scores, np.float32))]


def _days_before(reader: HistoryReader, subject: Subject, begin: float, steps: RangeSteps) -> PastSeries:
    """Return the subject's rows on the days before a period: of minutes if the steps are shorter than ten minutes."""
    first = int(begin) - DAYS_BEFORE * DAY
    if steps.seconds < TEN_MINUTES:
        first = max(first, reader.first(MINUTE) or first)
    spans = reader.plan(first, int(begin), int(steps.seconds))
    return reader.series(spans, subject.service, subject.source)


def _changes(rows: Iterable[MeshRow], period: TimeRange) -> list[dict[str, Any]]:
    return [
        {**asdict(change), "at": instant(change.at)}
        for row in rows
        for change in row.changes
        if period.start <= change.at <= period.end
    ]


def _most_unusual(
    stored_scores: Mapping[str, tuple[float, int]], tail: Sequence[ScoredSnapshot]
) -> list[dict[str, Any]]:
    """Return an ``UnusualService`` for each service with one of the highest scores in a period."""
    highest = {name: (score, _time(at)) for name, (score, at) in stored_scores.items()}
    for moment in tail:
        scores = moment.deviations.services
        for i in np.flatnonzero(scores > 0).tolist():
            name, score = moment.snapshot.node_ids[i], float(scores[i])
            if score > highest.get(name, (0.0, None))[0]:
                highest[name] = score, moment.snapshot.observed_at
    worst = sorted(highest.items(), key=lambda item: (-item[1][0], item[0]))[:MAX_UNUSUAL]
    return [{"service": name, "highest_score": round(score, 2), "at": instant(at)} for name, (score, at) in worst]
