"""What a session tells of its meshes without changing anything."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import TypeVar
from weakref import WeakValueDictionary

from model.checkpoint import Checkpoint
from serve_app.actions.adapter import encode_adaptation
from serve_app.actions.feedback import encode_feedback
from serve_app.actions.mutes import encode_mute
from serve_app.api.schemas.actions import FeedbackListDocument, MuteListDocument
from serve_app.api.views import model_document, plan_document
from serve_app.metrics import MeshGauges
from serve_app.pipeline import Options, plan_of
from serve_app.stores.record import Seen
from serve_app.stores.repository import Meshes
from serve_app.web.queries import Viewing
from serve_app.web.report import report

Period = tuple[datetime, datetime]
T = TypeVar("T")


class News:
    """Wakes those who wait for a mesh's next verdict. Of one event loop; remembers nothing that nobody waits for."""

    def __init__(self) -> None:
        self._awaited: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def of(self, mesh: str) -> asyncio.Event:
        """Set with the next verdict from now on."""
        return self._awaited.setdefault(mesh, asyncio.Event())

    def put(self, mesh: str) -> None:
        """A verdict is stored, or the mesh is gone."""
        if event := self._awaited.pop(mesh, None):
            event.set()


class Reads:
    """The reading half of a session.

    Args:
        meshes: of the store and in memory.
        checkpoint: the weights in use.
        options: of a mesh of which settings say nothing.
    """

    def __init__(self, meshes: Meshes, checkpoint: Checkpoint, options: Options) -> None:
        self._meshes, self._checkpoint, self._options = meshes, checkpoint, options
        self._viewing = Viewing(meshes)
        # One of its own: pages wait for each other, and take no thread that a push needs.
        self._viewers = ThreadPoolExecutor(1, "viewing")
        self._news = News()

    async def verdict(self, mesh: str, at: datetime | None = None) -> bytes:
        """JSON of the newest verdict, or of the one of an instant.

        Raises:
            UnknownMesh, UnknownInstant: there is none.
        """
        return (await asyncio.to_thread(self._meshes.record, mesh, at)).document

    async def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        """JSON of the kept verdicts later than ``since``, oldest first, the first ``limit`` of them.

        Raises:
            UnknownMesh: nothing is stored.
        """
        return await asyncio.to_thread(self._meshes.verdicts, mesh, since, limit)

    async def newer(self, mesh: str, since: datetime | None, limit: int, seconds: float) -> list[bytes]:
        """As :meth:`verdicts`, but waits ``seconds`` for the next one if there is none; without ``since`` the newest.

        Verdicts made by another session, which took the mesh over, are found when the wait is over.
        """
        if since is None:
            return [await self.verdict(mesh)]
        awaited = self._news.of(mesh)
        found = await self.verdicts(mesh, since, limit)
        if found:
            return found
        with suppress(TimeoutError):  # looked for below all the same
            await asyncio.wait_for(awaited.wait(), seconds)
        return await self.verdicts(mesh, since, limit)

    async def plan(self, mesh: str, members: bool) -> bytes:
        """JSON of the plan that the newest snapshot was cut by. Errors as of :meth:`verdict`."""
        return await asyncio.to_thread(self._plan, mesh, members)

    async def graph(self, mesh: str, at: datetime | None = None) -> Seen:
        """The newest snapshot, or the one of an instant, and what is said of it. Errors as of :meth:`verdict`."""
        return await asyncio.to_thread(self._meshes.seen, mesh, at)

    async def map(self, mesh: str, at: datetime | None, expand: Sequence[str]) -> bytes:
        """Likewise as it is drawn, JSON in gzip; ``expand``: namespaces of a large mesh to tell service by service."""
        return await self._view(self._viewing.map, mesh, at, expand)

    async def timeline(self, mesh: str, since: datetime | None, limit: int) -> bytes:
        """JSON of the verdicts that :meth:`verdicts` tells, as columns."""
        return await self._view(self._viewing.timeline, mesh, since, limit)

    async def series(self, mesh: str, service: str, source: str | None) -> bytes:
        """JSON of what was measured of a service, or of the calls that ``source`` makes to it.

        Raises:
            UnknownMesh: there is none.
            InvalidParameter: nobody of this name is in the kept snapshots.
        """
        return await self._view(self._viewing.series, mesh, service, source)

    async def comparison(self, mesh: str, first: Period, second: Period) -> bytes:
        """JSON of what differs between two periods.

        Raises:
            UnknownMesh: there is none.
            InvalidParameter: a period without a snapshot.
        """
        return await self._view(self._viewing.comparison, mesh, first, second)

    async def report(self, mesh: str, incident: str | None) -> str:
        """HTML of an incident, the worst one where none is named.

        Raises:
            UnknownMesh, UnknownIncident: there is none.
        """
        return await self._view(lambda: report(mesh, self._viewing.moments(mesh), incident))

    async def model(self) -> bytes:
        """JSON of what is known of the weights."""
        return model_document(self._checkpoint).model_dump_json().encode()

    async def meshes(self) -> list[MeshGauges]:
        """All meshes, of any session."""
        return await asyncio.to_thread(self._meshes.gauges)

    async def feedback(self, mesh: str) -> bytes:
        """JSON of all that is kept of what people said.

        Raises:
            UnknownMesh: there is none.
        """
        state = await asyncio.to_thread(self._meshes.state, mesh)
        kept = [encode_feedback(one) for one in state.memory.feedback]
        return FeedbackListDocument(feedback=kept).model_dump_json().encode()

    async def mutes(self, mesh: str) -> bytes:
        """JSON of the mutes in force and to come.

        Raises:
            UnknownMesh: there is none.
        """
        state = await asyncio.to_thread(self._meshes.state, mesh)
        kept = [encode_mute(one, state.observed_at) for one in state.memory.mutes]
        return MuteListDocument(mutes=kept).model_dump_json().encode()

    async def adaptation(self, mesh: str) -> bytes:
        """JSON of what the mesh has adapted to.

        Raises:
            UnknownMesh: there is none.
        """
        state = await asyncio.to_thread(self._meshes.state, mesh)
        return encode_adaptation(state.adaptation).model_dump_json().encode()

    async def _view(self, look: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._viewers, look, *args)

    def _plan(self, name: str, members: bool) -> bytes:
        mesh = self._meshes.newest(self._meshes.stored(name)).mesh
        document = plan_document(plan_of(mesh, self._options), mesh.state, members=members)
        return document.model_dump_json(exclude_none=True).encode()
