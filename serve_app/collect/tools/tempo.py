"""A failing trace of a service in Tempo (``GET /api/search`` with TraceQL)."""

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec

from serve_app.collect.tools.request import (
    FailingTrace,
    ToolAnswer,
    ToolQuestion,
    ask,
    instant_of,
    plain_text,
    read_nanoseconds,
)
from serve_app.net.query_template import fill_query
from serve_app.settings.tools import MeshTraceSettings

MAX_READ = 20  # traces in an answer, whose newest is shown; Tempo sends the first that it finds
# Span attributes that say why it failed, and the words to show before each.
REASONS = {
    "http.response.status_code": "",
    "http.status_code": "",
    "rpc.grpc.status_code": "gRPC status ",
    "statusMessage": "",
    "otel.status_description": "",
}
TRACE_ID = re.compile("[0-9A-Fa-f]{1,32}")


class _TempoValue(msgspec.Struct, rename="camel"):
    string_value: str = ""
    int_value: str | int = ""


class _TempoAttribute(msgspec.Struct):
    key: str
    value: _TempoValue


class _TempoSpan(msgspec.Struct):
    attributes: list[_TempoAttribute] = []


class _TempoSpanSet(msgspec.Struct):
    spans: list[_TempoSpan] = []


class _TempoTrace(msgspec.Struct, rename="camel"):
    id: str = msgspec.field(name="traceID")
    root_service_name: str = ""
    root_trace_name: str = ""
    start_time_unix_nano: str = "0"
    duration_ms: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0  # left out if it is 0
    span_sets: list[_TempoSpanSet] = []


class _TempoAnswer(msgspec.Struct):
    traces: list[_TempoTrace] | None = None  # Tempo leaves out an empty list


async def read_failing_trace(traces: MeshTraceSettings, question: ToolQuestion, within: float) -> ToolAnswer:
    """Return a recent trace with a failing span of a service, if there is one. Raises the errors of :func:`ask`."""
    parameters = {
        "q": fill_query(traces.chosen_query, question.names),
        "start": int(question.start.timestamp()),
        "end": int(question.end.timestamp()) + 1,
        "limit": MAX_READ,
        "spss": 1,
    }
    answer = await ask(traces.target, "/api/search", parameters, _TempoAnswer, within)
    valid_traces = [trace for trace in answer.traces or () if TRACE_ID.fullmatch(trace.id)]
    newest = max(valid_traces, key=lambda trace: read_nanoseconds(trace.start_time_unix_nano), default=None)
    return ToolAnswer(traces.name, trace=None if newest is None else _failing(newest, question))


def _failing(trace: _TempoTrace, question: ToolQuestion) -> FailingTrace:
    spans = [span for span_set in trace.span_sets for span in span_set.spans]
    values = {
        pair.key: pair.value.string_value or str(pair.value.int_value) for span in spans for pair in span.attributes
    }
    return FailingTrace(
        trace.id,
        instant_of(read_nanoseconds(trace.start_time_unix_nano)),
        trace.duration_ms / 1000,
        plain_text(trace.root_trace_name or trace.root_service_name),
        plain_text(values.get("service.name") or question.service),
        reason_of(values),
    )


def reason_of(values: Mapping[str, object]) -> str:
    """Return why a span failed, from its attributes; empty: unknown."""
    for key, words in REASONS.items():
        value = str(values.get(key) or "")
        is_success = value < "4" if key.startswith("http") else value == "0"
        if value and not is_success:
            return plain_text(words + value)
    return ""
