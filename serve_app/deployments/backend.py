"""Access of the routes to sessions and collector, through their handles."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fastapi import Request

from serve_app.collect.loop import CollectorState
from serve_app.deployments.rpc import RECEIVED, Caller, Handle, P, T, received_at, with_session
from serve_app.settings import Settings
from serve_app.settings.base import check_mesh_name

if TYPE_CHECKING:  # the ingress needs no torch
    from serve_app.deployments.collector import Collector
    from serve_app.deployments.session import MeshSession


class Backend:
    """The replicas behind an ingress.

    Args:
        settings: of the service.
        sessions: handle.
        collector: handle; None if no mesh is collected.
    """

    def __init__(self, settings: Settings, sessions: Handle[MeshSession], collector: Handle[Collector] | None) -> None:
        self.settings = settings
        self.sessions = sessions
        self._collector = collector
        self._deadline_seconds = settings.serve.deadline_seconds

    def session_of(self, mesh: str) -> Handle[MeshSession]:
        """The session that owns a mesh.

        Raises:
            BadMeshName: no mesh can have this name.
        """
        return with_session(self.sessions, check_mesh_name(mesh))

    def expires_at(self, request: Request | None = None) -> float:
        """The deadline of a request that has just arrived, Unix time. With ``request``: counted from when the gate had
        received all of it."""
        now = time.time()
        return min(now, received_at(request.headers.get(RECEIVED), now) if request else now) + self._deadline_seconds

    async def ask(self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of a handle within the usual deadline; errors as of :meth:`Caller.ask`."""
        return await Caller(self.expires_at()).ask(method, *args, **kwargs)

    async def collector_states(self, seconds: float | None = None) -> list[CollectorState]:
        """The state of each collected mesh. Returns an empty list if no collector runs.

        Args:
            seconds: to wait for the answer; None: the usual deadline.
        """
        if self._collector is None:
            return []
        seconds = self._deadline_seconds if seconds is None else seconds
        return await Caller(time.time() + seconds).ask(self._collector.states)
