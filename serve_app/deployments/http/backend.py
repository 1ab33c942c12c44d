"""Gives routes access to sessions and the collector through their handles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import TYPE_CHECKING, Any, Generic, overload

from fastapi import Request

from serve_app.collect.loop import CollectorState
from serve_app.collect.tools.lookup import ToolLookup
from serve_app.deployments.session.api import api_of
from serve_app.runtime.replica import start_task
from serve_app.runtime.rpc import WAIT_HEADER, Caller, Deadline, Handle, P, T, with_session
from serve_app.settings import Settings
from serve_app.settings.base import check_mesh_name

TOOL_SECONDS, TOOL_SHARE = 3.0, 0.6  # maximum wait for logs and traces; and share of the deadline
PROBE_SECONDS = 0.5  # how long a probe or a list waits for the replicas behind the ingress
RECORDS = "(access records)"  # in place of a mesh name; no mesh can have it

if TYPE_CHECKING:  # the ingress does not need torch
    from serve_app.deployments.collector import Collector
    from serve_app.deployments.session.api import SessionApi
    from serve_app.deployments.session.mesh_session import MeshSession


class SingleFlight(Generic[T]):
    """Running calls by key: a second caller with the same key waits for the first call. Use it from one event loop."""

    def __init__(self) -> None:
        self._calls: dict[Hashable, asyncio.Task[T]] = {}

    async def do(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``call``, which continues if a caller is cancelled: others may wait for it."""
        task = self._calls.get(key)
        if task is None:
            task = self._calls[key] = start_task(_run(call))
            task.add_done_callback(lambda _: self._end(key))
        return await asyncio.shield(task)

    def _end(self, key: Hashable) -> None:
        task = self._calls.pop(key)
        if not task.cancelled():
            task.exception()  # retrieve it, in case no caller remains to do so


async def _run(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


class Backend:
    """The replicas behind an ingress.

    Attributes:
        records: API of the session that usually writes access records, so that writes rarely collide.
    """

    def __init__(self, settings: Settings, sessions: Handle[MeshSession], collector: Handle[Collector]) -> None:
        self.settings = settings
        self.sessions, self.collector = sessions, collector
        self.any_session = api_of(sessions)
        self.records = api_of(with_session(sessions, RECORDS))
        self._deadline_seconds = settings.serve.deadline_seconds
        self.tools = ToolLookup(min(TOOL_SECONDS, TOOL_SHARE * self._deadline_seconds))

    def session_of(self, mesh: str) -> Handle[MeshSession]:
        """The session that owns a mesh.

        Raises:
            BadMeshName: no mesh can have this name.
        """
        return with_session(self.sessions, check_mesh_name(mesh))

    def api(self, mesh: str) -> SessionApi:
        """The API of the session that owns a mesh. Raises the error of :meth:`session_of`."""
        return api_of(self.session_of(mesh))

    def deadline(self, request: Request | None = None) -> Deadline:
        """The deadline of a request that has just arrived. With ``request``, it counts from when the gate had received
        all of it."""
        wait_seconds = float(request.headers.get(WAIT_HEADER, 0.0)) if request else 0.0
        return Deadline.after(self._deadline_seconds - wait_seconds)

    @overload
    async def ask(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    async def ask(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def ask(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of a handle or an API within the usual deadline. Raises the errors of :meth:`Caller.ask`."""
        return await Caller(self.deadline()).ask(method, *args, **kwargs)

    async def collector_states(self) -> list[CollectorState]:
        """The state of each collected mesh. Waits up to ``PROBE_SECONDS``. Raises the errors of :meth:`Caller.ask`."""
        return await Caller(Deadline.after(PROBE_SECONDS)).ask(self.collector.states)
