"""A snapshot with its verdict and the anomaly scores of its services and calls."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.views import Deviations
from serve_app.stores.recorded_snapshot import Record, RecordedSnapshot


@dataclass(frozen=True, slots=True, eq=False)
class ScoredSnapshot:
    """A scored snapshot.

    Attributes:
        snapshot: the metrics.
        deviations: anomaly scores of its services and calls.
        verdict: on the snapshot.
        of_mesh: numbers of services and calls of the whole mesh; None: the snapshot has all of them.
    """

    snapshot: MeshSnapshot
    deviations: Deviations
    verdict: VerdictDocument
    of_mesh: tuple[int, int] | None = None

    @classmethod
    def of(cls, snapshot: MeshSnapshot, record: Record | RecordedSnapshot) -> Self:
        """A snapshot with the record of its verdict."""
        verdict = VerdictDocument.model_validate_json(record.document)
        return cls(snapshot, Deviations.unpack(record.deviations, snapshot), verdict)


def match_records(window: Iterable[MeshSnapshot], records: Iterable[Record]) -> list[ScoredSnapshot]:
    """Return the snapshots of a window that have a record, with their verdicts, in the order of the records."""
    return [ScoredSnapshot.of(one.snapshot, one) for one in RecordedSnapshot.match(window, records)]


@dataclass(frozen=True, slots=True, eq=False)
class PastMoment:
    """A past moment of a mesh.

    Attributes:
        scored: the mesh, as a snapshot.
        source: where it comes from: ``snapshots``, ``archive``, or ``prometheus``, which knows no scores.
        step_seconds: over which its values are means.
    """

    scored: ScoredSnapshot
    source: str
    step_seconds: float
