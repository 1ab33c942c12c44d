"""The stored form of a verdict, and the gauges of a stored mesh."""

import json
from dataclasses import dataclass

from model.verdict import IncidentKind, Severity, Status
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
        made_at: when the verdict was made, Unix time; None if unknown. A snapshot's own time may be simulated.
        interval: measured time between snapshots, s; None if unknown.
    """

    services: int
    document: bytes
    deviations: bytes = b""
    seconds: float | None = None
    made_at: float | None = None
    interval: float | None = None

    def pack(self) -> bytes:
        """A line with numbers, a line with the document (its JSON has no line breaks), then the deviations.

        The numbers are the services, the microseconds that it took, when it was made, and the time between snapshots,
        also in microseconds. What is unknown is a dash, or left out at the end.
        """
        times = [self.seconds, self.made_at, self.interval]
        while times and times[-1] is None:
            times.pop()
        known = b"".join(b" -" if time is None else b" %d" % round(time * 1e6) for time in times)
        return b"%d%b\n%b\n%b" % (self.services, known, self.document, self.deviations)

    @classmethod
    def unpack(cls, packed: bytes) -> "Record":
        """Read what :meth:`pack` wrote, also in versions that stored fewer numbers."""
        numbers, _, rest = packed.partition(b"\n")
        document, _, deviations = rest.partition(b"\n")
        services, *times = numbers.split()
        known = [None if time == b"-" else int(time) / 1e6 for time in times]
        return cls(int(services), document, deviations, *known[:3])


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
    alerts = [incident for incident in verdict["incidents"] if incident["severity"] != Severity.NOTICE]
    muted = verdict.get("muted", ())  # absent in version 0.1.0
    unseen = sum(one.get("kind") == IncidentKind.TELEMETRY_MISSING for one in alerts if one.get("recovering"))
    silence = verdict.get("silence") or {"services": 0}  # absent in version 0.1.0
    whole = verdict.get("reconstruction") or {}  # absent in version 0.2.0
    return MeshGauges(
        stored.mesh,
        record.services,
        stored.sequence,
        stored.observed_at,
        verdict["status"],
        verdict["mesh_score"],
        verdict["threshold"],
        verdict["probability"],
        len(alerts),
        len(muted),
        silence["services"],
        len(verdict["incidents"]) - len(alerts),
        record.made_at,
        sum(bool(incident.get("recovering")) for incident in alerts) - unseen,
        len({service for mute in muted for service in mute["hides"]}),
        verdict.get("coverage", 1.0),
        record.interval,
        unseen,
        **{name: whole.get(name) for name in ("loss", "loss_threshold", "drift", "drift_threshold", "exceeded")},
    )
