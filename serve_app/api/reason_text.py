"""Reasons as text for the person on call."""

import math
from datetime import datetime, timedelta

from model.incidents.kind import MORE_REQUESTS
from model.verdict import OVERDUE, ClusterEvent, LimitForecast, NearbyChange, Reason, Reconstruction, Suspect, Watched
from serve_app.api.number_text import HOURS, MINUTES, PER_SECOND, span_text, times_text
from serve_app.api.wording import (
    LATENCIES,
    fill,
    looks_equal,
    metric_words,
    observed_text,
    unit_of,
    usual_text,
    wording,
)

MIN_LOAD_CHANGE = 0.1  # smaller changes of the load are not mentioned
_LOAD_DEPENDENT = frozenset({*LATENCIES, "error_rate", "cpu_utilization", "active_connections"})


def reason_text(reason: Reason, service: str, observed_at: datetime) -> str:
    """``p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC, in calls shop/web -> shop/cart``.

    Readers take a number alone as "too high", so the text says if a value fell; for traffic, also if it rose. It
    mentions a change of the load that may explain the reason. A forecast comes first, because it matters most on call.
    """
    if reason.metric == OVERDUE:
        return f"its {_overdue_text(reason)}"
    words, since = wording(reason.metric), _since_text(reason.since, observed_at)
    if item := words.list_item or (words.clause if words.sentence else ""):
        return f"{fill(item, reason, service)}{since}"
    observed, expected = f"{_direction(reason)}{observed_text(reason)}", usual_text(reason)
    if reason.forecast:
        return f"{shortage_text(reason, service)}; {observed}, expected {expected}{since}"
    is_call = reason.source or reason.destination
    calls = f", in calls {reason.source or service} -> {reason.destination or service}" if is_call else ""
    return f"{metric_words(reason.metric)} {observed}, expected {expected}{since}{calls}{_load_text(reason)}"


def clause_text(reason: Reason, service: str = "", *, is_named: bool = False) -> str:
    """``47% of its requests fail, usually 0.1%``: a reason as a clause about the service, which it names with
    ``is_named``, because "its" would be about something else."""
    its = f"{service}'s" if is_named else "its"
    if reason.metric == OVERDUE:
        return _overdue_text(reason)
    if clause := wording(reason.metric).clause:
        return fill(clause, reason, service, its=its)
    of_call = reason.source and reason.metric in LATENCIES
    subject = "the {metric} of the calls from {source}" if of_call else "{its} {metric}"
    verb = "rose" if reason.observed > reason.expected else "fell"
    return fill(f"{subject} {verb} to {{observed}}, usually {{usual}}", reason, service, its=its)


def forecast_text(forecast: LimitForecast) -> str:
    """``reaches its limit in 40 minutes (25 to 70)``; the subject is the resource."""
    if forecast.seconds < 90:
        return "reaches its limit in about a minute" if forecast.seconds else "has reached its limit"
    unit, name = (MINUTES, "minutes") if forecast.seconds < 7200 else (HOURS, "hours")
    latest = f"to {unit.words(forecast.latest)}" if math.isfinite(forecast.latest) else "or more"
    return f"reaches its limit in {unit.words(forecast.seconds)} {name} ({unit.words(forecast.soonest)} {latest})"


def time_left_text(forecast: LimitForecast) -> str:
    """``full in about 6 min``: a forecast beside the value of the resource."""
    if forecast.seconds < 90:
        return "full in about a minute" if forecast.seconds else "full now"
    return f"full in about {span_text(forecast.seconds)}"


def shortage_text(reason: Reason, service: str) -> str:
    """``memory of shop/cart reaches its limit in 40 minutes (25 to 70)``, ``CPU of shop/cart: 92%, usually 35%``."""
    words = wording(reason.metric)
    if words.sentence:
        return fill(words.sentence, reason, service)
    if reason.metric == OVERDUE:
        return f"the {_overdue_text(reason, service)}"
    resource = f"{words.resource or metric_words(reason.metric)} of {service}"
    if reason.forecast:
        return f"{resource} {forecast_text(reason.forecast)}"
    return f"{resource}: {observed_text(reason)}, usually {usual_text(reason)}"


def _overdue_text(reason: Reason, service: str = "") -> str:
    """``regular work of shop/cart did not run: due every 60 min, last ran at 02:00 UTC``; ``service`` may be empty."""
    owner = f" of {service}" if service else ""
    last = _time_text(reason.since, reason.since + timedelta(seconds=reason.observed))
    return f"regular work{owner} did not run: due every {span_text(reason.expected)}, last ran at {last}"


def change_text(near: NearbyChange, since: datetime, *, of_suspect: bool, is_affected: bool) -> str:
    """``began 40 s after deploy of shop/cart (v1.4.2)``; the subject is the incident.

    Args:
        of_suspect: whether the changed service is a likely suspect. Readers take "after" as "because of", so the text
            of any other change is ``deploy of shop/cart (v1.4.2) around the same time, 40 s before``.
        is_affected: whether the changed service deviates. If neither, the change had no effect.
    """
    change, ahead = near.change, (since - near.at).total_seconds()
    action = f"{change.kind.replace('_', ' ')} of {change.service}" + (f" ({change.reason})" if change.reason else "")
    effect = "" if of_suspect or is_affected else ": no effect seen"
    if ahead < 0:
        return f"{action} came {span_text(-ahead)} after the start{effect}"
    if not of_suspect:
        return f"{action} around the same time{f', {span_text(ahead)} before' if ahead else ''}{effect}"
    return f"began {span_text(ahead)} after {action}" if ahead else f"began with {action}"


def watched_text(service: Watched) -> str:
    """``alerts after 2 more snapshots like this``; the subject is the service. Its score would seem to contradict the
    mesh score, which several snapshots decide."""
    remaining = max(1, service.needed - service.seen)
    more = f"{remaining}{' more' if service.seen else ''} snapshot{'' if remaining == 1 else 's'}"
    return f"alerts after {more} like this"


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
    action = f"{event.kind} of {event.service}" + (f" ({event.message})" if event.message else "")
    ahead = (since - event.first).total_seconds()
    timing = "as it began" if not ahead else f"{span_text(abs(ahead))} {'before' if ahead > 0 else 'after'} it began"
    return f"{action}, {event.count} times since {timing}" if event.count > 1 else f"{action}, {timing}"


def facts(suspect: Suspect) -> list[Reason]:
    """A suspect's reasons and context that say something at the shown precision, strongest first."""
    return [fact for fact in (*suspect.reasons, *suspect.context) if not reads_as_expected(fact)]


def reads_as_expected(reason: Reason) -> bool:
    """Whether observed and expected look the same, so that the text would say nothing. A signal always says something:
    a full disk matters even if it was full before."""
    return not wording(reason.metric).sentence and looks_equal(reason)


def _direction(reason: Reason) -> str:
    if reason.observed < reason.expected:
        return "fell to "
    return "rose to " if unit_of(reason) is PER_SECOND and reason.observed > reason.expected else ""


def _load_text(reason: Reason) -> str:
    """The change of the requests, if that may be the cause."""
    if reason.metric not in _LOAD_DEPENDENT or abs(reason.load - 1) < MIN_LOAD_CHANGE:
        return ""
    if reason.load >= MORE_REQUESTS:  # as in the headline
        return f", while its requests rose to {times_text(reason.load)} times the usual"
    return f", while its requests {'rose' if reason.load > 1 else 'fell'} by {abs(reason.load - 1):.0%}"


def _since_text(since: datetime, observed_at: datetime) -> str:
    """Empty if the deviation is only known now."""
    return "" if since >= observed_at else f", since {_time_text(since, observed_at)}"


def _time_text(at: datetime, now: datetime) -> str:
    """``02:00 UTC``; with the date if it was a day ago."""
    return f"{at:%H:%M} UTC" if now - at < timedelta(hours=24) else f"{at:%Y-%m-%d %H:%M} UTC"
