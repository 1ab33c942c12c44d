"""The meshes that a session holds in memory. The store is authoritative; losing an entry costs a read."""

from collections import OrderedDict
from dataclasses import dataclass, fields
from threading import RLock

import numpy as np

from model.snapshot import MeshSnapshot
from model.state.load_adapter import Adaptation
from model.state.mesh_state import MeshState
from serve_app.pipeline import Mesh

NAME_BYTES = 80  # of one service's name: string header, characters, and slot in a tuple


@dataclass(frozen=True, slots=True)
class FullState:
    """The last state that the store has in full.

    Attributes:
        sequence: number of snapshots before it.
        revision: of the mesh at that time.
    """

    sequence: int
    revision: int


@dataclass(frozen=True, slots=True)
class CachedMesh:
    """A mesh at one revision of the store.

    Attributes:
        mesh: its state and plan.
        revision: 0: nothing is stored.
        full: the last state that was stored in full; None: nothing is stored.
        adaptation: the stored one. If the state has another, the next snapshot stores it.
    """

    mesh: Mesh
    revision: int
    full: FullState | None = None
    adaptation: Adaptation | None = None


class MeshCache:
    """Meshes up to a budget of bytes. Evicts the least recently used first. Threads may share it.

    Args:
        budget_bytes: of all meshes together. The newest entry always stays.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._entries: OrderedDict[str, tuple[CachedMesh, int]] = OrderedDict()
        self._bytes = 0
        self._lock = RLock()

    @property
    def bytes(self) -> int:
        """Current size."""
        return self._bytes

    def get(self, name: str) -> CachedMesh | None:
        """The entry of a mesh, or None."""
        with self._lock:
            if name not in self._entries:
                return None
            self._entries.move_to_end(name)
            return self._entries[name][0]

    def put(self, name: str, entry: CachedMesh) -> None:
        """Add or replace a mesh, and evict others if necessary."""
        size = size_bytes(entry.mesh)
        with self._lock:
            self.drop(name)
            self._entries[name] = entry, size
            self._bytes += size
            while self._bytes > self._budget and len(self._entries) > 1:
                self.drop(next(iter(self._entries)))

    def drop(self, name: str) -> None:
        """Remove a mesh if it is there."""
        with self._lock:
            _, size = self._entries.pop(name, (None, 0))
            self._bytes -= size


def size_bytes(mesh: Mesh) -> int:
    """Memory of a mesh's arrays and names. Arrays that its snapshots share count once."""
    state = mesh.state
    held: list[MeshState | MeshSnapshot] = [state, *state.window]
    values = [getattr(owner, f.name) for owner in held for f in fields(owner)]
    arrays = {id(value): value.nbytes for value in values if isinstance(value, np.ndarray)}
    names = {id(owner.node_ids): len(owner.node_ids) for owner in held}
    return sum(arrays.values()) + NAME_BYTES * sum(names.values())
