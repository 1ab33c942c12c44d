"""The documents that the page reads. They have columns instead of rows, because windows and meshes are large."""

from pydantic import Field

from serve_app.api.schemas.base import Deviation, Document, Instant, ServiceKey
from serve_app.api.schemas.history import TimelineChange
from serve_app.api.schemas.verdict import ClusterEventFields, MuteInForceDocument


class TimelineIncident(Document):
    """An incident in the timeline."""

    id: str
    since: Instant
    severity: str = Field(description="the highest so far; `notice`: it raises no alert")
    service: ServiceKey | None = Field(description="first suspect at its highest score; null: no suspect")
    score: float = Field(description="highest score of the incident")
    first: Instant = Field(description="snapshot of the first verdict with it in this document")
    last: Instant = Field(description="snapshot of the last verdict with it")


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
    requests_per_second: list[float] = Field(description="received, or sent by a service that nothing calls")
    deviation: list[Deviation] = Field(description="anomaly score; of a namespace, the highest")
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
    error_rate: list[float | None] = Field(description="share of the requests that fail; null: not observed")
    p99_latency: list[float | None] = Field(description="s; of folded services, the mean of their calls")
    deviation: list[Deviation]


class MapSpread(Document):
    """The calls along which an incident spread, in columns: to callers, nearest first, then to callees."""

    edge: list[int] = Field(description="position among the calls")
    step: list[int] = Field(description="number of calls from the nearest origin, from 1")
    is_down: list[bool] = Field(description="whether it spread from caller to callee")


class MetricHistory(Document):
    """A metric over time, one value for each snapshot; null: not observed, or not known."""

    metric: str = Field(examples=["p99_latency"])
    observed: list[float | None]
    expected: list[float | None] = Field(
        description="expected from its own past, as the detector computes it; recomputed from the kept snapshots"
    )
    low: list[float | None] = Field(description="lower end of the usual range")
    high: list[float | None] = Field(description="upper end of the usual range")


class MapFrontDoor(Document):
    """The requests of services that no other service calls, over the last snapshots."""

    times: list[Instant]
    metrics: list[MetricHistory] = Field(
        description="`request_rate`, `error_rate` and `p99_latency`: means of all entry points, by their requests; the "
        "usual range is the one of the newest 60 snapshots outside incidents"
    )


class CallGroup(Document):
    """Calls that share an end, or the namespace of an end."""

    calls: str = Field(description="in words", examples=["calls from shop/web", "calls out of namespace shop"])
    bad: int = Field(description="calls of the group that fail or are slow")
    total: int = Field(description="calls of the group")
    others_bad: int = Field(description="other calls that fail or are slow, and do not follow from another one")
    others: int = Field(description="other calls")


class MapInCommon(Document):
    """The property that an incident's failing or slow calls share."""

    verb: str = Field(description="what they do: `fail` or `are slow`; empty: it is not known what is usual")
    groups: list[CallGroup] = Field(description="the one that explains most first; empty: they share nothing")
    fact: str = Field(
        description="the first group in words, if it explains more than the first suspect; else empty",
        examples=["All 31 calls out of namespace maps fail, and 2 of 480 others"],
    )
    next_step: str = Field(description="then what to do instead of the incident's next step; else empty")
    service: str = Field(description="the service of `next_step`; empty: it is about none")


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
    spread: dict[str, MapSpread] = Field(description="by id of each open incident")
    front_door: MapFrontDoor | None = Field(description="null: of a past moment")
    ways: dict[str, list[ServiceKey]] = Field(
        description="by id of each open incident that raises an alert: the services from the front door to its first "
        "suspect; empty: it reached no entry point"
    )
    in_common: dict[str, MapInCommon] = Field(description="by id of each open incident that raises an alert")


class ServicesDocument(Document):
    """Services of a mesh whose names contain a text."""

    services: list[ServiceKey] = Field(
        description="the same name first, also in another namespace; then those that begin with the text"
    )
    total: int = Field(ge=0, description="number of services that match")


class PastMapDocument(MapDocument):
    """The map of a past moment, from the history of the mesh or its Prometheus."""

    source: str = Field(description="`snapshots`, `archive` or `prometheus`")
    step_seconds: float = Field(description="over which the values are means, and the scores are the highest")
    mesh_score: float | None = Field(description="highest anomaly score of the mesh (log10); null: unknown")
    threshold: float | None
    metrics: dict[str, list[float | None]] = Field(
        description="metrics of the nodes, in their order; null: not observed, or a node of several services"
    )


class ComparisonRow(Document):
    """A metric that differs between two periods."""

    service: ServiceKey
    source: ServiceKey | None = Field(description="the caller, for a metric of a call")
    metric: str
    first: float | None = Field(
        description="typical value in the first period, in the metric's unit; null: not observed"
    )
    second: float | None
    strength: float = Field(description="difference over the usual variation; the sign is the direction")
    significant: bool = Field(
        description="whether it is at least three times the usual variation and, of a service, larger than between the "
        "same times of day on earlier days, without the most unusual of them"
    )


class ComparisonDocument(Document):
    """The differences between two periods, the strongest first. With `service`: traffic, errors and latencies of that
    service, its other versions and its callers, also if they do not differ."""

    first_snapshots: int = Field(ge=1)
    second_snapshots: int = Field(ge=1)
    first_step_seconds: float = Field(description="over which each of them is a mean: of snapshots, their interval")
    second_step_seconds: float
    days: int = Field(ge=0, description="number of earlier days that the periods of a service were compared on")
    versions: list[ServiceKey] = Field(
        description="the service and its other versions, by their names; empty without `service`"
    )
    rows: list[ComparisonRow]


class NeighbourDocument(Document):
    """The calls between the service and one caller or callee, at the selected moment."""

    service: ServiceKey = Field(description="the caller or callee")
    requests_per_second: float
    requests: float = Field(description="number in a snapshot interval, of which the error rate is a share")
    error_rate: float | None = Field(description="null: not observed")
    p99_latency: float | None
    deviation: Deviation


class DetailsIncident(Document):
    """An incident in which the service is suspected or affected."""

    id: str
    since: Instant
    severity: str = Field(description="the highest so far; `notice`: it raises no alert")
    kind: str
    headline: str = Field(description="at its highest score")
    role: str = Field(description="`first_suspect`, `suspect` or `affected`, at its highest score")
    last: Instant = Field(description="its end; the selected moment if it has not ended")
    open: bool = Field(description="whether it is open at the selected moment")


class LogLineDocument(Document):
    """An error line of a log: one line of text without control characters, cut in the middle above 300 characters."""

    at: Instant
    text: str
    count: int = Field(ge=1, description="lines that differ from it in numbers only, and are not newer")


class LogsDocument(Document):
    """The mesh's logs about the service."""

    tool: str = Field(examples=["Loki at loki.example:3100"])
    failed: str = Field(
        description="why there is no answer, as the end of a sentence; empty: there is one",
        examples=["did not answer within 3 s"],
    )
    lines: list[LogLineDocument] = Field(description="error lines, newest first, at most 5")


class FailingTraceDocument(Document):
    """A trace in which a request of the service failed."""

    id: str
    at: Instant
    seconds: float
    name: str = Field(description="of its first span", examples=["GET /checkout"])
    service: str = Field(description="where it failed, as the tool names it")
    reason: str = Field(description="status or message of the failing span; empty: not known", examples=["503"])
    url: str | None = Field(description="by `links.trace`; null: there is no such link")


class TraceDocument(Document):
    """The mesh's traces about the service."""

    tool: str = Field(examples=["Tempo at tempo.example:3200"])
    failed: str = Field(description="as in `logs`")
    failing: FailingTraceDocument | None = Field(description="a recent failing trace; null: none was found")


class DetailsDocument(Document):
    """A service, or the calls to it from one caller, with its metrics over the kept snapshots and its incidents."""

    service: ServiceKey
    source: ServiceKey | None = Field(description="the caller, if this is about its calls to the service")
    team: str = Field("", description="team that owns the service; empty: not known")
    contact: str = Field("", description="where to reach the team; empty: not known")
    observed_at: Instant = Field(description="the selected moment: time of a snapshot")
    interval_seconds: float = Field(description="time between snapshots, in which requests are counted")
    state: str = Field(
        description="at the moment: `scored`; `unscored`: a part of the mesh did not answer; `silent`: it has no "
        "telemetry of its own; `absent`: it is not in the snapshot; `warming_up`: the mesh is being learned"
    )
    measured_at: Instant | None = Field(description="last snapshot up to the moment with a measurement; null: none")
    requests: float | None = Field(description="number in a snapshot interval at the moment; null: not observed")
    deviation: Deviation
    times: list[Instant] = Field(description="times of the metrics' snapshots, oldest first, at most 240")
    metrics: list[MetricHistory]
    signals: dict[str, list[float | None]] = Field(
        description="by kind, for the same snapshots: signals of the service, which have no expected values; null: not "
        "observed"
    )
    neighbours_at: Instant | None = Field(
        description="snapshot of the callers and callees: the moment, or the last one before it that has the service"
    )
    callers: list[NeighbourDocument] = Field(description="most requests first, at most 100; empty for calls")
    callers_total: int = Field(ge=0)
    callees: list[NeighbourDocument] = Field(description="most requests first, at most 100; empty for calls")
    callees_total: int = Field(ge=0)
    changes: list[TimelineChange] = Field(description="planned changes of it, newest first, at most 50")
    events: list[ClusterEventFields] = Field(description="newest first, at most 50")
    incidents: list[DetailsIncident] = Field(description="up to the moment, newest first, at most 50")
    muted: list[MuteInForceDocument] = Field(description="mutes in force at the moment that include it")
    links: dict[str, str] = Field(description="URLs of other tools: `dashboard`, `traces`, `logs`, `runbook`")
    logs: LogsDocument | None = Field(None, description="null: `tools` was not set, or the mesh has no `logs`")
    trace: TraceDocument | None = Field(None, description="null: `tools` was not set, or the mesh has no `traces`")
