"""A mesh at a moment: what its map shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.api.views import Deviations
from serve_app.stores.scored_snapshot import ScoredSnapshot


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A mesh at a moment. With a ``source``, it is a past one.

    Attributes:
        snapshot: the metrics.
        deviations: anomaly scores of its services and calls.
        status: of the verdict.
        incidents: open at the moment, the most urgent first.
        suspects: services that are suspected, in an incident or without.
        source: where it comes from: ``snapshots``, ``archive``, or ``prometheus``, which knows no scores.
        step_seconds: over which its values are means.
        mesh_score: highest anomaly score of the mesh (log10); None: unknown.
        threshold: of the score; None: unknown.
    """

    snapshot: MeshSnapshot
    deviations: Deviations
    status: str
    incidents: Sequence[IncidentDocument]
    suspects: Sequence[str]
    source: str = ""
    step_seconds: float = 0.0
    mesh_score: float | None = None
    threshold: float | None = None

    @classmethod
    def of(cls, scored: ScoredSnapshot) -> Self:
        verdict = scored.verdict
        suspects = [one.service for one in verdict.suspects]
        return cls(scored.snapshot, scored.deviations, verdict.status, verdict.incidents, suspects)

    @property
    def alerts(self) -> list[IncidentDocument]:
        """The incidents that raise an alert."""
        return [one for one in self.incidents if not one.is_notice]
