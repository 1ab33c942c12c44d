"""The interface of finders of evidence.

A finder looks for one event that the surprises of single series do not show: calls that go elsewhere, a service that is
gone, a version that is worse. Most of these events have no past to compare with, so their surprise is a constant. A new
finder is a file in this folder, and a line in ``FINDERS`` of ``gather.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from model.features import Array
from model.scoring.kinds import EvidenceKind
from model.scoring.scored_mesh import ScoredMesh
from model.snapshot import BoolArray


@dataclass(frozen=True, slots=True)
class Finding:
    """Evidence of one kind. It counts where it is stronger than other evidence of this kind.

    Attributes:
        kind: of the evidence.
        surprise: float32 ``[N]``, 0 or more.
        is_event: whether normal traffic never shows it, not even in a restless mesh; such evidence grows with the page
            level of a restless mesh.
        dropped: bool ``[E]``, calls to report as no longer made; None: no calls.
    """

    kind: EvidenceKind
    surprise: Array
    is_event: bool = True
    dropped: BoolArray | None = None


class Finder(Protocol):
    """A function that looks for one sign of a fault in the whole mesh."""

    def __call__(self, mesh: ScoredMesh, /) -> Sequence[Finding]:
        """Return what was found, nothing if the snapshot cannot show it. It is called with every snapshot: return
        before any pass over all services or calls wherever possible."""
        ...
