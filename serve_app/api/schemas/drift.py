"""Documents for a mesh's drift: how far it is from training and from its own last week."""

from pydantic import Field, computed_field

from model.names import list_first
from serve_app.api.schemas.base import Document, Instant, KeptDocument, ServiceKey
from serve_app.api.wording import metric_words

MAX_NAMED = 3  # services that a text names


class DriftMeasureDocument(Document):
    """One distance of the mesh."""

    reference: str = Field(
        description="`training`: the meshes that the weights were trained on; `week`: the same hours of its own last "
        "week",
        examples=["week"],
    )
    kind: str = Field(
        description="`values`: population stability index; `tails`: decades by which tails are entered more often; "
        "`missing`: increase of the share of missing values; "
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
    """A drift in words, and a command to run."""

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
    """A service's metric that does not change while others do."""

    service: ServiceKey
    metric: str = Field(examples=["cpu_utilization"])


class DataQualityDocument(KeptDocument):
    """Badly measured series."""

    missing: list[MissingDocument]
    stale: list[ServiceKey] = Field(description="services of which no metric changes")
    constant: list[ConstantDocument]

    @computed_field(description="`stale` in words; empty: there is none")  # type: ignore[prop-decorator]
    @property
    def stale_text(self) -> str:
        """``nothing changes at shop/cart and 3 more``."""
        return f"nothing changes at {list_first(self.stale, MAX_NAMED)}" if self.stale else ""

    @computed_field(description="`constant` in words; empty: there is none")  # type: ignore[prop-decorator]
    @property
    def constant_text(self) -> str:
        """``30 metrics never change, such as active connections of shop/cart``. Some metrics are rightly constant."""
        if not self.constant:
            return ""
        name = f"{metric_words(self.constant[0].metric)} of {self.constant[0].service}"
        count = len(self.constant)
        return f"{name} never changes" if count == 1 else f"{count} metrics never change, such as {name}"


class DriftDocument(KeptDocument):
    """How far a mesh is from training and from its own last week."""

    judged_until: Instant | None = Field(description="end of the newest six-hour block; null before the first")
    days: int = Field(ge=0, le=7, description="known days of its own week; it is compared from the fifth on")
    advice: list[DriftAdviceDocument] = Field(description="the oldest first; empty: nothing drifts")
    measures: list[DriftMeasureDocument]
    quality: DataQualityDocument

    @computed_field(description="what is known if nothing drifts, in words")  # type: ignore[prop-decorator]
    @property
    def text(self) -> str:
        """``none until 2026-03-03 12:00 UTC, compared with training only``."""
        if self.judged_until is None:
            return "not known yet: the mesh is compared with training after a day"
        has_week = any(measure.reference == "week" and measure.distance is not None for measure in self.measures)
        return f"none until {self.judged_until:%Y-%m-%d %H:%M} UTC{'' if has_week else ', compared with training only'}"
