"""The next step in an incident: what to do, and the evidence that decides, as one sentence.

It follows from the incident alone. A change is named as the cause only if it is the first suspect's, shortly before.
The page, messages, reports and the command line all show this text.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model.names import list_first
from model.verdict import (
    DROPPED,
    LOSES,
    SENT,
    VANISHED,
    WAITS,
    Incident,
    IncidentKind,
    LimitForecast,
    Reason,
    Severity,
    Suspect,
)
from serve_app.api.number_text import span_text, times_text
from serve_app.api.reason_text import clause_text, facts
from serve_app.api.rerouting import routes_of, swapped_callers
from serve_app.api.subject import (
    OF_ITS_OWN,
    TRAFFIC,
    change_before,
    facts_of_kind,
    failing_callers,
    first_service,
    is_alone,
    is_uncertain_swap,
    likely_suspects,
    namespace_cause,
    separate_faults,
    title,
    unclear_suspects,
    version_of,
)
from serve_app.api.wording import fill, observed_text, usual_text, wording

# Faults that a new version of the service can cause: not its load, nor calls that its callers stopped making.
_OF_A_VERSION = frozenset(
    {
        IncidentKind.SLOW,
        IncidentKind.FAILING,
        IncidentKind.GONE,
        IncidentKind.SENDS_TOO_MANY_CALLS,
        IncidentKind.RESOURCES,
        IncidentKind.REROUTED,
    }
)
_MAX_CALLERS = 3  # named in a sentence
_BUSY_CPU = 0.5  # utilization, from which more replicas may help
_EARLIER_SECONDS = 60.0  # from which a suspect rose before another one
_FULL = 0.95  # utilization of a CPU, from which its node may have none for others


def next_step(incident: Incident, alerts: Sequence[Incident] = ()) -> str:
    """``Limit the retries of shop/bff: it sends 1.8 times its usual calls, more than its requests explain.`` For
    ``alerts``, see :func:`serve_app.api.headline.headline`."""
    return f"{_next_step(incident, alerts)}."


def _next_step(incident: Incident, alerts: Sequence[Incident]) -> str:
    """``ACTION: EVIDENCE``."""
    first = first_service(incident)
    if incident.kind is IncidentKind.TELEMETRY_MISSING:
        return f"Find out why {first} sends no telemetry: until it does, its state is unknown"
    if incident.recovering:
        return f"No action needed; keep watching: {_subject_with_verb(incident)} back to normal"
    if incident.kind in TRAFFIC:
        return _step_of_traffic(incident, is_alone(incident, alerts))
    if not incident.suspects:
        return f"Look at {first} first: it deviates, and no service stands out as the cause"
    first_step, *further_steps = (_step_of_cause(fault) for fault in separate_faults(incident) or [incident])
    if further_steps:  # the headline has their evidence
        actions = [step.partition(": ")[0] for step in (first_step, *further_steps)]
        return "; separately, ".join([actions[0], *(action[0].lower() + action[1:] for action in actions[1:])])
    return _with_alternative(incident, first_step)


def _subject_with_verb(incident: Incident) -> str:
    """The subject that is back to normal, with its verb."""
    name = title(incident)
    return f"the {name} are" if name != first_service(incident) else f"{name} and the services around it are"


def _step_of_traffic(incident: Incident, alone: bool) -> str:
    requests = title(incident)
    if incident.kind is IncidentKind.TRAFFIC_SURGE:
        return (
            f"Find where the {requests} come from, and scale out or limit them at the entry: "
            "nothing planned or regular explains the rise"
        )
    if alone:
        return (
            "Check the load balancer, DNS and the source of the metrics: "
            f"the {requests} fell, and nothing inside the mesh fails"
        )
    return f"Look at the other open incidents first: they may be why the {requests} fell"


@dataclass(frozen=True, slots=True)
class _FirstSuspect:
    """An incident with a first suspect, and the suspect's facts, strongest first."""

    incident: Incident
    suspect: Suspect
    facts: Sequence[Reason]

    @property
    def service(self) -> str:
        return self.suspect.service

    def strongest(self, metric: str) -> Reason | None:
        """The strongest fact with a metric."""
        return next((fact for fact in self.facts if fact.metric == metric), None)

    @property
    def causes(self) -> list[Reason]:
        """The facts that the incident's kind follows from, strongest first."""
        return facts_of_kind(self.suspect, self.incident.kind)


def _step_of_cause(incident: Incident) -> str:
    case = _FirstSuspect(incident, incident.suspects[0], facts(incident.suspects[0]))
    return _rollback(case) or _STEPS[incident.kind](case)


def _with_alternative(incident: Incident, step: str) -> str:
    """The step, and the next place to look at: a suspect that uses up its CPU; or the second one, if the cause is
    uncertain, or if it has a fault of its own."""
    suspects = incident.suspects
    full = _full_neighbour(incident)
    if full is not None:
        service, fact = full
        return f"{step}; look at {service} too, which may slow others on its node ({_evidence(fact, incident)})"
    is_uncertain = bool(unclear_suspects(incident))
    if len(suspects) < 2 or not (is_uncertain or suspects[1].score >= OF_ITS_OWN):
        return step
    second, reasons = suspects[1].service, sorted(facts(suspects[1]), key=lambda fact: fact.metric != SENT)
    if re.search(rf"(?<![\w/.-]){re.escape(second)}(?![\w/-]|\.\w)", step):
        return step  # it names this service already
    action = f"if that does not help, look at {second}" if is_uncertain else f"look at {second} too"
    return f"{step}; {action}" + (f" ({_evidence(reasons[0], incident)})" if reasons else "")


def _evidence(fact: Reason, incident: Incident) -> str:
    """A fact about another suspect, and its lead over the first suspect's facts."""
    first = min((reason.since for reason in facts(incident.suspects[0])), default=fact.since)
    ahead = (first - fact.since).total_seconds()
    return clause_text(fact) + (f", {span_text(ahead)} earlier" if ahead >= _EARLIER_SECONDS else "")


def _full_neighbour(incident: Incident) -> tuple[str, Reason] | None:
    """Another likely suspect that uses up its CPU, if services are slow or failing, and the fact about it."""
    if incident.kind not in (IncidentKind.SLOW, IncidentKind.FAILING):
        return None
    likely = set(likely_suspects(incident.suspects))
    neighbours = (
        (suspect.service, fact)
        for suspect in incident.suspects[1:]
        for fact in facts(suspect)
        if suspect.service in likely and fact.metric == "cpu_utilization" and fact.observed >= _FULL
    )
    return next(neighbours, None)


def _rollback(case: _FirstSuspect) -> str | None:
    """The step that undoes the suspect's last change; None if there was none shortly before that can be the cause."""
    last = change_before(case.incident)
    if last is None or case.incident.kind not in _OF_A_VERSION or case.incident.severity is Severity.NOTICE:
        return None
    change, ahead = last
    if change.kind == "scale_out":  # more replicas are no cause, and fewer would make it worse
        return None
    version = version_of(change)
    if change.kind == "deploy":
        action, event = f"Roll back {version or 'the last deploy'} of {case.service}", "it was deployed"
    else:
        kind = change.kind.replace("_", " ")
        action, event = f"Undo the {kind} of {case.service}{f' ({version})' if version else ''}", "it happened"
    timing = f"{span_text(ahead)} before this began" if ahead else "as this began"
    causes = case.causes or case.facts
    return f"{action}: {event} {timing}{f', and {clause_text(causes[0], case.service)}' if causes else ''}"


def _step_of(reason: Reason, service: str) -> str:
    """The step that belongs to the metric of a reason about ``service``."""
    words = wording(reason.metric)
    return fill(
        words.step,
        reason,
        service,
        evidence=fill(words.sentence, reason, service) if words.sentence else clause_text(reason, service),
        or_more=", or scale it out" if reason.observed >= _BUSY_CPU else "",
    )


def _step_of_own_fault(case: _FirstSuspect) -> str:
    if any(fact.metric == VANISHED for fact in case.causes):
        return _step_of_gone(case)
    if callers := failing_callers(case.incident):
        return _step_of_failing_calls(case, callers)
    cause = namespace_cause(case.incident) or case.strongest(LOSES) or case.strongest(WAITS)
    if cause is not None:
        return _step_of(cause, case.service)
    own_time = case.strongest("own_time")
    evidence = clause_text((case.causes or case.facts)[0], case.service) if case.facts else "it deviates most"
    if own_time is not None and own_time.observed > own_time.expected:
        evidence += ", and the time is spent in it, not in its callees"
    place = "its logs first" if case.incident.kind is IncidentKind.FAILING else "for a lock, a slow disk or a leak"
    return f"Look at {case.service} itself, {place}: {evidence}"


def _step_of_failing_calls(case: _FirstSuspect, callers: Sequence[str]) -> str:
    service = case.service
    several = f"{service} and its callers {list_first(callers, _MAX_CALLERS)}"
    ends = several if len(callers) > 1 else f"{callers[0]} and {service}"
    is_well = all(fact.source or fact.destination or fact.observed <= fact.expected for fact in case.facts)
    contrast = f", while {service} itself shows nothing unusual" if is_well else ""
    return f"Check the network and the policies between {ends}: {clause_text(case.causes[0], service)}{contrast}"


def _step_of_gone(case: _FirstSuspect) -> str:
    absence, memory = case.strongest(VANISHED), case.strongest("memory_utilization")
    evidence = clause_text(absence) if absence else "its callers miss it"
    if memory is not None and memory.observed > memory.expected:
        evidence += f"; its memory was at {observed_text(memory)}"
    if not any(near.change.service == case.service for near in case.incident.changes):
        evidence += ", and no planned change explains it"
    return f"Bring {case.service} back: {evidence}"


def _step_of_many_calls(case: _FirstSuspect) -> str:
    action, calls = f"Limit the retries of {case.service}", case.strongest(SENT)
    if calls is None:
        return f"{action}: it sends more calls than its requests explain"
    times = times_text(calls.observed / calls.expected)
    evidence = f"it sends {times} times its usual calls, more than its requests explain"
    if losses := case.strongest(LOSES):
        return f"{action}: {evidence}, and {clause_text(losses)}; then check its DNS and egress"
    failing = next((fact for fact in case.facts if fact.metric == "error_rate" and fact.destination), None)
    if failing is not None:
        evidence += f", and {observed_text(failing)} of those to {failing.destination} fail"
    return f"{action}: {evidence}"


def _step_of_overload(case: _FirstSuspect) -> str:
    service, times = case.service, times_text(case.suspect.reasons[0].load)
    symptom = f", and {clause_text(case.facts[0], service)}" if case.facts else ""
    return f"Scale {service} out, or limit its callers: it gets {times} times its usual requests{symptom}"


def _step_of_resources(case: _FirstSuspect) -> str:
    if not case.causes:
        return f"Look at the resources of {case.service}: one of them is running out"
    fact, service = case.causes[0], case.service
    if fact.forecast is not None and fact.metric == "memory_utilization":
        return (
            f"Restart {service} {_until_full(fact.forecast)}, then look for the leak: "
            f"its memory is at {observed_text(fact)}, usually {usual_text(fact)}, and rises steadily"
        )
    return _step_of(fact, service)


def _until_full(forecast: LimitForecast) -> str:
    if forecast.seconds < 90:
        return "now, because its memory is nearly full" if forecast.seconds else "now, because its memory is full"
    return f"before its memory is full, in about {span_text(forecast.seconds)}"


def _step_of_dropped_calls(case: _FirstSuspect) -> str:
    calls = case.strongest(DROPPED)
    if calls is None:
        return f"Check the network, the policies and the routing to {case.service}: a busy caller hardly calls it"
    return _step_of(calls, case.service)


def _step_of_rerouted(case: _FirstSuspect) -> str:
    routes = routes_of([case.suspect])
    if not routes:
        return f"Check the routing to {case.service}: calls go elsewhere than usual"
    if is_uncertain_swap(case.incident):  # the headline has the evidence
        callers = swapped_callers(case.incident)
        ends = sorted({callee for route in callers.values() for callee in (*route.new_callees, *route.lost_callees)})
        names = " and ".join(callers)
        return f"Compare the endpoints of {' and '.join(ends[:2])}, and correct the routing of the calls from {names}"
    routes_of_all = routes_of(case.incident.suspects)
    callers = swapped_callers(case.incident) or {name: routes_of_all[name] for name in list(routes)[:2]}
    parts = [f"the calls from {name} {route.words()}" for name, route in callers.items()]
    return f"Correct the routing of the calls from {' and '.join(callers)}: {', and '.join(parts)}"


def _step_of_unclear(case: _FirstSuspect) -> str:
    if not case.facts:
        return f"Look at {case.service} first: it deviates most, and no single fact says why"
    return f"Look at {case.service} first: {clause_text(case.facts[0], case.service)}"


_STEPS: dict[IncidentKind, Callable[[_FirstSuspect], str]] = {
    IncidentKind.SLOW: _step_of_own_fault,
    IncidentKind.FAILING: _step_of_own_fault,
    IncidentKind.GONE: _step_of_gone,
    IncidentKind.SENDS_TOO_MANY_CALLS: _step_of_many_calls,
    IncidentKind.OVERLOADED: _step_of_overload,
    IncidentKind.RESOURCES: _step_of_resources,
    IncidentKind.REROUTED: _step_of_rerouted,
    IncidentKind.CALLS_DROPPED: _step_of_dropped_calls,
    IncidentKind.UNCLEAR: _step_of_unclear,
}
