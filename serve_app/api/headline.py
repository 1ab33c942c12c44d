"""The headline of an incident: cause, symptom and impact.

The page, alerts, webhooks, reports and the command line all show this text.
"""

import math
from collections.abc import Sequence

from model.incidents.kind import reason_kind
from model.verdict import LOSES, SENT, VANISHED, ErrorBudget, Impact, Incident, IncidentKind, Reason, Severity, Suspect
from serve_app.api.number_text import share_text, span_text, times_text
from serve_app.api.reason_text import clause_text, facts, reads_as_expected, shortage_text, time_left_text
from serve_app.api.rerouting import swapped_callers
from serve_app.api.subject import (
    TRAFFIC,
    caller,
    change_before,
    facts_of_kind,
    first_service,
    is_alone,
    is_uncertain_swap,
    namespace_cause,
    scope_text,
    separate_faults,
    title,
    unclear_suspects,
    version_of,
)
from serve_app.api.wording import fill, observed_text, usual_text, wording

MINUTE, DAY = 60.0, 86_400.0
MIN_HARM = 0.005  # share of front-door requests that is written as one percent
_NUMBERS = "{observed}, usually {usual}"
_LEAK = f"{{service}} leaks memory: {_NUMBERS}"  # if memory rises steadily and has a forecast
_PAST = {  # for a recovering incident
    IncidentKind.SLOW: "it was slow",
    IncidentKind.FAILING: "it was failing",
    IncidentKind.GONE: "it had disappeared",
    IncidentKind.SENDS_TOO_MANY_CALLS: "it sent too many calls",
    IncidentKind.OVERLOADED: "it had too many requests",
    IncidentKind.RESOURCES: "it was short of resources",
    IncidentKind.REROUTED: "its calls were rerouted",
    IncidentKind.CALLS_DROPPED: "it got hardly any calls from a busy caller",
}
_PAST_CALLS = {IncidentKind.SLOW: "they were slow", IncidentKind.FAILING: "they were failing"}


def headline(incident: Incident, alerts: Sequence[Incident] = ()) -> str:
    """``shop/bff sends 1.8 times its usual calls; 47% of its calls to shop/tax fail, usually 0.1%. 4 services affected,
    12% of front-door requests.``

    If the first suspect is not clear, it says that the cause is uncertain, and names two suspects.

    Args:
        alerts: the verdict's incidents that raise an alert. If there is no other one, the text of lost traffic says
            that nothing inside the mesh fails.
    """
    first = first_service(incident)
    if incident.kind is IncidentKind.TELEMETRY_MISSING:
        return f"{first} sends no telemetry, so its state is unknown."
    if incident.kind in TRAFFIC:
        return f"{_traffic_text(incident, alone=is_alone(incident, alerts))}."
    if incident.severity is Severity.NOTICE and incident.suspects and not incident.recovering:
        return f"{_notice_text(incident.suspects[0])}."
    unclear, faults = unclear_suspects(incident), separate_faults(incident)
    if incident.recovering:
        if faults:
            return f"{title(incident)} are recovering."
        if not unclear and caller(incident):
            return f"{_capitalized(title(incident))} are recovering; {_PAST_CALLS[incident.kind]}."
        subject = " or ".join(unclear) or first
        past = _PAST.get(incident.kind)
        return f"{subject} is recovering{f'; {past}' if past else ''}."
    impact = impact_text(incident.impact or Impact(len(incident.affected)))
    if is_uncertain_swap(incident):
        parts = (f"calls from {name} {route.words()}" for name, route in swapped_callers(incident).items())
        return f"{_capitalized(title(incident))} are rerouted: {', and '.join(parts)}. {impact}."
    if faults:
        causes = "; ".join(_cause_text(fault, is_clear=False) for fault in faults)
        return f"Separate faults at {title(incident)}: {causes}. {impact}.{_recurrence_text(incident)}"
    text = f"{_cause_text(incident, is_clear=not unclear)}{_symptom_text(incident)}"
    if unclear:
        names = " or ".join(unclear) if unclear[1:] else f"perhaps {first}"
        return f"Cause uncertain, {names}: {text}. {impact}."
    head = _capitalized(text) if text.startswith(("calls ", "all calls ")) else text
    return f"{head}. {impact}.{_recurrence_text(incident)}"


def _recurrence_text(incident: Incident) -> str:
    """The number of times that it came back, as a sentence; empty if it did not."""
    if not incident.recurrences:
        return ""
    return f" It has come back {'once' if incident.recurrences == 1 else f'{incident.recurrences} times'}."


def impact_text(impact: Impact) -> str:
    """``4 services affected, 12% of front-door requests fail or are slow``; if the harm is unknown, the requests that
    reach it: ``4 services affected, 12% of front-door requests``."""
    services = f"{impact.services:,} service{'' if impact.services == 1 else 's'} affected"
    if impact.harmed_share is not None and impact.front_door_share:
        share = f"{share_text(impact.harmed_share)} of" if impact.harmed_share >= MIN_HARM else "hardly any"
        return f"{services}, {share} front-door requests fail or are slow"
    if not impact.front_door_share:
        return services
    return f"{services}, {share_text(impact.front_door_share)} of front-door requests"


def budget_text(budget: ErrorBudget, seconds: float) -> str:
    """``has used 12% of the 30-day error budget of shop/front so far (availability 99.9%), at this rate all of it in
    about 40 min``: the remaining time only if it is less than a day and at least a minute shows the rate. ``seconds``:
    time in which the incident has used it; infinite if it uses no more."""
    objective, limit = budget.objective, budget.objective.latency_seconds
    promise = f"{objective.kind} {100 * objective.target:.6g}%"
    if limit is not None:
        promise += f" within {1000 * limit:g} ms"
    period = f"{objective.days:g}-day error budget of {objective.service}"
    remaining = seconds * (1 / budget.used - 1) if 0 < budget.used < 1 and seconds >= MINUTE else math.inf
    ends = f", at this rate all of it in about {span_text(remaining)}" if remaining < DAY else ""
    return f"has used {share_text(budget.used)} of the {period} so far ({promise}){ends}"


def _traffic_text(incident: Incident, *, alone: bool) -> str:
    """The text of a traffic incident: requests from outside to the mesh, a namespace or an entry point."""
    subject = f"Requests to {scope_text(incident.scope or first_service(incident))}"
    is_lost = incident.kind is IncidentKind.TRAFFIC_LOST
    if incident.recovering:
        return f"{subject} are recovering; they had {'fallen' if is_lost else 'risen'}"
    reasons = (reason for suspect in incident.suspects[:1] for reason in suspect.reasons)
    rates = (
        reason
        for reason in reasons
        if reason.metric == "request_rate" and math.isfinite(reason.observed - reason.expected)
    )
    rate, since = next(rates, None), incident.since
    numbers = ""
    if rate is not None:
        numbers, since = f" from {usual_text(rate)} to {observed_text(rate)}", rate.since
    remark = "; nothing inside the mesh fails" if is_lost and alone else ""
    return f"{subject} {'fell' if is_lost else 'rose'}{numbers} since {since:%H:%M} UTC{remark}"


def _notice_text(suspect: Suspect) -> str:
    """The text of a notice: the resource and the service that runs out of it."""
    reasons = [reason for reason in suspect.reasons if not reads_as_expected(reason)]
    return _capitalized(
        shortage_text(reasons[0], suspect.service) if reasons else f"a resource of {suspect.service} is running out"
    )


def _cause_text(incident: Incident, *, is_clear: bool) -> str:
    """The cause with its numbers."""
    if not incident.suspects:
        return f"{first_service(incident)} deviates, cause unclear"
    suspect, service = incident.suspects[0], incident.suspects[0].service
    if incident.kind is IncidentKind.OVERLOADED:
        return f"{service} gets {times_text(suspect.reasons[0].load)} times its usual requests"
    causes = facts_of_kind(suspect, incident.kind)
    if not causes:
        return f"{service} deviates, cause unclear" if is_clear else f"{service} deviates"
    change = _change_words(incident)
    cause, numbers = _cause_parts(causes[0], service, change, is_in_a_call=bool(caller(incident)))
    if not numbers:
        return cause
    return f"{cause}{':' if is_clear or change else ','} {numbers}"  # the names of uncertain suspects end with a colon


def _symptom_text(incident: Incident) -> str:
    """The strongest symptom of another kind than the cause, after a semicolon; empty if there is none."""
    if not incident.suspects or namespace_cause(incident):  # one service's symptom says nothing about the namespace
        return ""
    suspect, kind = incident.suspects[0], incident.kind
    causes = facts_of_kind(suspect, kind)
    if kind is not IncidentKind.OVERLOADED and not causes:
        return ""
    symptoms = [fact for fact in facts(suspect) if reason_kind(fact) is not kind and fact not in causes]
    if kind is IncidentKind.SENDS_TOO_MANY_CALLS:
        symptoms.sort(key=lambda fact: (fact.metric != LOSES, not fact.destination))  # what becomes of its calls
    return f"; {clause_text(symptoms[0], suspect.service, is_named=bool(caller(incident)))}" if symptoms else ""


def _change_words(incident: Incident) -> str:
    """``the deploy of v1.4.2, 40 s before``: the first suspect's last change shortly before the incident began; empty
    if there is none."""
    last = change_before(incident)
    if last is None:
        return ""
    change, ahead = last
    words = f"the {change.kind.replace('_', ' ')}"
    if version := version_of(change):
        words += f" of {version}" if change.kind == "deploy" else f" ({version})"
    return f"{words}, {span_text(ahead)} before" if ahead else words


def _cause_parts(reason: Reason, service: str, change: str, *, is_in_a_call: bool) -> tuple[str, str]:
    """The fault that a reason shows, with the change before it, and its numbers."""
    words, fell = wording(reason.metric), reason.observed < reason.expected
    if words.sentence:
        return fill(words.sentence, reason, service), ""
    if reason.forecast is not None:
        text = _LEAK
    elif is_in_a_call:
        text = words.only_call_headline
    elif reason.source or reason.destination:
        text = words.call_headline
    else:
        text = "" if fell and reason.metric != VANISHED else words.headline
    head, _, numbers = (text or f"{{service}}'s {{metric}} {'fell' if fell else 'rose'} to {_NUMBERS}").partition(": ")
    more = {
        "is": "has been" if change else "is",
        "are": "have been" if change else "are",
        "times": times_text(reason.observed / reason.expected) if reason.metric == SENT else "",
    }
    head, numbers = (fill(part, reason, service, **more) for part in (head, numbers))
    if reason.forecast is not None:
        numbers += f", {time_left_text(reason.forecast)}"
    return f"{head} since {change}" if change else head, numbers


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]
