"""Documents of verdicts: scores, suspects, reasons, incidents."""

from pydantic import Field

from model.verdict import IncidentKind, Severity
from serve_app.api.schemas.base import Document, Instant, PagedServices, ServiceKey
from serve_app.api.schemas.snapshot import SnapshotDocument, StoredChangeDocument


class ScoreDocument(Document):
    """Snapshots of one mesh to score without storing them."""

    snapshots: list[SnapshotDocument] = Field(
        json_schema_extra={"minItems": 10, "maxItems": 120}, description="10 to 120, the oldest first"
    )


class ForecastDocument(Document):
    """When a steadily growing resource reaches its limit, in seconds after the verdict."""

    seconds: float = Field(ge=0, description="estimate")
    soonest_seconds: float = Field(
        ge=0, description="start of the interval; it holds the truth in 4 of 5 simulated leaks"
    )
    latest_seconds: float | None = Field(None, ge=0, description="end of the interval; null: it may never reach it")


class ReasonDocument(Document):
    """Why a service is suspected. Null means "no value", such as the observed value of a service that disappeared."""

    metric: str = Field(
        description="name of a metric or signal; `vanished`: the suspect disappeared while callers need it; "
        "`new_calls`: calls into it from a new caller; `lost_calls`: calls into it that moved elsewhere; "
        "`dropped_calls`: calls into it that its caller suddenly no longer makes; `moved_calls`: calls that it did not "
        "make before (values in requests/s); `outgoing_latency`, `outgoing_errors`: all calls that it makes are slow, "
        "or fail, though what it calls is well (values: their median latency in seconds, or the share that fails); "
        "`namespace_outgoing_latency`, `namespace_outgoing_errors`: all calls out of its namespace's services are "
        "slow, or fail; `namespace_incoming_latency`, `namespace_incoming_errors`: all calls to these services; "
        "`overdue_work`: work that it does at regular times did not run (values in seconds: since it last began, and "
        "between two such times)"
    )
    source: ServiceKey | None = Field(None, description="the caller, if the evidence is a call into the suspect")
    destination: ServiceKey | None = Field(None, description="the callee, if the evidence is a call by the suspect")
    observed: float | None = Field(description="value now, in the metric's unit")
    expected: float | None = Field(description="expected from history and neighbours, same unit")
    since: Instant
    load: float = Field(
        1.0, description="the suspect's requests relative to usual; 1: as usual, unknown, or covered by another reason"
    )
    forecast: ForecastDocument | None = Field(
        None, description="when it reaches its limit; null: it does not grow steadily, or has no known limit"
    )
    text: str = Field(description="the same in words", examples=["p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC"])


class SuspectDocument(Document):
    """A possible cause."""

    service: ServiceKey
    score: float = Field(ge=0, le=1)
    team: str = Field("", description="team that owns the service; empty: not known", examples=["checkout"])
    contact: str = Field("", description="where to reach the team; empty: not known", examples=["#checkout"])
    reasons: list[ReasonDocument] = Field(description="strongest first")
    context: list[ReasonDocument] = Field(
        [],
        description="further facts that tell the kind of a fault but are not evidence of it: all calls that it makes "
        "(`sent_calls`, requests/s) and the error rate of those that fail most, if it makes far more than usual; "
        "a resource that it uses far more of",
    )


class NearbyChangeDocument(StoredChangeDocument):
    """A planned change near an incident."""

    at: Instant = Field(description="of the snapshot that announced it")
    text: str = Field(description="the same in words", examples=["began 40 s after deploy of shop/cart (v1.4.2)"])


class ClusterEventFields(Document):
    """An unplanned event at a service, reported by Kubernetes: context that does not affect the score."""

    kind: str = Field(examples=["BackOff"])
    service: ServiceKey
    object: str = Field(examples=["Pod cart-v1-5f-x7k2p"])
    message: str
    first: Instant
    last: Instant
    count: int = Field(ge=1)


class ClusterEventDocument(ClusterEventFields):
    """An event near an incident."""

    text: str = Field(description="the same in words", examples=["BackOff of shop/cart, 40 s before it began"])


class ImpactDocument(Document):
    """How far an incident reaches."""

    services: int = Field(ge=0, description="number of affected services")
    front_door_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="upper estimate of the share of front-door requests that reach an origin of the incident (its "
        "first suspect, and affected services that call no affected one), by the calls before it; null: unknown",
    )
    harmed_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="of the same requests, the share that fails or is slow because of it; it decides the severity; "
        "null: unknown",
    )
    text: str = Field(description="the same in words", examples=["4 services affected, 12% of front-door requests"])


class ErrorBudgetDocument(Document):
    """How much of an objective's error budget an incident has used so far."""

    service: ServiceKey
    objective: str = Field(description="`availability` or `latency`", examples=["availability"])
    target: float = Field(gt=0, lt=1, description="share of requests that are good", examples=[0.999])
    latency_ms: float | None = Field(None, description="longest time of a fast request; null: of availability")
    days: float = Field(description="period of the error budget", examples=[30])
    used: float = Field(
        ge=0,
        description="share of the budget that its bad requests are, with the traffic before it; above 1: overspent",
        examples=[0.12],
    )
    bad_requests: float = Field(ge=0, description="that failed or took too long, since its first evidence")
    text: str = Field(
        description="the same in words",
        examples=["has used 12% of the 30-day error budget of shop/front so far (availability 99.9%)"],
    )


class IncidentDocument(Document):
    """Related anomalous services and calls. The id stays the same while the incident is open.

    An incident with the severity `notice` raises no alert: a resource is running out, but users are not affected yet.
    It ends when an incident at its services begins.
    """

    id: str
    since: Instant
    severity: str = Field(description="`notice`, `minor`, `major` or `critical`; only rises", examples=["major"])
    recovering: bool = Field(
        False,
        description="whether its services are back to normal, or send no telemetry (kind `telemetry_missing`); it ends "
        "soon, or continues if they deviate again",
    )
    score: float
    suspects: list[SuspectDocument] = Field(description="best first")
    suspects_at: Instant | None = Field(
        None, description="time of the snapshot that shows the suspects best, of which they are; null: unknown"
    )
    affected: list[ServiceKey]
    changes: list[NearbyChangeDocument] = Field(
        description="planned changes of its services, shortly before its start or later, newest first"
    )
    events: list[ClusterEventDocument] = Field([], description="Kubernetes events of its services, newest first")
    kind: str = Field(
        "unclear",
        description="what is wrong with the first suspect: `slow`, `failing`, `gone`, `sends_too_many_calls`, "
        "`overloaded`, `resources`, `rerouted`, `calls_dropped`, `telemetry_missing` or `unclear`; of a traffic "
        "incident: `traffic_lost` or `traffic_surge`; may change",
        examples=["sends_too_many_calls"],
    )
    title: str = Field(
        "",
        description="short name: its first suspect, the calls that fail, or the requests of its scope; empty in "
        "verdicts of earlier versions",
        examples=["shop/cart", "calls from shop/web to shop/cart", "requests to the mesh"],
    )
    headline: str = Field(
        "",
        description="cause, symptom and impact in words; empty in verdicts of earlier versions",
        examples=[
            "shop/bff-2 sends 1.8 times its usual calls; 47% of its calls to shop/tax-1 fail, usually 0.1%. 4 services "
            "affected, 12% of front-door requests."
        ],
    )
    next_step: str = Field(
        "",
        description="what to do, and the evidence that decides; empty in verdicts of earlier versions",
        examples=[
            "Limit the retries of shop/bff-2: it sends 1.8 times its usual calls, more than its requests explain, and "
            "47% of those to shop/tax-1 fail."
        ],
    )
    caller: ServiceKey | None = Field(
        None,
        description="service whose calls to the first suspect fail or are slow while the suspect itself shows nothing "
        "unusual; null: there is none",
    )
    origins: list[ServiceKey] = Field(
        default_factory=list,
        description="services where it likely began: its first suspect, all with separate faults, all of a namespace "
        "that suffers as one, or two callers that have each other's callees; empty for a traffic incident, and in "
        "verdicts of earlier versions",
        examples=[["shop/cart"]],
    )
    recurrences: int = Field(0, ge=0, description="how often it ended and began again within minutes")
    trend: str | None = Field(
        None,
        description="course of the strongest reason over the last minutes: `worsening`, `steady` or `easing`; null: it "
        "cannot be said yet, or the incident is recovering",
        examples=["worsening"],
    )
    impact: ImpactDocument | None = Field(None, description="how far it reaches; null: unknown")
    scope: str = Field(
        "",
        description="of a traffic incident: `*` for the mesh, `namespace/*`, or the name of an entry point; else empty",
        examples=["*", "shop/*", "shop/gateway"],
    )
    team: str = Field(
        "",
        description="team that owns its first suspect, else its first affected service; empty: not known",
        examples=["checkout"],
    )
    contact: str = Field("", description="where to reach this team; empty: not known", examples=["#checkout"])
    teams: list[str] = Field([], description="teams that own its affected services, those with the most services first")
    error_budgets: list[ErrorBudgetDocument] = Field(
        [], description="front doors' error budgets that it has used, the most used first; see the objectives"
    )

    @property
    def first_suspect(self) -> str | None:
        """The service that is the likely cause."""
        return self.suspects[0].service if self.suspects else None

    @property
    def began_at(self) -> list[str]:
        """The origins; without them, the first suspect."""
        return self.origins or [suspect.service for suspect in self.suspects[:1]]

    @property
    def services(self) -> set[str]:
        """The suspected and affected services."""
        return {*self.affected, *(suspect.service for suspect in self.suspects)}

    @property
    def is_notice(self) -> bool:
        """Whether it raises no alert."""
        return self.severity == Severity.NOTICE

    @property
    def is_unseen(self) -> bool:
        """Whether its first suspect sends no telemetry, so that its state is unknown."""
        return self.recovering and self.kind == IncidentKind.TELEMETRY_MISSING


class MuteInForceDocument(Document):
    """A mute in force."""

    id: str | None = Field(description="for removing the mute; null: it comes from settings or the snapshot")
    origin: str = Field(
        description="where it comes from: `api`, `settings`, `snapshot` (annotations)", examples=["api"]
    )
    services: list[PagedServices] = Field(description="muted services; empty: the whole mesh")
    reason: str
    until: Instant | None = Field(description="null: as long as its origin lists it")
    hides: list[ServiceKey] = Field(description="muted services that would be part of an incident now")


class SilenceDocument(Document):
    """Services whose telemetry is missing. Nothing is known about them, so they raise no alert."""

    services: int = Field(ge=1, description="how many")
    total: int = Field(ge=1, description="services of the mesh, these included")
    since: Instant = Field(description="first snapshot without a measurement of the one that is silent for longest")
    names: list[ServiceKey] = Field(description="some of them, the longest silent first")


class WatchedDocument(Document):
    """An unusual service that raises no alert yet."""

    service: ServiceKey
    score: float = Field(description="its page score now")
    level: float = Field(description="page level: an alert needs a higher score")
    since: Instant = Field(description="first snapshot of the present deviation")
    seen: int = Field(ge=0, description="number of snapshots above the level so far")
    needed: int = Field(ge=1, description="number of snapshots above the level that raise an alert")
    reasons: list[ReasonDocument] = Field(description="strongest first")
    text: str = Field(description="what an alert takes, in words", examples=["alerts after 2 more snapshots like this"])


class ReconstructionDocument(Document):
    """The mesh as a whole against its own history. Many small deviations at once show here, even if no single service
    deviates enough for an alert."""

    loss: float = Field(
        ge=0,
        le=1,
        description="reconstruction loss: how badly the services' embeddings explain which services call which",
    )
    drift: float | None = Field(
        ge=0,
        description="embedding displacement: distance of the services' mean embedding from its mean over the window, "
        "in its standard deviations; null before ten snapshots",
    )
    loss_threshold: float | None = Field(
        description="percentile of the loss over history without incidents; null before ten snapshots"
    )
    drift_threshold: float | None = Field(
        description="1.5 times the same percentile of the displacement; null before twenty snapshots"
    )
    exceeded: bool = Field(description="whether one of them was above its threshold in most of the last snapshots")
    since: Instant | None = Field(description="first snapshot of the run above a threshold; null unless exceeded")
    text: str = Field(
        description="the same in words",
        examples=["the mesh as a whole is unusual since 03:12 UTC: reconstruction loss 0.12, usually below 0.08"],
    )


class VerdictDocument(Document):
    """The detector's result for one snapshot."""

    observed_at: Instant
    sequence: int = Field(ge=0, description="number of the mesh's snapshots, including this one")
    status: str = Field(
        description="`anomalous` while an incident other than a notice is open; `partial`: no incident found, but some "
        "services were not scored, or more than 5% are silent; `warming_up`: too few snapshots so far; else `normal`. "
        'With `alert.reconstruction = "alert"` also `anomalous` while the mesh as a whole exceeds its history',
        examples=["normal"],
    )
    mesh_score: float = Field(
        allow_inf_nan=False,
        description="the strongest evidence that lasted for some snapshots, in decades of improbability",
    )
    threshold: float | None = Field(
        description="an alert opens if and only if mesh_score reaches it; null in old verdicts that did not know it"
    )
    probability: float = Field(ge=0, le=1, description="calibrated probability that an incident is in progress")
    suspects: list[SuspectDocument] = Field(description="of the whole mesh, best first")
    incidents: list[IncidentDocument] = Field(description="open incidents, the most urgent first, notices last")
    coverage: float = Field(ge=0, le=1, description="share of services that were scored")
    missing_parts: list[int] = Field(description="partitions that did not answer in time")
    model: str = Field(description="digest of the weights")
    muted: list[MuteInForceDocument] = Field(default_factory=list, description="mutes in force")
    silence: SilenceDocument | None = Field(None, description="missing telemetry; null if there is none")
    watching: list[WatchedDocument] = Field(
        [], description="unusual services that raise no alert yet, the most unusual first; they change no status"
    )
    reconstruction: ReconstructionDocument | None = Field(
        None, description="the mesh as a whole; null: unknown, because a part was not scored or nothing is called"
    )
    lost: list[str] = Field(
        [],
        description="ids of incidents that this verdict closed because no data about them was received for too long; "
        "their outcome is unknown",
    )
    replayed: bool = Field(
        False,
        description="true: of the past, which the service read from Prometheus when the mesh was new; no notification "
        "was sent",
    )

    @property
    def alerts(self) -> list[IncidentDocument]:
        """The incidents that raise an alert: all but notices."""
        return [incident for incident in self.incidents if not incident.is_notice]

    @property
    def notices(self) -> list[IncidentDocument]:
        """The incidents that raise no alert."""
        return [incident for incident in self.incidents if incident.is_notice]


class VerdictsDocument(Document):
    """Stored verdicts of a mesh."""

    verdicts: list[VerdictDocument] = Field(description="oldest first")
