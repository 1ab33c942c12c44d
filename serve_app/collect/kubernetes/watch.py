"""The Events of one API server, listed and then watched for ever.

    list -> its version -> watch from there -> the newest version -> watch again ... 410 Gone -> list

Nothing here ends: what fails is told once, counted, and tried again later. Whoever may not read Events, or has no API
server, goes without; incidents are told as ever, with less beside them.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import httpx
import msgspec

from model.verdict import ClusterEvent
from serve_app.collect.kubernetes.events import EventMemory, KubernetesEvent, Metadata
from serve_app.collect.prometheus.workloads import Served
from serve_app.errors import BadSettings
from serve_app.net.endpoint import Endpoint, SecretUnreadable, ssl_context
from serve_app.net.http import Backoff, retry_after

log = logging.getLogger("ray.serve")

PAGE = 500  # events in one reply to a list
MOST_BYTES = 32 << 20  # of one such reply
MOST_LINE = 4 << 20  # bytes of one line of a watch; an object has 1.5 MiB at most
LIST_SECONDS = 30.0  # for one page
WATCH_SECONDS = 240  # after which the server ends a watch, in good order
GRACE_SECONDS = 15.0  # by which it may be late with that; then the connection is taken for dead
SHORT_SECONDS = 5.0  # a watch that ends sooner and brought nothing is waited after, as a failure is
_LASTING = (401, 403, 404)  # will not pass by itself: somebody must grant it first
_GONE = 410


class _List(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    items: list[KubernetesEvent] = []


class _Line(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _Bookmark(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_LIST, _LINE = msgspec.json.Decoder(_List), msgspec.json.Decoder(_Line)
_EVENT, _BOOKMARK = msgspec.json.Decoder(KubernetesEvent), msgspec.json.Decoder(_Bookmark)
_STATUS = msgspec.json.Decoder(_Status)


class _Gone(Exception):
    """The server no longer has what came after our version."""


class _Failed(Exception):
    """Why it did not go on: ``outcome`` for the count, words for the log."""

    def __init__(self, outcome: str, words: str, *, lasting: bool = False, after_seconds: float = 0.0) -> None:
        super().__init__(words)
        self.outcome, self.lasting, self.after_seconds = outcome, lasting, after_seconds


@dataclass(frozen=True, slots=True)
class Watched:
    """How watching goes.

    Attributes:
        following: what happens is heard; False: it is not, see ``problem``.
        kept: events that may explain.
        outcomes: how often, by what: ``listed``, ``watched`` (begun), ``gone``, ``unreachable``, ``late``, ``broken``,
            ``forbidden``, ``refused``, ``failed``, ``secret``, ``unreadable`` (lines, each left out).
        problem: in words; empty where all is well.
    """

    following: bool = False
    kept: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    problem: str = ""


class EventWatch:
    """Follows the Events of one mesh's cluster.

    Args:
        mesh: its name, for the log.
        server: the API server, and how it lets us in.
        namespace: of which alone; empty: all.
        backoff: between two tries.
        lasting_seconds: before another try of what somebody must allow first.
        clock: UTC now.
    """

    def __init__(
        self,
        mesh: str,
        server: Endpoint,
        namespace: str = "",
        backoff: Backoff | None = None,
        lasting_seconds: float = 300.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._mesh, self._server, self._clock = mesh, server, clock
        within = f"/namespaces/{namespace}" if namespace else ""
        self._url = f"{server.url.rstrip('/')}/api/v1{within}/events"
        self._backoff = backoff or Backoff()
        self._lasting_seconds = lasting_seconds
        self._memory = EventMemory()
        self._version = ""  # of what was heard last; empty: nothing, or too long ago
        self._state = Watched()
        self._logged = False  # the problem that there is

    @property
    def state(self) -> Watched:
        """How it goes."""
        return replace(self._state, kept=len(self._memory))

    def of(self, services: frozenset[str], serves: Served) -> tuple[ClusterEvent, ...]:
        """What was told of these services within the last hour or so, newest first; as ``EventMemory.of``."""
        return self._memory.of(services, serves, self._clock())

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            try:
                failures = 0 if await self._followed() else failures + 1
                seconds = self._backoff.seconds(failures) if failures else 0.0
            except _Gone:
                self._version, failures = "", failures + 1
                self._count("gone")
                seconds = self._backoff.seconds(failures)
            except _Failed as error:
                failures += 1
                self._tell(error, lasts=error.lasting or failures > 1)
                after = self._backoff.seconds(failures, error.after_seconds)
                seconds = self._lasting_seconds if error.lasting else after
            except Exception as error:  # a mistake of ours must not end the watch; it is told, and counted as a failure
                failures += 1
                log.exception("mesh %s: watching Events failed", self._mesh)
                self._state = replace(self._state, following=False, problem=f"{type(error).__name__}: {error}")
                seconds = self._lasting_seconds
            await asyncio.sleep(seconds)

    async def _followed(self) -> bool:
        """List if need be, then watch until the server ends it; whether that brought anything, or lasted.

        Raises:
            _Gone, _Failed: it ended otherwise.
        """
        try:
            async with httpx.AsyncClient(
                verify=await asyncio.to_thread(ssl_context, self._server.ca_file)
                if self._url.startswith("https:")
                else True,
                timeout=httpx.Timeout(LIST_SECONDS, read=WATCH_SECONDS + GRACE_SECONDS),
                follow_redirects=False,
                trust_env=False,  # the API server is inside, whatever proxy there is to the outside
            ) as http:
                if not self._version:
                    self._version = await self._listed(http)
                return await self._watched(http)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise _Failed("late", f"no answer in time ({type(error).__name__})") from error
        except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
            raise _Failed("unreachable", _first_line(error)) from error
        except (httpx.RequestError, httpx.StreamError) as error:
            raise _Failed("broken", _first_line(error)) from error
        except (SecretUnreadable, BadSettings) as error:
            raise _Failed("secret", str(error), lasting=True) from error

    async def _listed(self, http: httpx.AsyncClient) -> str:
        """All there are, page by page; the version that a watch goes on from."""
        more: str | None = None
        while True:
            asked = {"limit": str(PAGE), **({"continue": more} if more else {})}
            async with asyncio.timeout(LIST_SECONDS), self._asked(http, asked) as reply:
                body = b"".join([part async for part in _bounded(reply, MOST_BYTES)])
            try:
                page = _LIST.decode(body)
            except msgspec.MsgspecError as error:
                raise _Failed("broken", f"expected a list of Events, came {error}") from error
            now = self._clock()
            for event in page.items:
                self._memory.note(event, now)
            more = page.metadata.continue_
            if not more:
                self._count("listed")
                return page.metadata.resource_version

    async def _watched(self, http: httpx.AsyncClient) -> bool:
        asked = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        began, lines = time.monotonic(), 0
        async with self._asked(http, asked) as reply:
            self._well()
            async for line in _lines(reply):
                self._hear(line)
                lines += 1
        return bool(lines) or time.monotonic() - began >= SHORT_SECONDS

    @asynccontextmanager
    async def _asked(self, http: httpx.AsyncClient, asked: dict[str, str]) -> AsyncIterator[httpx.Response]:
        """A reply whose body is still to be read.

        Raises:
            _Gone, _Failed: it is none.
        """
        admission = await asyncio.to_thread(self._server.auth_headers)
        headers = {"accept": "application/json", "user-agent": "tagae", **admission}
        async with http.stream("GET", self._url, params=asked, headers=headers) as reply:
            if reply.is_success:
                yield reply
                return
            said = b"".join([part async for part in _bounded(reply, MOST_BYTES)])
            raise _refusal(reply.status_code, _words(said), retry_after(reply.headers.get("retry-after", "")))

    def _hear(self, line: bytes) -> None:
        """One line of a watch. One that cannot be read is left out: asking again would bring the same.

        Raises:
            _Gone, _Failed: the server says so.
        """
        try:
            told = _LINE.decode(line)
            if told.type == "ERROR":
                status = _STATUS.decode(told.object)
                raise _refusal(status.code, f"{status.reason} {status.message}".strip(), 0.0)
            if told.type == "BOOKMARK":
                version = _BOOKMARK.decode(told.object).metadata.resource_version
            else:
                event = _EVENT.decode(told.object)
                version = event.metadata.resource_version
                if told.type != "DELETED":  # forgotten there for its age: here that is decided by the time
                    self._memory.note(event, self._clock())
        except msgspec.MsgspecError as error:
            if not self._state.outcomes.get("unreadable"):
                log.warning("mesh %s: an Event cannot be read, and is left out: %s", self._mesh, error)
            self._count("unreadable")
            return
        self._version = version or self._version

    def _well(self) -> None:
        self._count("watched")
        if self._logged:
            log.info("mesh %s: Events of Kubernetes are heard again", self._mesh)
        self._logged = False
        self._state = replace(self._state, following=True, problem="")

    def _tell(self, error: _Failed, *, lasts: bool) -> None:
        """One line until all is well again; a connection that is lost and found at once is no news."""
        self._count(error.outcome)
        self._state = replace(self._state, following=False, problem=f"{error.outcome}: {error}")
        if lasts and not self._logged:
            log.warning("mesh %s: goes on without Events of Kubernetes: %s", self._mesh, self._state.problem)
            self._logged = True

    def _count(self, outcome: str) -> None:
        outcomes = {**self._state.outcomes, outcome: self._state.outcomes.get(outcome, 0) + 1}
        self._state = replace(self._state, outcomes=outcomes)


async def _bounded(reply: httpx.Response, most: int) -> AsyncIterator[bytes]:
    """The parts of a body.

    Raises:
        _Failed: it has more bytes.
    """
    size = 0
    async for part in reply.aiter_bytes():
        size += len(part)
        if size > most:
            raise _Failed("broken", f"a reply of more than {most} bytes")
        yield part


async def _lines(reply: httpx.Response) -> AsyncIterator[bytes]:
    """Whole lines as they come.

    Raises:
        _Failed: the last one has no end, or has more than ``MOST_LINE`` bytes.
    """
    rest = b""
    async for part in reply.aiter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > MOST_LINE:
            raise _Failed("broken", f"a line of more than {MOST_LINE} bytes")
    if rest.strip():
        raise _Failed("broken", "the connection ended within a line")


def _refusal(status: int, words: str, after_seconds: float) -> Exception:
    if status == _GONE:
        return _Gone()
    if status in _LASTING:
        words += "; expected get, list and watch of events, see deploy/kubernetes/events.yaml"
        return _Failed("forbidden" if status != 404 else "refused", f"{status} {words}", lasting=True)
    outcome = "failed" if status >= 500 or status == 429 else "refused"
    return _Failed(outcome, f"{status} {words}", after_seconds=after_seconds)


def _words(body: bytes) -> str:
    """The message of a ``v1.Status``; what else came, as it came."""
    try:
        status = _STATUS.decode(body)
    except msgspec.MsgspecError:
        return " ".join(body[:300].decode("utf-8", "replace").split())
    return status.message[:300]


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
