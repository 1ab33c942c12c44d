"""The meshes that a session holds in memory, up to a budget. The store is authoritative; losing an entry costs a read.

The cache keeps meshes that are small for how often they are used. A mesh is used once per snapshot interval; when its
snapshots stop, its value falls with time.

Usually, more meshes push in turn than the memory has room for. The least recently used one is then the one whose turn
is next, so evicting it would make every snapshot wait for the store. Here, meshes of equal value do not displace each
other: those in memory stay, and only the others are read from the store.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import islice
from threading import RLock
from typing import Any, NamedTuple, Self

import numpy as np

from serve_app.metrics import MESHES_EVICTED, MESHES_FOUND, Instruments
from serve_app.pipeline import Mesh

NAME_BYTES = 80  # of one service's name: string header, characters, and slot in a tuple
ARRAY_BYTES = 128  # of an array without its values
SNAPSHOT_BYTES = 512  # of a snapshot without its arrays: object, time, digest
OBJECT_BYTES, SLOT_BYTES = 48, 8  # of a number, container or other object; of its place in a container
SAMPLE = 8  # items of a container that are measured
SNAPSHOTS_PER_ESTIMATE = 20  # of one mesh's size, which takes 0.3 ms
PATIENCE_INTERVALS = 3.0  # without a snapshot before a mesh loses value
MARGIN = 1.1  # factor by which a new mesh must be worth more to displace another: small differences fluctuate


class FullState(NamedTuple):
    """A mesh's sequence and revision when its state was last stored in full."""

    sequence: int
    revision: int


@dataclass(frozen=True, slots=True)
class CachedMesh:
    """A mesh at one revision of the store; 0: nothing is stored.

    Attributes:
        full: the last state that was stored in full; None: nothing is stored.
        history_end: Unix time before which the history is complete, s; 0: unknown.
        was_loaded: whether it was read from the store for the current step.
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
    """A mesh with its bytes, and when it was added and last used, s."""

    mesh: CachedMesh
    size: int
    added_at: float
    last_use: float


class MeshCache:
    """Meshes up to a budget of bytes. Threads may share it.

    Args:
        budget_bytes: for all meshes. The last mesh stays in any case.
        instruments: count hits, misses and evictions.
        clock: monotonic, s.
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
            entry = self._entries.get(name)
            return None if entry is None else entry.mesh

    def look_up(self, name: str) -> CachedMesh | None:
        """Return a mesh for its next snapshot, and count the hit or miss."""
        entry = self.get(name)
        if self._instruments is not None:
            self._instruments.count(MESHES_FOUND, outcome="miss" if entry is None else "hit")
        return entry

    def put(self, name: str, entry: CachedMesh) -> None:
        """Add or replace a mesh, and evict meshes of the least value, perhaps this one, until they are within the
        budget."""
        now = self._clock()
        with self._lock:
            previous = self._entries.get(name)
            is_due = entry.mesh.state.sequence % SNAPSHOTS_PER_ESTIMATE == 0
            size = size_bytes(entry.mesh) if previous is None or is_due else previous.size
            added_at = previous.added_at if previous else now
            self._bytes += size - (previous.size if previous else 0)
            self._entries[name] = _CacheEntry(entry, size, added_at, now)
            while self._bytes > self._budget and len(self._entries) > 1:
                self.drop(self._least_valuable(None if previous else name, now))
                if self._instruments is not None:
                    self._instruments.count(MESHES_EVICTED)

    def offer(self, name: str, entry: CachedMesh) -> None:
        """Add a mesh if it is missing and displaces no other."""
        with self._lock:
            has_room = not self._entries or self._bytes + size_bytes(entry.mesh) <= self._budget
            if name not in self._entries and has_room:
                self.put(name, entry)

    def drop(self, name: str) -> None:
        with self._lock:
            entry = self._entries.pop(name, None)
            if entry is not None:
                self._bytes -= entry.size

    def _least_valuable(self, newcomer: str | None, now: float) -> str:
        """Return the mesh that takes the most bytes for how often it is used; of equal ones, the newest."""

        def rank(name: str) -> tuple[float, float]:
            entry = self._entries[name]
            interval, idle = max(entry.mesh.mesh.state.interval_seconds, 1.0), now - entry.last_use
            wait = interval if idle <= PATIENCE_INTERVALS * interval else idle
            return entry.size * wait * (MARGIN if name == newcomer else 1.0), entry.added_at

        return max(self._entries, key=rank)


def size_bytes(mesh: Mesh) -> int:
    """Return a mesh's memory: arrays, names, and the objects that hold them. Shared objects count once."""
    visited = {id(mesh.state.window)}
    window_bytes = sum(
        # A value takes four bytes, and its observed mask one.
        (snapshot.node_features.nbytes + snapshot.edge_features.nbytes) * 5 // 4
        + 4 * ARRAY_BYTES
        + SNAPSHOT_BYTES
        + _bytes(snapshot.node_ids, visited)
        + _bytes(snapshot.edge_index, visited)
        for snapshot in mesh.state.window
    )
    return window_bytes + _bytes(mesh, visited)


def _bytes(value: object, visited: set[int]) -> int:
    """Return a value's memory without objects that were ``visited`` already. The first items of a container stand for
    all."""
    if id(value) in visited:
        return 0
    visited.add(id(value))
    if isinstance(value, np.ndarray):
        return ARRAY_BYTES + value.nbytes
    if isinstance(value, str):
        return NAME_BYTES
    if isinstance(value, tuple | frozenset | dict):
        columns = (value.keys(), value.values()) if isinstance(value, dict) else (value,)
        sample_bytes = sum(SLOT_BYTES + _bytes(item, visited) for column in columns for item in islice(column, SAMPLE))
        return OBJECT_BYTES + sample_bytes * max(len(value), SAMPLE) // SAMPLE
    return OBJECT_BYTES + sum(_bytes(item, visited) for item in _parts(value))


def _parts(value: object) -> Iterable[object]:
    """Return the fields of a dataclass, with its cached properties; nothing of any other object."""
    kind: Any = type(value)
    names = _field_names(kind)
    return vars(value).values() if names and hasattr(value, "__dict__") else [getattr(value, name) for name in names]


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
