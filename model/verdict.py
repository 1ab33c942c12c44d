"""The detector's verdict on one instant of a mesh."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from model.snapshot import Owner, PlannedChange

# Reasons that are not metrics.
VANISHED, LOST, NEW, MOVED, DROPPED = "vanished", "lost_calls", "new_calls", "moved_calls", "dropped_calls"
OVERDUE = "overdue_work"  # of a notice
# Of all calls that a service makes, though what it calls is well; of all out of, or into, its namespace.
WAITS, LOSES = "outgoing_latency", "outgoing_errors"
NAMESPACE_WAITS, NAMESPACE_LOSES = "namespace_outgoing_latency", "namespace_outgoing_errors"
NAMESPACE_SLOW, NAMESPACE_FAILS = "namespace_incoming_latency", "namespace_incoming_errors"
OF_NAMESPACE = (NAMESPACE_WAITS, NAMESPACE_LOSES, NAMESPACE_SLOW, NAMESPACE_FAILS)
SENT = "sent_calls"  # of ``Suspect.context``: all calls that a service makes, 1/s
MAX_SUSPECTS = 10  # shown for a mesh, and for an incident


class Status(StrEnum):
    """Status of a mesh.

    ``ANOMALOUS``: an incident above the severity ``notice`` is open, whatever else is missing; or, if the policy says
    so, the mesh as a whole is unlike its history (:class:`Reconstruction`). ``PARTIAL``: nothing
    found, but a part was not scored, or the telemetry of more than a twentieth of the services is missing.
    ``WARMING_UP``: too few snapshots. ``NORMAL``: otherwise. An unknown state is never normal.
    """

    NORMAL = "normal"
    ANOMALOUS = "anomalous"
    WARMING_UP = "warming_up"
    PARTIAL = "partial"


class Severity(StrEnum):
    """The harm of an incident to users; :mod:`model.incidents.harm` has the rule. It only rises while the
    incident is open.

    ``NOTICE``: a resource is running out, but users are not affected yet. A notice raises no alert. It ends when an
    incident at its services begins.
    """

    NOTICE = "notice"
    MINOR = "minor"
    MAJOR = "major"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for ``NOTICE``, more the worse it is."""
        return list(Severity).index(self)


def worst(first: Severity, second: Severity) -> Severity:
    return second if second.rank > first.rank else first


class IncidentKind(StrEnum):
    """The problem of an incident's first suspect, by its reasons; :func:`model.incidents.kind.incident_kind`
    derives it."""

    SLOW = "slow"  # latency
    FAILING = "failing"  # errors
    GONE = "gone"  # it disappeared, and its callers miss it
    SENDS_TOO_MANY_CALLS = "sends_too_many_calls"  # far more calls for each request than usual
    OVERLOADED = "overloaded"  # it is slow or fails, with far more requests than usual
    RESOURCES = "resources"  # a resource is short or leaks, or it needs far more of it than its requests explain
    REROUTED = "rerouted"  # calls go elsewhere than usual
    CALLS_DROPPED = "calls_dropped"  # a busy caller suddenly makes hardly any calls to it
    TRAFFIC_LOST = "traffic_lost"  # requests from outside fell, and nothing planned or regular explains it
    TRAFFIC_SURGE = "traffic_surge"  # requests from outside rose in the same way
    TELEMETRY_MISSING = "telemetry_missing"  # its metrics stopped, so its state is unknown
    UNCLEAR = "unclear"


class IncidentTrend(StrEnum):
    """The course of an open incident over the last minutes; :mod:`model.incidents.trend` has the rule."""

    WORSENING = "worsening"
    STEADY = "steady"
    EASING = "easing"


@dataclass(frozen=True, slots=True)
class LimitForecast:
    """When a resource that grows steadily reaches its limit, from the time of the verdict on.

    Attributes:
        soonest, latest: interval that holds the truth for four of five simulated leaks; ``latest`` is infinite if the
            growth may end before.
    """

    seconds: float
    soonest: float
    latest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The reason for a suspect: a metric of the service or of one call into it, and the expected value.

    Attributes:
        metric: name of the metric in the API (``p99_latency``). ``vanished``: the service disappeared and is missed.
            ``new_calls``, ``lost_calls``, ``dropped_calls``: calls into it that are new, that go elsewhere now, or that
            their caller suddenly no longer makes. ``moved_calls``: new calls that it makes. The values of these five
            are requests, 1/s. ``outgoing_latency``, ``outgoing_errors``: the median latency, or the share that fails,
            of the calls that it makes, which all suffer, though what it calls is well. ``namespace_outgoing_latency``,
            ``namespace_outgoing_errors``: the same if that is true of all calls out of the services of its namespace.
            ``namespace_incoming_latency``, ``namespace_incoming_errors``: of all calls to these services.
            ``overdue_work``: work that it does at regular times did not run; the values are seconds since it last
            began, and between two such times, and ``since`` is when it last began.
        observed: value now, in the metric's unit.
        expected: value expected from the past and the neighbours, same unit.
        since: first snapshot of the present deviation.
        source: the caller if the evidence is a call into the suspect; empty for its own metric.
        destination: the callee if the evidence is a call of the suspect.
        load: the suspect's requests now relative to usual; 1: unchanged, unknown, or reported with another reason.
        forecast: when the metric reaches its limit; None if it does not grow steadily or has no known limit.
    """

    metric: str
    observed: float
    expected: float
    since: datetime
    source: str = ""
    destination: str = ""
    load: float = 1.0
    forecast: LimitForecast | None = None


@dataclass(frozen=True, slots=True)
class NearbyChange:
    """A planned change near an incident, and the time of the snapshot that announced it."""

    change: PlannedChange
    at: datetime


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A Kubernetes event of a service. It may explain an incident, but is not evidence of one and lowers no score.

    Attributes:
        object: the Kubernetes object, such as ``Pod cart-v1-5f-x7k2p``.
    """

    kind: str
    service: str
    object: str
    message: str
    first: datetime
    last: datetime
    count: int = 1


@dataclass(frozen=True, slots=True)
class Suspect:
    """A possible root cause.

    Attributes:
        score: 0 to 1; the suspects of one list add up to at most 1.
        reasons: strongest first.
        context: further facts that tell the kind of a fault but are not evidence of it: all calls that it makes
            (``SENT``) and the error rate of those that fail most, if it makes far more than usual; a resource.
        owner: None: not known; added outside the detector.
    """

    service: str
    score: float
    reasons: tuple[Reason, ...] = ()
    context: tuple[Reason, ...] = ()
    owner: Owner | None = None


def first_service(suspects: Sequence[Suspect]) -> str:
    """Return the service of the first suspect; empty if there is none."""
    return suspects[0].service if suspects else ""


@dataclass(frozen=True, slots=True)
class Impact:
    """The reach of an incident; see ``model/incidents/impact.py``.

    Attributes:
        front_door_share: of the requests that enter the mesh, the share that reaches an origin of the incident, 0..1;
            None: unknown.
        harmed_share: of the same requests, the share that fails or is slow because of it, 0..1; None: unknown.
    """

    services: int
    front_door_share: float | None = None
    harmed_share: float | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """A service level objective of a front door.

    Attributes:
        target: share of its requests that are good, 0..1.
        days: period of its error budget.
        latency_seconds: a request is good if it takes at most this; None: if it succeeds.
    """

    service: str
    target: float
    days: float = 30.0
    latency_seconds: float | None = None

    @property
    def kind(self) -> str:
        """The promise: ``availability`` or ``latency``."""
        return "availability" if self.latency_seconds is None else "latency"

    @property
    def name(self) -> str:
        """Its name among the objectives of a mesh."""
        return f"{self.service} {self.kind}"


@dataclass(frozen=True, slots=True)
class ErrorBudget:
    """The part of an objective's error budget that an incident has used so far; see ``model.incidents.objectives``."""

    objective: Objective
    used: float
    bad_requests: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Anomalous services and calls that are connected, followed from snapshot to snapshot under one id.

    Attributes:
        severity: only rises.
        score: the strongest evidence in it now; higher is more unusual.
        suspects: best first.
        affected: services that deviate, by name.
        changes: planned changes at its services, shortly before it or since, newest first.
        events: Kubernetes events of its services, newest first; added outside the detector.
        recovering: whether its services are back to normal; it ends soon unless they deviate again.
        suspects_at: time of the snapshot that shows the suspects best, UTC; None: unknown.
        kind: what is wrong, by the reasons of the first suspect; may change while it is open.
        impact: how far it reaches; None: not computed.
        scope: of a traffic incident: ``*`` for the mesh, ``namespace/*``, or the node id of one entry point. Empty
            for all other incidents.
        error_budgets: what it has used of them, the most used first; added outside the detector.
        owner: of its first suspect, else of its first affected service; None: not known; added outside the detector.
        teams: of its affected services, by number of services; added outside the detector.
        recurrences: how often it ended and began again within minutes.
        trend: whether it gets worse; None: it cannot be said yet, or it is recovering; added outside the detector.
    """

    id: str
    since: datetime
    severity: Severity
    score: float
    suspects: tuple[Suspect, ...]
    affected: tuple[str, ...]
    changes: tuple[NearbyChange, ...] = ()
    events: tuple[ClusterEvent, ...] = ()
    recovering: bool = False
    suspects_at: datetime | None = None
    kind: IncidentKind = IncidentKind.UNCLEAR
    impact: Impact | None = None
    scope: str = ""
    owner: Owner | None = None
    teams: tuple[str, ...] = ()
    error_budgets: tuple[ErrorBudget, ...] = ()
    trend: IncidentTrend | None = None
    recurrences: int = 0


@dataclass(frozen=True, slots=True)
class Watched:
    """An unusual service that raises no alert yet.

    Attributes:
        score, level: its page score now, and the page level that it would have to exceed.
        since: first snapshot of the present deviation.
        seen, needed: snapshots above the level so far, and how many raise an alert.
    """

    service: str
    score: float
    level: float
    since: datetime
    seen: int
    needed: int
    reasons: tuple[Reason, ...] = ()


class MuteOrigin(StrEnum):
    """The place where a mute was set, and can be removed."""

    API = "api"
    SETTINGS = "settings"
    SNAPSHOT = "snapshot"  # annotations that the collector read, or policies that were pushed


@dataclass(frozen=True, slots=True)
class MuteInForce:
    """A mute that applies now.

    Attributes:
        services: node ids and ``namespace/*``; empty: the whole mesh.
        until: None: as long as its origin has it.
        hides: services that would be part of an incident now.
    """

    origin: MuteOrigin
    services: tuple[str, ...]
    reason: str
    id: str = ""
    until: datetime | None = None
    hides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Silence:
    """Services whose telemetry is missing. Nothing is known about them, and they are not symptoms.

    Attributes:
        total: services that the mesh has, these included.
        since: first snapshot without a measurement of the one that is silent for longest, UTC.
        names: some of their ids, the longest silent first.
    """

    services: int
    total: int
    since: datetime
    names: tuple[str, ...]

    @property
    def share(self) -> float:
        """Share of the mesh's services, 0..1."""
        return self.services / self.total


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """The mesh as a whole against its own history: many small deviations at once show here first.

    Attributes:
        loss: reconstruction loss L_recon, 0 to 1; :mod:`model.scoring.reconstruction` has the formula.
        displacement: distance of the mean embedding from its mean over the window, in its standard deviations; None
            before ten snapshots.
        loss_threshold: percentile of the loss over the history without alerts; None before ten snapshots.
        displacement_threshold: 1.5 times that percentile of the displacement; None before twenty.
        exceeded: whether loss or displacement was above its threshold in 2k of the last 2n snapshots, see
            ``AlertPolicy``.
        since: first snapshot of the run above a threshold; None unless exceeded.
    """

    loss: float
    displacement: float | None
    loss_threshold: float | None
    displacement_threshold: float | None
    exceeded: bool = False
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one snapshot.

    Attributes:
        sequence: counted snapshots of this mesh, this one included.
        mesh_score: the largest decisive score of the mesh's services and of its traffic, in decades of improbability;
            see :mod:`model.incidents.threshold`.
        threshold: that ``mesh_score`` has to reach to open an alert.
        probability: calibrated probability that an incident is in progress, 0..1.
        suspects: of the whole mesh, best first; always filled.
        incidents: open ones, the most urgent first, notices last; see :func:`sort_by_urgency`.
        coverage: share of services that were scored, 0..1.
        missing_parts: indices of parts that did not answer in time.
        muted: mutes in force; they may be why there is no alert.
        silence: services whose telemetry is missing; None if there are none.
        watching: unusual services that raise no alert yet, the most unusual first. They change no status and are not
            sent to anybody.
        lost: ids of incidents that this verdict closed because nothing was seen of them for too long. How they ended
            is unknown.
        reconstruction: the mesh as a whole; None if it is not known, because a part is missing or nothing is called.
    """

    observed_at: datetime
    sequence: int
    status: Status
    mesh_score: float
    threshold: float
    probability: float
    suspects: tuple[Suspect, ...]
    incidents: tuple[Incident, ...]
    coverage: float = 1.0
    missing_parts: tuple[int, ...] = ()
    model_digest: str = ""
    muted: tuple[MuteInForce, ...] = ()
    silence: Silence | None = None
    watching: tuple[Watched, ...] = ()
    lost: tuple[str, ...] = ()
    reconstruction: Reconstruction | None = None

    @property
    def confidence(self) -> float | None:
        """Probability of the status, 0..1: of an incident if it is anomalous, of none if it is normal; else None."""
        return {Status.ANOMALOUS: self.probability, Status.NORMAL: 1 - self.probability}.get(self.status)

    @property
    def alerts(self) -> tuple[Incident, ...]:
        return tuple(incident for incident in self.incidents if incident.severity is not Severity.NOTICE)

    @property
    def notices(self) -> tuple[Incident, ...]:
        return tuple(incident for incident in self.incidents if incident.severity is Severity.NOTICE)


def sort_by_urgency(verdict: Verdict) -> Verdict:
    """Return the verdict with its most urgent incident first, the same order for everybody who reads it.

    Incidents that go on come before those that recover, and all of them before notices. Among these, the more severe
    one comes first; of equal ones, the one that more requests from outside reach. Shares are compared in tenths, so
    that noise does not swap two incidents between snapshots. Of equal ones, the older one comes first.
    """
    if len(verdict.incidents) < 2:
        return verdict
    return replace(verdict, incidents=tuple(sorted(verdict.incidents, key=_urgency)))


def _urgency(incident: Incident) -> tuple[object, ...]:
    """A key for sorting: smaller ones are more urgent."""
    share = incident.impact.front_door_share if incident.impact else None
    return (
        incident.severity is Severity.NOTICE,
        incident.recovering,
        -incident.severity.rank,
        -round(share or 0.0, 1),
        incident.since,
        incident.id,
    )
