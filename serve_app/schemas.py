"""The documents of the HTTP interface, version 1.

They know names, units and JSON; they know no arrays. ``serve_app.codec`` translates them. What a value may be is
written here for readers and clients (OpenAPI) and enforced once, by ``MeshSnapshot.create``. The rows of a snapshot,
thousands of them, are typed dicts: they validate in half the time of models.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic takes typing's own from Python 3.12 on

from model.snapshot import LARGEST_VALUE, LONGEST_NAME, NAME_PATTERN, NAMESPACE_PATTERN, SERVICE_PATTERN

_STRICT = ConfigDict(extra="forbid", frozen=True)


class Document(BaseModel):
    """Base of every document: a field that is not in the schema is an error, never ignored."""

    model_config = _STRICT


_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)


def _as_text(value: Any) -> Any:
    """Pydantic alone also takes Unix times and dates."""
    if isinstance(value, datetime) or (isinstance(value, str) and _RFC_3339.fullmatch(value)):
        return value
    raise ValueError("expected an RFC 3339 time with a zone, such as 2026-03-01T03:12:00Z")


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("expected a time between the years 1 and 9999 in UTC") from None


def _no_truth(value: Any) -> Any:
    """Python takes True for 1."""
    if isinstance(value, bool | float):
        raise ValueError("Input should be 1")
    return value


Version = Annotated[Literal[1], BeforeValidator(_no_truth, json_schema_input_type=Literal[1])]
Instant = Annotated[
    AwareDatetime,
    BeforeValidator(_as_text, json_schema_input_type=datetime),
    AfterValidator(_in_utc),
    Field(description="RFC 3339 time with a zone", examples=["2026-03-01T03:12:00Z"]),
]
ServiceKey = Annotated[str, Field(description="`namespace/name`", examples=["shop/cart"])]
SERVICES = r"^[^/]+/[\s\S]"  # how they begin
MOST_REASON = 200  # characters
LONGEST_KIND, LONGEST_CHANGE_REASON, LONGEST_NOTE, LONGEST_ID = 100, 1000, 1000, 200  # characters
LONGEST_SERVICE = 2 * LONGEST_NAME + 1
# Characters that no text may hold: they forge lines in logs, move a terminal's cursor, turn the direction of writing,
# or cannot be encoded at all (surrogates). A note may have several lines.
_UNPRINTABLE = "\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
UNPRINTABLE = re.compile(f"[\x00-\x1f{_UNPRINTABLE}]")
_UNPRINTABLE_IN_NOTES = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f{_UNPRINTABLE}]")
PagedServices = Annotated[
    str,
    Field(pattern=SERVICES, description="`namespace/name`, or `namespace/*` for all of it", examples=["shop/cart"]),
]


def _in_short_parts(value: str) -> str:
    if any(len(part) > LONGEST_NAME for part in value.split("/", 1)):
        raise ValueError(f"expected a namespace and a name of at most {LONGEST_NAME} characters each")
    return value


def _printable(value: str) -> str:
    return _without(UNPRINTABLE, value)


def _printable_note(value: str) -> str:
    return _without(_UNPRINTABLE_IN_NOTES, value)


def _without(unprintable: re.Pattern[str], value: str) -> str:
    if found := unprintable.search(value):
        raise ValueError(f"expected printable text, character {found.start()} is U+{ord(found[0]):04X}; leave it out")
    return value


# What clients send. Answers use the types above: an older version may have stored names of other characters.
GivenService = Annotated[
    str,
    Field(max_length=LONGEST_SERVICE, pattern=SERVICE_PATTERN, description="`namespace/name`", examples=["shop/cart"]),
    AfterValidator(_in_short_parts),
]
GivenServices = Annotated[
    str,
    Field(
        max_length=LONGEST_SERVICE,
        pattern=f"{SERVICE_PATTERN}|{NAMESPACE_PATTERN[:-1]}/[*]$",
        description="`namespace/name`, or `namespace/*` for all of it",
        examples=["shop/cart"],
    ),
    AfterValidator(_in_short_parts),
]
_PRINTABLE_SCHEMA = {"pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]*$"}
Text = Annotated[str, AfterValidator(_printable), Field(json_schema_extra=_PRINTABLE_SCHEMA)]
AskedService = Annotated[
    ServiceKey,
    Field(min_length=1, max_length=LONGEST_SERVICE, json_schema_extra=_PRINTABLE_SCHEMA),
    AfterValidator(_printable),
]
Id = Annotated[
    str, Field(min_length=1, max_length=LONGEST_ID, json_schema_extra=_PRINTABLE_SCHEMA), AfterValidator(_printable)
]
NoteText = Annotated[str, Field(max_length=LONGEST_NOTE), AfterValidator(_printable_note)]
Number = Annotated[
    float, Field(strict=True, allow_inf_nan=False, json_schema_extra={"minimum": 0, "maximum": LARGEST_VALUE})
]
Ratio = Annotated[float, Field(strict=True, allow_inf_nan=False, json_schema_extra={"minimum": 0, "maximum": 1})]


@with_config(_STRICT)
class ServiceMetrics(TypedDict):
    """What was measured at one service; absent or null is "not observed"."""

    request_rate: NotRequired[Annotated[Number | None, Field(description="requests answered per second")]]
    error_rate: NotRequired[Annotated[Ratio | None, Field(description="share of requests that failed, 0 to 1")]]
    p50_latency: NotRequired[Annotated[Number | None, Field(description="median latency, s")]]
    p99_latency: NotRequired[Annotated[Number | None, Field(description="99th percentile of latency, s")]]
    cpu_utilization: NotRequired[Annotated[Ratio | None, Field(description="used CPU over the limit, 0 to 1")]]
    memory_utilization: NotRequired[Annotated[Ratio | None, Field(description="used memory over the limit, 0 to 1")]]
    active_connections: NotRequired[Annotated[Number | None, Field(description="open ones, or requests in flight")]]


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


@with_config(_STRICT)
class CallDocument(TypedDict):
    """One call: the traffic from one service to another. A call that was not measured is left out."""

    source: ServiceKey
    destination: ServiceKey
    requests_per_second: Number
    error_rate: NotRequired[Annotated[Ratio | None, Field(description="share of calls that failed, 0 to 1")]]
    p50_latency: NotRequired[Annotated[Number | None, Field(description="median latency as the caller sees it, s")]]
    p99_latency: NotRequired[Annotated[Number | None, Field(description="99th percentile of latency, s")]]


class StoredChangeDocument(Document):
    """A planned change as it was stored."""

    kind: str = Field(examples=["deploy"])
    service: ServiceKey
    reason: str = Field("", examples=["v1.4.2"])


class ChangeDocument(Document):
    """Something somebody decided: a deploy, a scaling, a retirement."""

    kind: Text = Field(min_length=1, max_length=LONGEST_KIND, pattern=r"\S", examples=["deploy"])
    service: GivenService
    reason: Text = Field("", max_length=LONGEST_CHANGE_REASON, examples=["v1.4.2"])


class PolicyDocument(Document):
    """What somebody decided of a service's pages: it holds for this snapshot and is told again with the next."""

    service: GivenServices
    sensitivity: Literal["low", "normal", "high"] | None = Field(
        None, description="`low`: what pages is ten times as improbable, `high`: a third; absent or null: nothing said"
    )
    mute: Text = Field("", max_length=MOST_REASON, description="why it pages nobody; empty: it does")


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

    version: Version = Field(1, description="of this form; absent is 1")
    observed_at: Instant
    services: list[ServiceDocument]
    calls: list[CallDocument] = Field(default_factory=list)
    changes: list[ChangeDocument] = Field(default_factory=list, description="planned changes since the snapshot before")
    policies: list[PolicyDocument] = Field(default_factory=list, description="of services' pages, now")


class ScoreDocument(Document):
    """Snapshots of one mesh, to be judged without being kept."""

    snapshots: list[SnapshotDocument] = Field(
        json_schema_extra={"minItems": 10, "maxItems": 120},
        description="oldest first; how many is a setting, by default 10 to 120",
    )


class ReasonDocument(Document):
    """Why a service is suspected. Null is "no value": a service that vanished has none observed."""

    metric: str = Field(
        description="a metric's name; `vanished`: the suspect is gone and missed; `new_calls`, `lost_calls`, "
        "`moved_calls`: calls into it that were not made before or go elsewhere now, calls that it did not make before "
        "(values in requests/s)"
    )
    source: ServiceKey | None = Field(None, description="the caller, where the evidence is a call into the suspect")
    destination: ServiceKey | None = Field(None, description="the callee, where it is a call that the suspect makes")
    observed: float | None = Field(description="value now, in the metric's unit")
    expected: float | None = Field(description="value expected from the past and the neighbours, same unit")
    since: Instant
    load: float = Field(1.0, description="suspect's requests over the usual; 1: as usual, unknown, or told elsewhere")
    text: str = Field(description="the same in words", examples=["p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC"])


class SuspectDocument(Document):
    """A service where trouble may start."""

    service: ServiceKey
    score: float = Field(ge=0, le=1)
    reasons: list[ReasonDocument]


class NearbyChangeDocument(StoredChangeDocument):
    """A planned change near an incident."""

    at: Instant = Field(description="of the snapshot that announced it")
    text: str = Field(description="the same in words", examples=["began 40 s after deploy of shop/cart (v1.4.2)"])


class ClusterEventDocument(Document):
    """What Kubernetes tells of a service and nobody planned: context, neither evidence nor excuse."""

    kind: str = Field(examples=["BackOff"])
    service: ServiceKey
    object: str = Field(examples=["Pod cart-v1-5f-x7k2p"])
    message: str
    first: Instant
    last: Instant
    count: int = Field(ge=1)
    text: str = Field(description="the same in words", examples=["BackOff of shop/cart, 40 s before it began"])


class IncidentDocument(Document):
    """Anomalous services and calls that hang together, under one id for as long as it is open."""

    id: str
    since: Instant
    severity: str = Field(description="`minor`, `major` or `critical`; only rises", examples=["major"])
    score: float
    suspects: list[SuspectDocument] = Field(description="best first")
    affected: list[ServiceKey]
    changes: list[NearbyChangeDocument] = Field(
        description="planned changes at its services, shortly before it or since, newest first"
    )
    events: list[ClusterEventDocument] = Field([], description="what Kubernetes told of its services, newest first")


class MuteInForceDocument(Document):
    """A mute in force: why it may be quiet."""

    id: str | None = Field(description="by which it is taken back; null: it is of settings or of the snapshot")
    origin: str = Field(description="where it was given: `api`, `settings`, `snapshot` (annotations)", examples=["api"])
    services: list[PagedServices] = Field(description="that page nobody; empty: the whole mesh")
    reason: str
    until: Instant | None = Field(description="null: for as long as its origin says so")
    hides: list[ServiceKey] = Field(description="services that would be part of an incident now")


class VerdictDocument(Document):
    """What the detector says of one snapshot."""

    observed_at: Instant
    sequence: int = Field(ge=0, description="how many snapshots of this mesh were counted, this one included")
    status: str = Field(
        description="`anomalous` while an incident is open; `partial`: nothing found but not all was scored; "
        "`warming_up`: too few snapshots seen; else `normal`",
        examples=["normal"],
    )
    mesh_score: float = Field(allow_inf_nan=False, description="strongest evidence, decades of improbability")
    threshold: float | None = Field(description="percentile of mesh_score over quiet history; null while unknown")
    probability: float = Field(ge=0, le=1, description="calibrated probability that an incident is in progress")
    suspects: list[SuspectDocument] = Field(description="of the whole mesh, best first")
    incidents: list[IncidentDocument] = Field(description="those that page")
    coverage: float = Field(ge=0, le=1, description="share of services that were scored")
    missing_parts: list[int] = Field(description="partitions that gave no answer in time")
    model: str = Field(description="digest of the weights that said so")
    muted: list[MuteInForceDocument] = Field(default_factory=list, description="mutes in force")


class VerdictsDocument(Document):
    """Kept verdicts of a mesh."""

    verdicts: list[VerdictDocument] = Field(description="oldest first")


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


Strangeness = Annotated[
    float | None,
    Field(description="decades of improbability by its own past, what neighbours explain taken away; null: not scored"),
]


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


class FieldError(Document):
    """One place in a document and what is wrong there."""

    pointer: str = Field(description="JSON pointer, RFC 6901", examples=["/calls/17/destination"])
    detail: str


class Problem(Document):
    """The body of every error, RFC 9457 (`application/problem+json`)."""

    type: str = Field(examples=["urn:tagae:problem:invalid-document"])
    title: str
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="what was expected, what came, where, and what to do")
    pointer: str | None = Field(None, description="JSON pointer to the first place that is wrong")
    errors: list[FieldError] = Field(default_factory=list, description="all places that are wrong, if several")
    retry_after_seconds: float | None = Field(None, ge=0)
    stored: Literal["no", "unknown"] | None = Field(
        None, description="of a 504: `no`: nothing was changed; `unknown`: a retry is safe and finds out"
    )
