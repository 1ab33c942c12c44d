"""Documents of verdicts: scores, suspects, reasons, incidents."""

from pydantic import Field

from serve_app.api.schemas.base import Document, Instant, PagedServices, ServiceKey
from serve_app.api.schemas.snapshot import SnapshotDocument, StoredChangeDocument


class ScoreDocument(Document):
    """Snapshots of one mesh, to be judged without being kept."""

    snapshots: list[SnapshotDocument] = Field(
        json_schema_extra={"minItems": 10, "maxItems": 120},
        description="oldest first; how many is a setting, by default 10 to 120",
    )


class ReasonDocument(Document):
    """Why a service is suspected. Null is "no value": a service that vanished has none observed."""

    metric: str = Field(
        description="a metric's name; `vanished`: the suspect is gone and missed; `new_calls`, `lost_calls`, "
        "`moved_calls`: calls into it that were not made before or go elsewhere now, calls that it did not make before "
        "(values in requests/s)"
    )
    source: ServiceKey | None = Field(None, description="the caller, where the evidence is a call into the suspect")
    destination: ServiceKey | None = Field(None, description="the callee, where it is a call that the suspect makes")
    observed: float | None = Field(description="value now, in the metric's unit")
    expected: float | None = Field(description="value expected from the past and the neighbours, same unit")
    since: Instant
    load: float = Field(1.0, description="suspect's requests over the usual; 1: as usual, unknown, or told elsewhere")
    text: str = Field(description="the same in words", examples=["p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC"])


class SuspectDocument(Document):
    """A service where trouble may start."""

    service: ServiceKey
    score: float = Field(ge=0, le=1)
    reasons: list[ReasonDocument]


class NearbyChangeDocument(StoredChangeDocument):
    """A planned change near an incident."""

    at: Instant = Field(description="of the snapshot that announced it")
    text: str = Field(description="the same in words", examples=["began 40 s after deploy of shop/cart (v1.4.2)"])


class ClusterEventDocument(Document):
    """What Kubernetes tells of a service and nobody planned: context, neither evidence nor excuse."""

    kind: str = Field(examples=["BackOff"])
    service: ServiceKey
    object: str = Field(examples=["Pod cart-v1-5f-x7k2p"])
    message: str
    first: Instant
    last: Instant
    count: int = Field(ge=1)
    text: str = Field(description="the same in words", examples=["BackOff of shop/cart, 40 s before it began"])


class IncidentDocument(Document):
    """Anomalous services and calls that hang together, under one id for as long as it is open."""

    id: str
    since: Instant
    severity: str = Field(description="`minor`, `major` or `critical`; only rises", examples=["major"])
    score: float
    suspects: list[SuspectDocument] = Field(description="best first")
    affected: list[ServiceKey]
    changes: list[NearbyChangeDocument] = Field(
        description="planned changes at its services, shortly before it or since, newest first"
    )
    events: list[ClusterEventDocument] = Field([], description="what Kubernetes told of its services, newest first")


class MuteInForceDocument(Document):
    """A mute in force: why it may be quiet."""

    id: str | None = Field(description="by which it is taken back; null: it is of settings or of the snapshot")
    origin: str = Field(description="where it was given: `api`, `settings`, `snapshot` (annotations)", examples=["api"])
    services: list[PagedServices] = Field(description="that page nobody; empty: the whole mesh")
    reason: str
    until: Instant | None = Field(description="null: for as long as its origin says so")
    hides: list[ServiceKey] = Field(description="services that would be part of an incident now")


class VerdictDocument(Document):
    """What the detector says of one snapshot."""

    observed_at: Instant
    sequence: int = Field(ge=0, description="how many snapshots of this mesh were counted, this one included")
    status: str = Field(
        description="`anomalous` while an incident is open; `partial`: nothing found but not all was scored; "
        "`warming_up`: too few snapshots seen; else `normal`",
        examples=["normal"],
    )
    mesh_score: float = Field(allow_inf_nan=False, description="strongest evidence, decades of improbability")
    threshold: float | None = Field(description="percentile of mesh_score over quiet history; null while unknown")
    probability: float = Field(ge=0, le=1, description="calibrated probability that an incident is in progress")
    suspects: list[SuspectDocument] = Field(description="of the whole mesh, best first")
    incidents: list[IncidentDocument] = Field(description="those that page")
    coverage: float = Field(ge=0, le=1, description="share of services that were scored")
    missing_parts: list[int] = Field(description="partitions that gave no answer in time")
    model: str = Field(description="digest of the weights that said so")
    muted: list[MuteInForceDocument] = Field(default_factory=list, description="mutes in force")


class VerdictsDocument(Document):
    """Kept verdicts of a mesh."""

    verdicts: list[VerdictDocument] = Field(description="oldest first")
