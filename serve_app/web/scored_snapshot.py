"""A snapshot with the anomaly scores of its services and calls, and with its verdict or what is kept of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import IncidentDocument, VerdictDocument
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
class Moment:
    """A mesh at a moment: what its map shows.

    Attributes:
        snapshot: the metrics.
        deviations: anomaly scores of its services and calls.
        status: of the verdict.
        incidents: open at the moment, the most urgent first.
        suspects: services that are suspected, in an incident or without.
    """

    snapshot: MeshSnapshot
    deviations: Deviations
    status: str
    incidents: Sequence[IncidentDocument]
    suspects: Sequence[str]

    @classmethod
    def of(cls, scored: ScoredSnapshot, **more: Any) -> Self:
        """A scored snapshot; ``more``: the further attributes of a subclass."""
        verdict = scored.verdict
        suspects = [one.service for one in verdict.suspects]
        return cls(scored.snapshot, scored.deviations, verdict.status, verdict.incidents, suspects, **more)

    @property
    def alerts(self) -> list[IncidentDocument]:
        """The incidents that raise an alert."""
        return [one for one in self.incidents if not one.is_notice]


@dataclass(frozen=True, slots=True, eq=False)
class PastMoment(Moment):
    """A past moment of a mesh.

    Attributes:
        source: where it comes from: ``snapshots``, ``archive``, or ``prometheus``, which knows no scores.
        step_seconds: over which its values are means.
        mesh_score: highest anomaly score of the mesh (log10); None: unknown.
        threshold: of the score; None: unknown.
    """

    source: str
    step_seconds: float
    mesh_score: float | None = None
    threshold: float | None = None
