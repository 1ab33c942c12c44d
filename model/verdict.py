"""What the detector says of one instant of a mesh."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from model.snapshot import PlannedChange

VANISHED, LOST, NEW, MOVED = "vanished", "lost_calls", "new_calls", "moved_calls"  # reasons that are no metric


class Status(StrEnum):
    """``ANOMALOUS`` while an incident is open, whatever else is missing; ``PARTIAL``: nothing found, but not every
    part was scored; ``WARMING_UP``: too few snapshots seen; else ``NORMAL``. Not knowing is never normal."""

    NORMAL = "normal"
    ANOMALOUS = "anomalous"
    WARMING_UP = "warming_up"
    PARTIAL = "partial"


class Severity(StrEnum):
    """How much of the mesh an incident touches and how far it is from expectation; only rises while it is open."""

    MINOR = "minor"
    MAJOR = "major"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a service is suspected: one metric of it, or of one call into it, and what was expected instead.

    Attributes:
        metric: name of the metric, in the wire's words (``p99_latency``); ``vanished``: it is gone and missed;
            ``new_calls``, ``lost_calls``: calls into it that were not made before, or are made elsewhere now;
            ``moved_calls``: calls that it did not make before. Of these four the values are requests, 1/s.
        observed: value now, in the metric's unit.
        expected: value expected from the past and the neighbours, same unit.
        since: first snapshot of the present deviation.
        source: the calling service where the evidence is a call into the suspect; empty for its own metric.
        destination: the called service where it is a call of the suspect.
        load: the suspect's requests now over the usual; 1: as usual, not known, or told by another reason.
    """

    metric: str
    observed: float
    expected: float
    since: datetime
    source: str = ""
    destination: str = ""
    load: float = 1.0


@dataclass(frozen=True, slots=True)
class NearbyChange:
    """A planned change near an incident, and the snapshot that announced it."""

    change: PlannedChange
    at: datetime


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """What Kubernetes tells of a service and nobody planned. It may explain an incident; it is no evidence of one, and
    excuses nothing.

    Attributes:
        kind: Kubernetes' word, ``BackOff``.
        service: node id.
        object: whom it befell, ``Pod cart-v1-5f-x7k2p``.
        message: Kubernetes' own.
        first, last: UTC.
        count: how often.
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
    """A service where trouble may start; ``score`` from 0 to 1, suspects of one list add up to at most 1."""

    service: str
    score: float
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Incident:
    """Anomalous services and calls that hang together, followed from snapshot to snapshot under one id.

    Attributes:
        id: stable while the incident is open.
        since: when its first evidence was seen.
        severity: only rises.
        score: the strongest evidence in it now (higher is stranger).
        suspects: best first.
        affected: services that deviate, by name.
        changes: planned changes at its services, shortly before it or since, newest first.
        events: what Kubernetes told of its services, newest first; added by who listens to it, not by the detector.
    """

    id: str
    since: datetime
    severity: Severity
    score: float
    suspects: tuple[Suspect, ...]
    affected: tuple[str, ...]
    changes: tuple[NearbyChange, ...] = ()
    events: tuple[ClusterEvent, ...] = ()


class MuteOrigin(StrEnum):
    """Where a mute was given, and is to be taken back."""

    API = "api"
    SETTINGS = "settings"
    SNAPSHOT = "snapshot"  # annotations that the collector read, or policies that were pushed


@dataclass(frozen=True, slots=True)
class MuteInForce:
    """Services that page nobody now.

    Attributes:
        origin: see :class:`MuteOrigin`.
        services: node ids and ``namespace/*``; none: the whole mesh.
        reason: for people.
        id: of one given over the API; empty for others.
        until: None: as long as its origin says so.
        hides: services that would be part of an incident now.
    """

    origin: MuteOrigin
    services: tuple[str, ...]
    reason: str
    id: str = ""
    until: datetime | None = None
    hides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The cluster's verdict for one snapshot.

    Attributes:
        observed_at: the snapshot's time, UTC.
        sequence: how many snapshots of this mesh were counted, this one included.
        status: see :class:`Status`.
        mesh_score: strongest calibrated evidence in the mesh, in decades of improbability (``-log10 p``).
        threshold: percentile of ``mesh_score`` over the history without alerts; shown, pages nobody by itself.
        probability: calibrated probability that an incident is in progress, 0..1.
        suspects: of the whole mesh, best first; always filled.
        incidents: those that page.
        coverage: share of services that were scored, 0..1.
        missing_parts: partitions that gave no answer in time, by index.
        model_digest: which weights said so.
        muted: mutes in force: why it may be quiet.
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
