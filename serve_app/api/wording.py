"""The words for reasons: one row for each metric.

The headline, the next step and the lists of reasons all take their words from here.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime

from model.incidents.kind import reason_kind
from model.snapshot import RATIOS, SHARES_OF_ONE, SignalKind, namespace_of
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
    IncidentKind,
    Reason,
)
from serve_app.api.number_text import COUNT, MILLISECONDS, PER_SECOND, PERCENT, SECONDS, Unit

_RATES = frozenset({"request_rate", "requests_per_second", VANISHED, LOST, NEW, MOVED, DROPPED, SENT})
_TIMES = frozenset(
    {"p50_latency", "p99_latency", "own_time", "cpu_per_request", OVERDUE, WAITS, NAMESPACE_WAITS, NAMESPACE_SLOW}
)
_SHARES = RATIOS | SHARES_OF_ONE | {LOSES, NAMESPACE_LOSES, NAMESPACE_FAILS}
LATENCIES = ("p50_latency", "p99_latency", "own_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The words for a metric's reasons; an empty text: the same as for most metrics.

    :func:`fill` and its callers know the fields in braces. The numbers of a headline follow its colon.

    Attributes:
        name: of the metric; empty: its name in the API, with spaces.
        resource: short name of a resource that may run out.
        list_item: in the list of reasons, without the time.
        clause: a clause about the service, which does not name it.
        sentence: about a signal, which is measured outside the mesh; it names the service.
        headline: what is wrong with the service.
        call_headline: the same, if the reason is about calls from it or to it.
        only_call_headline: the same, if nothing else shows the fault.
        step: what to do, and the evidence.
    """

    name: str = ""
    resource: str = ""
    list_item: str = ""
    clause: str = ""
    sentence: str = ""
    headline: str = ""
    call_headline: str = ""
    only_call_headline: str = ""
    step: str = ""


_NUMBERS = "{observed}, usually {usual}"
_LATENCY = Wording(
    headline=f"{{service}} {{is}} slow: {{metric}} {_NUMBERS}",
    call_headline=f"{{service}} {{is}} slow for {{source}}: {{metric}} {_NUMBERS}",
    only_call_headline=f"calls from {{source}} to {{service}} {{are}} slow: {{metric}} {_NUMBERS}",
)
_NEW_CALLS = Wording(
    list_item="new calls {from} -> {to}, {observed}", clause="new calls from {from} to {to}, {observed}"
)
_FEWER_CALLS = "calls {from} -> {to} fell to {observed}, expected {usual}"
_SINGULARS = {
    "containers": "container",
    "were": "was",
    "pods": "pod",
    "do": "does",
    "messages": "message",
    "wait": "waits",
}
_CPU_STEP = "Find what uses the CPU of {service} or of its host{or_more}: {evidence}, more than its requests explain"
_WORDINGS: dict[str, Wording] = {
    "request_rate": Wording(name="requests"),
    "error_rate": Wording(
        clause="{observed} of {calls} fail, usually {usual}",
        headline="{service} {is} failing: {observed} of its requests, usually {usual}",
        call_headline="{service} {is} failing: {observed} of the calls from {source}, usually {usual}",
        only_call_headline=f"calls from {{source}} to {{service}} {{are}} failing: {_NUMBERS}",
    ),
    "p50_latency": _LATENCY,
    "p99_latency": _LATENCY,
    "own_time": replace(_LATENCY, name="self time (excluding downstream calls)"),
    "cpu_utilization": Wording(
        name="CPU utilization", resource="CPU", headline=f"{{service}} uses more CPU: {_NUMBERS}", step=_CPU_STEP
    ),
    "cpu_per_request": Wording(
        name="CPU time per request", headline=f"{{service}} uses more CPU per request: {_NUMBERS}", step=_CPU_STEP
    ),
    "memory_utilization": Wording(
        resource="memory",
        headline=f"{{service}} uses more memory: {_NUMBERS}",
        step="Find what fills the memory of {service}: {evidence}",
    ),
    "active_connections": Wording(
        resource="connections",
        headline=f"{{service}} has more connections: {_NUMBERS}",
        step="Scale {service} out, or find what keeps its connections open: {evidence}",
    ),
    VANISHED: Wording(
        list_item="disappeared: no requests, expected {usual}",
        clause="it gets no requests, usually {usual}",
        headline="{service} has disappeared: no requests, usually {usual}",
    ),
    NEW: replace(_NEW_CALLS, call_headline="{service} gets new calls from {source}: {observed}"),
    MOVED: replace(_NEW_CALLS, call_headline="{service} makes new calls to {destination}: {observed}"),
    LOST: Wording(
        list_item=f"{_FEWER_CALLS}, because traffic moved elsewhere",
        clause="the calls from {source} fell to {observed}, usually {usual}",
        call_headline=f"{{service}} lost calls from {{source}}, which moved elsewhere: {_NUMBERS}",
    ),
    DROPPED: Wording(
        list_item=f"{_FEWER_CALLS}, although {{source}} is as busy as usual",
        clause="the calls from {source} fell to {observed}, usually {usual}",
        call_headline=f"{{service}} gets hardly any calls from {{source}}: {_NUMBERS}",
        step="Check the network, the policies and the routing between {source} and {service}: these calls fell to "
        "{observed}, usually {usual}, although {source} is as busy as usual",
    ),
    SENT: Wording(
        name="calls that it makes",
        clause="the calls that it makes rose to {observed}, usually {usual}",
        headline="{service} sends {times} times its usual calls",
    ),
    WAITS: Wording(
        name="latency of all its calls",
        list_item="all its calls take {observed}, expected {usual}, though what it calls is as fast as ever",
        headline=f"all calls out of {{service}} {{are}} slow: {_NUMBERS}, though what it calls is as fast as ever",
        step="Look at the network, the node and the proxy of {service}: all its calls take {observed}, usually "
        "{usual}, though what it calls is as fast as ever",
    ),
    LOSES: Wording(
        name="share of its calls that fail on the way",
        list_item="{observed} of its calls fail on the way, expected {usual}, though what it calls is healthy",
        clause="{observed} of {its} calls fail on the way, usually {usual}",
        headline=f"calls out of {{service}} {{are}} failing on the way: {_NUMBERS}, though what it calls is healthy",
        step="Check DNS and egress of {service}, then its proxy and its network: {observed} of its calls fail, usually "
        "{usual}, though what it calls is healthy",
    ),
    NAMESPACE_WAITS: Wording(
        name="latency of the calls out of its namespace",
        list_item="calls out of all services of namespace {namespace} take {observed} on the way, expected {usual}",
        headline=f"calls out of all services of namespace {{namespace}} {{are}} slow on the way: {_NUMBERS}",
        step="Look at the network and the nodes of namespace {namespace}: the calls out of all of its services take "
        "{observed} on the way, usually {usual}",
    ),
    NAMESPACE_LOSES: Wording(
        name="share of the calls out of its namespace that fail on the way",
        list_item="{observed} of the calls out of all services of namespace {namespace} fail on the way, expected "
        "{usual}",
        headline=f"calls out of all services of namespace {{namespace}} {{are}} failing on the way: {_NUMBERS}",
        step="Check DNS and egress of namespace {namespace}: {observed} of the calls out of all of its services fail "
        "on the way, usually {usual}",
    ),
    NAMESPACE_SLOW: Wording(
        name="latency of the calls to its namespace",
        list_item="calls to all services of namespace {namespace} take {observed} on the way, expected {usual}",
        headline=f"calls to all services of namespace {{namespace}} {{are}} slow on the way: {_NUMBERS}",
        step="Look at the network and the nodes of namespace {namespace}: the calls to all of its services take "
        "{observed} on the way, usually {usual}",
    ),
    NAMESPACE_FAILS: Wording(
        name="share of the calls to its namespace that fail on the way",
        list_item="{observed} of the calls to all services of namespace {namespace} fail on the way, expected {usual}",
        headline=f"calls to all services of namespace {{namespace}} {{are}} failing on the way: {_NUMBERS}",
        step="Check the policies and the network of namespace {namespace}: {observed} of the calls to all of its "
        "services fail on the way, usually {usual}",
    ),
    OVERDUE: Wording(
        name="regular work", step="Start the regular work of {service}, and find out why it did not run: {evidence}"
    ),
    SignalKind.CPU_THROTTLING: Wording(
        name="CPU throttling",
        clause="throttled in {observed} of CPU periods{usually}",
        sentence="CPU of {service} is throttled in {observed} of its periods{usually}",
        step="Raise the CPU limit of {service}, or scale it out: {evidence}",
    ),
    SignalKind.OOM_KILLS: Wording(
        name="OOM kills",
        clause="{observed} {containers} killed for memory",
        sentence="{observed} {containers} of {service} {were} killed for memory",
        step="Raise the memory limit of {service}, or look for a leak: {evidence}",
    ),
    SignalKind.RESTARTS: Wording(
        clause="{observed} {containers} restarted",
        sentence="{observed} {containers} of {service} restarted",
        step="Find out why containers of {service} stop, by their last logs and exit codes: {evidence}",
    ),
    SignalKind.DISK_PRESSURE: Wording(
        name="disk in use",
        clause="{observed} of the disk space in use{usually}",
        sentence="{observed} of the disk space of {service} is in use{usually}",
        step="Free disk space of {service}, or give it a larger volume: {evidence}",
    ),
    SignalKind.PENDING_PODS: Wording(
        clause="{observed} {pods} {do} not start{usually}",
        sentence="{observed} {pods} of {service} {do} not start{usually}",
        step="Find out why pods of {service} do not start, by their events: {evidence}",
    ),
    SignalKind.QUEUE_DEPTH: Wording(
        clause="{observed} {messages} {wait}{usually}",
        sentence="{observed} {messages} {wait} for {service}{usually}",
        step="Scale {service} out, or find what holds it up: {evidence}",
    ),
    SignalKind.CANCELLED: Wording(  # a service with it is slow, and has the step of slow ones
        name="cancelled requests",
        clause="callers gave up on {observed} of the requests{usually}",
        sentence="callers gave up on {observed} of the requests to {service}{usually}",
    ),
}


def wording(metric: str) -> Wording:
    """The words for a metric."""
    return _WORDINGS.get(metric, Wording())


def fill(text: str, reason: Reason, service: str, *, its: str = "its", **more: str) -> str:
    """Fill the fields of a text with a reason about a service and with further ones; ``its`` is the possessive for the
    service's requests and calls."""
    observed, usual = observed_text(reason), usual_text(reason)
    calls = f"the calls from {reason.source}" if reason.source else f"{its} requests"
    fields = more | {
        "service": service,
        "its": its,
        "namespace": namespace_of(service),
        "metric": metric_words(reason.metric).partition(" (")[0],
        "observed": observed,
        "usual": usual,
        "usually": f", usually {usual}" if math.isfinite(reason.expected) and not looks_equal(reason) else "",
        "source": reason.source,
        "destination": reason.destination,
        "from": reason.source or service or "it",
        "to": reason.destination or service or "it",
        "calls": f"{its} calls to {reason.destination}" if reason.destination else calls,
    }
    words = {plural: singular if observed == "1" else plural for plural, singular in _SINGULARS.items()}
    return text.format_map(fields | words)


def metric_words(metric: str) -> str:
    """``p99 latency``, ``self time (excluding downstream calls)``."""
    return wording(metric).name or metric.replace("_", " ")


def metric_kind(metric: str) -> IncidentKind:
    """The kind of an incident whose only reason is about this metric, whatever its values."""
    return reason_kind(Reason(metric=metric, observed=math.nan, expected=math.nan, since=datetime.min))


def observed_text(reason: Reason) -> str:
    """``4.1 s``, in the same unit as :func:`usual_text`."""
    return unit_of(reason).words(reason.observed)


def usual_text(reason: Reason) -> str:
    """``0.08 s``."""
    return unit_of(reason).words(reason.expected)


def unit_of(reason: Reason) -> Unit:
    """The common unit of a reason's two values, so that they are easy to compare."""
    return unit(reason.metric, max(filter(math.isfinite, (reason.observed, reason.expected)), default=0.0))


def looks_equal(reason: Reason) -> bool:
    """Whether a reason's two values are the same at the shown precision."""
    display_unit = unit_of(reason)
    observed, expected = display_unit.round_value(reason.observed), display_unit.round_value(reason.expected)
    return observed == expected or (math.isnan(observed) and math.isnan(expected))


def unit(metric: str, largest: float) -> Unit:
    """The unit for values of a metric up to ``largest``."""
    if metric in _SHARES:
        return PERCENT
    if metric in _TIMES:
        return SECONDS if largest >= 1.0 else MILLISECONDS
    return PER_SECOND if metric in _RATES else COUNT
