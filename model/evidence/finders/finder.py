"""The interface of finders.

A finder looks for one event that the surprises of single series do not show: calls that go elsewhere, a service that is
gone, a version that is worse. There is no past to compare most of these events with, so their surprise is a constant,
``EVENT_SURPRISE``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model.evidence.kinds import EvidenceKind
from model.evidence.scored_mesh import ScoredMesh
from model.features import Array
from model.snapshot import BoolArray


@dataclass(frozen=True, slots=True)
class Finding:
    """Evidence of one kind. It counts where it is stronger than other evidence of this kind.

    Attributes:
        surprise: float32 ``[N]``, 0 or more.
        dropped: bool ``[E]``, calls to report as no longer made; None: no calls.
    """

    kind: EvidenceKind
    surprise: Array
    dropped: BoolArray | None = None


# Returns what was found in the whole mesh, nothing if the snapshot cannot show it. It is called with every snapshot, so
# it returns before any pass over all services or calls wherever possible.
Finder = Callable[[ScoredMesh], Sequence[Finding]]
