"""Access of the routes to sessions and collector, through their handles."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

from fastapi import Request

from serve_app.collect.loop import CollectorState
from serve_app.deployments.session.doors import doors_of
from serve_app.errors import NoTelemetry
from serve_app.runtime.deadline import Deadline, seconds_since
from serve_app.runtime.rpc import RECEIVED, Caller, Handle, P, T, with_session
from serve_app.settings import Settings
from serve_app.settings.base import check_mesh_name
from serve_app.web.period import RangeSteps, Subject, TimeRange

RECORDS = "(access records)"  # in place of the name of a mesh; none can be so

if TYPE_CHECKING:  # the ingress needs no torch
    from serve_app.deployments.collector import Collector
    from serve_app.deployments.session.doors import Doors
    from serve_app.deployments.session.mesh_session import MeshSession
    from serve_app.stores.history_files import PastSeries


class Backend:
    """The replicas behind an ingress.

    Args:
        collector: handle; None if no mesh is collected.

    Attributes:
        doors: of any session.
        records: doors of the session that usually writes the records of access, so that writes rarely collide.
    """

    def __init__(self, settings: Settings, sessions: Handle[MeshSession], collector: Handle[Collector] | None) -> None:
        self.settings = settings
        self.sessions = sessions
        self.doors = doors_of(sessions)
        self.records = doors_of(with_session(sessions, RECORDS))
        self._collector = collector
        self._deadline_seconds = settings.serve.deadline_seconds

    def session_of(self, mesh: str) -> Handle[MeshSession]:
        """The session that owns a mesh.

        Raises:
            BadMeshName: no mesh can have this name.
        """
        return with_session(self.sessions, check_mesh_name(mesh))

    def of(self, mesh: str) -> Doors:
        """The doors of the session that owns a mesh. Errors as in :meth:`session_of`."""
        return doors_of(self.session_of(mesh))

    def deadline(self, request: Request | None = None) -> Deadline:
        """The deadline of a request that has just arrived. With ``request``: counted from when the gate had received
        all of it, if the gate is on this machine."""
        waited = seconds_since(request.headers.get(RECEIVED)) if request else 0.0
        return Deadline.after(self._deadline_seconds - waited)

    @overload
    async def ask(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    async def ask(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def ask(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of a handle, or of a door, within the usual deadline; errors as in :meth:`Caller.ask`."""
        return await Caller(self.deadline()).ask(method, *args, **kwargs)

    async def past(self, mesh: str, period: TimeRange, subject: Subject) -> tuple[RangeSteps, PastSeries]:
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
