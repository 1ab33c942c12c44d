"""A failing trace of a service in Jaeger (``GET /api/traces``), or in another tool with the same API."""

from typing import Annotated

import msgspec

from serve_app.collect.tools.request import FailingTrace, ToolAnswer, ToolQuestion, ask, instant_of, plain_text
from serve_app.collect.tools.tempo import TRACE_ID, reason_of
from serve_app.net.query_template import fill_name
from serve_app.settings.tools import MeshTraceSettings

MAX_READ = 5  # traces in an answer, with all their spans
Microseconds = Annotated[int, msgspec.Meta(ge=0, lt=10**16)]  # up to the year 2286


class _JaegerTag(msgspec.Struct):
    key: str
    value: str | int | float | bool | None


class _JaegerSpan(msgspec.Struct, rename="camel"):
    operation_name: str
    process: str = msgspec.field(name="processID")
    start_time: Microseconds  # Unix time
    duration: Microseconds
    tags: list[_JaegerTag] | None = None


class _JaegerProcess(msgspec.Struct, rename="camel"):
    service_name: str


class _JaegerTrace(msgspec.Struct):
    id: str = msgspec.field(name="traceID")
    spans: list[_JaegerSpan]
    processes: dict[str, _JaegerProcess]


class _JaegerAnswer(msgspec.Struct):
    data: list[_JaegerTrace] | None


async def read_failing_trace(traces: MeshTraceSettings, question: ToolQuestion, within: float) -> ToolAnswer:
    """Return a recent trace with a failing span of a service, if there is one. Raises the errors of :func:`ask`."""
    service = fill_name(traces.chosen_query, question.names)
    parameters = {
        "service": service,
        "tags": '{"error":"true"}',
        "start": round(1e6 * question.start.timestamp()),
        "end": round(1e6 * question.end.timestamp()),
        "limit": MAX_READ,
    }
    answer = await ask(traces.target, "/api/traces", parameters, _JaegerAnswer, within)
    traces_with_spans = [trace for trace in answer.data or () if TRACE_ID.fullmatch(trace.id) and trace.spans]
    newest = max(traces_with_spans, key=lambda trace: min(span.start_time for span in trace.spans), default=None)
    return ToolAnswer(traces.name, trace=None if newest is None else _failing(newest, service))


def _failing(trace: _JaegerTrace, service: str) -> FailingTrace:
    """Return the trace, with the last span of the service that failed, or else of any service."""
    root = min(trace.spans, key=lambda span: span.start_time)
    tags = {id(span): {tag.key: tag.value for tag in span.tags or ()} for span in trace.spans}
    names = {key: process.service_name for key, process in trace.processes.items()}
    failing_spans = [span for span in trace.spans if tags[id(span)].get("error") in (True, "true")] or [root]
    last = max(failing_spans, key=lambda span: (names.get(span.process) == service, span.start_time))
    return FailingTrace(
        trace.id,
        instant_of(1000 * root.start_time),
        root.duration / 1e6,
        plain_text(root.operation_name),
        plain_text(names.get(last.process, service)),
        reason_of(tags[id(last)]),
    )
