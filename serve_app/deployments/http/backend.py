"""Access of the routes to sessions and collector, through their handles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

from fastapi import Request

from serve_app.collect.loop import CollectorState
from serve_app.deployments.session.queries import MeshQuery
from serve_app.deployments.sla.levels import SESSION
from serve_app.errors import NoTelemetry
from serve_app.runtime.deadline import Deadline, seconds_since
from serve_app.runtime.rpc import RECEIVED, Caller, Handle, P, T, with_session
from serve_app.settings import Settings
from serve_app.settings.base import check_mesh_name
from serve_app.web.period import PastTable, Subject, TimeRange

RECORDS = "(access records)"  # in place of the name of a mesh; none can be so

if TYPE_CHECKING:  # the ingress needs no torch
    from serve_app.deployments.collector import Collector
    from serve_app.deployments.session.mesh_session import MeshSession


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
        self.level_session = with_session(sessions, SESSION)  # which adds up the service level
        self.records_session = with_session(sessions, RECORDS)  # usually one, so that writes rarely collide
        self._collector = collector
        self._deadline_seconds = settings.serve.deadline_seconds

    def session_of(self, mesh: str) -> Handle[MeshSession]:
        """The session that owns a mesh.

        Raises:
            BadMeshName: no mesh can have this name.
        """
        return with_session(self.sessions, check_mesh_name(mesh))

    def deadline(self, request: Request | None = None) -> Deadline:
        """The deadline of a request that has just arrived. With ``request``: counted from when the gate had received
        all of it, if the gate is on this machine."""
        waited = seconds_since(request.headers.get(RECEIVED)) if request else 0.0
        return Deadline.after(self._deadline_seconds - waited)

    async def ask(self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of a handle within the usual deadline; errors as in :meth:`Caller.ask`."""
        return await Caller(self.deadline()).ask(method, *args, **kwargs)

    async def read(self, query: MeshQuery[T]) -> T:
        """Ask the session that owns a mesh within the usual deadline; errors as in the query, and as in :meth:`ask`."""
        return await self.ask(self.session_of(query.mesh).read, query)

    async def past(self, mesh: str, period: TimeRange, subject: Subject) -> PastTable:
        """The metrics of a subject in a period, from the mesh's Prometheus.

        Raises:
            NoTelemetry: the mesh is not collected from Prometheus, or this has no data of the period.
        """
        return await self.ask(self._require_collector(mesh).past, mesh, period, subject)

    async def past_snapshot(self, mesh: str, at: datetime) -> bytes:
        """The mesh at a past time, packed. Errors as in :meth:`past`."""
        return await self.ask(self._require_collector(mesh).past_snapshot, mesh, at)

    def _require_collector(self, mesh: str) -> Handle[Collector]:
        if self._collector is None or mesh not in self.settings.collected:
            raise NoTelemetry(f"mesh {mesh!r}: expected a mesh that is collected from Prometheus, got another one")
        return self._collector

    async def collector_states(self, seconds: float | None = None) -> list[CollectorState]:
        """The state of each collected mesh. Returns an empty list if no collector runs.

        Args:
            seconds: to wait for the answer; None: the usual deadline.
        """
        if self._collector is None:
            return []
        seconds = self._deadline_seconds if seconds is None else seconds
        return await Caller(Deadline.after(seconds)).ask(self._collector.states)
