"""A stored verdict, a snapshot with its verdict, and the gauges of a stored mesh."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Self

import msgspec

from model.drift.measures import MEASURES
from model.drift.sketch import DriftSketch, drifting
from model.snapshot import MeshSnapshot
from model.verdict import IncidentKind, Severity, Status
from serve_app.api.codec import unpack_snapshot
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.views import Deviations
from serve_app.errors import CorruptState
from serve_app.metrics import DriftGauges, MeshGauges
from serve_app.stores.records import StoredMesh

MAX_RATIO = 99.99  # of a drift measure to its limit


class VerdictHead(msgspec.Struct):
    """A verdict's fields about the mesh as a whole."""

    observed_at: datetime
    status: str
    mesh_score: float
    threshold: float | None


_read_head = msgspec.json.Decoder(VerdictHead).decode


class StoredVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """A verdict as it was sent.

    Attributes:
        services: number of services in its snapshot.
        document: JSON.
        deviations: of each service and call, packed; empty if unknown.
        seconds: time to compute it, without decoding and storing; None if not measured.
        made_at: when it was made, Unix time; None if unknown. A snapshot's own time may be simulated.
        interval: measured time between snapshots, s; None if unknown.
        drift: of the mesh; None before the first block.
    """

    services: int
    document: bytes
    deviations: bytes = b""
    seconds: float | None = None
    made_at: float | None = None
    interval: float | None = None
    drift: DriftGauges | None = None

    @property
    def head(self) -> VerdictHead:
        """The document's fields about the mesh as a whole, decoded far faster than all of it."""
        return _read_head(self.document)

    def pack(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def unpack(cls, content: bytes) -> "StoredVerdict":
        """Inverse of :meth:`pack`.

        Raises:
            CorruptState: another version stored it in another form.
        """
        try:
            return _read(content)
        except msgspec.MsgspecError as error:
            raise CorruptState(
                f"stored verdict: expected the form of this version of tagae, got another ({error}); delete the mesh, "
                "or use the version that wrote it"
            ) from error


_read = msgspec.msgpack.Decoder(StoredVerdict).decode


@dataclass(frozen=True, eq=False)
class ScoredSnapshot:
    """A snapshot with its verdict. Each form of the verdict is decoded on first use.

    Attributes:
        of_mesh: numbers of services and calls in the whole mesh; None: the snapshot has all of them.
    """

    snapshot: MeshSnapshot
    stored: StoredVerdict
    of_mesh: tuple[int, int] | None = None

    @classmethod
    def of(cls, snapshot: MeshSnapshot, deviations: Deviations, verdict: VerdictDocument) -> Self:
        """Create it for a snapshot that was scored here and is not stored."""
        document = verdict.model_dump_json().encode()
        return cls(snapshot, StoredVerdict(snapshot.num_nodes, document, deviations.pack()))

    @property
    def at(self) -> datetime:
        return self.snapshot.observed_at

    @cached_property
    def deviations(self) -> Deviations:
        """Anomaly scores of services and calls."""
        return Deviations.unpack(self.stored.deviations, self.snapshot)

    @cached_property
    def verdict(self) -> VerdictDocument:
        return VerdictDocument.model_validate_json(self.stored.document)

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The verdict as a plain object, including fields of other versions."""
        fields: dict[str, Any] = json.loads(self.stored.document)
        return fields

    def find(self, incident: str) -> dict[str, Any] | None:
        """Return an open incident's fields in the verdict; None: it was not open."""
        return next((fields for fields in self.fields["incidents"] if fields["id"] == incident), None)

    def has_lost(self, incident: str) -> bool:
        """Return whether the verdict closed an incident because it had no data for too long."""
        return incident in self.fields["lost"]


def match_verdicts(window: Iterable[MeshSnapshot], verdicts: Iterable[StoredVerdict]) -> list[ScoredSnapshot]:
    """Return the snapshots of a window that have a verdict, in the order of the verdicts."""
    snapshots = {snapshot.observed_at: snapshot for snapshot in window}
    pairs = ((snapshots.get(verdict.head.observed_at), verdict) for verdict in verdicts)
    return [ScoredSnapshot(snapshot, verdict) for snapshot, verdict in pairs if snapshot is not None]


def drift_gauges(sketch: DriftSketch) -> DriftGauges | None:
    """Return the number of drifting measures, and each measure's ratio to its limit; None before the first block."""
    if sketch.judged < 0:
        return None
    ratios = (None if ratio != ratio else round(min(ratio, MAX_RATIO), 2) for ratio in sketch.ratios.tolist())
    return DriftGauges(len(drifting(sketch)), tuple(ratios))


def unpack_window(window: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, MeshSnapshot]]:
    """Yield the snapshots with their numbers. Snapshots share equal names and topologies, as in a state that was not
    loaded."""
    before: MeshSnapshot | None = None
    for number, content in window:
        before = unpack_snapshot(content, before)
        yield number, before


def gauges(stored_mesh: StoredMesh) -> MeshGauges:
    """Return a stored mesh's gauges. Before its first live verdict, it is warming up."""
    if not stored_mesh.verdict:
        return MeshGauges(stored_mesh.mesh, sequence=stored_mesh.sequence, observed_at=stored_mesh.observed_at)
    newest = StoredVerdict.unpack(stored_mesh.verdict)
    verdict = json.loads(newest.document)
    is_replayed = verdict["replayed"]
    incidents = [] if is_replayed else verdict["incidents"]  # of a time that is over
    alerts = [incident for incident in incidents if incident["severity"] != Severity.NOTICE]
    recovering = [incident for incident in alerts if incident["recovering"]]
    unseen = sum(incident["kind"] == IncidentKind.TELEMETRY_MISSING for incident in recovering)
    whole = verdict["reconstruction"] or {}
    return MeshGauges(
        stored_mesh.mesh,
        newest.services,
        stored_mesh.sequence,
        stored_mesh.observed_at,
        Status.WARMING_UP.value if is_replayed else verdict["status"],
        score=verdict["mesh_score"],
        threshold=verdict["threshold"],
        probability=verdict["probability"],
        incidents=len(alerts),
        mutes=len(verdict["muted"]),
        silent=verdict["silence"]["services"] if verdict["silence"] else 0,
        notices=len(incidents) - len(alerts),
        made_at=newest.made_at,
        recovering=len(recovering) - unseen,
        hidden=len({service for mute in verdict["muted"] for service in mute["hides"]}),
        coverage=verdict["coverage"],
        interval_seconds=newest.interval,
        unseen=unseen,
        drift=newest.drift if newest.drift and len(newest.drift.ratios) == len(MEASURES) else None,
        reconstruction_loss=whole.get("loss"),
        loss_threshold=whole.get("loss_threshold"),
        embedding_displacement=whole.get("drift"),
        displacement_threshold=whole.get("drift_threshold"),
        exceeded=whole.get("exceeded"),
        teams=tuple(dict.fromkeys(team for incident in alerts if (team := incident["team"]))),
    )
