"""Reasons as text for the person on call."""

import math
from datetime import datetime, timedelta

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
    ClusterEvent,
    LimitForecast,
    NearbyChange,
    Reason,
    Reconstruction,
    Suspect,
    Watched,
)
from serve_app.api.number_text import HOURS, MINUTES, PER_SECOND, Unit, anomaly_text, span_text, unit

MIN_LOAD_CHANGE = 0.1  # smaller changes of the load are not mentioned
_NAMES = {
    "cpu_utilization": "CPU utilization",
    "cpu_per_request": "CPU time per request",
    "own_time": "self time (excluding downstream calls)",
    "request_rate": "requests",
    SENT: "calls that it makes",
    WAITS: "latency of all its calls, though what it calls is as fast as ever",
    LOSES: "share of its calls that fail on the way, though what it calls is well",
    NAMESPACE_WAITS: "latency of the calls out of all services of its namespace, lost on the way",
    NAMESPACE_LOSES: "share of the calls out of all services of its namespace that fails on the way",
    NAMESPACE_SLOW: "latency of the calls to all services of its namespace, lost on the way",
    NAMESPACE_FAILS: "share of the calls to all services of its namespace that fails on the way",
    OVERDUE: "regular work",
    SignalKind.CPU_THROTTLING: "CPU throttling",
    SignalKind.OOM_KILLS: "OOM kills",
    SignalKind.DISK_PRESSURE: "disk in use",
    SignalKind.CANCELLED: "cancelled requests",
}
# Signals in words: of a service, and without a subject.
_SIGNALS: dict[str, tuple[str, str]] = {
    SignalKind.CPU_THROTTLING: (
        "CPU of {who} is throttled in {observed} of its periods{usual}",
        "throttled in {observed} of CPU periods{usual}",
    ),
    SignalKind.OOM_KILLS: (
        "{observed} {containers} of {who} {were} killed for memory",
        "{observed} {containers} killed for memory",
    ),
    SignalKind.RESTARTS: ("{observed} {containers} of {who} restarted", "{observed} {containers} restarted"),
    SignalKind.DISK_PRESSURE: (
        "{observed} of the disk space of {who} is in use{usual}",
        "{observed} of the disk space in use{usual}",
    ),
    SignalKind.PENDING_PODS: (
        "{observed} {pods} of {who} {do} not start{usual}",
        "{observed} {pods} {do} not start{usual}",
    ),
    SignalKind.QUEUE_DEPTH: ("{observed} {messages} {wait} for {who}{usual}", "{observed} {messages} {wait}{usual}"),
    SignalKind.CANCELLED: (
        "callers gave up on {observed} of the requests to {who}{usual}",
        "callers gave up on {observed} of the requests{usual}",
    ),
}
_PLURALS = {
    "containers": ("container", "containers"),
    "were": ("was", "were"),
    "pods": ("pod", "pods"),
    "do": ("does", "do"),
    "messages": ("message", "messages"),
    "wait": ("waits", "wait"),
}
_RESOURCES = {
    "memory_utilization": "memory",
    "cpu_utilization": "CPU",
    "active_connections": "connections",
}
LATENCIES = ("p50_latency", "p99_latency", "own_time")
_LOAD_DEPENDENT = frozenset({*LATENCIES, "error_rate", "cpu_utilization", "active_connections"})


def reason_text(reason: Reason, service: str, observed_at: datetime) -> str:
    """``p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC, in calls shop/web -> shop/cart``.

    Readers take a number alone as "too high", so the text says when a value fell. For traffic it always says whether it
    rose or fell. It mentions a change of the load if that may explain the reason. A forecast comes first, because it
    matters most on call.
    """
    since = _since(reason.since, observed_at)
    if is_signal(reason):
        return f"{signal_text(reason)}{since}"
    if reason.metric == OVERDUE:
        return f"its {overdue_text(reason)}"
    if reason.metric == VANISHED:
        return f"disappeared: no requests, expected {_words(reason, reason.expected)}{since}"
    calls = f"calls {reason.source or service} -> {reason.destination or service}"
    if reason.metric in (NEW, MOVED):
        return f"new {calls}, {_words(reason, reason.observed)}{since}"
    if reason.metric in (LOST, DROPPED):
        change = f"fell to {_words(reason, reason.observed)}, expected {_words(reason, reason.expected)}"
        meaning = "traffic moved elsewhere" if reason.metric == LOST else f"{reason.source} is as busy as usual"
        return f"{calls} {change}: {meaning}{since}"
    name = metric_words(reason.metric)
    observed = f"{_direction(reason)}{_words(reason, reason.observed)}"
    where = f", in {calls}" if reason.source or reason.destination else ""
    expected = _words(reason, reason.expected)
    if reason.forecast:
        return f"{shortage_text(reason, service)}; {observed}, expected {expected}{since}"
    return f"{name} {observed}, expected {expected}{since}{where}{_load(reason)}"


def clause_text(reason: Reason, service: str = "", *, is_named: bool = False) -> str:
    """``47% of its requests fail, usually 0.1%``: a reason as a clause about the service.

    Args:
        service: the suspect.
        is_named: whether the clause names it, because "its" would be about something else.
    """
    observed, usual = observed_text(reason), usual_text(reason)
    its = f"{service}'s" if is_named else "its"
    if is_signal(reason):
        return signal_text(reason)
    if reason.metric == VANISHED:
        return f"it gets no requests, usually {usual}"
    if reason.metric == OVERDUE:
        return overdue_text(reason)
    if reason.metric == "error_rate":
        whose = f"the calls from {reason.source}" if reason.source else f"{its} requests"
        whose = f"{its} calls to {reason.destination}" if reason.destination else whose
        return f"{observed} of {whose} fail, usually {usual}"
    if reason.metric in (NEW, MOVED):
        ends = reason.source or service or "it", reason.destination or service or "it"
        return f"new calls from {ends[0]} to {ends[1]}, {observed}"
    if reason.metric in (LOST, DROPPED):
        return f"the calls from {reason.source} fell to {observed}, usually {usual}"
    if reason.metric == SENT:
        return f"the calls that it makes rose to {observed}, usually {usual}"
    name = "self time" if reason.metric == "own_time" else metric_words(reason.metric)
    of_call = reason.source and reason.metric in LATENCIES
    what = f"the {name} of the calls from {reason.source}" if of_call else f"{its} {name}"
    return f"{what} {'rose' if reason.observed > reason.expected else 'fell'} to {observed}, usually {usual}"


def forecast_text(forecast: LimitForecast) -> str:
    """``reaches its limit in 40 minutes (25 to 70)``; the subject is the resource."""
    if forecast.seconds < 90:
        return "reaches its limit in about a minute" if forecast.seconds else "has reached its limit"
    unit, name = (MINUTES, "minutes") if forecast.seconds < 7200 else (HOURS, "hours")
    latest = f"to {unit.words(forecast.latest)}" if math.isfinite(forecast.latest) else "or more"
    return f"reaches its limit in {unit.words(forecast.seconds)} {name} ({unit.words(forecast.soonest)} {latest})"


def shortage_text(reason: Reason, service: str) -> str:
    """``memory of shop/cart reaches its limit in 40 minutes (25 to 70)``, ``CPU of shop/cart: 92%, usually 35%``."""
    if is_signal(reason):
        return signal_text(reason, service)
    if reason.metric == OVERDUE:
        return f"the {overdue_text(reason, service)}"
    resource = f"{_RESOURCES.get(reason.metric, metric_words(reason.metric))} of {service}"
    if reason.forecast:
        return f"{resource} {forecast_text(reason.forecast)}"
    return f"{resource}: {observed_text(reason)}, usually {usual_text(reason)}"


def overdue_text(reason: Reason, service: str = "") -> str:
    """``regular work of shop/cart did not run: due every 60 min, last ran at 02:00 UTC``; ``service`` may be empty."""
    whose = f" of {service}" if service else ""
    last = _time(reason.since, reason.since + timedelta(seconds=reason.observed))
    return f"regular work{whose} did not run: due every {span_text(reason.expected)}, last ran at {last}"


def is_signal(reason: Reason) -> bool:
    """Whether a reason is a signal: it was measured outside the mesh, and has a sentence of its own."""
    return reason.metric in _SIGNALS


def signal_text(reason: Reason, service: str = "") -> str:
    """``5,200 messages wait for shop/worker, usually 40``; without a service ``5,200 messages wait, usually 40``."""
    observed = observed_text(reason)
    words = {name: forms[observed != "1"] for name, forms in _PLURALS.items()}
    is_known = math.isfinite(reason.expected) and not _looks_equal(reason)
    usual = f", usually {usual_text(reason)}" if is_known else ""
    return _SIGNALS[reason.metric][not service].format(who=service, observed=observed, usual=usual, **words)


def observed_text(reason: Reason) -> str:
    """``4.1 s``, in the same unit as :func:`usual_text`."""
    return _words(reason, reason.observed)


def usual_text(reason: Reason) -> str:
    """``0.08 s``."""
    return _words(reason, reason.expected)


def change_text(near: NearbyChange, since: datetime, *, of_suspect: bool) -> str:
    """``began 40 s after deploy of shop/cart (v1.4.2)``; the subject is the incident.

    Args:
        of_suspect: whether its service is a likely suspect. Readers take "after" as "because of", so the text of any
            other change is ``deploy of shop/cart (v1.4.2) around the same time, 40 s before``.
    """
    change, ahead = near.change, (since - near.at).total_seconds()
    what = f"{change.kind.replace('_', ' ')} of {change.service}" + (f" ({change.reason})" if change.reason else "")
    if ahead < 0:
        return f"{what} followed {span_text(-ahead)} later"
    if not of_suspect:
        return f"{what} around the same time{f', {span_text(ahead)} before' if ahead else ''}"
    return f"began {span_text(ahead)} after {what}" if ahead else f"began with {what}"


def watched_text(watched: Watched) -> str:
    """``alerts after 2 more snapshots above 5.8, now 4.9``; the subject is the service."""
    left = max(1, watched.needed - watched.seen)
    more = f"{left}{' more' if watched.seen else ''} snapshot{'' if left == 1 else 's'}"
    return f"alerts after {more} above {anomaly_text(watched.level)}, now {anomaly_text(watched.score)}"


def reconstruction_text(whole: Reconstruction) -> str:
    """``the mesh as a whole is unusual since 03:12 UTC: reconstruction loss 0.12, usually below 0.08``."""
    parts = []
    for name, value, usual, digits in (
        ("reconstruction loss", whole.loss, whole.loss_threshold, 3),
        ("embedding displacement", whole.displacement, whole.displacement_threshold, 1),
    ):
        if value is not None and not (whole.exceeded and usual is not None and value <= usual):
            below = "" if usual is None else f", usually below {usual:.{digits}f}"
            parts.append(f"{name} {value:.{digits}f}{below}")
    if whole.since is None:
        return "; ".join(parts)
    head = f"the mesh as a whole is unusual since {whole.since:%H:%M} UTC"
    return f"{head}: {'; '.join(parts)}" if parts else f"{head}, but not in the last snapshot"


def event_text(event: ClusterEvent, since: datetime) -> str:
    """``BackOff of shop/cart (Back-off restarting failed container), 12 times since 40 s before it began``."""
    what = f"{event.kind} of {event.service}" + (f" ({event.message})" if event.message else "")
    ahead = (since - event.first).total_seconds()
    when = "as it began" if not ahead else f"{span_text(abs(ahead))} {'before' if ahead > 0 else 'after'} it began"
    return f"{what}, {event.count} times since {when}" if event.count > 1 else f"{what}, {when}"


def metric_words(metric: str) -> str:
    """``p99 latency``, ``self time (excluding downstream calls)``."""
    return _NAMES.get(metric, metric.replace("_", " "))


def facts(suspect: Suspect) -> list[Reason]:
    """The reasons and the context of a suspect that say something at the shown precision, strongest first."""
    return [fact for fact in (*suspect.reasons, *suspect.context) if not reads_as_expected(fact)]


def reads_as_expected(reason: Reason) -> bool:
    """Whether observed and expected look the same at the shown precision, so that the text would say nothing. A signal
    always says something: a full disk matters even if it was full before."""
    return not is_signal(reason) and _looks_equal(reason)


def _looks_equal(reason: Reason) -> bool:
    unit = _unit(reason)
    observed, expected = unit.round_value(reason.observed), unit.round_value(reason.expected)
    return observed == expected or (math.isnan(observed) and math.isnan(expected))


def _direction(reason: Reason) -> str:
    if reason.observed < reason.expected:
        return "fell to "
    return "rose to " if _unit(reason) is PER_SECOND and reason.observed > reason.expected else ""


def _load(reason: Reason) -> str:
    """How the requests changed, if that may be the cause."""
    if reason.metric not in _LOAD_DEPENDENT or abs(reason.load - 1) < MIN_LOAD_CHANGE:
        return ""
    if reason.load >= 3:
        return f", while its requests rose to {reason.load:.0f} times the usual"
    return f", while its requests {'rose' if reason.load > 1 else 'fell'} by {abs(reason.load - 1):.0%}"


def _words(reason: Reason, value: float) -> str:
    return _unit(reason).words(value)


def _unit(reason: Reason) -> Unit:
    """The common unit of both values of a reason, so that they are easy to compare."""
    return unit(reason.metric, max(filter(math.isfinite, (reason.observed, reason.expected)), default=0.0))


def _since(since: datetime, observed_at: datetime) -> str:
    """Empty if the deviation is only known now."""
    if since >= observed_at:
        return ""
    return f", since {_time(since, observed_at)}"


def _time(at: datetime, now: datetime) -> str:
    """``02:00 UTC``; with the date if it was a day ago."""
    return f"{at:%H:%M} UTC" if now - at < timedelta(hours=24) else f"{at:%Y-%m-%d %H:%M} UTC"
