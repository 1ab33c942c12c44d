"""What a session keeps of a verdict in the store, and what it tells of its meshes."""

import json
from dataclasses import dataclass

from model.verdict import Status
from serve_app.metrics import MeshGauges
from serve_app.stores.base import MeshSummary


@dataclass(frozen=True, slots=True)
class Record:
    """A verdict as it was answered, ready to be answered again.

    Attributes:
        services: in its snapshot.
        document: the verdict's JSON document.
        deviations: of each service and call, packed; empty where they are not known.
        seconds: from snapshot to verdict, without decoding and storing; None where nobody measured it.
    """

    services: int
    document: bytes
    deviations: bytes = b""
    seconds: float | None = None

    def pack(self) -> bytes:
        """A line with the number of services and the microseconds, one with the document (JSON has no other line
        breaks), deviations."""
        took = b"" if self.seconds is None else b" %d" % round(self.seconds * 1e6)
        return b"%d%b\n%b\n%b" % (self.services, took, self.document, self.deviations)

    @classmethod
    def unpack(cls, packed: bytes) -> "Record":
        """Read what :meth:`pack` wrote, or versions that measured no time."""
        numbers, _, rest = packed.partition(b"\n")
        document, _, deviations = rest.partition(b"\n")
        services, *took = numbers.split()
        return cls(int(services), document, deviations, int(took[0]) / 1e6 if took else None)


@dataclass(frozen=True, slots=True)
class Seen:
    """A snapshot of a mesh, packed, how strange its services and calls are, packed, and its verdict's JSON."""

    snapshot: bytes
    deviations: bytes
    verdict: bytes


def gauges(stored: MeshSummary) -> MeshGauges:
    """A stored mesh as it is listed and measured; before its first verdict it is warming up."""
    if not stored.verdict:
        return MeshGauges(stored.mesh, 0, stored.sequence, stored.observed_at, Status.WARMING_UP.value)
    record = Record.unpack(stored.verdict)
    verdict = json.loads(record.document)
    return MeshGauges(
        stored.mesh,
        record.services,
        stored.sequence,
        stored.observed_at,
        verdict["status"],
        verdict["mesh_score"],
        verdict["threshold"],
        verdict["probability"],
        len(verdict["incidents"]),
        len(verdict.get("muted", ())),  # version 0.1.0 knew none
    )
