"""Collector: polls every configured mesh and hands its snapshots to the mesh's session."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import numpy as np

from model.snapshot import MeshSnapshot
from serve_app.api.codec import pack_snapshot
from serve_app.collect.kubernetes.watch import EventWatch
from serve_app.collect.loop import CollectorState, MeshCollector, ReadPast, poll_schedule
from serve_app.collect.opening import OpenedSource, open_source
from serve_app.collect.ownership import Ownership
from serve_app.collect.prometheus.past import RANGE_WITHIN_SECONDS, PastReader, PastSource
from serve_app.collect.replay import STEP_SECONDS, Replay
from serve_app.deployments.scoring.messages import Resume
from serve_app.deployments.session.doors import doors_of
from serve_app.errors import ServeError, answer
from serve_app.metrics import REQUESTS, outcome_of
from serve_app.observability.logs import set_log_context
from serve_app.observability.spans import span, traceparent
from serve_app.runtime.replica import open_instruments
from serve_app.runtime.reporting import start_reporting
from serve_app.runtime.rpc import PAUSE_SECONDS, Caller, Deadline, Handle, connect, with_session
from serve_app.settings import CollectorSettings, MeshSettings, Settings
from serve_app.stores.history_files import PastSeries
from serve_app.stores.opening import open_leases
from serve_app.web.history import metric_table
from serve_app.web.period import RangeSteps, Subject, TimeRange

if TYPE_CHECKING:  # the collector needs no torch
    from serve_app.deployments.session.mesh_session import MeshSession

PAST_SHARE = 0.7  # of the deadline of a request, within which Prometheus has to answer about the past
log = logging.getLogger(__name__)


class Collector:
    """Collects the meshes that it owns: all, unless there are other replicas. Each mesh has a loop of its own, and
    waits for its own Prometheus only. A second loop watches the Events of its cluster if the settings name one.

    Args:
        settings: ``meshes``, ``collector``, ``store`` for the leases, and ``serve.deadline_seconds`` for a push.
    """

    def __init__(self, settings: Settings, sessions: Handle[MeshSession]) -> None:
        start_reporting(settings, "collector")
        collected = settings.collected
        self._deadline_seconds = settings.serve.deadline_seconds
        self._sessions = connect(sessions)
        self._watches = {
            name: EventWatch(name, mesh.kubernetes.endpoint, mesh.kubernetes.namespace)
            for name, mesh in collected.items()
            if mesh.kubernetes
        }
        self._ownership = Ownership(collected, open_leases(settings.store), self._note)
        self._loops = {name: self._loop(name, mesh, settings.collector) for name, mesh in collected.items()}
        self._meshes, self._collector = collected, settings.collector
        self._past = PastReader(collected, settings.collector, PAST_SHARE * settings.serve.deadline_seconds)
        self._past_thread = ThreadPoolExecutor(1, "past")
        self._tasks: set[asyncio.Task[None]] = set()
        self._instruments = open_instruments()

    async def check_health(self) -> None:
        """Serve calls this every second, and first before the replica is ready: the loops start then.

        Raises:
            RuntimeError: a loop has ended, which is a bug.
        """
        if not self._tasks:
            self._tasks = {asyncio.create_task(self._collect(one)) for one in self._loops.values()}
            self._tasks.add(asyncio.create_task(self._ownership.run()))
            self._tasks |= {asyncio.create_task(watch.run()) for watch in self._watches.values()}
        ended = [task for task in self._tasks if task.done()]
        if ended:
            raise RuntimeError(f"a task of the collector has ended: {ended[0].exception()!r}")

    async def states(self) -> list[CollectorState]:
        """The state of each collected mesh, as its owner said it last."""
        notes = {mesh: self._ownership.note_of(mesh) for mesh in self._loops}
        return [self._state(mesh) if note is None else CollectorState.unpack(note) for mesh, note in notes.items()]

    async def past(self, mesh: str, period: TimeRange, subject: Subject) -> tuple[RangeSteps, PastSeries]:
        """The metrics of a service, or of calls, in a period, from the mesh's Prometheus.

        Raises:
            NoTelemetry: the mesh has no Prometheus, or this has no data of the period.
        """
        found = await asyncio.to_thread(self._past.read, mesh, period.start, period.end, period.points)
        values = metric_table(found.snapshots, subject)
        steps = RangeSteps(found.step_seconds, found.begin + np.arange(found.count) * np.float64(found.step_seconds))
        if values is None:
            return steps, PastSeries.join(subject.metrics, [])
        times = np.array([one.observed_at.timestamp() for one in found.snapshots])
        return steps, PastSeries(subject.metrics, times, values, np.full(len(times), np.nan, np.float32))

    async def past_snapshot(self, mesh: str, at: datetime) -> bytes:
        """The mesh at a past time, packed. Errors as in :meth:`past`."""
        return pack_snapshot(await asyncio.to_thread(self._past.read_instant, mesh, at))

    async def __del__(self) -> None:  # Serve awaits it when a replica ends
        await self._ownership.end()

    def _state(self, mesh: str) -> CollectorState:
        watch = self._watches.get(mesh)
        return replace(self._loops[mesh].state, events=watch.state if watch else None)

    def _note(self, mesh: str) -> bytes:
        return self._state(mesh).pack()

    def _loop(self, name: str, mesh: MeshSettings, collector: CollectorSettings) -> MeshCollector:
        source = open_source(mesh, collector)
        push, schedule = partial(self._push_live, name, source), poll_schedule(name, collector)
        return MeshCollector(name, source, push, schedule, lambda: self._ownership.is_owner(name))

    async def _push_live(self, mesh: str, source: OpenedSource, snapshot: MeshSnapshot) -> None:
        """Push a snapshot, and count it as a gate counts the ones that arrive over HTTP."""
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
        await caller.ask(session.push, mesh, pack_snapshot(snapshot), caller.deadline, **more)

    async def _collect(self, one: MeshCollector) -> None:
        """Collect a mesh while this replica owns it, from the newest snapshot of the service on."""
        mesh = one.state.mesh
        while True:
            with set_log_context(mesh):
                await self._ownership.wait_for(mesh)
                resume = await self._resume(mesh)
                one.begin(resume.at, self._past_of(one, resume.at or 0.0) if resume.reads_past else None)
                await one.run()

    def _past_of(self, one: MeshCollector, after: float) -> ReadPast | None:
        """Reads the past of a mesh after a Unix time; None if its source has none, or the settings want none."""
        mesh, hours = one.state.mesh, self._collector.replay_hours
        settings = self._meshes[mesh]
        if settings.other_source is not None or not hours:
            return None
        step = max(STEP_SECONDS, self._collector.interval_seconds)

        def note(share: float | None) -> None:
            one.state = replace(one.state, replayed=share)

        replay = Replay(
            mesh,
            lambda: PastSource(settings, self._collector, step, RANGE_WITHIN_SECONDS),
            partial(self._push, mesh, replayed=True),
            lambda: one.schedule.newest(time.time()),
            note,
            lambda: self._ownership.is_owner(mesh),
            self._past_thread,
            step,
        )

        async def read() -> float | None:
            try:
                return await replay.run(max(time.time() - 3600 * hours, after + step))
            except Exception:  # without its past, a mesh is watched as well
                log.exception("mesh %s: its past could not be read", mesh)
                return None
            finally:
                note(None)

        return read

    async def _resume(self, mesh: str) -> Resume:
        """Where to continue with a mesh. Waits until a session answers: before that no snapshot could be pushed, and
        the missed ones would not be known."""
        while True:
            caller = Caller(Deadline.after(self._deadline_seconds))
            try:
                return await caller.ask(doors_of(with_session(self._sessions, mesh)).meshes.resume, mesh)
            except ServeError as error:
                log.warning("mesh %s: its newest snapshot is not known yet: %s", mesh, error)
                await asyncio.sleep(PAUSE_SECONDS)
