"""Sends the log of TAGAE's packages to the log of Ray Serve.

Serve gives each of its processes handlers for the logger ``ray.serve``: its files, its stderr, its level. Our modules
log under their own names, and their records go to the same handlers.
"""

import logging

PACKAGES = ("serve_app", "model")


class ToServeLog(logging.Handler):
    """Passes records on to the logger of Serve, whose handlers may change while a process starts."""

    def emit(self, record: logging.LogRecord) -> None:
        serve = logging.getLogger("ray.serve")
        if serve.isEnabledFor(record.levelno):
            serve.handle(record)


def install() -> None:
    """Send the log of this process to Serve's log. Each process of the service calls this once, as it starts."""
    for package in PACKAGES:
        logger = logging.getLogger(package)
        if not any(isinstance(one, ToServeLog) for one in logger.handlers):
            logger.addHandler(ToServeLog())
            logger.propagate = False  # else a handler of the root logger gets each record twice
            logger.setLevel(logging.DEBUG)  # the level of Serve's logger decides
