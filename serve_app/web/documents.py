"""The documents that the page reads. They have columns instead of rows, because windows and meshes are large."""

from pydantic import Field

from serve_app.api.schemas.base import Document, Instant, ServiceKey, Strangeness


class TimelineIncident(Document):
    """An incident over the kept time."""

    id: str
    since: Instant
    severity: str = Field(description="the gravest so far")
    service: ServiceKey | None = Field(description="first suspect where it was strongest; null: nobody is suspected")
    score: float = Field(description="of the incident then")
    first: Instant = Field(description="snapshot of the first verdict with it that is told here")
    last: Instant = Field(description="of the last one")


class TimelineChange(Document):
    """A planned change, in the snapshot that announced it."""

    at: Instant
    kind: str
    service: ServiceKey
    reason: str


class TimelineDocument(Document):
    """The verdicts of the kept time in columns, one value for each snapshot, oldest first."""

    observed_at: list[Instant]
    sequence: list[int]
    status: list[str]
    mesh_score: list[float] = Field(description="decades of improbability")
    threshold: list[float | None]
    probability: list[float]
    coverage: list[float]
    missing_parts: list[int] = Field(description="how many")
    milliseconds: list[float | None] = Field(description="from snapshot to verdict; null: not measured")
    incidents: list[TimelineIncident] = Field(description="by their first snapshot")
    changes: list[TimelineChange] = Field(description="oldest first")
    kept_from: Instant = Field(description="the oldest kept snapshot: what was told of before can be asked no more")


class MapNodes(Document):
    """Services, and namespaces that are told as one, in columns."""

    name: list[str] = Field(description="`namespace/service`; `namespace/*`: all services of it")
    services: list[int] = Field(description="how many services it stands for")
    x: list[float] = Field(description="place in the layout, about 1 from the nearest neighbour, callers to the left")
    y: list[float]
    deviation: list[Strangeness] = Field(description="of a namespace: the strangest of its services")
    suspicion: list[float | None] = Field(description="score as a suspect, of a namespace the highest; null: none")
    incident: list[str | None] = Field(description="id of the open incident that it is part of, the worst one")
    gone: list[bool] = Field(description="not in the snapshot, and suspected or missed")


class MapCalls(Document):
    """Calls between the nodes of a map, in columns; calls of namespaces told as one are added up."""

    source: list[int] = Field(description="position among the nodes")
    destination: list[int]
    requests_per_second: list[float | None] = Field(description="null: a call of a service that is gone")
    deviation: list[Strangeness]


class MapDocument(Document):
    """A mesh as it is drawn."""

    observed_at: Instant
    status: str
    services: int
    calls: int
    collapsed: list[str] = Field(description="namespaces told as one node each, which `expand` tells one by one")
    nodes: MapNodes
    edges: MapCalls


class SeriesDocument(Document):
    """What was measured of one service, or of one call, over the kept time; null: not observed."""

    observed_at: list[Instant]
    metrics: dict[str, list[float | None]]


class ComparisonRow(Document):
    """A metric that differs between two periods."""

    service: ServiceKey
    source: ServiceKey | None = Field(description="the caller, where it is a metric of a call into the service")
    metric: str
    first: float = Field(description="typical value in the first period, in the metric's unit")
    second: float
    strength: float = Field(description="difference over what it usually differs by; sign: up or down")


class ComparisonDocument(Document):
    """What differs between two periods, the strongest differences first."""

    first_snapshots: int = Field(ge=1)
    second_snapshots: int = Field(ge=1)
    rows: list[ComparisonRow]
