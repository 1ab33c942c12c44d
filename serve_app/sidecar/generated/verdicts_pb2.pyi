import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LatestRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("observed_at", "services", "calls", "changes", "policies")
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    observed_at: _timestamp_pb2.Timestamp
    services: _containers.RepeatedCompositeFieldContainer[Service]
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    def __init__(self, observed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., services: _Optional[_Iterable[_Union[Service, _Mapping]]] = ..., calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ...) -> None: ...

class Service(_message.Message):
    __slots__ = ("namespace", "name", "metrics", "signals")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    metrics: Metrics
    signals: Signals
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., metrics: _Optional[_Union[Metrics, _Mapping]] = ..., signals: _Optional[_Union[Signals, _Mapping]] = ...) -> None: ...

class Metrics(_message.Message):
    __slots__ = ("request_rate", "error_rate", "p50_latency", "p99_latency", "cpu_utilization", "memory_utilization", "active_connections")
    REQUEST_RATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_RATE_FIELD_NUMBER: _ClassVar[int]
    P50_LATENCY_FIELD_NUMBER: _ClassVar[int]
    P99_LATENCY_FIELD_NUMBER: _ClassVar[int]
    CPU_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    request_rate: float
    error_rate: float
    p50_latency: float
    p99_latency: float
    cpu_utilization: float
    memory_utilization: float
    active_connections: float
    def __init__(self, request_rate: _Optional[float] = ..., error_rate: _Optional[float] = ..., p50_latency: _Optional[float] = ..., p99_latency: _Optional[float] = ..., cpu_utilization: _Optional[float] = ..., memory_utilization: _Optional[float] = ..., active_connections: _Optional[float] = ...) -> None: ...

class Signals(_message.Message):
    __slots__ = ("cpu_throttling", "oom_kills", "restarts", "disk_pressure", "pending_pods", "queue_depth", "cancelled")
    CPU_THROTTLING_FIELD_NUMBER: _ClassVar[int]
    OOM_KILLS_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    DISK_PRESSURE_FIELD_NUMBER: _ClassVar[int]
    PENDING_PODS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cpu_throttling: float
    oom_kills: float
    restarts: float
    disk_pressure: float
    pending_pods: float
    queue_depth: float
    cancelled: float
    def __init__(self, cpu_throttling: _Optional[float] = ..., oom_kills: _Optional[float] = ..., restarts: _Optional[float] = ..., disk_pressure: _Optional[float] = ..., pending_pods: _Optional[float] = ..., queue_depth: _Optional[float] = ..., cancelled: _Optional[float] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("source", "destination", "requests_per_second", "error_rate", "p50_latency", "p99_latency")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    ERROR_RATE_FIELD_NUMBER: _ClassVar[int]
    P50_LATENCY_FIELD_NUMBER: _ClassVar[int]
    P99_LATENCY_FIELD_NUMBER: _ClassVar[int]
    source: str
    destination: str
    requests_per_second: float
    error_rate: float
    p50_latency: float
    p99_latency: float
    def __init__(self, source: _Optional[str] = ..., destination: _Optional[str] = ..., requests_per_second: _Optional[float] = ..., error_rate: _Optional[float] = ..., p50_latency: _Optional[float] = ..., p99_latency: _Optional[float] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("kind", "service", "reason")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: str
    service: str
    reason: str
    def __init__(self, kind: _Optional[str] = ..., service: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("service", "sensitivity", "mute", "team", "contact")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    SENSITIVITY_FIELD_NUMBER: _ClassVar[int]
    MUTE_FIELD_NUMBER: _ClassVar[int]
    TEAM_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    service: str
    sensitivity: str
    mute: str
    team: str
    contact: str
    def __init__(self, service: _Optional[str] = ..., sensitivity: _Optional[str] = ..., mute: _Optional[str] = ..., team: _Optional[str] = ..., contact: _Optional[str] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("observed_at", "sequence", "status", "mesh_score", "threshold", "probability", "suspects", "incidents", "coverage", "missing_parts", "model", "muted", "silence", "watching", "lost", "reconstruction", "replayed")
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESH_SCORE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    SUSPECTS_FIELD_NUMBER: _ClassVar[int]
    INCIDENTS_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    MISSING_PARTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MUTED_FIELD_NUMBER: _ClassVar[int]
    SILENCE_FIELD_NUMBER: _ClassVar[int]
    WATCHING_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    RECONSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    observed_at: _timestamp_pb2.Timestamp
    sequence: int
    status: str
    mesh_score: float
    threshold: float
    probability: float
    suspects: _containers.RepeatedCompositeFieldContainer[Suspect]
    incidents: _containers.RepeatedCompositeFieldContainer[Incident]
    coverage: float
    missing_parts: _containers.RepeatedScalarFieldContainer[int]
    model: str
    muted: _containers.RepeatedCompositeFieldContainer[MuteInForce]
    silence: Silence
    watching: _containers.RepeatedCompositeFieldContainer[Watched]
    lost: _containers.RepeatedScalarFieldContainer[str]
    reconstruction: Reconstruction
    replayed: bool
    def __init__(self, observed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sequence: _Optional[int] = ..., status: _Optional[str] = ..., mesh_score: _Optional[float] = ..., threshold: _Optional[float] = ..., probability: _Optional[float] = ..., suspects: _Optional[_Iterable[_Union[Suspect, _Mapping]]] = ..., incidents: _Optional[_Iterable[_Union[Incident, _Mapping]]] = ..., coverage: _Optional[float] = ..., missing_parts: _Optional[_Iterable[int]] = ..., model: _Optional[str] = ..., muted: _Optional[_Iterable[_Union[MuteInForce, _Mapping]]] = ..., silence: _Optional[_Union[Silence, _Mapping]] = ..., watching: _Optional[_Iterable[_Union[Watched, _Mapping]]] = ..., lost: _Optional[_Iterable[str]] = ..., reconstruction: _Optional[_Union[Reconstruction, _Mapping]] = ..., replayed: _Optional[bool] = ...) -> None: ...

class Reconstruction(_message.Message):
    __slots__ = ("loss", "drift", "loss_threshold", "drift_threshold", "exceeded", "since", "text")
    LOSS_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    LOSS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DRIFT_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    EXCEEDED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    loss: float
    drift: float
    loss_threshold: float
    drift_threshold: float
    exceeded: bool
    since: _timestamp_pb2.Timestamp
    text: str
    def __init__(self, loss: _Optional[float] = ..., drift: _Optional[float] = ..., loss_threshold: _Optional[float] = ..., drift_threshold: _Optional[float] = ..., exceeded: _Optional[bool] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...

class Watched(_message.Message):
    __slots__ = ("service", "score", "level", "since", "seen", "needed", "reasons", "text")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    service: str
    score: float
    level: float
    since: _timestamp_pb2.Timestamp
    seen: int
    needed: int
    reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    text: str
    def __init__(self, service: _Optional[str] = ..., score: _Optional[float] = ..., level: _Optional[float] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., seen: _Optional[int] = ..., needed: _Optional[int] = ..., reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., text: _Optional[str] = ...) -> None: ...

class Silence(_message.Message):
    __slots__ = ("services", "total", "since", "names")
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    services: int
    total: int
    since: _timestamp_pb2.Timestamp
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, services: _Optional[int] = ..., total: _Optional[int] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class Suspect(_message.Message):
    __slots__ = ("service", "score", "reasons", "context", "team", "contact")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TEAM_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    service: str
    score: float
    reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    context: _containers.RepeatedCompositeFieldContainer[Reason]
    team: str
    contact: str
    def __init__(self, service: _Optional[str] = ..., score: _Optional[float] = ..., reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., context: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., team: _Optional[str] = ..., contact: _Optional[str] = ...) -> None: ...

class Reason(_message.Message):
    __slots__ = ("metric", "source", "destination", "observed", "expected", "since", "load", "text", "forecast")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    metric: str
    source: str
    destination: str
    observed: float
    expected: float
    since: _timestamp_pb2.Timestamp
    load: float
    text: str
    forecast: Forecast
    def __init__(self, metric: _Optional[str] = ..., source: _Optional[str] = ..., destination: _Optional[str] = ..., observed: _Optional[float] = ..., expected: _Optional[float] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., load: _Optional[float] = ..., text: _Optional[str] = ..., forecast: _Optional[_Union[Forecast, _Mapping]] = ...) -> None: ...

class Forecast(_message.Message):
    __slots__ = ("seconds", "soonest_seconds", "latest_seconds")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SOONEST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LATEST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    soonest_seconds: float
    latest_seconds: float
    def __init__(self, seconds: _Optional[float] = ..., soonest_seconds: _Optional[float] = ..., latest_seconds: _Optional[float] = ...) -> None: ...

class Incident(_message.Message):
    __slots__ = ("id", "since", "severity", "score", "suspects", "affected", "changes", "events", "recovering", "suspects_at", "kind", "headline", "impact", "scope", "team", "contact", "teams", "error_budgets", "title", "next_step", "caller", "trend", "recurrences", "origins")
    ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SUSPECTS_FIELD_NUMBER: _ClassVar[int]
    AFFECTED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RECOVERING_FIELD_NUMBER: _ClassVar[int]
    SUSPECTS_AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HEADLINE_FIELD_NUMBER: _ClassVar[int]
    IMPACT_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    TEAM_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    TEAMS_FIELD_NUMBER: _ClassVar[int]
    ERROR_BUDGETS_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    TREND_FIELD_NUMBER: _ClassVar[int]
    RECURRENCES_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    id: str
    since: _timestamp_pb2.Timestamp
    severity: str
    score: float
    suspects: _containers.RepeatedCompositeFieldContainer[Suspect]
    affected: _containers.RepeatedScalarFieldContainer[str]
    changes: _containers.RepeatedCompositeFieldContainer[NearbyChange]
    events: _containers.RepeatedCompositeFieldContainer[ClusterEvent]
    recovering: bool
    suspects_at: _timestamp_pb2.Timestamp
    kind: str
    headline: str
    impact: Impact
    scope: str
    team: str
    contact: str
    teams: _containers.RepeatedScalarFieldContainer[str]
    error_budgets: _containers.RepeatedCompositeFieldContainer[ErrorBudget]
    title: str
    next_step: str
    caller: str
    trend: str
    recurrences: int
    origins: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., severity: _Optional[str] = ..., score: _Optional[float] = ..., suspects: _Optional[_Iterable[_Union[Suspect, _Mapping]]] = ..., affected: _Optional[_Iterable[str]] = ..., changes: _Optional[_Iterable[_Union[NearbyChange, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[ClusterEvent, _Mapping]]] = ..., recovering: _Optional[bool] = ..., suspects_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[str] = ..., headline: _Optional[str] = ..., impact: _Optional[_Union[Impact, _Mapping]] = ..., scope: _Optional[str] = ..., team: _Optional[str] = ..., contact: _Optional[str] = ..., teams: _Optional[_Iterable[str]] = ..., error_budgets: _Optional[_Iterable[_Union[ErrorBudget, _Mapping]]] = ..., title: _Optional[str] = ..., next_step: _Optional[str] = ..., caller: _Optional[str] = ..., trend: _Optional[str] = ..., recurrences: _Optional[int] = ..., origins: _Optional[_Iterable[str]] = ...) -> None: ...

class ErrorBudget(_message.Message):
    __slots__ = ("service", "objective", "target", "latency_ms", "days", "used", "bad_requests", "text")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    BAD_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    service: str
    objective: str
    target: float
    latency_ms: float
    days: float
    used: float
    bad_requests: float
    text: str
    def __init__(self, service: _Optional[str] = ..., objective: _Optional[str] = ..., target: _Optional[float] = ..., latency_ms: _Optional[float] = ..., days: _Optional[float] = ..., used: _Optional[float] = ..., bad_requests: _Optional[float] = ..., text: _Optional[str] = ...) -> None: ...

class Impact(_message.Message):
    __slots__ = ("services", "front_door_share", "text", "harmed_share")
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    FRONT_DOOR_SHARE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    HARMED_SHARE_FIELD_NUMBER: _ClassVar[int]
    services: int
    front_door_share: float
    text: str
    harmed_share: float
    def __init__(self, services: _Optional[int] = ..., front_door_share: _Optional[float] = ..., text: _Optional[str] = ..., harmed_share: _Optional[float] = ...) -> None: ...

class NearbyChange(_message.Message):
    __slots__ = ("kind", "service", "reason", "at", "text")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    service: str
    reason: str
    at: _timestamp_pb2.Timestamp
    text: str
    def __init__(self, kind: _Optional[str] = ..., service: _Optional[str] = ..., reason: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...

class ClusterEvent(_message.Message):
    __slots__ = ("kind", "service", "object", "message", "first", "last", "count", "text")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    service: str
    object: str
    message: str
    first: _timestamp_pb2.Timestamp
    last: _timestamp_pb2.Timestamp
    count: int
    text: str
    def __init__(self, kind: _Optional[str] = ..., service: _Optional[str] = ..., object: _Optional[str] = ..., message: _Optional[str] = ..., first: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., count: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class MuteInForce(_message.Message):
    __slots__ = ("id", "origin", "services", "reason", "until", "hides")
    ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    HIDES_FIELD_NUMBER: _ClassVar[int]
    id: str
    origin: str
    services: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    until: _timestamp_pb2.Timestamp
    hides: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., origin: _Optional[str] = ..., services: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., hides: _Optional[_Iterable[str]] = ...) -> None: ...
