"""A mesh at a moment, for its map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.api.views import Deviations
from serve_app.stores.scored_snapshot import ScoredSnapshot


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A mesh at a moment.

    Attributes:
        incidents: open at the moment, the most urgent first.
        suspects: suspected services, in an incident or without.
        source: ``snapshots``, ``archive``, or ``prometheus``, which has no scores; empty: not a past moment.
        step_seconds: time over which its values are means.
        mesh_score, threshold: None: unknown.
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
        suspects = [suspect.service for suspect in verdict.suspects]
        return cls(scored.snapshot, scored.deviations, verdict.status, verdict.incidents, suspects)

    @property
    def alerts(self) -> list[IncidentDocument]:
        """Return the incidents that raise an alert."""
        return [incident for incident in self.incidents if not incident.is_notice]
