"""Looks up a service in its mesh's tools on request. A tool that is slow or down delays no one else."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from serve_app.collect.tools import jaeger, loki, tempo
from serve_app.collect.tools.request import ToolAnswer, ToolFailed, ToolQuestion
from serve_app.settings import MeshSettings
from serve_app.settings.tools import ToolSettings

log = logging.getLogger(__name__)

FRESH_SECONDS = 30.0  # how long equal requests share an answer
MAX_WAITING = 4  # requests that wait for tools, and concurrent lookups: the rest of the page needs the other slots
MAX_LOOKUPS = 64  # in memory
BUSY = "was not asked: others wait for it; the page asks again soon"
READERS: dict[str, Callable[[Any, ToolQuestion, float], Awaitable[ToolAnswer]]] = {  # by kind of tool
    "loki": loki.read_error_lines,
    "tempo": tempo.read_failing_trace,
    "jaeger": jaeger.read_failing_trace,
}


@dataclass(frozen=True, slots=True)
class ToolAnswers:
    """The answers of a mesh's tools about a service; None: the mesh has no such tool."""

    logs: ToolAnswer | None
    trace: ToolAnswer | None


@dataclass(slots=True)
class _Lookup:
    """The last answers about a service, until when they are fresh, and the task that gets new ones."""

    answers: ToolAnswers | None = None
    fresh_until: float = 0.0  # of the monotonic clock
    task: asyncio.Task[ToolAnswers] | None = None


class ToolLookup:
    """Looks up services in the meshes' tools. Use it from one event loop.

    Args:
        within: maximum wait for a tool, s.
    """

    def __init__(self, within: float) -> None:
        self._within = within
        self._lookups: dict[tuple[str, str, str, datetime | None], _Lookup] = {}
        self._running = self._waiting = 0  # lookups, and requests that wait for them

    async def find(
        self, mesh: str, settings: MeshSettings, question: ToolQuestion, at: datetime | None = None
    ) -> ToolAnswers:
        """Return the tools' answers about a service: its newest error lines, and a failing trace.

        Requests about the same service get the same answers within ``FRESH_SECONDS``. After that, one request waits
        for new answers, and the others get the old ones.

        Args:
            at: the past moment that the question is about; None: now.
        """
        key = (mesh, question.namespace, question.service, at)
        lookup = self._lookups.setdefault(key, _Lookup())
        while len(self._lookups) > MAX_LOOKUPS:
            self._lookups.pop(next(iter(self._lookups)))
        is_due = lookup.task is None and time.monotonic() >= lookup.fresh_until and self._running < MAX_WAITING
        if is_due:
            self._running += 1
            lookup.task = asyncio.create_task(self._renew(lookup, settings, question))
        if lookup.answers and not is_due:
            return lookup.answers
        if lookup.task is None or self._waiting >= MAX_WAITING:
            return lookup.answers or ToolAnswers(_busy(settings.logs), _busy(settings.traces))
        self._waiting += 1
        try:
            return await asyncio.shield(lookup.task)  # others may still wait if one client leaves
        finally:
            self._waiting -= 1

    async def _renew(self, lookup: _Lookup, settings: MeshSettings, question: ToolQuestion) -> ToolAnswers:
        try:
            tools = (settings.logs, settings.traces)
            answers = await asyncio.gather(*(ask_tool(tool, question, self._within) for tool in tools))
            lookup.answers = ToolAnswers(*answers)
            return lookup.answers
        finally:
            lookup.task, lookup.fresh_until = None, time.monotonic() + FRESH_SECONDS
            self._running -= 1


async def ask_tool(tool: ToolSettings, question: ToolQuestion, within: float) -> ToolAnswer | None:
    """Return a tool's answer about a service, or why there is none; None: there is no tool."""
    if tool.kind is None:
        return None
    try:
        return await READERS[tool.kind](tool, question, within)
    except ToolFailed as error:
        log.warning("%s %s%s", tool.name, error, error.detail and f": {error.detail}")
        return ToolAnswer(tool.name, failed=str(error), detail=error.detail)


def _busy(tool: ToolSettings) -> ToolAnswer | None:
    return None if tool.kind is None else ToolAnswer(tool.name, failed=BUSY)
