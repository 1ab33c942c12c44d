"""The kind of an incident: the problem of its first suspect, by its reasons at the peak."""

from collections.abc import Set as AbstractSet

from model.snapshot import SignalKind
from model.verdict import (
    DROPPED,
    LOSES,
    LOST,
    MOVED,
    NAMESPACE_FAILS,
    NAMESPACE_LOSES,
    NAMESPACE_SLOW,
    NAMESPACE_WAITS,
    NEW,
    OVERDUE,
    SENT,
    VANISHED,
    WAITS,
    Incident,
    IncidentKind,
    Reason,
    Severity,
    Suspect,
)

MANY_FAIL = 0.02  # rise of the error rate, from which failures describe a service that is also slow
MORE_REQUESTS = 2.0  # times its usual requests, from which a service that is slow, fails or is short is overloaded
MORE_RESOURCES = 1.2  # times what its requests explain, from which a resource is why a service is slow or fails
SCARCE = frozenset({"cpu_utilization", "cpu_per_request", "memory_utilization"})
# Signals of a resource that is at its limit; only unusual ones are facts. The others may be effects of a fault.
EXHAUSTED = frozenset({SignalKind.CPU_THROTTLING, SignalKind.OOM_KILLS, SignalKind.DISK_PRESSURE})
_BY_METRIC = {
    "error_rate": IncidentKind.FAILING,
    "p50_latency": IncidentKind.SLOW,
    "p99_latency": IncidentKind.SLOW,
    "own_time": IncidentKind.SLOW,
    **dict.fromkeys((WAITS, NAMESPACE_WAITS, NAMESPACE_SLOW), IncidentKind.SLOW),
    **dict.fromkeys((LOSES, NAMESPACE_LOSES, NAMESPACE_FAILS), IncidentKind.FAILING),
    **dict.fromkeys((*SCARCE, "active_connections", *SignalKind, OVERDUE), IncidentKind.RESOURCES),
    SignalKind.CANCELLED: IncidentKind.SLOW,
    VANISHED: IncidentKind.GONE,
    NEW: IncidentKind.REROUTED,
    LOST: IncidentKind.REROUTED,
    MOVED: IncidentKind.REROUTED,
    DROPPED: IncidentKind.CALLS_DROPPED,
    SENT: IncidentKind.SENDS_TOO_MANY_CALLS,
}
_HARMED_BY_LOAD = (IncidentKind.SLOW, IncidentKind.FAILING, IncidentKind.RESOURCES)


def incident_kind(incident: Incident, silent: AbstractSet[str] = frozenset()) -> IncidentKind:
    if not incident.suspects:
        return IncidentKind.UNCLEAR
    first = incident.suspects[0]
    if incident.scope:
        is_less = first.reasons[0].observed < first.reasons[0].expected
        return IncidentKind.TRAFFIC_LOST if is_less else IncidentKind.TRAFFIC_SURGE
    if incident.recovering and first.service in silent:
        return IncidentKind.TELEMETRY_MISSING
    if incident.severity is Severity.NOTICE:
        is_slow = bool(first.reasons) and first.reasons[0].metric == SignalKind.CANCELLED
        return IncidentKind.SLOW if is_slow else IncidentKind.RESOURCES
    return _kind_of(first)


def reason_kind(reason: Reason) -> IncidentKind:
    """Return the kind of an incident with this reason alone; ``UNCLEAR`` for changes of the load."""
    return _BY_METRIC.get(reason.metric, IncidentKind.UNCLEAR)


def _kind_of(suspect: Suspect) -> IncidentKind:
    """Return what the reasons say together.

    A service that retries, lacks CPU, or calls the wrong service, is slow and fails too: what causes the symptoms
    counts, if it is known.
    """
    if any(fact.metric == SENT for fact in suspect.context):
        return IncidentKind.SENDS_TOO_MANY_CALLS
    if not suspect.reasons:
        return IncidentKind.UNCLEAR
    first, load = reason_kind(suspect.reasons[0]), suspect.reasons[0].load
    if first not in _HARMED_BY_LOAD:
        return first
    if any(reason.metric == MOVED for reason in suspect.reasons):
        return IncidentKind.REROUTED
    if load >= MORE_REQUESTS:
        return IncidentKind.OVERLOADED
    if any(_is_scarce(fact, load) for fact in (*suspect.reasons, *suspect.context)):
        return IncidentKind.RESOURCES
    is_failing = any(r.metric == "error_rate" and r.observed - r.expected >= MANY_FAIL for r in suspect.reasons)
    return IncidentKind.FAILING if is_failing else first


def _is_scarce(fact: Reason, load: float) -> bool:
    """Return whether a service uses more of a resource than its requests explain. With fewer requests than usual, each
    one has a larger share of the work that is always done. What rises towards its limit is scarce whatever the
    requests."""
    if fact.metric in EXHAUSTED or fact.forecast is not None:
        return True
    if fact.metric == "cpu_per_request" and load < 1:
        return False
    return fact.metric in SCARCE and fact.observed >= MORE_RESOURCES * max(load, 1.0) * fact.expected
