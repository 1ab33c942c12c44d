"""Spans: parts of a request's work, as a tree across all processes.

A process records nothing until :func:`record_with` is called, and ``opentelemetry`` is not imported until then. A
context crosses processes as the value of a ``traceparent`` header (https://www.w3.org/TR/trace-context/); empty means
that the caller records nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from serve_app.errors import ServeError

if TYPE_CHECKING:
    from opentelemetry import trace

Value = str | int | float | bool
Kind = Literal["internal", "server"]
HEADER = "traceparent"
_tracer: trace.Tracer | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the work; ``otel_span`` is None in a process that records nothing."""

    otel_span: trace.Span | None = None

    def set(self, **attributes: Value) -> None:
        """Add attributes: ``mesh`` becomes ``tagae.mesh``; a name with a dot is unchanged."""
        if self.otel_span is not None:
            self.otel_span.set_attributes(_attributes(attributes))

    def fail(self, reason: str) -> None:
        """Mark the span as failed."""
        if self.otel_span is not None:
            from opentelemetry import trace

            self.otel_span.set_status(trace.Status(trace.StatusCode.ERROR, reason))


def record_with(tracer: trace.Tracer | None) -> None:
    """Record the spans of this process from now on; None: no longer."""
    global _tracer
    _tracer = tracer


def is_recording() -> bool:
    return _tracer is not None


@contextmanager
def span(name: str, parent: str = "", kind: Kind = "internal", **attributes: Value) -> Iterator[Span]:
    """A span of the block. An error that leaves the block is recorded, and marks the span as failed.

    Args:
        parent: the caller's ``traceparent``; empty: the enclosing span, if any.
        kind: ``server`` for a request from another program.
        attributes: see :meth:`Span.set`.
    """
    if _tracer is None:
        yield Span()
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    # A malformed parent counts as none, as the specification requires.
    context = TraceContextTextMapPropagator().extract({HEADER: parent}) if parent else None
    with _tracer.start_as_current_span(
        name,
        context,
        trace.SpanKind.SERVER if kind == "server" else trace.SpanKind.INTERNAL,
        _attributes(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as otel_span:
        wrapper = Span(otel_span)
        try:
            yield wrapper
        except Exception as error:
            otel_span.record_exception(error)
            wrapper.fail(str(error) if isinstance(error, ServeError) else f"{type(error).__name__}: {error}")
            raise


def traceparent() -> str:
    """The context of the current span, for work in another process; empty if there is none."""
    carrier: dict[str, str] = {}
    if _tracer is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(HEADER, "")


def trace_id() -> str | None:
    """The id of the current trace, 32 hexadecimal digits; None if there is none."""
    context = traceparent()
    return context.split("-")[1] if context else None


def annotate(**attributes: Value) -> None:
    _current().set(**attributes)


def add_event(name: str, **attributes: Value) -> None:
    """Add an event to the current span; see :meth:`Span.set`."""
    if (otel_span := _current().otel_span) is not None:
        otel_span.add_event(name, _attributes(attributes))


def _current() -> Span:
    if _tracer is None:
        return Span()
    from opentelemetry import trace

    return Span(trace.get_current_span())


def _attributes(values: dict[str, Value]) -> dict[str, Value]:
    """Attributes under their names on the wire: ours begin with ``tagae.``, names of OpenTelemetry have a dot."""
    return {name if "." in name else f"tagae.{name}": value for name, value in values.items()}
