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
    """

    services: int
    document: bytes
    deviations: bytes = b""

    def pack(self) -> bytes:
        """A line with the number of services, one with the document (JSON has no other line breaks), deviations."""
        return b"%d\n%b\n%b" % (self.services, self.document, self.deviations)

    @classmethod
    def unpack(cls, packed: bytes) -> "Record":
        """Read what :meth:`pack` wrote."""
        services, _, rest = packed.partition(b"\n")
        document, _, deviations = rest.partition(b"\n")
        return cls(int(services), document, deviations)


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest snapshot of a mesh, packed, how strange its services and calls are, packed, and its verdict's JSON."""

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
