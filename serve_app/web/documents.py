"""The documents that the page reads. They have columns instead of rows, because windows and meshes are large."""

from pydantic import Field

from serve_app.api.schemas.base import Deviation, Document, Instant, ServiceKey


class TimelineIncident(Document):
    """An incident in the timeline."""

    id: str
    since: Instant
    severity: str = Field(description="the highest so far; `notice`: it raises no alert")
    service: ServiceKey | None = Field(description="first suspect at its highest score; null: no suspect")
    score: float = Field(description="highest score of the incident")
    first: Instant = Field(description="snapshot of the first verdict with it in this document")
    last: Instant = Field(description="snapshot of the last verdict with it")


class TimelineChange(Document):
    """A planned change, with the time of the snapshot that announced it."""

    at: Instant
    kind: str
    service: ServiceKey
    reason: str


class TimelineDocument(Document):
    """The kept verdicts in columns, one value for each snapshot, oldest first."""

    observed_at: list[Instant]
    sequence: list[int]
    status: list[str]
    mesh_score: list[float] = Field(description="anomaly score of the mesh (log10)")
    threshold: list[float | None]
    probability: list[float]
    coverage: list[float]
    missing_parts: list[int] = Field(description="number of parts without a score")
    milliseconds: list[float | None] = Field(description="from snapshot to verdict; null: not measured")
    incidents: list[TimelineIncident] = Field(description="by their first snapshot")
    changes: list[TimelineChange] = Field(description="oldest first")
    kept_from: Instant = Field(description="time of the oldest kept snapshot; drop rows before it")


class MapNodes(Document):
    """Services and folded namespaces in columns."""

    name: list[str] = Field(
        description="`namespace/service`; `namespace/*`: all its services without a node of their own"
    )
    services: list[int] = Field(description="number of services in the node")
    unusual: list[int] = Field(description="number of services in the node with an anomaly score above 3")
    x: list[float] = Field(description="position; nearest neighbours are about 1 apart, callers are to the left")
    y: list[float]
    deviation: list[Deviation] = Field(description="anomaly score; of a namespace, the highest")
    suspicion: list[float | None] = Field(
        description="score as a suspect; of a namespace, the highest; null: no suspect"
    )
    incident: list[str | None] = Field(description="id of its worst open incident; null: none, or only a notice")
    gone: list[bool] = Field(description="missing from the snapshot, and suspected or affected")
    silent: list[bool] = Field(
        description="in the snapshot without any metric of its own, so that nothing is known about it; of a "
        "namespace, all its services"
    )


class MapCalls(Document):
    """Calls between the nodes of a map, in columns; calls of folded services are added up."""

    source: list[int] = Field(description="position among the nodes")
    destination: list[int]
    requests_per_second: list[float | None] = Field(description="null: a call of a missing service")
    deviation: list[Deviation]


class MapDocument(Document):
    """The map of a mesh."""

    observed_at: Instant
    status: str
    services: int
    calls: int
    collapsed: list[str] = Field(
        description="namespaces with services that are one node, in a mesh above 200 services; `expand` opens them. "
        "Services of incidents, their callers and callees have nodes of their own"
    )
    nodes: MapNodes
    edges: MapCalls


class SeriesDocument(Document):
    """The metrics of a service or a call over time; null: not observed."""

    observed_at: list[Instant]
    metrics: dict[str, list[float | None]]


class ComparisonRow(Document):
    """A metric that differs between two periods."""

    service: ServiceKey
    source: ServiceKey | None = Field(description="the caller, for a metric of a call")
    metric: str
    first: float = Field(description="typical value in the first period, in the metric's unit")
    second: float
    strength: float = Field(description="difference over the usual variation; the sign is the direction")


class ComparisonDocument(Document):
    """The differences between two periods, the strongest first."""

    first_snapshots: int = Field(ge=1)
    second_snapshots: int = Field(ge=1)
    rows: list[ComparisonRow]
