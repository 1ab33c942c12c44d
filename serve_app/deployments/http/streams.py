"""Streams verdicts as server-sent events, with an event for each change that people make to a mesh."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count

import msgspec
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from serve_app.deployments.http.backend import Backend, SingleFlight
from serve_app.errors import Overloaded, ServeError
from serve_app.runtime.rpc import RETRY_AFTER_SECONDS, Caller
from serve_app.web.assets import HEADERS

EVENTS = "text/event-stream"
WAIT_SECONDS = 5.0  # then a comment keeps the stream alive; the service does not end before its waits do
# All streams ask for verdicts at the same moments, so that a burst of verdicts is one message and one call serves all
# readers. With more streams, the moments are farther apart: 64 streams cost as much as 8. They take turns sending until
# the next moment, since sending to 200 readers at once would delay other requests.
TICK_SECONDS = 0.25
STREAMS_PER_TICK = 8
UNBUFFERED = {"x-accel-buffering": "no"}  # nginx and similar proxies pass each event on at once
STREAM_SECONDS = 600.0  # then the stream ends and the page reconnects, perhaps to another replica
RECONNECT = b"retry: 2000\n\n"  # ms
CHANGED = b"event: changed\ndata: {}\n\n"  # people changed something: data outside verdicts must be read again
MAX_VERDICTS_AT_ONCE = 200  # limit for a page that was disconnected for a while


@dataclass(frozen=True, slots=True)
class NewVerdicts:
    """Verdicts as server-sent events, the newest one's time (None if there is none), and the mesh's revision."""

    events: bytes
    newest: datetime | None
    revision: int


class _ObservedAt(msgspec.Struct):
    observed_at: str


class EventStream(StreamingResponse):
    """A response that frees its slot when it ends, even if it was never read."""

    def __init__(self, events: AsyncIterator[bytes], slot: ExitStack) -> None:
        super().__init__(events, media_type=EVENTS, headers=HEADERS | UNBUFFERED)
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot:
            await super().__call__(scope, receive, send)


class VerdictStreams:
    """The open streams of one ingress replica."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._max_streams = backend.settings.serve.max_streams
        self._open = 0
        self._numbers = count()
        self._shared: SingleFlight[NewVerdicts] = SingleFlight()

    async def open(self, mesh: str, last_seen: datetime | None, is_valid: Callable[[], bool]) -> EventStream:
        """Open a stream.

        Args:
            last_seen: time of the reader's last verdict; None: begin with the newest.
            is_valid: whether the reader still has access; the stream ends when it returns False.

        Raises:
            Overloaded: too many streams are open.
            UnknownMesh: the mesh has no verdict.
        """
        if self._open >= self._max_streams:
            raise Overloaded(
                f"ingress: the limit of {self._max_streams} open streams is reached; try again later, or raise "
                "serve.max_streams",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        with ExitStack() as slot:
            self._open += 1
            slot.callback(self._close)
            first = await self._ask(mesh, last_seen, 0.0, 0)  # an unknown mesh is refused before the stream begins
            return EventStream(self._events(mesh, last_seen, first, is_valid), slot.pop_all())

    def _close(self) -> None:
        self._open -= 1

    async def _events(
        self, mesh: str, last_seen: datetime | None, news: NewVerdicts, is_valid: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Yield events until the stream reaches its maximum age, or the reader's token is no longer valid."""
        end = time.monotonic() + STREAM_SECONDS
        number = next(self._numbers)
        revision = 0  # known to the reader; initially 0, since something may have changed while there was no stream
        try:
            yield RECONNECT
            while time.monotonic() < end and is_valid():
                yield news.events or (b": nothing new\n\n" if news.revision == revision else CHANGED)
                last_seen, revision = news.newest or last_seen, news.revision
                ticks = math.ceil(self._open / STREAMS_PER_TICK)
                await asyncio.sleep(TICK_SECONDS * ticks - time.monotonic() % (TICK_SECONDS * ticks))
                # Streams whose readers have the same last verdict share one call; most do.
                ask = partial(self._ask, mesh, last_seen, WAIT_SECONDS, revision)
                news = await self._shared.do((mesh, last_seen, revision), ask)
                await asyncio.sleep(TICK_SECONDS * (number % ticks))
        except ServeError:
            return  # the page reconnects and gets the error as the answer

    async def _ask(self, mesh: str, last_seen: datetime | None, seconds: float, revision: int) -> NewVerdicts:
        """Read verdicts later than ``last_seen``; wait up to ``seconds`` for one, or for a new revision."""
        caller = Caller(self._backend.deadline().extend(seconds))
        meshes = self._backend.api(mesh).meshes
        documents, revision = await caller.ask(
            meshes.new_verdicts, mesh, last_seen, MAX_VERDICTS_AT_ONCE, seconds, revision
        )
        times = [msgspec.json.decode(document, type=_ObservedAt).observed_at for document in documents]
        events = (
            b"id: %b\nevent: verdict\ndata: %b\n\n" % (at.encode(), document)
            for at, document in zip(times, documents, strict=True)
        )
        return NewVerdicts(b"".join(events), datetime.fromisoformat(times[-1]) if times else None, revision)
