"""The meshes that a process collects, each in its own loop, which waits only for its own source."""

import asyncio
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain

from model.snapshot import MeshSnapshot
from serve_app.collect.base import Sessions
from serve_app.collect.kubernetes.watch import EventWatch
from serve_app.collect.loop import CollectorState, PollLoop, poll_schedule
from serve_app.collect.opening import open_source
from serve_app.collect.ownership import Leases, Ownership
from serve_app.collect.prometheus.past import RANGE_WITHIN_SECONDS, PastSource
from serve_app.collect.replay import STEP_SECONDS, Replay
from serve_app.observability.logs import set_log_context
from serve_app.settings import CollectorSettings, MeshSettings

log = logging.getLogger(__name__)


class CollectedMesh:
    """Collects one mesh while this process owns it: first its past if it is new, then its present. If its settings name
    a cluster, a second loop watches the Events there.

    Args:
        replay_thread: see :class:`Replay`.
    """

    def __init__(
        self,
        collector: CollectorSettings,
        sessions: Sessions,
        ownership: Ownership,
        replay_thread: Executor,
        name: str,
        settings: MeshSettings,
    ) -> None:
        self._name, self._settings, self._collector = name, settings, collector
        self._sessions, self._ownership, self._replay_thread = sessions, ownership, replay_thread
        self._is_owner = partial(ownership.is_owner, name)
        self._source = open_source(settings, collector)
        self._loop = PollLoop(name, self._source, self._push, poll_schedule(name, collector), self._is_owner)
        cluster = settings.kubernetes
        self._watch = EventWatch(name, cluster.endpoint, cluster.namespace) if cluster else None

    @property
    def state(self) -> CollectorState:
        return replace(self._loop.state, events=self._watch.state if self._watch else None)

    def start(self) -> list[asyncio.Task[None]]:
        """Start the loops, which run until cancelled. Returns their tasks."""
        loops = [self._collect()] if self._watch is None else [self._collect(), self._watch.run()]
        return [asyncio.create_task(loop) for loop in loops]

    async def _collect(self) -> None:
        """Collect after the service's newest snapshot, whenever this process becomes the owner."""
        reads_past = self._settings.other_source is None and self._collector.replay_hours > 0
        with set_log_context(self._name):
            while True:
                await self._ownership.wait_for(self._name)
                resume = await self._sessions.resume(self._name)
                read_past = partial(self._read_past, resume.at or 0.0) if resume.reads_past and reads_past else None
                self._loop.begin(resume.at, read_past)
                await self._loop.run()

    async def _push(self, snapshot: MeshSnapshot) -> None:
        services = frozenset(snapshot.node_ids)
        events = self._watch.find(services, self._source.workload_services) if self._watch else ()
        await self._sessions.push(self._name, snapshot, events)

    async def _read_past(self, after: float) -> float | None:
        """Push the mesh's past after a Unix time. Returns the time of the newest pushed snapshot, or None."""
        step = max(STEP_SECONDS, self._collector.interval_seconds)
        replay = Replay(
            self._name,
            lambda: PastSource(self._settings, self._collector, step, RANGE_WITHIN_SECONDS),
            partial(self._sessions.replay, self._name),
            lambda: self._loop.schedule.newest(time.time()),
            self._note_share,
            self._is_owner,
            self._replay_thread,
            step,
        )
        try:
            return await replay.run(max(time.time() - 3600 * self._collector.replay_hours, after + step))
        except Exception:  # a mesh is watched even without its past
            log.exception("mesh %s: its past could not be read", self._name)
            return None
        finally:
            self._note_share(None)

    def _note_share(self, share: float | None) -> None:
        self._loop.state = replace(self._loop.state, replayed_share=share)


class CollectedMeshes:
    """The meshes that this process collects, or will collect if another process ends.

    Args:
        leases: see :class:`Ownership`.

    Attributes:
        settings: by mesh; for reading.
    """

    def __init__(
        self,
        meshes: Mapping[str, MeshSettings],
        collector: CollectorSettings,
        sessions: Sessions,
        leases: Leases | None,
    ) -> None:
        self.settings = dict(meshes)
        self._ownership = Ownership(meshes, leases, lambda mesh: self._meshes[mesh].state.pack())
        replay_thread = ThreadPoolExecutor(1, "replay")
        self._open = partial(CollectedMesh, collector, sessions, self._ownership, replay_thread)
        self._meshes = {name: self._open(name, mesh) for name, mesh in meshes.items()}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}  # by mesh

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The loops of all meshes."""
        return list(chain.from_iterable(self._tasks.values()))

    async def run(self) -> None:
        """Start the loops of the first meshes, and take and extend leases until cancelled."""
        self._tasks |= {name: mesh.start() for name, mesh in self._meshes.items() if name not in self._tasks}
        await self._ownership.run()

    def states(self) -> list[CollectorState]:
        """The state of each mesh, as its owner last reported it."""
        notes = [(mesh, self._ownership.note_of(name)) for name, mesh in self._meshes.items()]
        return [mesh.state if note is None else CollectorState.unpack(note) for mesh, note in notes]

    def add(self, mesh: str, settings: MeshSettings) -> None:
        """Collect one more mesh from now on."""
        self._meshes[mesh], self.settings[mesh] = self._open(mesh, settings), settings
        self._ownership.add(mesh)
        self._tasks[mesh] = self._meshes[mesh].start()

    def remove(self, mesh: str) -> None:
        """No longer collect a mesh."""
        for task in self._tasks.pop(mesh):
            task.cancel()
        self._ownership.remove(mesh)
        del self._meshes[mesh], self.settings[mesh]

    async def end(self) -> None:
        """Stop collecting, and leave the meshes to other processes."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self._ownership.end()
