"""A snapshot with its verdict and the anomaly scores of its services and calls."""

from dataclasses import dataclass

from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.views import Deviations


@dataclass(frozen=True, slots=True, eq=False)
class ScoredSnapshot:
    """A scored snapshot.

    Attributes:
        snapshot: the metrics.
        deviations: anomaly scores of its services and calls.
        verdict: on the snapshot.
        seconds: from snapshot to verdict, without decoding and storing; None if not recorded.
        of_mesh: numbers of services and calls of the whole mesh; None: the snapshot has all of them.
    """

    snapshot: MeshSnapshot
    deviations: Deviations
    verdict: VerdictDocument
    seconds: float | None = None
    of_mesh: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PastMoment:
    """A past moment of a mesh.

    Attributes:
        scored: the mesh, as a snapshot.
        source: where it comes from: ``snapshots``, ``archive`` or ``prometheus``.
        step_seconds: over which its values are means.
        is_scored: whether the scores of the mesh are known.
    """

    scored: ScoredSnapshot
    source: str
    step_seconds: float
    is_scored: bool = True
