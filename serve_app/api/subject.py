"""The subject of an incident: its title, and the caller whose calls alone show the fault.

The page, messages, reports and the command line all show this title.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from model.incidents.kind import EXHAUSTED, SCARCE, reason_kind
from model.incidents.open_incident import LIKELY_SHARE
from model.snapshot import RATIOS, PlannedChange, namespace_of
from model.verdict import (
    NAMESPACE_FAILS,
    NAMESPACE_SLOW,
    OF_NAMESPACE,
    VANISHED,
    Incident,
    IncidentKind,
    Reason,
    Severity,
    Suspect,
)
from serve_app.api.reason_text import facts
from serve_app.api.rerouting import swapped_callers
from serve_app.api.schemas.verdict import SuspectDocument
from serve_app.api.wording import LATENCIES

SURE = 0.7  # score of the first suspect, below which the cause is uncertain
OF_ITS_OWN = 0.2  # score of a suspect, from which it probably has a fault of its own
OWN_SHARE = 0.1  # of the rise in one caller's calls, below which the rise of the service's own metric is due to them
HARMFUL_RISE = 1.5  # of a resource, relative to usual, below which it is no fault of the service
NEARLY_FULL = 0.8  # utilization, from which any rise is a fault
SHORTLY = timedelta(minutes=10)  # before an incident, in which its first suspect's change may be the cause
MAX_VERSION = 40  # characters of a change's reason that a sentence has room for
TRAFFIC = frozenset({IncidentKind.TRAFFIC_LOST, IncidentKind.TRAFFIC_SURGE})
_OF_CALLS = frozenset({"error_rate", *LATENCIES})
_WITH_A_CALL = frozenset({IncidentKind.SLOW, IncidentKind.FAILING})


def title(incident: Incident) -> str:
    """The name of an incident: ``shop/cart``, ``calls from shop/web to shop/cart``, ``requests to the mesh``."""
    if incident.kind in TRAFFIC:
        return f"requests to {scope_text(incident.scope or first_service(incident))}"
    if is_uncertain_swap(incident):
        return f"calls from {' and '.join(swapped_callers(incident))}"
    cause = namespace_cause(incident)
    if cause is not None:
        way = "to" if cause.metric in (NAMESPACE_SLOW, NAMESPACE_FAILS) else "out of"
        return f"calls {way} namespace {namespace_of(first_service(incident))}"
    if faults := separate_faults(incident):
        return " and ".join(first_service(fault) for fault in faults)
    source = caller(incident)
    return f"calls from {source} to {first_service(incident)}" if source else first_service(incident)


def origins(incident: Incident) -> list[str]:
    """The services where an incident likely began: the first suspect, all with separate faults, all services of its
    namespace that suffer as one, or two callers that have each other's callees. Empty for a traffic incident, which
    began outside."""
    if incident.kind in TRAFFIC or not incident.suspects:
        return []
    if is_uncertain_swap(incident):
        return list(swapped_callers(incident))
    if faults := separate_faults(incident):
        return [first_service(fault) for fault in faults]
    return [suspect.service for suspect in _sharing_suspects(incident)] or [first_service(incident)]


def separate_faults(incident: Incident) -> list[Incident]:
    """The incident once for each suspect that is slow or fails by itself, if there are several: then none of them is
    the cause of the others. The earliest one, by the minute that people see, comes first. Empty if a reason is about
    calls between them, which would explain one by the other."""
    if incident.kind not in _WITH_A_CALL or incident.severity is Severity.NOTICE or namespace_cause(incident):
        return []
    faults = [
        (suspect, harm)
        for suspect in incident.suspects
        if suspect.score >= OF_ITS_OWN and (harm := _harm_of_its_own(facts(suspect))) is not None
    ]
    names = {suspect.service for suspect, _ in faults}
    ends = {end for suspect, _ in faults for fact in facts(suspect) for end in (fact.source, fact.destination)}
    if len(faults) < 2 or names & ends or first_service(incident) not in names:
        return []
    faults.sort(key=lambda fault: fault[1].since.replace(second=0, microsecond=0))
    return [replace(incident, suspects=(suspect,), kind=reason_kind(harm)) for suspect, harm in faults]


def _harm_of_its_own(reasons: Sequence[Reason]) -> Reason | None:
    """The strongest fact that a service is slow or fails by itself."""
    return next(
        (fact for fact in reasons if reason_kind(fact) in _WITH_A_CALL and _is_harm_of_its_own(fact, reasons)), None
    )


def caller(incident: Incident) -> str:
    """The service whose calls to the first suspect fail or are slow while the suspect itself shows no fault; of
    several, the one with the strongest evidence. Empty if there is none."""
    callers = failing_callers(incident)
    return callers[0] if callers else ""


def failing_callers(incident: Incident) -> list[str]:
    """All services of which :func:`caller` names the first, strongest first."""
    if incident.kind not in _WITH_A_CALL or incident.severity is Severity.NOTICE or not incident.suspects:
        return []
    reasons = facts(incident.suspects[0])
    causes = facts_of_kind(incident.suspects[0], incident.kind)
    if not causes or not is_only_in_a_call(causes) or any(_is_harm_of_its_own(fact, reasons) for fact in reasons):
        return []
    symptoms = (fact for fact in (*causes, *reasons) if reason_kind(fact) in _WITH_A_CALL)
    return list(dict.fromkeys(fact.source for fact in symptoms if fact.source))


def facts_of_kind(suspect: Suspect, kind: IncidentKind) -> list[Reason]:
    """The facts that a kind of incident follows from, strongest first. Resources that run out, are at their limit or
    are used up come first: connections pile up at a service that is slow for any reason. If calls to a service that is
    gone fail, its disappearance is the fact."""
    disappearances = [fact for fact in facts(suspect) if fact.metric == VANISHED and kind is IncidentKind.FAILING]
    if disappearances:
        return disappearances
    causes = [fact for fact in facts(suspect) if reason_kind(fact) is kind]
    if kind is not IncidentKind.RESOURCES:
        return causes
    return sorted(
        causes, key=lambda fact: (fact.forecast is None, fact.metric not in EXHAUSTED, fact.metric not in SCARCE)
    )


def is_only_in_a_call(causes: Sequence[Reason]) -> bool:
    """Whether the calls from a caller fail or are slow while the service's own metrics, which include these calls, show
    hardly anything of it; by at least one fact of one kind about the service, strongest first."""
    call = causes[0]
    return (
        bool(call.source)
        and call.metric in _OF_CALLS
        and call.observed > call.expected
        and all(cause.source or cause.destination or _is_part_of(cause, call) for cause in causes)
    )


def _is_part_of(own: Reason, call: Reason) -> bool:
    """Whether the rise of a service's own metric is small enough to be the rise in the calls from one caller."""
    return own.metric == call.metric and own.observed - own.expected < OWN_SHARE * (call.observed - call.expected)


def _is_harm_of_its_own(fact: Reason, reasons: Sequence[Reason]) -> bool:
    """Whether a fact is the service's own, and shows harm that the calls from its callers do not explain."""
    kind = reason_kind(fact)
    if fact.source or fact.destination or kind is IncidentKind.UNCLEAR or fact.observed < fact.expected:
        return False
    is_full = fact.metric in RATIOS and fact.observed >= NEARLY_FULL
    is_small = fact.forecast is None and fact.observed < HARMFUL_RISE * fact.expected
    if kind is IncidentKind.RESOURCES and is_small and not is_full:
        return False
    return not any(call.source and _is_part_of(fact, call) for call in reasons)


def version_of(change: PlannedChange) -> str:
    """The new version by a change's reason: ``v1.4.2``. Empty if the reason is long, or only says that there was a
    change, like Kubernetes' ``ScalingReplicaSet``: one word without a digit."""
    reason = change.reason
    is_event = " " not in reason and not any(map(str.isdigit, reason))
    return "" if is_event or len(reason) > MAX_VERSION else reason


def change_before(incident: Incident) -> tuple[PlannedChange, float] | None:
    """The first suspect's last change shortly before the incident began, and the seconds between them; None if there is
    none. A change of another service is no cause."""
    first = first_service(incident)
    changes = [
        near
        for near in incident.changes
        if near.change.service == first and timedelta() <= incident.since - near.at <= SHORTLY
    ]
    last = max(changes, key=lambda near: near.at, default=None)
    return (last.change, (incident.since - last.at).total_seconds()) if last else None


def namespace_cause(incident: Incident) -> Reason | None:
    """The reason that calls out of, or to, all services of the first suspect's namespace suffer; None without it."""
    first = incident.suspects[0].reasons if incident.suspects else ()
    return next((reason for reason in first if reason.metric in OF_NAMESPACE), None)


def first_service(incident: Incident) -> str:
    """The first suspect; without suspects, the first affected service; without both, the incident's id."""
    return [*(suspect.service for suspect in incident.suspects[:1]), *incident.affected[:1], incident.id][0]


def unclear_suspects(incident: Incident) -> list[str]:
    """The first two suspects if the first one is not clear; empty if it is. Services of a namespace that share a cause
    count as one suspect."""
    if incident.severity is Severity.NOTICE or not incident.suspects or not 0 <= incident.suspects[0].score < SURE:
        return []
    if separate_faults(incident) or sum(suspect.score for suspect in _sharing_suspects(incident)) >= SURE:
        return []
    return [suspect.service for suspect in incident.suspects[:2]]


def _sharing_suspects(incident: Incident) -> list[Suspect]:
    """The suspects in the namespace whose calls all suffer; empty if the incident has no such cause."""
    cause = namespace_cause(incident)
    if cause is None:
        return []
    namespace = namespace_of(first_service(incident))
    return [
        suspect
        for suspect in incident.suspects
        if namespace_of(suspect.service) == namespace
        and any(reason.metric == cause.metric for reason in suspect.reasons)
    ]


def is_uncertain_swap(incident: Incident) -> bool:
    """Whether no suspect is clear, but two callers have each other's callees: then these calls are the cause."""
    is_rerouted = incident.kind is IncidentKind.REROUTED
    return is_rerouted and bool(unclear_suspects(incident)) and bool(swapped_callers(incident))


def scope_text(scope: str) -> str:
    """The scope of a traffic incident: ``the mesh``, ``namespace shop``, ``shop/gateway``."""
    if scope == "*":
        return "the mesh"
    return f"namespace {scope.removesuffix('/*')}" if scope.endswith("/*") else scope


def likely_suspects(suspects: Sequence[Suspect | SuspectDocument]) -> tuple[str, ...]:
    """The suspects with a considerable share of the score, best first; at least the first one."""
    total = sum(suspect.score for suspect in suspects)
    return tuple(
        suspect.service for i, suspect in enumerate(suspects) if i == 0 or suspect.score >= LIKELY_SHARE * total
    )


def is_alone(incident: Incident, alerts: Sequence[Incident]) -> bool:
    """Whether none of a verdict's alerts is another incident."""
    return all(alert.id == incident.id for alert in alerts)
