"""The meshes that a session holds in memory. The store is the truth; losing an entry costs a read."""

from collections import OrderedDict
from dataclasses import dataclass, fields

import numpy as np

from model.snapshot import MeshSnapshot
from model.state.mesh_state import MeshState
from serve_app.pipeline import Mesh

NAME_BYTES = 80  # of one service's name: the string's header, its letters, and its place in a tuple


@dataclass(frozen=True, slots=True)
class Known:
    """A mesh as of one revision of the store; revision 0: nothing is stored."""

    mesh: Mesh
    revision: int


class MeshCache:
    """Meshes up to a budget of bytes; the least recently used leave first.

    Args:
        budget_bytes: of all meshes together. The newest one stays, however large.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._known: OrderedDict[str, tuple[Known, int]] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Held now."""
        return self._bytes

    def get(self, name: str) -> Known | None:
        """What is held under a mesh's name."""
        try:
            self._known.move_to_end(name)
            return self._known[name][0]
        except KeyError:  # never held, or let go this moment: readers come from threads
            return None

    def put(self, name: str, known: Known) -> None:
        """Hold a mesh, and let go of others if need be."""
        self.drop(name)
        size = size_bytes(known.mesh)
        self._known[name] = known, size
        self._bytes += size
        while self._bytes > self._budget and len(self._known) > 1:
            self.drop(next(iter(self._known)))

    def drop(self, name: str) -> None:
        """Let go of a mesh, if it is held."""
        _, size = self._known.pop(name, (None, 0))
        self._bytes -= size


def size_bytes(mesh: Mesh) -> int:
    """Memory of a mesh's arrays and names; what its snapshots share counts once."""
    state = mesh.state
    held: list[MeshState | MeshSnapshot] = [state, *state.window]
    values = [getattr(owner, f.name) for owner in held for f in fields(owner)]
    arrays = {id(value): value.nbytes for value in values if isinstance(value, np.ndarray)}
    names = {id(owner.node_ids): len(owner.node_ids) for owner in held}
    return sum(arrays.values()) + NAME_BYTES * sum(names.values())
