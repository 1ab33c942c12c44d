"""The stored form of a verdict and of the window, and the gauges of a stored mesh."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import msgspec
import numpy as np

from model.drift.measures import MEASURES
from model.drift.sketch import DriftSketch, drifting
from model.snapshot import MeshSnapshot
from model.verdict import IncidentKind, Severity, Status
from serve_app.api.codec import unpack_snapshot
from serve_app.metrics import DriftGauges, MeshGauges
from serve_app.stores.base import MeshSummary

TIMES = 3  # of a record
MAX = 9999  # hundredths of a limit


class Head(msgspec.Struct):
    """The fields of a verdict that are about the mesh as a whole."""

    observed_at: datetime
    status: str
    mesh_score: float
    threshold: float | None


_read_head = msgspec.json.Decoder(Head).decode


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
        drift: of the mesh, see :func:`pack_drift`; empty if unknown.
    """

    services: int
    document: bytes
    deviations: bytes = b""
    seconds: float | None = None
    made_at: float | None = None
    interval: float | None = None
    drift: bytes = b""

    @property
    def head(self) -> Head:
        """What the document says about the mesh as a whole."""
        return _read_head(self.document)

    def pack(self) -> bytes:
        """A line with numbers, a line with the document (its JSON has no line breaks), then the deviations.

        The numbers are the services, the microseconds that it took, when it was made, and the time between snapshots,
        also in microseconds; then the drift. What is unknown is a dash, or left out at the end.
        """
        times = [self.seconds, self.made_at, self.interval]
        while times and times[-1] is None and not self.drift:
            times.pop()
        known = b"".join(b" -" if time is None else b" %d" % round(time * 1e6) for time in times)
        drift = b" " + self.drift if self.drift else b""
        return b"%d%b%b\n%b\n%b" % (self.services, known, drift, self.document, self.deviations)

    @classmethod
    def unpack(cls, packed: bytes) -> "Record":
        """Read what :meth:`pack` wrote, also in versions that stored fewer numbers."""
        numbers, _, rest = packed.partition(b"\n")
        document, _, deviations = rest.partition(b"\n")
        services, *others = numbers.split()
        times = (None if time == b"-" else int(time) / 1e6 for time in [*others, *[b"-"] * TIMES][:TIMES])
        seconds, made_at, interval = times
        return cls(int(services), document, deviations, seconds, made_at, interval, b" ".join(others[TIMES:]))


def pack_drift(sketch: DriftSketch) -> bytes:
    """How many measures drift, and each distance in hundredths of its limit, for a :class:`Record`.

    They are whole numbers or dashes, which earlier versions skip. Empty before the first block.
    """
    if sketch.judged < 0:
        return b""
    return _drift_numbers(len(drifting(sketch)), sketch.ratios.tobytes())


@lru_cache(maxsize=256)
def _drift_numbers(drifts: int, ratios: bytes) -> bytes:
    """The same numbers are stored with each verdict of six hours."""
    hundredths = np.frombuffer(ratios, np.float32).astype(np.float64) * 100
    return b" ".join([b"%d" % drifts, *(b"-" if np.isnan(one) else b"%d" % min(round(one), MAX) for one in hundredths)])


def _drift(numbers: bytes) -> DriftGauges | None:
    """Read what :func:`pack_drift` wrote; None if there is nothing, or another version wrote it."""
    drifts, *ratios = numbers.split() or (b"0",)
    if len(ratios) != len(MEASURES):
        return None
    return DriftGauges(int(drifts), tuple(None if one == b"-" else int(one) / 100 for one in ratios))


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A packed snapshot, the packed deviations of its services and calls, and the JSON of its verdict."""

    snapshot: bytes
    deviations: bytes
    verdict: bytes


def match(window: Iterable[MeshSnapshot], records: Iterable[Record]) -> list[tuple[MeshSnapshot, Record]]:
    """Return the records of snapshots of the window, with their snapshots, in order."""
    snapshots = {snapshot.observed_at: snapshot for snapshot in window}
    found = ((snapshots.get(record.head.observed_at), record) for record in records)
    return [(snapshot, record) for snapshot, record in found if snapshot is not None]


def unpack_window(packed: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, MeshSnapshot]]:
    """The snapshots with their numbers. Equal names and topologies are stored once, as in a state that grew here."""
    before: MeshSnapshot | None = None
    for number, one in packed:
        before = unpack_snapshot(one, before)
        yield number, before


def gauges(stored: MeshSummary) -> MeshGauges:
    """The gauges of a stored mesh. Before its first live verdict it is warming up."""
    if not stored.verdict:
        return MeshGauges(stored.mesh, 0, stored.sequence, stored.observed_at, Status.WARMING_UP.value)
    record = Record.unpack(stored.verdict)
    verdict = json.loads(record.document)
    is_replayed = bool(verdict.get("replayed"))  # absent in version 0.1.0
    incidents = [] if is_replayed else verdict["incidents"]  # of a time that is over
    alerts = [incident for incident in incidents if incident["severity"] != Severity.NOTICE]
    muted = verdict.get("muted", ())  # absent in version 0.1.0
    unseen = sum(one.get("kind") == IncidentKind.TELEMETRY_MISSING for one in alerts if one.get("recovering"))
    silence = verdict.get("silence") or {"services": 0}  # absent in version 0.1.0
    whole = verdict.get("reconstruction") or {}  # absent in version 0.2.0
    return MeshGauges(
        stored.mesh,
        record.services,
        stored.sequence,
        stored.observed_at,
        Status.WARMING_UP.value if is_replayed else verdict["status"],
        score=verdict["mesh_score"],
        threshold=verdict["threshold"],
        probability=verdict["probability"],
        incidents=len(alerts),
        mutes=len(muted),
        silent=silence["services"],
        notices=len(incidents) - len(alerts),
        made_at=record.made_at,
        recovering=sum(bool(incident.get("recovering")) for incident in alerts) - unseen,
        hidden=len({service for mute in muted for service in mute["hides"]}),
        coverage=verdict.get("coverage", 1.0),
        interval_seconds=record.interval,
        unseen=unseen,
        drift=_drift(record.drift),
        reconstruction_loss=whole.get("loss"),
        loss_threshold=whole.get("loss_threshold"),
        embedding_displacement=whole.get("drift"),
        displacement_threshold=whole.get("drift_threshold"),
        exceeded=whole.get("exceeded"),
        teams=tuple(dict.fromkeys(team for incident in alerts if (team := incident.get("team")))),
    )
