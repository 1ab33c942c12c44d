"""Collector: the replica that collects meshes, and its calls to their sessions."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from model.snapshot import MeshSnapshot
from model.verdict import ClusterEvent
from serve_app.api.codec import pack_snapshot
from serve_app.collect.base import Resume
from serve_app.collect.connections import ConnectedMeshes
from serve_app.collect.loop import CollectorState
from serve_app.collect.meshes import CollectedMeshes
from serve_app.collect.opening import poll_once
from serve_app.collect.past import PastQueue
from serve_app.deployments.session.api import api_of
from serve_app.doctor.picture import MeshPicture, draw_picture
from serve_app.errors import NoTelemetry, ServeError, answer
from serve_app.metrics import REQUESTS, outcome_of
from serve_app.observability.spans import span, traceparent
from serve_app.runtime.replica import open_instruments
from serve_app.runtime.reporting import start_reporting
from serve_app.runtime.rpc import PAUSE_SECONDS, Caller, Deadline, Handle, connect, with_session
from serve_app.settings import Settings
from serve_app.stores.history_files import PastSeries
from serve_app.stores.opening import open_leases
from serve_app.web.history import past_series
from serve_app.web.period import RangeSteps, Subject, TimeRange

if TYPE_CHECKING:  # the collector does not need torch
    from serve_app.deployments.session.mesh_session import MeshSession

PAST_SHARE = 0.85  # share of a request's deadline for the answers about the past
POLL_SHARE = 0.7  # share of it for a poll of a mesh that someone connects; there may be two
log = logging.getLogger(__name__)


class RemoteSessions:
    """The sessions behind a handle, as :class:`~serve_app.collect.base.Sessions`. Each call has the usual deadline."""

    def __init__(self, settings: Settings, sessions: Handle[MeshSession]) -> None:
        self._settings, self._sessions, self._instruments = settings, connect(sessions), open_instruments()

    async def push(self, mesh: str, snapshot: MeshSnapshot, events: tuple[ClusterEvent, ...]) -> None:
        """Push a live snapshot, and count it as a gate counts snapshots that arrive over HTTP."""
        try:
            with span("collector.push", mesh=mesh):
                await self._push(mesh, snapshot, events=events, trace=traceparent())
        except Exception as error:
            self._count(answer(error).status)
            raise
        self._count(HTTPStatus.OK)
        log.debug("mesh %s: %s has its verdict", mesh, snapshot.observed_at)

    async def replay(self, mesh: str, snapshot: MeshSnapshot) -> None:
        await self._push(mesh, snapshot, is_replay=True)

    async def resume(self, mesh: str) -> Resume:
        """Where to continue with a mesh. Waits until a session answers: before that, no snapshot could be pushed, and
        the missed ones would be unknown."""
        while True:
            try:
                return await self._caller().ask(api_of(with_session(self._sessions, mesh)).meshes.resume, mesh)
            except ServeError as error:
                log.warning("mesh %s: its newest snapshot is not known yet: %s", mesh, error)
                await asyncio.sleep(PAUSE_SECONDS)

    async def connections(self) -> dict[str, str]:
        return await self._caller().ask(api_of(self._sessions).connections.all)

    async def connect(self, mesh: str, prometheus: str) -> None:
        await self._caller().ask(api_of(self._sessions).connections.add, mesh, prometheus)

    async def _push(self, mesh: str, snapshot: MeshSnapshot, **more: Any) -> None:
        caller, session = self._caller(), with_session(self._sessions, mesh)
        more["is_connected"] = not self._settings.mesh(mesh).is_collected
        await caller.ask(session.push, mesh, pack_snapshot(snapshot), caller.deadline, **more)

    def _caller(self) -> Caller:
        return Caller(Deadline.after(self._settings.serve.deadline_seconds))

    def _count(self, status: int) -> None:
        self._instruments.count(REQUESTS, kind="push", outcome=outcome_of(status).value)


class Collector:
    """Collects the meshes that it owns: all, unless there are other replicas.

    Args:
        settings: ``meshes``, ``collector``, ``store`` for the leases, and ``serve.deadline_seconds`` for a push.
    """

    def __init__(self, settings: Settings, sessions: Handle[MeshSession]) -> None:
        start_reporting(settings, "collector")
        self._settings, self._sessions = settings, RemoteSessions(settings, sessions)
        leases = open_leases(settings.store)
        self._meshes = CollectedMeshes(settings.collected, settings.collector, self._sessions, leases)
        self._connected = ConnectedMeshes(settings, self._meshes, self._sessions)
        self._past = PastQueue(self._meshes.settings, settings.collector)
        self._tasks: list[asyncio.Task[None]] = []  # beside the tasks of the meshes
        self.__del__ = self.close  # for Serve; Python itself would call the class's method, and await nothing

    async def check_health(self) -> None:
        """Serve calls this every second, and first before the replica is ready: the loops start then.

        Raises:
            RuntimeError: a loop has ended, which is a bug.
        """
        if not self._tasks:
            self._tasks = [asyncio.create_task(loop) for loop in (self._meshes.run(), self._connected.follow())]
        for task in (*self._tasks, *self._meshes.tasks):
            if task.done():
                raise RuntimeError(f"a task of the collector has ended: {task.exception()!r}")

    async def states(self) -> list[CollectorState]:
        """The state of each collected mesh, as its owner last reported it."""
        return self._meshes.states()

    async def connect(self, mesh: str, prometheus: str) -> MeshPicture:
        """Collect a mesh from now on, also after a restart, and return a picture of what its Prometheus shows.

        Raises:
            InvalidParameter: its source is in the settings.
            NoTelemetry: nothing can be read there. Nothing was changed.
        """
        mesh_settings = self._connected.settings_of(mesh, prometheus)
        within = POLL_SHARE * self._settings.serve.deadline_seconds
        poll = await asyncio.to_thread(poll_once, mesh_settings, self._settings.collector, within)
        if poll.snapshot is None:
            raise NoTelemetry(f"{prometheus}: {poll.why}; `tagae doctor --prometheus URL` tests each query")
        await self._sessions.connect(mesh, prometheus)
        await self._connected.update()
        return draw_picture(poll.snapshot, mesh_settings.entry_points)

    async def update_connections(self) -> None:
        """Collect exactly the configured and the currently connected meshes."""
        await self._connected.update()

    async def past(
        self, mesh: str, period: TimeRange, subject: Subject, deadline: Deadline
    ) -> tuple[RangeSteps, PastSeries]:
        """Read a service's or calls' metrics in a period from the mesh's Prometheus.

        Raises:
            UnknownMesh: the mesh is not collected.
            NoTelemetry: it has no Prometheus, or Prometheus has no data for the period, or does not answer in time.
        """
        until = deadline.take_share(PAST_SHARE).at
        return past_series(await self._past.read(mesh, period.start, period.end, period.points, until), subject)

    async def past_snapshot(self, mesh: str, at: datetime, deadline: Deadline) -> bytes:
        """The mesh at a past time, packed. Raises the errors of :meth:`past`."""
        return pack_snapshot(await self._past.read_instant(mesh, at, deadline.take_share(PAST_SHARE).at))

    async def close(self) -> None:
        """Stop collecting, and leave the meshes to other collectors. Serve awaits this when a replica ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._meshes.end()
