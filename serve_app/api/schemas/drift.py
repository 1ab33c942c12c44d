"""The document of a mesh's drift: how far it is from training and from its own last week."""

from pydantic import Field

from serve_app.api.schemas.base import Document, Instant, ServiceKey


class DriftMeasureDocument(Document):
    """One distance of the mesh."""

    reference: str = Field(
        description="`training`: the meshes that the weights were trained on; `week`: the same hours of its own last "
        "week",
        examples=["week"],
    )
    kind: str = Field(
        description="`values`: population stability index; `tails`: decades by which tails are entered more often; "
        "`missing`: increase of the share of values that are missing; "
        "`calls`: share of the calls that were first made in the last four days",
        examples=["values"],
    )
    channel: str = Field(
        description="`service.` or `call.` and a channel; `mesh` for the whole mesh", examples=["service.p50_latency"]
    )
    distance: float | None = Field(description="null: not known yet")
    limit: float | None = Field(description="above it for two blocks in a row, the measure drifts; null: not known")
    moved: float | None = Field(
        ge=0,
        le=1,
        description="minimum share of the values that moved, without services that joined or left; null: unknown",
    )
    since: Instant | None = Field(description="start of the drift; null: no drift")


class DriftAdviceDocument(Document):
    """A drift in words, and the command to run."""

    reference: str = Field(description="as in a measure", examples=["training"])
    subject: str = Field(description="what drifts", examples=["latencies"])
    text: str = Field(
        examples=[
            "the latencies of at least 61% of the services have differed from training's since Tue 3 Mar, 12:00 UTC"
        ]
    )
    command: str = Field(examples=["tagae train weights.safetensors --recording FOLDER"])
    purpose: str = Field(description="purpose of the command", examples=["train weights on this mesh"])
    since: Instant


class MissingDocument(Document):
    """A metric that some services or calls do not have."""

    channel: str = Field(description="`service.` or `call.` and a metric", examples=["service.p99_latency"])
    share: float = Field(ge=0, le=1, description="of the services or calls without it, in the newest snapshot")
    before: float | None = Field(ge=0, le=1, description="mean of this share over the last week; null: not known yet")


class ConstantDocument(Document):
    """A metric of a service that does not change, while others do."""

    service: ServiceKey
    metric: str = Field(examples=["cpu_utilization"])


class DataQualityDocument(Document):
    """Series that are measured badly."""

    missing: list[MissingDocument]
    stale: list[ServiceKey] = Field(description="services of which no metric changes")
    constant: list[ConstantDocument]


class DriftDocument(Document):
    """How far a mesh is from training and from its own last week."""

    judged_until: Instant | None = Field(description="end of the newest block of six hours; null before the first")
    days: int = Field(ge=0, le=7, description="of its own week that are known; it is compared from the fifth on")
    advice: list[DriftAdviceDocument] = Field(description="the oldest first; empty: nothing drifts")
    measures: list[DriftMeasureDocument]
    quality: DataQualityDocument
