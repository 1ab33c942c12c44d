"""Reads the history of a mesh: rows of the mesh, of one service or call, or all of one row."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

import numpy as np
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, BoolArray, EdgeMetric, FloatArray, IntArray, MeshSnapshot
from serve_app.api.views import Deviations
from serve_app.stores.base import ChunkKey
from serve_app.stores.history import call_rows, concatenate, start_of
from serve_app.stores.history_chunks import (
    MINUTE,
    TEN_MINUTES,
    MeshPart,
    MeshRow,
    PackedPart,
    StoredChange,
    call_ends,
    call_key,
    decode_scores,
    decode_values,
    part_of,
)
from serve_app.stores.repository import MeshRepository

AT_ONCE = 512  # chunks that are read at once, some MB
Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StoredSpan:
    """The part of a period that rows of one step cover; Unix times, s, without the end."""

    step: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class PastSeries:
    """The rows of a service or a call.

    Attributes:
        metrics: their M names.
        times: Unix times of their beginning, ascending, s ``[T]``.
        values: of the metrics, ``[T, M]``, NaN where not observed.
        scores: highest anomaly scores (log10) ``[T]``, NaN where not scored.
    """

    metrics: Sequence[str]
    times: Times
    values: FloatArray
    scores: FloatArray

    @classmethod
    def join(cls, metrics: Sequence[str], parts: Iterable["PastSeries"]) -> Self:
        """Several series of these metrics, one after the other."""
        nothing = cls(metrics, np.zeros(0), np.zeros((0, len(metrics)), np.float32), np.zeros(0, np.float32))
        joined: list[PastSeries] = [nothing, *parts]
        return cls(
            metrics,
            np.concatenate([one.times for one in joined]),
            np.concatenate([one.values for one in joined]),
            np.concatenate([one.scores for one in joined]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class StoredMoment:
    """A row of the whole mesh as a snapshot, with its anomaly scores."""

    row: MeshRow
    step: int
    snapshot: MeshSnapshot
    deviations: Deviations


class HistoryReader:
    """The stored history of one mesh.

    Args:
        meshes: repository of the session.
        mesh: name.
    """

    def __init__(self, meshes: MeshRepository, mesh: str) -> None:
        self._meshes, self._mesh = meshes, mesh
        self._sizes = meshes.store.history_sizes(mesh)
        self._known: dict[ChunkKey, MeshPart] = {}
        self._starts = {
            step: sorted(key.start for key in self._sizes if key.step == step and not key.part)
            for step in (MINUTE, TEN_MINUTES)
        }

    def first(self, step: int) -> int | None:
        """The Unix time from which rows of a step are complete, s; None: there are none. Rows of ten minutes are made
        of minutes, where they are not stored yet."""
        starts = self._starts[step]
        if not starts:
            return self.first(MINUTE) if step == TEN_MINUTES else None
        rows = self._mesh_part(ChunkKey(step, starts[0], 0)).rows
        first = starts[0] + min(rows, default=0) * step
        minutes = self.first(MINUTE) if step == TEN_MINUTES else None
        return first if minutes is None else min(first, minutes)

    def plan(self, begin: int, end: int, least_step: int) -> list[StoredSpan]:
        """Which rows to read for a period: the coarsest that are at most ``least_step`` long, or the only ones that
        there are. Newest minutes are read where there are no rows of ten minutes yet."""
        minutes, tens = self.first(MINUTE), self._starts[TEN_MINUTES]
        if minutes is None and not tens:
            return []
        is_coarse = bool(tens) and (least_step >= TEN_MINUTES or minutes is None or begin < minutes)
        if not is_coarse:
            return [StoredSpan(MINUTE, begin, end)]
        newest = self._mesh_part(ChunkKey(TEN_MINUTES, tens[-1], 0)).rows
        border = tens[-1] + (max(newest, default=0) + 1) * TEN_MINUTES
        spans = StoredSpan(TEN_MINUTES, begin, min(end, border)), StoredSpan(MINUTE, max(begin, border), end)
        return [span for span in spans if span.begin < span.end]

    def mesh_rows(self, spans: Iterable[StoredSpan]) -> list[tuple[int, MeshRow]]:
        """The rows of the mesh with their Unix times, oldest first."""
        found = []
        for span in spans:
            for key, part in self._mesh_parts(span):
                rows = ((key.start + place * span.step, row) for place, row in sorted(part.rows.items()))
                found += [(at, row) for at, row in rows if span.begin <= at < span.end]
        return found

    def end(self, spans: Sequence[StoredSpan], default: float) -> float:
        """The Unix time up to which there are rows of a period, s; ``default`` if there are none."""
        for span in reversed(spans):
            if rows := self.mesh_rows([span]):
                return rows[-1][0] + span.step
        return default

    def changes(self, spans: Iterable[StoredSpan]) -> list[StoredChange]:
        """The planned changes of a period, oldest first."""
        found = [
            change
            for span in spans
            for _, part in self._mesh_parts(span)
            for change in part.changes
            if span.begin <= change.at < span.end
        ]
        return sorted(dict.fromkeys(found), key=lambda one: one.at)

    def series(self, spans: Iterable[StoredSpan], service: str, source: str | None = None) -> PastSeries:
        """The rows of a service, or of the calls from ``source`` to it."""
        parts = (part for span in spans for part in self._read_series(span, service, source))
        return PastSeries.join(NODE_METRICS if source is None else EDGE_METRICS, parts)

    def highest_scores(self, spans: Iterable[StoredSpan]) -> dict[str, tuple[float, int]]:
        """The highest anomaly score of each service that was scored, and the Unix time of its row, s."""
        found: dict[str, tuple[float, int]] = {}
        for span in spans:
            for key, content in self._service_parts(span):
                packed = PackedPart(content)
                scores = packed.scores()
                places = _places(key, span, scores.shape[1])
                if not len(packed.services) or not len(places):
                    continue
                scores = np.nan_to_num(decode_scores(scores[:, places]), nan=-1.0)
                at = scores.argmax(axis=1)
                for i, name in enumerate(packed.services):
                    score = float(scores[i, at[i]])
                    if score >= 0 and score > found.get(name, (-1.0, 0))[0]:
                        found[name] = score, key.start + int(places[at[i]]) * span.step
        return found

    def moment(self, at: int) -> StoredMoment | None:
        """The row that has a Unix time, of a minute if possible; None if nothing is stored of it."""
        for step in (MINUTE, TEN_MINUTES):
            found = next(self.moments(StoredSpan(step, at // step * step, at // step * step + 1)), None)
            if found is not None:
                return found
        return None

    def moments(self, span: StoredSpan, services: Collection[str] | None = None) -> Iterator[StoredMoment]:
        """All rows of a period as snapshots, oldest first. With ``services``, only parts of the mesh that have them and
        the calls to them."""
        for key, part in self._mesh_parts(span):
            places = [place for place in sorted(part.rows) if span.begin <= key.start + place * span.step < span.end]
            if not places:
                continue
            numbers = {*range(1, part.parts + 1)}
            if services is not None:
                numbers = {part_of(name, part.parts) for name in services}
            wanted = [ChunkKey(key.step, key.start, number) for number in sorted(numbers)]
            packed = [PackedPart(one) for one in self._read(wanted).values()]
            nodes = concatenate([one.service_table() for one in packed], len(NODE_METRICS), part.length)
            of_calls = call_rows(key.start, key.step, part.length)
            edges = concatenate([one.call_table() for one in packed], len(EDGE_METRICS), of_calls)
            for place in places:
                begin = key.start + place * key.step
                at = begin // TEN_MINUTES - key.start // TEN_MINUTES
                yield _moment(part.rows[place], begin, key.step, nodes.at(place), edges.at(at))

    def _read_series(self, span: StoredSpan, service: str, source: str | None) -> Iterator[PastSeries]:
        keys = [ChunkKey(key.step, key.start, part_of(service, part.parts)) for key, part in self._mesh_parts(span)]
        for key, content in self._read(keys).items():
            packed = PackedPart(content)
            name = service if source is None else call_key(source, service)
            if name not in (packed.services if source is None else packed.calls):
                continue
            table = packed.service_table() if source is None else packed.call_table()
            of_rows = (
                key if source is None else replace(key, step=TEN_MINUTES, start=key.start // TEN_MINUTES * TEN_MINUTES)
            )
            places = _places(of_rows, span, table.scores.shape[1])
            row = table.keys.index(name)
            values = decode_values(table.codes[:, row, places]).T
            scores = decode_scores(table.scores[row, places])
            known = ~np.isnan(values).all(axis=1)
            times = np.asarray(of_rows.start + places * of_rows.step, np.float64)
            metrics = NODE_METRICS if source is None else EDGE_METRICS
            yield PastSeries(metrics, times[known], values[known], scores[known])

    def _service_parts(self, span: StoredSpan) -> Iterator[tuple[ChunkKey, bytes]]:
        starts = {key.start for key, _ in self._mesh_parts(span)}
        keys = sorted(key for key in self._sizes if key.step == span.step and key.part and key.start in starts)
        for at in range(0, len(keys), AT_ONCE):
            yield from self._read(keys[at : at + AT_ONCE]).items()

    def _mesh_parts(self, span: StoredSpan) -> list[tuple[ChunkKey, MeshPart]]:
        """The chunks that have rows of a period, oldest first."""
        first = start_of(span.begin, span.step)
        keys = [ChunkKey(span.step, start, 0) for start in self._starts[span.step] if first <= start < span.end]
        unknown = [key for key in keys if key not in self._known]
        self._known |= {key: MeshPart.unpack(content) for key, content in self._read(unknown).items()}
        return [(key, self._known[key]) for key in keys if key in self._known]

    def _mesh_part(self, key: ChunkKey) -> MeshPart:
        if key not in self._known:
            content = self._read([key]).get(key)
            self._known[key] = MeshPart.unpack(content) if content else MeshPart(1, 0)  # damaged, or just deleted
        return self._known[key]

    def _read(self, keys: Sequence[ChunkKey]) -> dict[ChunkKey, bytes]:
        return self._meshes.store.history(self._mesh, [key for key in keys if key in self._sizes])


def _places(key: ChunkKey, span: StoredSpan, rows: int) -> IntArray:
    """The rows of a chunk that belong to a period."""
    first = max(0, -(-(span.begin - key.start) // key.step))
    last = min(rows, -(-(span.end - key.start) // key.step))
    return np.arange(first, max(first, last))


def _moment(
    row: MeshRow,
    begin: int,
    step: int,
    services: tuple[Sequence[str], FloatArray, FloatArray],
    calls: tuple[Sequence[str], FloatArray, FloatArray],
) -> StoredMoment:
    """The moment of a row, from the keys, values and scores of its services and calls."""
    (names, values, scores), (keys, of_calls, call_scores) = services, calls
    ends = [call_ends(key) for key in keys]
    busy = np.flatnonzero(~np.isnan(of_calls[:, EdgeMetric.REQUESTS_PER_SECOND])).tolist()
    there: BoolArray = np.any(~np.isnan(values), axis=1)
    in_calls = {name for i in busy for name in ends[i]}
    rows = [i for i, name in enumerate(names) if there[i] or name in in_calls]
    place_of = {names[i]: place for place, i in enumerate(rows)}
    edges = [i for i in busy if ends[i][0] in place_of and ends[i][1] in place_of]
    index = np.array([[place_of[name] for name in ends[i]] for i in edges], np.int64).reshape(-1, 2).T
    snapshot = MeshSnapshot.create(
        node_ids=[names[i] for i in rows],
        edge_index=index,
        node_features=values[rows],
        edge_features=of_calls[edges],
        observed_at=datetime.fromtimestamp(begin, UTC),
    )
    return StoredMoment(row, step, snapshot, Deviations(scores[rows], call_scores[edges]))
