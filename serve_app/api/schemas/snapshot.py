"""Documents of snapshots, as clients send them."""

from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic accepts typing's own from Python 3.12 on

from model.names import LONGEST_NAME, NAME_PATTERN, NAMESPACE_PATTERN
from serve_app.api.schemas.base import (
    _STRICT,
    MAX_CHANGE_REASON,
    MAX_CONTACT,
    MAX_KIND,
    MAX_REASON,
    MAX_SERVICE,
    MAX_TEAM,
    Document,
    GivenServices,
    Instant,
    Number,
    Ratio,
    ServiceKey,
    Text,
    Version,
)


@with_config(_STRICT)
class ServiceMetrics(TypedDict):
    """Measurements of one service; absent or null means "not observed"."""

    request_rate: NotRequired[Annotated[Number | None, Field(description="requests answered per second")]]
    error_rate: NotRequired[Annotated[Ratio | None, Field(description="share of requests that failed, 0 to 1")]]
    p50_latency: NotRequired[Annotated[Number | None, Field(description="median latency, s")]]
    p99_latency: NotRequired[Annotated[Number | None, Field(description="99th percentile of latency, s")]]
    cpu_utilization: NotRequired[Annotated[Ratio | None, Field(description="used CPU over the limit, 0 to 1")]]
    memory_utilization: NotRequired[Annotated[Ratio | None, Field(description="used memory over the limit, 0 to 1")]]
    active_connections: NotRequired[
        Annotated[Number | None, Field(description="open connections, or requests in flight")]
    ]


@with_config(_STRICT)
class ServiceSignals(TypedDict):
    """Measurements that only some services have. They are not inputs of the network: they explain a fault, and open
    notices. Absent or null means "not measured"."""

    cpu_throttling: NotRequired[
        Annotated[Ratio | None, Field(description="share of CPU periods in which it was throttled, 0 to 1")]
    ]
    oom_kills: NotRequired[
        Annotated[Number | None, Field(description="containers killed for memory since the previous snapshot")]
    ]
    restarts: NotRequired[
        Annotated[Number | None, Field(description="containers restarted since the previous snapshot, OOM kills too")]
    ]
    disk_pressure: NotRequired[
        Annotated[
            Ratio | None,
            Field(description="used share of its fullest volume; 1 if its node reports disk pressure; 0 to 1"),
        ]
    ]
    pending_pods: NotRequired[Annotated[Number | None, Field(description="pods that do not start")]]
    queue_depth: NotRequired[
        Annotated[Number | None, Field(description="messages waiting for it: consumer lag, or depth of its queue")]
    ]
    cancelled: NotRequired[
        Annotated[Ratio | None, Field(description="share of its requests on which callers gave up, 0 to 1")]
    ]


@with_config(_STRICT)
class ServiceDocument(TypedDict):
    """One service (workload) of the mesh."""

    namespace: Annotated[
        str,
        Field(
            min_length=1,
            pattern="^[^/]+$",
            examples=["shop"],
            json_schema_extra={"maxLength": LONGEST_NAME, "pattern": NAMESPACE_PATTERN},
        ),
    ]
    name: Annotated[
        str,
        Field(min_length=1, examples=["cart"], json_schema_extra={"maxLength": LONGEST_NAME, "pattern": NAME_PATTERN}),
    ]
    metrics: NotRequired[ServiceMetrics | None]
    signals: NotRequired[ServiceSignals | None]


@with_config(_STRICT)
class CallDocument(TypedDict):
    """One call: the traffic from one service to another. Leave out calls that were not measured."""

    source: ServiceKey
    destination: ServiceKey
    requests_per_second: Number
    error_rate: NotRequired[Annotated[Ratio | None, Field(description="share of calls that failed, 0 to 1")]]
    p50_latency: NotRequired[Annotated[Number | None, Field(description="median latency as the caller sees it, s")]]
    p99_latency: NotRequired[Annotated[Number | None, Field(description="99th percentile of latency, s")]]


class StoredChangeDocument(Document):
    """A stored planned change."""

    kind: str = Field(examples=["deploy"])
    service: ServiceKey
    reason: str = Field("", examples=["v1.4.2"])


class ChangeDocument(Document):
    """A planned change: a deploy, a scaling, a retirement."""

    kind: Text = Field(min_length=1, max_length=MAX_KIND, pattern=r"\S", examples=["deploy"])
    service: Text = Field(
        max_length=MAX_SERVICE,
        description="`namespace/name`; a change of anything else is left out, and the header `tagae-left-out` says so",
        examples=["shop/cart"],
    )
    reason: Text = Field("", max_length=MAX_CHANGE_REASON, examples=["v1.4.2"])


class PolicyDocument(Document):
    """Alert policy and owner of a service. They apply to this snapshot only; send them again with the next."""

    service: GivenServices
    sensitivity: Literal["low", "normal", "high"] | None = Field(
        None,
        description="`low`: an alert needs ten times the improbability; `high`: a third of it; absent or null: not set",
    )
    mute: Text = Field("", max_length=MAX_REASON, description="why the service is muted; empty: it is not")
    team: Text = Field("", max_length=MAX_TEAM, description="team that owns it; empty: not set", examples=["checkout"])
    contact: Text = Field(
        "", max_length=MAX_CONTACT, description="where to reach the team; empty: not set", examples=["#checkout"]
    )


class SnapshotDocument(Document):
    """One instant of a mesh."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "observed_at": "2026-03-01T03:12:00Z",
                    "services": [
                        {"namespace": "shop", "name": "frontend", "metrics": {"request_rate": 120.0}},
                        {
                            "namespace": "shop",
                            "name": "cart",
                            "metrics": {"request_rate": 40.0, "error_rate": 0.01, "p99_latency": 0.08},
                        },
                    ],
                    "calls": [{"source": "shop/frontend", "destination": "shop/cart", "requests_per_second": 40.0}],
                    "changes": [{"kind": "deploy", "service": "shop/cart", "reason": "v1.4.2"}],
                }
            ]
        }
    )

    version: Version = Field(1, description="version of the schema; absent means 1")
    observed_at: Instant
    services: list[ServiceDocument]
    calls: list[CallDocument] = Field(default_factory=list)
    changes: list[ChangeDocument] = Field(
        default_factory=list, description="planned changes since the previous snapshot"
    )
    policies: list[PolicyDocument] = Field(default_factory=list, description="alert policies of services, now")
