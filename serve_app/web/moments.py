"""One instant of a mesh as people look at it: what was measured, what was said of it, how strange each thing was."""

from dataclasses import dataclass

from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.views import Deviations


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A judged snapshot.

    Attributes:
        snapshot: what was measured.
        deviations: how strange its services and calls are.
        verdict: what was said of it.
        seconds: from snapshot to verdict, without decoding and storing; None where nobody kept it.
    """

    snapshot: MeshSnapshot
    deviations: Deviations
    verdict: VerdictDocument
    seconds: float | None = None
