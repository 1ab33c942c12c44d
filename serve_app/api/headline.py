"""The headline of an incident: cause, symptom and impact.

It is made here only. The page, alerts, webhooks, reports and the command line all show this text.
"""

from model.incidents.kind import reason_kind
from model.verdict import (
    DROPPED,
    LOST,
    MOVED,
    NEW,
    SENT,
    VANISHED,
    Impact,
    Incident,
    IncidentKind,
    Reason,
    Severity,
    Suspect,
)
from serve_app.api.reason_text import (
    is_signal,
    metric_words,
    observed_text,
    reads_as_expected,
    shortage_text,
    signal_text,
    usual_text,
)

CLOSE = 0.6  # of the first suspect's score, from which the second one is named beside it
LIKELY = 0.5  # score of the first suspect, below which the headline says "likely"
_NUMBERS = "{observed}, usually {usual}"
_OWN = {  # by metric
    "error_rate": "{who} is failing: {observed} of its requests, usually {usual}",
    "p50_latency": f"{{who}} is slow: p50 latency {_NUMBERS}",
    "p99_latency": f"{{who}} is slow: p99 latency {_NUMBERS}",
    "own_time": f"{{who}} is slow: self time {_NUMBERS}",
    "cpu_utilization": f"{{who}} uses more CPU: {_NUMBERS}",
    "cpu_per_request": f"{{who}} uses more CPU for each request: {_NUMBERS}",
    "memory_utilization": f"{{who}} uses more memory: {_NUMBERS}",
    "active_connections": f"{{who}} has more connections: {_NUMBERS}",
    VANISHED: "{who} has disappeared: no requests, usually {usual}",
    SENT: "{who} sends {times} times its usual calls",
}
_OF_A_CALL = {
    "error_rate": "{who} is failing: {observed} of the calls from {source}, usually {usual}",
    "p50_latency": f"{{who}} is slow for {{source}}: p50 latency {_NUMBERS}",
    "p99_latency": f"{{who}} is slow for {{source}}: p99 latency {_NUMBERS}",
    NEW: "{who} gets new calls from {source}: {observed}",
    MOVED: "{who} makes new calls to {destination}: {observed}",
    LOST: f"{{who}} lost calls from {{source}}, which moved elsewhere: {_NUMBERS}",
    DROPPED: f"{{who}} gets hardly any calls from {{source}}: {_NUMBERS}",
}
_CHANGE = "{{whose}} {{metric}} {} to {{observed}}, usually {{usual}}"  # of anything else
_PAST = {  # of a recovering incident
    IncidentKind.SLOW: "it was slow",
    IncidentKind.FAILING: "it was failing",
    IncidentKind.GONE: "it had disappeared",
    IncidentKind.SENDS_TOO_MANY_CALLS: "it sent too many calls",
    IncidentKind.OVERLOADED: "it had too many requests",
    IncidentKind.RESOURCES: "it was short of resources",
    IncidentKind.REROUTED: "its calls were rerouted",
    IncidentKind.CALLS_DROPPED: "it got hardly any calls from a busy caller",
}


def headline(incident: Incident) -> str:
    """``shop/bff sends 1.8 times its usual calls; 47% of those to shop/tax fail. 4 services affected, 12% of front-door
    requests.``

    If two suspects are about equally likely, it names both. If the first one is not clear, it begins with "Likely".
    """
    who = _culprit(incident)
    if incident.kind is IncidentKind.TELEMETRY_MISSING:
        return f"{who} sends no telemetry, so its state is unknown."
    if incident.recovering:
        return f"{'; '.join([f'{who} is recovering', *filter(None, [_PAST.get(incident.kind)])])}."
    if incident.severity is Severity.NOTICE and incident.suspects:
        return f"{_shortage(incident.suspects[0])}."
    impact = impact_text(incident.impact or Impact(len(incident.affected)))
    return f"{_cause_and_symptom(incident, who)}. {impact}."


def impact_text(impact: Impact) -> str:
    """``4 services affected, 12% of front-door requests``."""
    services = f"{impact.services:,} service{'' if impact.services == 1 else 's'} affected"
    if impact.front_door_share is None:
        return services
    return f"{services}, {share_text(impact.front_door_share)} of front-door requests"


def share_text(share: float) -> str:
    """``12%``."""
    return "below 1%" if 0 < share < 0.01 else f"{share:.0%}"


def _culprit(incident: Incident) -> str:
    """The first suspect, with the second one if it is about as likely; the first affected service without suspects."""
    if not incident.suspects:
        return incident.affected[0] if incident.affected else incident.id
    first, *others = incident.suspects
    if incident.severity is Severity.NOTICE or not others or others[0].score < CLOSE * first.score:
        return first.service
    return f"{first.service} or {others[0].service}"


def _shortage(suspect: Suspect) -> str:
    """Of a notice: which resource of which service becomes short."""
    reasons = [reason for reason in suspect.reasons if not reads_as_expected(reason)]
    text = shortage_text(reasons[0], suspect.service) if reasons else f"a resource of {suspect.service} becomes short"
    return text[0].upper() + text[1:]


def _cause_and_symptom(incident: Incident, who: str) -> str:
    """The cause, and the strongest symptom of another kind."""
    if not incident.suspects:
        return f"{who} deviates, cause unclear"
    suspect, kind = incident.suspects[0], incident.kind
    facts = [fact for fact in (*suspect.reasons, *suspect.context) if not reads_as_expected(fact)]
    others = [fact for fact in facts if reason_kind(fact) is not kind]
    causes = [fact for fact in facts if reason_kind(fact) is kind]
    if kind is IncidentKind.OVERLOADED:
        cause = f"{who} gets {_times(suspect.reasons[0].load)} times its usual requests"
    elif causes:
        cause = _cause_text(causes[0], who)
    else:
        return f"{who} deviates, cause unclear"
    if kind is IncidentKind.SENDS_TOO_MANY_CALLS:
        others.sort(key=lambda fact: not fact.destination)  # what becomes of these calls says most
    likely = "Likely: " if suspect.score < LIKELY and who == suspect.service else ""
    return f"{likely}{cause}{f'; {_symptom_text(others[0])}' if others else ''}"


def _cause_text(reason: Reason, who: str) -> str:
    """What a reason says about ``who``, with its numbers."""
    if is_signal(reason):
        return signal_text(reason, who)
    is_call, fell = bool(reason.source or reason.destination), reason.observed < reason.expected
    change = _CHANGE.format("fell" if fell else "rose")
    if fell and not is_call and reason.metric != VANISHED:
        return _fill(change, reason, who)
    return _fill((_OF_A_CALL if is_call else _OWN).get(reason.metric, change), reason, who)


def _symptom_text(reason: Reason) -> str:
    """The same without a subject; an error rate of ``destination`` is of the calls that the cause speaks of."""
    if is_signal(reason):
        return signal_text(reason)
    if reason.metric != "error_rate":
        return _cause_text(reason, "it")
    if reason.destination:
        return _fill("{observed} of those to {destination} fail", reason, "it")
    which = "the calls from {source}" if reason.source else "its requests"
    return _fill(f"{{observed}} of {which} fail, usually {{usual}}", reason, "it")


def _fill(template: str, reason: Reason, who: str) -> str:
    return template.format(
        who=who,
        whose="its" if who == "it" else f"{who}'s",
        metric=metric_words(reason.metric),
        observed=observed_text(reason),
        usual=usual_text(reason),
        times=_times(reason.observed / reason.expected) if reason.metric == SENT else "",
        source=reason.source,
        destination=reason.destination,
    )


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
