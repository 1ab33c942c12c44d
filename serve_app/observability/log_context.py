"""Which mesh and which of its snapshots the code that runs now works on. Log lines name them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogContext:
    """What some work is about.

    Attributes:
        mesh: name; None: no single mesh.
        sequence: number of the snapshot in its mesh; None: no snapshot, or its number is not known yet.
    """

    mesh: str | None = None
    sequence: int | None = None


_NOTHING = LogContext()
_context: ContextVar[LogContext | None] = ContextVar("log_context", default=None)


def log_context() -> LogContext:
    """The context of the code that runs now."""
    return _context.get() or _NOTHING


@contextmanager
def set_log_context(mesh: str, sequence: int | None = None) -> Iterator[None]:
    """Set the context of the block, and of tasks that it starts."""
    token = _context.set(LogContext(mesh, sequence))
    try:
        yield
    finally:
        _context.reset(token)
