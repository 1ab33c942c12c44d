"""Spans: the parts of a request's work, as a tree over all processes.

A process records nothing until :func:`record_with` is called. Until then a span is a constant that ignores everything,
and ``opentelemetry`` is not imported. A context crosses processes as the value of a ``traceparent`` header
(https://www.w3.org/TR/trace-context/); empty means that the caller records nothing.
"""

from contextlib import AbstractContextManager
from typing import Literal, Protocol

Value = str | int | float | bool
Kind = Literal["internal", "server"]
HEADER = "traceparent"


class Span(Protocol):
    """A part of the work that is recorded, or not."""

    def set(self, **attributes: Value) -> None:
        """Add attributes: ``mesh`` becomes ``tagae.mesh``; a name with a dot is unchanged."""

    def fail(self, why: str) -> None:
        """Mark the span as failed."""


class SpanRecorder(Protocol):
    """Records the spans of this process."""

    def span(self, name: str, parent: str, kind: Kind, attributes: dict[str, Value]) -> AbstractContextManager[Span]:
        """A span of the block; see :func:`span`."""

    def traceparent(self) -> str:
        """See :func:`traceparent`."""

    def trace_id(self) -> str | None:
        """See :func:`trace_id`."""

    def add(self, attributes: dict[str, Value], event: str) -> None:
        """See :func:`annotate` and :func:`add_event`; ``event`` is empty for the former."""


class _Unrecorded:
    """The span of a process that records nothing."""

    def __enter__(self) -> "_Unrecorded":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set(self, **attributes: Value) -> None:
        pass

    def fail(self, why: str) -> None:
        pass


_UNRECORDED = _Unrecorded()
_recorder: SpanRecorder | None = None


def record_with(recorder: SpanRecorder | None) -> None:
    """Record the spans of this process from now on; None: no longer."""
    global _recorder
    _recorder = recorder


def is_recording() -> bool:
    """Whether this process records spans."""
    return _recorder is not None


def span(name: str, parent: str = "", kind: Kind = "internal", **attributes: Value) -> AbstractContextManager[Span]:
    """A span of the block. An error that leaves the block is recorded, and marks the span as failed.

    Args:
        name: of the work, such as ``session.push``.
        parent: the caller's ``traceparent``; empty: the span of the code around, or none.
        kind: ``server`` for a request from another program.
        attributes: see :meth:`Span.set`.
    """
    return _UNRECORDED if _recorder is None else _recorder.span(name, parent, kind, attributes)


def traceparent() -> str:
    """The context of the current span, for work in another process; empty if there is none."""
    return "" if _recorder is None else _recorder.traceparent()


def trace_id() -> str | None:
    """The id of the current trace, 32 hexadecimal digits; None if there is none."""
    return None if _recorder is None else _recorder.trace_id()


def annotate(**attributes: Value) -> None:
    """Add attributes to the current span; see :meth:`Span.set`."""
    if _recorder is not None:
        _recorder.add(attributes, "")


def add_event(name: str, **attributes: Value) -> None:
    """Add something that happens now to the current span; see :meth:`Span.set`."""
    if _recorder is not None:
        _recorder.add(attributes, name)
