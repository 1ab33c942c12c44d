"""Writes a mesh's history.

The stored window has every snapshot of the last minutes. So nothing is accumulated: when a snapshot begins a new block
of ten minutes, the previous block's minutes are computed from the window, and written after the answer. If the process
is killed before, the next one writes them, because the window still has them, and no minute is counted twice. When
three hours are over, their minutes are joined to rows of ten minutes, which are kept for longer.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from model.snapshot import IntArray
from serve_app.stores.cache import CachedMesh
from serve_app.stores.history import HistoryRows, coarsen, merge, overlay, start_of, summarize, unix
from serve_app.stores.history_files import (
    MINUTE,
    ROWS,
    SERIES,
    TEN_MINUTES,
    encode,
    mesh_rows,
    mesh_table,
    part_of,
    parts_for,
    read_files,
    write_file,
)
from serve_app.stores.records import ChunkKey, HistoryLimit, HistoryUpdate
from serve_app.stores.rows import ONE_STEP, time_of
from serve_app.stores.scored_snapshot import ScoredSnapshot, StoredVerdict, match_verdicts
from serve_app.stores.state_store import StateStore


class HistoryWriter:
    """Writes the histories of a store's meshes. Appends may go on meanwhile.

    Args:
        limit: of each mesh's history; None: no history is written.
    """

    def __init__(self, store: StateStore, limit: HistoryLimit | None) -> None:
        self._store, self._limit = store, limit

    def is_due(self, entry: CachedMesh, keep: int) -> bool:
        """Return whether the history may lack a finished block; ``keep`` is the maximum number of stored snapshots."""
        window = entry.mesh.state.window
        if self._limit is None or len(window) < 2:
            return False
        block = block_seconds(keep, entry.mesh.state.interval_seconds)
        before, newest = (unix(snapshot.observed_at) // block * block for snapshot in window[-2:])
        return newest > (entry.history_end or before)

    def write(self, mesh: str, entry: CachedMesh, keep: int) -> CachedMesh:
        """Write the finished blocks that the window has, if that is due, and return the entry with its history end."""
        window, full = entry.mesh.state.window, entry.full
        if self._limit is None or full is None or not self.is_due(entry, keep):
            return entry
        block = block_seconds(keep, entry.mesh.state.interval_seconds)
        begin = unix(window[-1].observed_at) // block * block

        def read(keys: Collection[ChunkKey]) -> dict[ChunkKey, pa.Table]:
            return read_files(mesh, self._store.history(mesh, keys))

        updater = FileUpdater(self._limit, self._store.history_sizes(mesh), read)
        end = entry.history_end or updater.end()
        verdicts = self._store.verdicts(mesh, time_of(end * 1_000_000) - ONE_STEP if end else None, keep)
        matches = match_verdicts(window, map(StoredVerdict.unpack, verdicts))
        snapshots = [snapshot for snapshot in matches if unix(snapshot.at) < begin]
        if snapshots:
            update = updater.update(snapshots, window[-1].observed_at, block)
            if not self._store.write_history(mesh, update, full=full):
                return entry
        return replace(entry, history_end=begin)


def block_seconds(window_size: int, interval_seconds: float) -> int:
    """Return the seconds of a block: ten minutes if the window surely has all of them when they are over, else one."""
    return TEN_MINUTES if window_size * interval_seconds >= 2 * TEN_MINUTES else MINUTE


class FileUpdater:
    """Computes the files that are written after a block: usually one small piece. When a file's time is over, its
    pieces become one.

    Args:
        sizes: of the stored files.
        read: returns the stored files with some keys, without unreadable ones.
    """

    def __init__(
        self,
        limit: HistoryLimit,
        sizes: Mapping[ChunkKey, int],
        read: Callable[[Collection[ChunkKey]], Mapping[ChunkKey, pa.Table]],
    ) -> None:
        self._limit, self._sizes, self._read = limit, sizes, read
        self._keys = set(sizes)  # of stored and new files
        self._new: dict[ChunkKey, pa.Table] = {}

    def end(self) -> int:
        """Return the Unix time at which the stored minutes end, s; 0: there are none."""
        newest = max((key for key in self._sizes if key.step == MINUTE and not key.part), default=None)
        if newest is None:
            return 0
        table = self._read([newest]).get(newest)
        return newest.start if table is None else int(mesh_rows(table)[-1].at) + MINUTE

    def update(self, scored: Sequence[ScoredSnapshot], now: datetime, block: int) -> HistoryUpdate:
        """Return the files to write and those to delete.

        Args:
            scored: snapshots of whole blocks that are over, oldest first, at least one.
            now: time of the newest snapshot, which is not among them.
            block: seconds of a block.
        """
        by_file: dict[int, list[ScoredSnapshot]] = {}
        for snapshot in scored:
            by_file.setdefault(start_of(unix(snapshot.at), MINUTE), []).append(snapshot)
        for start, snapshots in by_file.items():
            self._add(MINUTE, unix(snapshots[0].at) // block * block, summarize(snapshots))
            if start_of(unix(now), MINUTE) > start:
                self._add(TEN_MINUTES, start, coarsen(self._merge(MINUTE, start)))
            if start_of(unix(now), TEN_MINUTES) > (day := start_of(start, TEN_MINUTES)):
                self._merge(TEN_MINUTES, day)
        contents = {key: write_file(table) for key, table in self._new.items()}
        sizes = {key: len(contents[key]) if key in contents else self._sizes[key] for key in self._keys}
        keys = self._within_limit(sizes, unix(now))
        deletions = dict.fromkeys(key for key in self._sizes if key not in keys)
        return deletions | {key: content for key, content in contents.items() if key in keys}

    def _add(self, step: int, start: int, rows: HistoryRows) -> None:
        """Write rows as a piece, over its earlier rows if the mesh was set aside in between."""
        pieces = self._take(step, start, start + 1)
        self._put(step, start, overlay([*pieces, rows]), 1)  # dividing it would take longer than everything else

    def _merge(self, step: int, start: int) -> HistoryRows:
        """Replace the pieces of a file whose time is over with the whole file, and return its rows."""
        whole = merge(self._take(step, start, start + step * ROWS[step]))
        self._put(step, start, whole, parts_for(len(encode(whole.series["service"])[1])))
        return whole

    def _take(self, step: int, begin: int, end: int) -> list[HistoryRows]:
        """Remove and return the pieces that begin in a period, oldest first."""
        keys = sorted(key for key in self._keys if key.step == step and begin <= key.start < end)
        tables = {**self._read([key for key in keys if key not in self._new]), **self._new}
        self._keys.difference_update(keys)
        pieces = []
        for start in dict.fromkeys(key.start for key in keys):
            parts = [tables[key] for key in keys if key.start == start and key.part and key in tables]
            if (mesh := tables.get(ChunkKey(step, start, 0))) is not None:
                pieces.append(HistoryRows(mesh_rows(mesh), pa.concat_tables([SERIES.empty_table(), *parts])))
        for key in keys:
            self._new.pop(key, None)
        return pieces

    def _put(self, step: int, start: int, rows: HistoryRows, parts: int) -> None:
        """Write rows as a file with ``parts`` parts and part 0."""
        tables = [mesh_table(rows.mesh), rows.series]
        if parts > 1:
            number = _parts_of(rows.series["service"], parts)
            tables[1:] = [rows.series.filter(pa.array(number == part)) for part in range(1, parts + 1)]
        files = {ChunkKey(step, start, part): table for part, table in enumerate(tables)}
        self._new |= files
        self._keys |= files.keys()

    def _within_limit(self, sizes: Mapping[ChunkKey, int], now: int) -> set[ChunkKey]:
        """Return the files to keep: without those that are too old, and the oldest ones beyond the size limit."""
        keep = {MINUTE: self._limit.minutes, TEN_MINUTES: self._limit.ten_minutes}
        remaining = {
            key for key in sizes if key.start + key.step * ROWS[key.step] > now - keep[key.step].total_seconds()
        }
        excess = sum(sizes[key] for key in remaining) - self._limit.max_bytes
        for oldest in sorted({(key.start, key.step) for key in remaining}):
            if excess <= 0:
                break
            keys = {key for key in remaining if (key.start, key.step) == oldest}
            remaining -= keys
            excess -= sum(sizes[key] for key in keys)
        return remaining


def _parts_of(services: pa.ChunkedArray, parts: int) -> IntArray:
    number, names = encode(services)
    return np.array([part_of(name, parts) for name in names])[number]
