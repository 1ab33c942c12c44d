"""Log lines as JSON: one object a line, the same in every process."""

import json
import logging
from datetime import UTC, datetime

from serve_app.observability.log_context import log_context
from serve_app.observability.spans import trace_id


class AddContext(logging.Filter):
    """Adds mesh, sequence and trace to each record when it is made: handlers may format it later, in another thread."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "trace_id"):
            about = log_context()
            record.mesh, record.sequence, record.trace_id = about.mesh, about.sequence, trace_id()
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
        component: what this process is, such as ``session``.
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
