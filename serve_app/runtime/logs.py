"""Sends the log of TAGAE's packages to Ray Serve's log.

Serve gives each of its processes handlers for the logger ``ray.serve``: its files, its stderr, its level. Our modules
log under their own names, and their records go to the same handlers.
"""

import logging
from logging.handlers import MemoryHandler

from serve_app.observability.logs import AddContext, JsonFormatter

PACKAGES = ("serve_app", "model")
SERVE = "ray.serve"
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})  # requested every few seconds
CALL = "CALL "  # begins Serve's line about a call between replicas; some are just as frequent
ALL_ROUTES = "Got updated endpoints"  # begins a line with 3,000 characters from Serve's proxy


class ToServeLog(logging.Handler):
    """Passes records on to Serve's logger, whose handlers may change while a process starts."""

    def emit(self, record: logging.LogRecord) -> None:
        serve = logging.getLogger(SERVE)
        if serve.isEnabledFor(record.levelno):
            serve.handle(record)


class AsJson(AddContext):
    """Makes the handlers of Serve's logger write JSON: our records and Serve's own.

    It checks the handlers with each record, since Serve replaces them while a process starts.

    Args:
        component: what this process is, such as ``session``.
    """

    def __init__(self, component: str) -> None:
        super().__init__()
        self._formatter = JsonFormatter(component)

    def filter(self, record: logging.LogRecord) -> bool:
        for handler in logging.getLogger(SERVE).handlers:
            writing = handler.target if isinstance(handler, MemoryHandler) and handler.target else handler
            if writing.formatter is not self._formatter:
                writing.setFormatter(self._formatter)
        return super().filter(record)


def install() -> None:
    """Send this process's log to Serve's log, and leave out Serve's lines without information. Each process of the
    service calls this once when it starts."""
    serve = logging.getLogger(SERVE)
    if _is_informative not in serve.filters:
        serve.addFilter(_is_informative)
    for package in PACKAGES:
        logger = logging.getLogger(package)
        if not any(isinstance(handler, ToServeLog) for handler in logger.handlers):
            logger.addHandler(ToServeLog())
            logger.propagate = False  # otherwise, a root handler gets each record twice
            logger.setLevel(logging.DEBUG)  # the level of Serve's logger decides


def _is_informative(record: logging.LogRecord) -> bool:
    """Whether a record is not one of Serve's lines about probes, calls between replicas, or all routes."""
    text = record.getMessage()
    if getattr(record, "serve_access_log", False):
        return not text.startswith(CALL) and PROBES.isdisjoint(text.split())
    return not text.startswith(ALL_ROUTES)


def write_json(component: str) -> None:
    """Write this process's log as JSON from now on. Calls after the first do nothing.

    Args:
        component: what this process is, such as ``session``.
    """
    serve = logging.getLogger(SERVE)
    if not any(isinstance(filter_, AsJson) for filter_ in serve.filters):
        serve.addFilter(AsJson(component))
