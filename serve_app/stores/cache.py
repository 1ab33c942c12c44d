"""The meshes that a session holds in memory, up to a budget. The store is authoritative; losing an entry costs a read.

Which meshes stay: those that are small for how often they are used. A mesh is used once per interval of its snapshots;
one whose snapshots stop is worth less the longer it waits.

Meshes that push in turn, more than fit, are the usual case. Dropping the least recently used one would then always drop
the one whose turn is next, so that every snapshot had to wait for the store. Here, meshes of equal value do not
displace each other: those in memory stay there, and only the others are read from the store.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import islice
from threading import RLock
from typing import Any, Self

import numpy as np

from serve_app.metrics import MESHES_EVICTED, MESHES_FOUND, Instruments
from serve_app.pipeline import Mesh

NAME_BYTES = 80  # of one service's name: string header, characters, and slot in a tuple
ARRAY_BYTES = 128  # of an array beside its values
SNAPSHOT_BYTES = 512  # of a snapshot beside its arrays: object, time, digest
OBJECT_BYTES, SLOT_BYTES = 48, 8  # of a number, container or other object; of its place in a container
SAMPLE = 8  # of the values of a container that are measured
PATIENCE_INTERVALS = 3.0  # for which a mesh without a new snapshot is expected to send one
MARGIN = 1.1  # by which a mesh must be worth more to displace another; smaller differences come and go


@dataclass(frozen=True, slots=True)
class FullState:
    """Sequence and revision of a mesh at the last state that the store has in full."""

    sequence: int
    revision: int


@dataclass(frozen=True, slots=True)
class CachedMesh:
    """A mesh at one revision of the store; 0: nothing is stored.

    Attributes:
        full: the last state that was stored in full; None: nothing is stored.
        history_end: Unix time before which the history has everything, s; 0: not known.
        was_loaded: whether it was read from the store for the step under way.
    """

    mesh: Mesh
    revision: int
    full: FullState | None = None
    history_end: int = 0
    was_loaded: bool = False

    @classmethod
    def in_full(cls, mesh: Mesh, revision: int, history_end: int = 0) -> Self:
        """A mesh whose newest state is stored in full."""
        return cls(mesh, revision, FullState(mesh.state.sequence, revision), history_end)

    @property
    def steps(self) -> int:
        """Number of snapshots since the state that is stored in full."""
        return 0 if self.full is None else self.mesh.state.sequence - self.full.sequence


@dataclass(slots=True)
class _CacheEntry:
    """When it came and was last used: s."""

    entry: CachedMesh
    size: int
    entered: float
    used: float


class MeshCache:
    """Meshes up to a budget of bytes. Threads may share it.

    Args:
        budget_bytes: of all meshes together. The last mesh stays in any case.
        instruments: count what is found and evicted.
        clock: s, of a monotonic clock.
    """

    def __init__(
        self,
        budget_bytes: int,
        instruments: Instruments | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget, self._instruments, self._clock = budget_bytes, instruments, clock
        self._entries: dict[str, _CacheEntry] = {}
        self._bytes = 0
        self._lock = RLock()

    @property
    def bytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> CachedMesh | None:
        with self._lock:
            held = self._entries.get(name)
            return None if held is None else held.entry

    def look_up(self, name: str) -> CachedMesh | None:
        """As :meth:`get`, for a snapshot of the mesh: counts whether it was there."""
        entry = self.get(name)
        if self._instruments is not None:
            self._instruments.count(MESHES_FOUND, outcome="miss" if entry is None else "hit")
        return entry

    def put(self, name: str, entry: CachedMesh) -> None:
        """Add or replace a mesh, and evict the meshes of the least value while they are beyond the budget. This mesh
        may be among them."""
        size, now = size_bytes(entry.mesh), self._clock()
        with self._lock:
            before = self._entries.get(name)
            entered = before.entered if before else now
            self._bytes += size - (before.size if before else 0)
            self._entries[name] = _CacheEntry(entry, size, entered, now)
            while self._bytes > self._budget and len(self._entries) > 1:
                self.drop(self._find_worst(None if before else name, now))
                if self._instruments is not None:
                    self._instruments.count(MESHES_EVICTED)

    def offer(self, name: str, entry: CachedMesh) -> None:
        """Add a mesh if it is not there and displaces no other."""
        with self._lock:
            has_room = not self._entries or self._bytes + size_bytes(entry.mesh) <= self._budget
            if name not in self._entries and has_room:
                self.put(name, entry)

    def drop(self, name: str) -> None:
        with self._lock:
            held = self._entries.pop(name, None)
            if held is not None:
                self._bytes -= held.size

    def _find_worst(self, newcomer: str | None, now: float) -> str:
        """The mesh that takes the most bytes for how often it is used; of equal ones, the one that came last."""

        def rank(name: str) -> tuple[float, float]:
            held = self._entries[name]
            interval, idle = max(held.entry.mesh.state.interval_seconds, 1.0), now - held.used
            wait = interval if idle <= PATIENCE_INTERVALS * interval else idle
            return held.size * wait * (MARGIN if name == newcomer else 1.0), held.entered

        return max(self._entries, key=rank)


def size_bytes(mesh: Mesh) -> int:
    """Memory of a mesh: arrays, names, and the objects that hold them. What its parts share counts once."""
    seen = {id(mesh.state.window)}
    of_window = sum(
        # Whether a value was observed takes one byte beside its four.
        (one.node_features.nbytes + one.edge_features.nbytes) * 5 // 4
        + 4 * ARRAY_BYTES
        + SNAPSHOT_BYTES
        + _bytes(one.node_ids, seen)
        + _bytes(one.edge_index, seen)
        for one in mesh.state.window
    )
    return of_window + _bytes(mesh, seen)


def _bytes(value: object, seen: set[int]) -> int:
    """Memory of a value without what was ``seen`` in others. Of many values, the first ones stand for all."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return ARRAY_BYTES + value.nbytes
    if isinstance(value, str):
        return NAME_BYTES
    if isinstance(value, tuple | frozenset | dict):
        columns = (value.keys(), value.values()) if isinstance(value, dict) else (value,)
        of_some = sum(SLOT_BYTES + _bytes(one, seen) for column in columns for one in islice(column, SAMPLE))
        return OBJECT_BYTES + of_some * max(len(value), SAMPLE) // SAMPLE
    return OBJECT_BYTES + sum(_bytes(one, seen) for one in _parts(value))


def _parts(value: object) -> Iterable[object]:
    """The fields of a dataclass, with what was computed once; nothing of any other object."""
    kind: Any = type(value)
    names = _field_names(kind)
    return vars(value).values() if names and hasattr(value, "__dict__") else [getattr(value, name) for name in names]


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
