"""Collector: polls every configured mesh and hands its snapshots to the mesh's session."""

import asyncio
import json
import logging
import time
from datetime import datetime
from typing import Any

from model.snapshot import MeshSnapshot
from serve_app.codec import pack_snapshot
from serve_app.collecting import Collected, Collecting, Push, rhythm
from serve_app.deployments.calling import ask
from serve_app.deployments.messages import Judged
from serve_app.errors import ServeError, UnknownMesh
from serve_app.settings import Settings
from serve_app.sources.prometheus.opening import MeshSource

log = logging.getLogger("ray.serve")


class Collector:
    """One replica, which collects all meshes: each has a loop of its own, and waits for none but its own Prometheus.

    Args:
        settings: its ``collector``, and ``serve.deadline_seconds`` for a push.
        sessions: handle of the sessions.
    """

    def __init__(self, settings: Settings, sessions: Any) -> None:
        collector = settings.collector
        self._deadline_seconds = settings.serve.deadline_seconds
        self._sessions = sessions
        self._loops = [
            Collecting(name, MeshSource(mesh, collector), self._push_of(name), rhythm(name, collector))
            for name, mesh in collector.meshes.items()
        ]
        self._tasks: set[asyncio.Task[None]] = set()

    async def check_health(self) -> None:
        """Serve asks every second, and the first time before it calls us ready: the loops begin then.

        Raises:
            RuntimeError: a loop has ended, which none ever should.
        """
        if not self._tasks:
            self._tasks = {asyncio.create_task(self._collect(one)) for one in self._loops}
        ended = [task for task in self._tasks if task.done()]
        if ended:
            raise RuntimeError(f"collecting a mesh has ended: {ended[0].exception()!r}")

    async def collected(self) -> list[Collected]:
        """How it goes, mesh by mesh."""
        return [one.state for one in self._loops]

    def _push_of(self, mesh: str) -> Push:
        owner = self._sessions.options(session_id=mesh)

        async def push(snapshot: MeshSnapshot) -> None:
            expires_at = time.time() + self._deadline_seconds
            judged: Judged = await ask(owner.push, mesh, pack_snapshot(snapshot), expires_at, expires_at=expires_at)
            log.debug("mesh %s: %s is %s", mesh, snapshot.observed_at, judged.status)

        return push

    async def _collect(self, one: Collecting) -> None:
        """From the newest snapshot that the service has, for ever."""
        one.begin(await self._newest(one.state.mesh))
        await one.run()

    async def _newest(self, mesh: str) -> float | None:
        """Unix time of the newest snapshot that the session has counted; None: it knows none, or cannot be asked."""
        expires_at = time.time() + self._deadline_seconds
        try:
            said: bytes = await ask(self._sessions.options(session_id=mesh).verdict, mesh, expires_at=expires_at)
        except UnknownMesh:
            return None
        except ServeError as error:
            log.warning("mesh %s: what is missing since the last start is not known: %s", mesh, error)
            return None
        return datetime.fromisoformat(json.loads(said)["observed_at"]).timestamp()
