"""Documents for a range: a mesh over any period, in columns."""

from pydantic import Field

from serve_app.api.schemas.base import Document, Instant, ServiceKey


class TimelineChange(Document):
    """A planned change, with the time of the snapshot that announced it."""

    at: Instant
    kind: str
    service: ServiceKey
    reason: str


class RangeMesh(Document):
    """A mesh in the steps of a range; null: no data."""

    score: list[float | None] = Field(description="anomaly score (log10); the highest mean of a stored row in the step")
    highest_score: list[float | None] = Field(description="of a single snapshot in the step")
    threshold: list[float | None] = Field(description="the last one of the step")
    status: list[str | None] = Field(description="the worst of the step")


class RangeBand(Document):
    """The usual range of a metric; null: unknown."""

    low: list[float | None]
    high: list[float | None]


class RangeMetric(Document):
    """A metric in the steps of a range; null: not observed."""

    values: list[float | None] = Field(description="mean; of errors and latencies, weighted by requests")
    low: list[float | None] | None = Field(None, description="lowest row of each step; absent if all have one row")
    high: list[float | None] | None = Field(None, description="highest row of each step")
    expected: RangeBand | None = Field(
        None,
        description="range of 96% of the rows within half an hour of this time of day on up to 14 days before; the "
        "detector's expected values are in `details`",
    )


class RangeService(Document):
    """A service, or the calls to it from one caller, in the steps of a range."""

    metrics: dict[str, RangeMetric]
    score: list[float | None] = Field(description="highest anomaly score (log10); null: not scored")


class RangeIncident(Document):
    """An incident in a range."""

    id: str
    service: ServiceKey | None = Field(description="first suspect at its highest score; null: no suspect")
    kind: str
    severity: str = Field(description="the highest; `notice`: it raised no alert")
    first: Instant = Field(description="time of its first evidence")
    last: Instant = Field(description="time of its end; of one that is open, the newest snapshot")


class UnusualService(Document):
    """A service that was unusual in a range."""

    service: ServiceKey
    highest_score: float = Field(description="highest anomaly score (log10)")
    at: Instant = Field(description="time of the snapshot, or beginning of the row, with that score")


class RangeDocument(Document):
    """A mesh, and one of its services or calls, in steps over a period; null: no data."""

    source: str = Field(
        description="where the values come from: `snapshots`: the kept snapshots; `archive`: rows of one or ten "
        "minutes; `prometheus`: the metrics of the service from the mesh's Prometheus, the rest as in `archive`"
    )
    problem: str | None = Field(
        None, description="why the mesh's Prometheus gave no metrics of a time before `complete_from`"
    )
    complete_from: Instant | None = Field(
        description="time from which this service knows the mesh; the oldest history is deleted first"
    )
    step_seconds: float = Field(description="length of a step")
    observed_at: list[Instant] = Field(description="beginning of each step, oldest first")
    mesh: RangeMesh
    service: RangeService | None = Field(description="null: no service was asked for")
    unusual: list[UnusualService] = Field(
        description="without `service`: those with the highest scores, at most 20; otherwise empty"
    )
    incidents: list[RangeIncident] = Field(description="newest first, at most 500")
    changes: list[TimelineChange] = Field(description="planned changes, oldest first")
