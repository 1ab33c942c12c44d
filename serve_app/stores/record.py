"""The stored form of a verdict, and the gauges of a stored mesh."""

import json
from dataclasses import dataclass

from model.verdict import Severity, Status
from serve_app.metrics import MeshGauges
from serve_app.stores.base import MeshSummary


@dataclass(frozen=True, slots=True)
class Record:
    """A verdict as it was sent.

    Attributes:
        services: number of services in its snapshot.
        document: JSON of the verdict.
        deviations: of each service and call, packed; empty if unknown.
        seconds: from snapshot to verdict, without decoding and storing; None if not measured.
    """

    services: int
    document: bytes
    deviations: bytes = b""
    seconds: float | None = None

    def pack(self) -> bytes:
        """A line with the number of services and the microseconds, a line with the document (its JSON has no line
        breaks), then the deviations."""
        took = b"" if self.seconds is None else b" %d" % round(self.seconds * 1e6)
        return b"%d%b\n%b\n%b" % (self.services, took, self.document, self.deviations)

    @classmethod
    def unpack(cls, packed: bytes) -> "Record":
        """Read what :meth:`pack` wrote, also in versions that measured no time."""
        numbers, _, rest = packed.partition(b"\n")
        document, _, deviations = rest.partition(b"\n")
        services, *took = numbers.split()
        return cls(int(services), document, deviations, int(took[0]) / 1e6 if took else None)


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A packed snapshot, the packed deviations of its services and calls, and the JSON of its verdict."""

    snapshot: bytes
    deviations: bytes
    verdict: bytes


def gauges(stored: MeshSummary) -> MeshGauges:
    """The gauges of a stored mesh. Before its first verdict it is warming up."""
    if not stored.verdict:
        return MeshGauges(stored.mesh, 0, stored.sequence, stored.observed_at, Status.WARMING_UP.value)
    record = Record.unpack(stored.verdict)
    verdict = json.loads(record.document)
    alerts = sum(incident["severity"] != Severity.NOTICE for incident in verdict["incidents"])
    silence = verdict.get("silence") or {"services": 0}  # absent in version 0.1.0
    return MeshGauges(
        stored.mesh,
        record.services,
        stored.sequence,
        stored.observed_at,
        verdict["status"],
        verdict["mesh_score"],
        verdict["threshold"],
        verdict["probability"],
        alerts,
        len(verdict.get("muted", ())),  # absent in version 0.1.0
        silence["services"],
        len(verdict["incidents"]) - alerts,
    )
