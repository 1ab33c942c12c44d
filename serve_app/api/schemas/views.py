"""Documents for views: meshes, graphs, the model, health."""

from typing import Annotated, Literal

from pydantic import Field

from serve_app.api.schemas.base import Deviation, Document, Instant, ServiceKey
from serve_app.api.schemas.snapshot import CallDocument, ServiceDocument


class PartDocument(Document):
    """One part of a mesh: what one scoring task computes."""

    part: int = Field(ge=0, description="index, as in `missing_parts` of a verdict")
    services: int = Field(ge=0, description="core services, which only this part scores")
    halo: int = Field(ge=0, description="services of other parts that it only reads")
    calls: int = Field(ge=0, description="calls scored by this part")
    calls_read: int = Field(ge=0, description="calls that it computes, including the halo: its cost")
    namespaces: list[str] = Field(description="namespaces of its core services")
    members: list[ServiceKey] | None = Field(None, description="its core services, if requested")


class PlanQuality(Document):
    """The quality of a plan; a mesh in one part has cuts of 0, balance 1 and replication 1."""

    traffic_cut: float = Field(ge=0, le=1, description="share of the traffic between services of different parts")
    call_cut: float = Field(ge=0, le=1, description="share of the calls between services of different parts")
    balance: float = Field(ge=1, description="services of the largest core, relative to the mean")
    replication: float = Field(ge=1, description="(core + halo) / core, over all parts")


class PlanDocument(Document):
    """The partition of a mesh in its newest snapshot. Recently absent services and calls still count."""

    observed_at: Instant
    services: int = Field(ge=0)
    calls: int = Field(ge=0)
    crossing_calls: int = Field(ge=0, description="calls between parts")
    quality: PlanQuality
    parts: list[PartDocument]


class GraphService(ServiceDocument):
    """One service with its result in the verdict."""

    deviation: Deviation
    suspicion: Annotated[float | None, Field(description="score as a suspect, 0 to 1; null: no suspect")]
    incident: Annotated[str | None, Field(description="id of its open incident")]


class GraphCall(CallDocument):
    """One call with its anomaly score."""

    deviation: Deviation


class GraphDocument(Document):
    """A mesh's snapshot with its verdict's result for each service and call."""

    observed_at: Instant
    status: str = Field(description="of the verdict", examples=["normal"])
    services: list[GraphService]
    calls: list[GraphCall]
    vanished: list[ServiceKey] = Field(description="suspect or affected services that are not in the snapshot")


class ChannelDocument(Document):
    """One input of the network for a service or a call."""

    name: str = Field(examples=["p99_latency"])
    unit: str = Field(examples=["s"])
    transform: str = Field(description="`log` or `logit`", examples=["log"])


class FeatureSchemaDocument(Document):
    """The inputs of the network, in order."""

    services: list[ChannelDocument]
    calls: list[ChannelDocument]


class ModelDocument(Document):
    """The weights in use."""

    digest: str = Field(description="of the checkpoint; verdicts name it as `model`")
    schema_version: int = Field(description="of the features")
    features: FeatureSchemaDocument
    architecture: dict[str, float] = Field(description="sizes of the network, by name")
    parameters: int = Field(ge=0, description="number of parameters in the network and the meta-model")
    provenance: dict[str, str] = Field(description="how the weights were made: seed, data, steps, versions")
    meshes: dict[str, str] = Field(description="digests of the weights of meshes that have their own, by mesh")


class MeshDocument(Document):
    """A mesh in the list of meshes."""

    mesh: str = Field(examples=["prod-eu"])
    services: int = Field(ge=0, description="in the newest snapshot")
    sequence: int = Field(ge=0, description="snapshots counted")
    warm_up_snapshots: int = Field(10, ge=1, description="that the first scored verdict needs; a baseline counts")
    observed_at: Instant | None = Field(description="time of the newest snapshot; null before the first")
    status: str = Field(examples=["normal"])
    age_seconds: float | None = Field(
        None, ge=0, description="of the newest verdict, by the service's clock; null before the first, or if unknown"
    )
    interval_seconds: float | None = Field(None, ge=0, description="measured time between snapshots; null: unknown")
    problem: str = Field("", description="of its telemetry source; empty: none, or the mesh is pushed")
    mesh_score: float | None = Field(None, description="of the newest verdict; null before the first")
    threshold: float | None = Field(None, description="of the newest verdict; null while unknown")
    coverage: float = Field(1.0, ge=0, le=1, description="share of services that were scored")
    incidents: int = Field(0, ge=0, description="open incidents that raise alerts")
    recovering: int = Field(0, ge=0, description="open incidents whose services are back to normal")
    unseen: int = Field(0, ge=0, description="open incidents whose first suspect sends no telemetry")
    teams: list[str] = Field([], description="teams that the open incidents belong to, the worst incident first")
    notices: int = Field(0, ge=0, description="open notices")
    silent: int = Field(0, ge=0, description="services whose telemetry is missing")
    hidden: int = Field(0, ge=0, description="muted services that would be part of an incident")
    alert_budget_per_day: float | None = Field(
        None, description="false alerts per day that the settings allow; null before the first snapshot"
    )


class ScoringDocument(Document):
    """How the newest snapshot of a mesh was scored."""

    place: Literal["session", "replicas"] = Field(
        description="session: by the process that holds the mesh; replicas: in parts, which the meta-model joined"
    )
    parts: dict[str, int] = Field(description="number of parts scored, by replica")
    missing_parts: int = Field(ge=0, description="parts without a score")


class SourceDocument(Document):
    """The source of a mesh's snapshots, and its state."""

    collected: bool = Field(description="true: this service collects them from Prometheus; false: they are pushed")
    handed_on: Instant | None = Field(None, description="time of the newest collected snapshot")
    stale_seconds: float = Field(0.0, ge=0, description="age of the oldest values used in place of a failed query")
    masked: list[str] = Field([], description="queries without a result in the newest snapshot")
    incomplete: str = Field(
        "", description="what Prometheus says about missing parts of its newest answers; empty if they are complete"
    )
    problem: str = Field("", description="of the newest poll; empty if there is none")
    remarks: list[str] = Field(
        [], description="what is unusual about its series: rare scrapes, data that arrive late, several clusters"
    )
    replayed: float | None = Field(
        None, ge=0, le=1, description="how much of the mesh's past has been read; null: that is over, or was not needed"
    )


class OneMeshDocument(MeshDocument):
    """A mesh."""

    source: SourceDocument | None = Field(None, description="null: the collector does not answer")
    scoring: ScoringDocument | None = Field(None, description="null: no process that runs now has scored it")


class ReplayProgress(Document):
    """A new mesh whose past is being read."""

    mesh: str | None = Field(description="its name, for callers who may see all meshes")
    share: float = Field(ge=0, le=1, description="of its past that has been read")


class HealthDocument(Document):
    """Health of the service and its parts; null means "no answer yet"."""

    status: str = Field(
        description="`ok` or `ready`; `starting`: the scorers have not answered yet, so that there is no model",
        examples=["ok"],
    )
    version: str = Field(examples=["0.1.0"])
    device: str | None = Field(None, description="of the scorers: `cpu` or `cuda`", examples=["cpu"])
    kernels: str | None = Field(
        None,
        description="`cpu-avx512`, `cpu-avx2`, `cpu-neon`, `cuda` or `reference`: the network's ops on this device",
    )
    model: str | None = Field(None, description="digest of the weights")
    refused: str | None = Field(None, description="why configured weights are not in use, and which ones are")
    receivers: list[str] = Field(
        default_factory=list,
        description="receivers that take no notifications, and why; addresses only for callers who may see all meshes",
    )
    replays: list[ReplayProgress] = Field(default_factory=list, description="new meshes whose past is being read")
