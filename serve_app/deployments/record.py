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
    """

    services: int
    document: bytes

    def pack(self) -> bytes:
        """One line with the number of services, then the document."""
        return b"%d\n" % self.services + self.document

    @classmethod
    def unpack(cls, packed: bytes) -> "Record":
        """Read what :meth:`pack` wrote."""
        services, _, document = packed.partition(b"\n")
        return cls(int(services), document)


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
    )
