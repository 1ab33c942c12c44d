"""Collector: polls configured meshes and meshes that people connect on the page, and sends their snapshots to the
meshes' sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import numpy as np

from model.snapshot import MeshSnapshot
from serve_app.api.codec import pack_snapshot
from serve_app.collect.base import Poll
from serve_app.collect.kubernetes.watch import EventWatch
from serve_app.collect.loop import CollectorState, MeshCollector, ReadPast, poll_schedule
from serve_app.collect.opening import OpenedSource, open_source
from serve_app.collect.ownership import Ownership
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.collect.prometheus.past import RANGE_WITHIN_SECONDS, PastReader, PastSource
from serve_app.collect.replay import STEP_SECONDS, Replay
from serve_app.deployments.scoring.messages import Resume
from serve_app.deployments.session.api import api_of
from serve_app.doctor.picture import MeshPicture, draw_picture
from serve_app.errors import InvalidParameter, NoTelemetry, ServeError, UnknownMesh, answer
from serve_app.metrics import REQUESTS, outcome_of
from serve_app.observability.logs import set_log_context
from serve_app.observability.spans import span, traceparent
from serve_app.runtime.replica import open_instruments
from serve_app.runtime.reporting import start_reporting
from serve_app.runtime.rpc import PAUSE_SECONDS, Caller, Deadline, Handle, T, connect, with_session
from serve_app.settings import CollectorSettings, MeshSettings, Settings
from serve_app.stores.history_files import PastSeries
from serve_app.stores.opening import open_leases
from serve_app.web.history import metric_table
from serve_app.web.period import RangeSteps, Subject, TimeRange

if TYPE_CHECKING:  # the collector does not need torch
    from serve_app.deployments.session.mesh_session import MeshSession

PAST_SHARE = 0.85  # share of a request's deadline for the answers about the past
POLL_SHARE = 0.7  # share of it for a poll of a mesh that someone connects; there may be two
FOLLOW_SECONDS = 3.0  # time between two reads of the connected meshes
log = logging.getLogger(__name__)


class Collector:
    """Collects the meshes that it owns: all, unless there are other replicas. Each mesh has its own loop, which waits
    only for its own Prometheus. If the settings name a cluster, a second loop watches its Events.

    Args:
        settings: ``meshes``, ``collector``, ``store`` for the leases, and ``serve.deadline_seconds`` for a push.

    Attributes:
        _connections: Prometheus URL by mesh, of the meshes that were connected on the page.
    """

    def __init__(self, settings: Settings, sessions: Handle[MeshSession]) -> None:
        start_reporting(settings, "collector")
        meshes = settings.collected
        self._settings = settings
        self._connections: dict[str, str] = {}
        self._deadline_seconds = settings.serve.deadline_seconds
        self._sessions = connect(sessions)
        self._watches = {
            name: EventWatch(name, mesh.kubernetes.endpoint, mesh.kubernetes.namespace)
            for name, mesh in meshes.items()
            if mesh.kubernetes
        }
        self._ownership = Ownership(meshes, open_leases(settings.store), lambda mesh: self._state(mesh).pack())
        self._loops = {name: self._loop(name, mesh, settings.collector) for name, mesh in meshes.items()}
        self._meshes, self._collector = dict(meshes), settings.collector
        self._past = PastReader(self._meshes, settings.collector)
        self._past_thread = ThreadPoolExecutor(1, "past")  # reads the past of the page: no poll waits for it
        self._replay_thread = ThreadPoolExecutor(1, "replay")
        self._updating = asyncio.Lock()
        self._mesh_tasks: dict[str, asyncio.Task[None]] = {}  # by mesh
        self._other_tasks: set[asyncio.Task[None]] = set()
        self._instruments = open_instruments()
        self.__del__ = self.close  # for Serve; Python itself would call the class's method, and await nothing

    async def check_health(self) -> None:
        """Serve calls this every second, and first before the replica is ready: the loops start then.

        Raises:
            RuntimeError: a loop has ended, which is a bug.
        """
        if not self._other_tasks:
            self._mesh_tasks = {name: asyncio.create_task(self._collect(loop)) for name, loop in self._loops.items()}
            self._other_tasks = {
                asyncio.create_task(self._ownership.run()),
                asyncio.create_task(self._follow_connections()),
            }
            self._other_tasks |= {asyncio.create_task(watch.run()) for watch in self._watches.values()}
        ended_tasks = [task for task in (*self._other_tasks, *self._mesh_tasks.values()) if task.done()]
        if ended_tasks:
            raise RuntimeError(f"a task of the collector has ended: {ended_tasks[0].exception()!r}")

    async def states(self) -> list[CollectorState]:
        """The state of each collected mesh, as its owner last reported it."""
        notes = {mesh: self._ownership.note_of(mesh) for mesh in self._loops}
        return [self._state(mesh) if note is None else CollectorState.unpack(note) for mesh, note in notes.items()]

    async def connect(self, mesh: str, prometheus: str) -> MeshPicture:
        """Collect a mesh from now on, also after a restart, and return a picture of what its Prometheus shows.

        Raises:
            InvalidParameter: its source is in the settings.
            NoTelemetry: nothing can be read there. Nothing was changed.
        """
        if self._settings.mesh(mesh).is_collected:
            raise InvalidParameter(f"mesh {mesh!r}: expected one without a source in the settings; change it there")
        mesh_settings = self._with_source(mesh, prometheus)
        poll = await asyncio.to_thread(_poll_once, mesh_settings, self._collector, POLL_SHARE * self._deadline_seconds)
        if poll.snapshot is None:
            raise NoTelemetry(f"{prometheus}: {poll.why}; `tagae doctor --prometheus URL` tests each query")
        caller = Caller(Deadline.after(self._deadline_seconds))
        await caller.ask(api_of(self._sessions).connections.add, mesh, prometheus)
        await self.update_connections()
        return draw_picture(poll.snapshot, mesh_settings.entry_points)

    async def update_connections(self) -> None:
        """Poll exactly the configured and the currently connected meshes."""
        async with self._updating:  # an older answer that arrives later would end what a newer one began
            caller = Caller(Deadline.after(self._deadline_seconds))
            self._update_connections(await caller.ask(api_of(self._sessions).connections.all))

    def _update_connections(self, urls: Mapping[str, str]) -> None:
        connections = {mesh: url for mesh, url in urls.items() if not self._settings.mesh(mesh).is_collected}
        for mesh in [name for name, url in self._connections.items() if connections.get(name) != url]:
            self._mesh_tasks.pop(mesh).cancel()
            self._ownership.remove(mesh)
            del self._connections[mesh], self._loops[mesh], self._meshes[mesh]
        for mesh in connections.keys() - self._connections.keys():
            self._meshes[mesh] = self._with_source(mesh, connections[mesh])
            self._loops[mesh] = self._loop(mesh, self._meshes[mesh], self._collector)
            self._ownership.add(mesh)
            self._connections[mesh] = connections[mesh]
            self._mesh_tasks[mesh] = asyncio.create_task(self._collect(self._loops[mesh]))

    async def past(
        self, mesh: str, period: TimeRange, subject: Subject, deadline: Deadline
    ) -> tuple[RangeSteps, PastSeries]:
        """Read a service's or calls' metrics in a period from the mesh's Prometheus.

        Raises:
            UnknownMesh: the mesh is not collected.
            NoTelemetry: it has no Prometheus, or Prometheus has no data for the period, or does not answer in time.
        """
        past = await self._read_past(mesh, deadline, self._past.read, period.start, period.end, period.points)
        values = metric_table(past.snapshots, subject)
        steps = RangeSteps(past.step_seconds, past.begin + np.arange(past.count) * np.float64(past.step_seconds))
        if values is None:
            return steps, PastSeries.join(subject.metrics, [])
        times = np.array([snapshot.observed_at.timestamp() for snapshot in past.snapshots])
        return steps, PastSeries(subject.metrics, times, values, np.full(len(times), np.nan, np.float32))

    async def past_snapshot(self, mesh: str, at: datetime, deadline: Deadline) -> bytes:
        """The mesh at a past time, packed. Raises the errors of :meth:`past`."""
        return pack_snapshot(await self._read_past(mesh, deadline, self._past.read_instant, at))

    async def _read_past(self, mesh: str, deadline: Deadline, read: Callable[..., T], *period: Any) -> T:
        """Call a method of the past's reader. Time in its queue counts, and a cancelled request leaves it."""
        if mesh not in self._meshes:
            raise UnknownMesh(f"mesh {mesh!r}: its snapshots are pushed, so its past is only what is stored")
        read_period = partial(read, mesh, *period, deadline.take_share(PAST_SHARE).at)
        return await asyncio.get_running_loop().run_in_executor(self._past_thread, read_period)

    async def close(self) -> None:
        """Stop collecting, and leave the meshes to other collectors. Serve awaits this when a replica ends."""
        for task in (*self._other_tasks, *self._mesh_tasks.values()):
            task.cancel()
        await asyncio.gather(*self._other_tasks, *self._mesh_tasks.values(), return_exceptions=True)
        await self._ownership.end()

    def _with_source(self, mesh: str, prometheus: str) -> MeshSettings:
        """Settings for a mesh that was connected on the page."""
        return self._settings.mesh(mesh).model_copy(update={"prometheus": prometheus})

    async def _follow_connections(self) -> None:
        """Collect meshes that people connect, and stop collecting meshes that they delete, until cancelled."""
        problem = ""
        while True:
            try:
                await self.update_connections()
                problem = ""
            except ServeError as error:
                if str(error) != problem:
                    log.warning("it is not known which meshes are connected: %s", error)
                problem = str(error)
            await asyncio.sleep(FOLLOW_SECONDS)

    def _state(self, mesh: str) -> CollectorState:
        watch = self._watches.get(mesh)
        return replace(self._loops[mesh].state, events=watch.state if watch else None)

    def _loop(self, name: str, mesh: MeshSettings, collector: CollectorSettings) -> MeshCollector:
        source = open_source(mesh, collector)
        push, schedule = partial(self._push_live, name, source), poll_schedule(name, collector)
        return MeshCollector(name, source, push, schedule, lambda: self._ownership.is_owner(name))

    async def _push_live(self, mesh: str, source: OpenedSource, snapshot: MeshSnapshot) -> None:
        """Push a snapshot, and count it as a gate counts snapshots that arrive over HTTP."""
        watch = self._watches.get(mesh)
        events = watch.find(frozenset(snapshot.node_ids), source.workload_services) if watch else ()
        try:
            with span("collector.push", mesh=mesh):
                await self._push(mesh, snapshot, events=events, trace=traceparent())
        except Exception as error:
            self._count(answer(error).status)
            raise
        self._count(HTTPStatus.OK)
        log.debug("mesh %s: %s has its verdict", mesh, snapshot.observed_at)

    def _count(self, status: int) -> None:
        self._instruments.count(REQUESTS, kind="push", outcome=outcome_of(status).value)

    async def _push(self, mesh: str, snapshot: MeshSnapshot, **more: Any) -> None:
        caller, session = Caller(Deadline.after(self._deadline_seconds)), with_session(self._sessions, mesh)
        more["is_connected"] = mesh in self._connections
        await caller.ask(session.push, mesh, pack_snapshot(snapshot), caller.deadline, **more)

    async def _collect(self, loop: MeshCollector) -> None:
        """Collect a mesh while this replica owns it, starting after the service's newest snapshot."""
        mesh = loop.state.mesh
        while True:
            with set_log_context(mesh):
                await self._ownership.wait_for(mesh)
                resume = await self._resume(mesh)
                loop.begin(resume.at, self._past_reader(loop, resume.at or 0.0) if resume.reads_past else None)
                await loop.run()

    def _past_reader(self, loop: MeshCollector, after: float) -> ReadPast | None:
        """Return a function that reads a mesh's past after a Unix time; None if its source has no past, or the settings
        want none."""
        mesh, hours = loop.state.mesh, self._collector.replay_hours
        settings = self._meshes[mesh]
        if settings.other_source is not None or not hours:
            return None
        step = max(STEP_SECONDS, self._collector.interval_seconds)

        def note(share: float | None) -> None:
            loop.state = replace(loop.state, replayed_share=share)

        replay = Replay(
            mesh,
            lambda: PastSource(settings, self._collector, step, RANGE_WITHIN_SECONDS),
            partial(self._push, mesh, is_replay=True),
            lambda: loop.schedule.newest(time.time()),
            note,
            lambda: self._ownership.is_owner(mesh),
            self._replay_thread,
            step,
        )

        async def read() -> float | None:
            try:
                return await replay.run(max(time.time() - 3600 * hours, after + step))
            except Exception:  # a mesh is watched even without its past
                log.exception("mesh %s: its past could not be read", mesh)
                return None
            finally:
                note(None)

        return read

    async def _resume(self, mesh: str) -> Resume:
        """Where to continue with a mesh. Waits until a session answers: before that, no snapshot could be pushed, and
        the missed ones would be unknown."""
        while True:
            caller = Caller(Deadline.after(self._deadline_seconds))
            try:
                return await caller.ask(api_of(with_session(self._sessions, mesh)).meshes.resume, mesh)
            except ServeError as error:
                log.warning("mesh %s: its newest snapshot is not known yet: %s", mesh, error)
                await asyncio.sleep(PAUSE_SECONDS)


def _poll_once(mesh: MeshSettings, collector: CollectorSettings, within: float) -> Poll:
    """Poll a mesh like the collector's loop. If its data arrive late, poll an earlier instant. Each poll takes up to
    ``within`` s."""
    at = datetime.now(UTC) - timedelta(seconds=collector.behind_seconds)
    with closing(MeshSource(mesh, collector.model_copy(update={"deadline_seconds": within}))) as source:
        poll = source.poll(at)
        late = poll.behind_seconds - collector.behind_seconds
        return source.poll(at - timedelta(seconds=late)) if late > 0 else poll
