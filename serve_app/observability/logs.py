"""Log lines as JSON: one object per line, the same in every process, with the mesh and snapshot that it is about."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime

from serve_app.observability.spans import trace_id


@dataclass(frozen=True, slots=True)
class LogContext:
    """The mesh and snapshot that the current work is about.

    Attributes:
        mesh: its name; None: no single mesh.
        sequence: the snapshot's number in its mesh; None: no snapshot, or its number is not known yet.
    """

    mesh: str | None = None
    sequence: int | None = None


_NOTHING = LogContext()
_context: ContextVar[LogContext | None] = ContextVar("log_context", default=None)


def log_context() -> LogContext:
    """The context of the code that is running."""
    return _context.get() or _NOTHING


@contextmanager
def set_log_context(mesh: str, sequence: int | None = None) -> Iterator[None]:
    """Set the context of the block, and of tasks that it starts."""
    token = _context.set(LogContext(mesh, sequence))
    try:
        yield
    finally:
        _context.reset(token)


class AddContext(logging.Filter):
    """Adds mesh, sequence and trace to each record when it is made: handlers may format it later, in another thread."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "trace_id"):
            context = log_context()
            record.mesh, record.sequence, record.trace_id = context.mesh, context.sequence, trace_id()
        return True


def stderr_handler(component: str) -> logging.Handler:
    """A handler that writes JSON lines to stderr."""
    handler = logging.StreamHandler()
    handler.addFilter(AddContext())
    handler.setFormatter(JsonFormatter(component))
    return handler


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object with ``time`` (UTC), ``level``, ``logger``, ``message``, ``component``,
    ``mesh``, ``sequence`` and ``trace_id``, each null if unknown, and ``exception`` if the record has one.

    Args:
        component: this process's part in the service, such as ``session``.
    """

    def __init__(self, component: str) -> None:
        super().__init__()
        self.component = component

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "component": self.component,
        }
        line |= {name: getattr(record, name, None) for name in ("mesh", "sequence", "trace_id")}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
