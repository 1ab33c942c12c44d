"""Documents of what the service knows: meshes, plans, graphs, the model, adapters, health."""

from typing import Annotated

from pydantic import Field

from serve_app.api.schemas.base import Document, Instant, ServiceKey, Strangeness
from serve_app.api.schemas.snapshot import CallDocument, ServiceDocument
from serve_app.api.schemas.verdict import IncidentDocument


class PartDocument(Document):
    """One part of a mesh: what one scoring task computes."""

    part: int = Field(ge=0, description="index; what `missing_parts` of a verdict name")
    services: int = Field(ge=0, description="core services, scored by this part and no other")
    halo: int = Field(ge=0, description="services that are only read")
    calls: int = Field(ge=0, description="calls scored by this part")
    calls_read: int = Field(ge=0, description="calls that it computes, the halo's included: what it costs")
    namespaces: list[str] = Field(description="of its core services")
    members: list[ServiceKey] | None = Field(None, description="its core services, where they were asked for")


class PlanQuality(Document):
    """How good a plan is; a mesh in one part has cuts of 0, balance 1 and replication 1."""

    traffic_cut: float = Field(ge=0, le=1, description="share of the traffic between services of different parts")
    call_cut: float = Field(ge=0, le=1, description="share of the calls between services of different parts")
    balance: float = Field(ge=1, description="services of the largest core over the mean core")
    replication: float = Field(ge=1, description="core and halo over core, of all parts together")


class PlanDocument(Document):
    """How a mesh is cut as of its newest snapshot; services and calls lately absent are still known, and counted."""

    observed_at: Instant
    services: int = Field(ge=0)
    calls: int = Field(ge=0)
    crossing_calls: int = Field(ge=0, description="calls between parts")
    quality: PlanQuality
    parts: list[PartDocument]


class GraphService(ServiceDocument):
    """One service and what the newest verdict says of it."""

    deviation: Strangeness
    suspicion: Annotated[float | None, Field(description="score as a suspect, 0 to 1; null: not among them")]
    incident: Annotated[str | None, Field(description="id of the open incident that it is part of")]


class GraphCall(CallDocument):
    """One call and how strange it is."""

    deviation: Strangeness


class GraphDocument(Document):
    """The newest snapshot of a mesh with what its verdict says of each service and call."""

    observed_at: Instant
    status: str = Field(description="of the verdict", examples=["normal"])
    services: list[GraphService]
    calls: list[GraphCall]
    vanished: list[ServiceKey] = Field(description="suspect or affected services that are not in the snapshot")


class ChannelDocument(Document):
    """One number that the network sees of a service or a call."""

    name: str = Field(examples=["p99_latency"])
    unit: str = Field(examples=["s"])
    transform: str = Field(description="`log` or `logit`", examples=["log"])


class FeatureSchemaDocument(Document):
    """What the network sees, in its order."""

    services: list[ChannelDocument]
    calls: list[ChannelDocument]


class ModelDocument(Document):
    """The weights in use."""

    digest: str = Field(description="of the checkpoint; verdicts name it as `model`")
    schema_version: int = Field(description="of the features")
    features: FeatureSchemaDocument
    architecture: dict[str, float] = Field(description="sizes of the network, by name")
    parameters: int = Field(ge=0, description="learned numbers, of the network and the meta-model")
    provenance: dict[str, str] = Field(description="how it was made: seed, data, steps, versions")


class MeshDocument(Document):
    """One line of the list of meshes."""

    mesh: str = Field(examples=["prod-eu"])
    services: int = Field(ge=0, description="in the newest snapshot")
    sequence: int = Field(ge=0, description="snapshots counted")
    observed_at: Instant | None = Field(description="time of the newest snapshot; null before the first")
    status: str = Field(examples=["normal"])


class SourceDocument(Document):
    """Where a mesh's snapshots come from, and how that goes."""

    collected: bool = Field(description="from a Prometheus, by this service; false: they are pushed")
    handed_on: Instant | None = Field(None, description="the newest snapshot that was collected")
    stale_seconds: float = Field(0.0, ge=0, description="age of the oldest values that stand in for a failed query")
    masked: list[str] = Field([], description="queries that the newest snapshot does without")
    problem: str = Field("", description="of the newest poll; empty where all is well")


class IncidentsDocument(Document):
    """The open incidents of a mesh as of its newest snapshot."""

    observed_at: Instant
    incidents: list[IncidentDocument] = Field(description="worst first; empty where nothing pages")


class LoadCurve(Document):
    """How a service's median latency rises with its load."""

    service: ServiceKey
    usual_request_rate: float = Field(ge=0, description="1/s")
    least_request_rate: float = Field(ge=0, description="seen while nothing alerted, 1/s")
    most_request_rate: float = Field(ge=0, description="seen while nothing alerted, 1/s; beyond it nothing is expected")
    slowdown: float = Field(gt=0, description="median latency at the most load over that at the least")


class AdapterDocument(Document):
    """What one fit learned of a mesh."""

    fitted_at: Instant = Field(description="the newest snapshot then")
    snapshots: int = Field(ge=1, description="that it was fitted and tested on; none of them alerted")
    loss_before: float = Field(ge=0, description="on the newest of them, which the fit did not see, without it")
    loss_after: float = Field(ge=0, description="likewise, with it: mean squared deviation from expectation, sigmas")
    curves: list[LoadCurve] = Field(description="the steepest first")


class AdaptationDocument(Document):
    """What a mesh has adapted to."""

    adapter: AdapterDocument | None = Field(description="in use; null: none")
    former: AdapterDocument | None = Field(description="that a rollback brings back; null: it leaves none")
    rolled_back_at: Instant | None = Field(description="the newest snapshot then; only later ones teach; null: never")


class HealthDocument(Document):
    """What answers, and what it works with; null is "does not answer yet"."""

    status: str = Field(examples=["ok"])
    version: str = Field(examples=["0.1.0"])
    device: str | None = Field(None, description="of the scorers: `cpu` or `cuda`", examples=["cpu"])
    kernels: str | None = Field(None, description="`compiled-cuda`, `compiled-cpu` or `reference`")
    model: str | None = Field(None, description="digest of the weights")
    refused: str | None = Field(None, description="why the configured weights are not in use, and the shipped ones are")
