"""List the Events of one Kubernetes API server, then watch them until cancelled.

    list -> its version -> watch from there -> the newest version -> watch again ... 410 Gone -> list

Failures never end the watch: each is logged once, counted and retried later. Without permission to read Events, or
without an API server, incidents are still reported, but without Events beside them.
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
from serve_app.collect.prometheus.workloads import WorkloadServices
from serve_app.errors import BadSettings
from serve_app.net.backoff import Backoff, parse_retry_after
from serve_app.net.endpoint import Endpoint, SecretUnreadable, join_url
from serve_app.net.http import first_line

log = logging.getLogger(__name__)

PAGE = 500  # events in one page of a list
MAX_BYTES = 32 << 20  # in one page
MAX_LINE = 4 << 20  # bytes in one line of a watch; an object has at most 1.5 MiB
LIST_SECONDS = 30.0  # deadline for one page
WATCH_SECONDS = 240  # after this time the server ends a watch
GRACE_SECONDS = 15.0  # how much later than that the connection counts as dead
SHORT_SECONDS = 5.0  # an empty watch that ends sooner than this counts as a failure
_PERMANENT = (401, 403, 404)  # these need a permission first; retrying soon does not help
_GONE = 410


class _List(msgspec.Struct):
    metadata: Metadata | None = None
    items: list[msgspec.Raw] | None = None  # decoded one by one, so that a bad item is skipped alone


class _Line(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _Versioned(msgspec.Struct):
    metadata: Metadata | None = None

    @property
    def version(self) -> str:
        return (self.metadata and self.metadata.resource_version) or ""


class _Status(msgspec.Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None


_LIST, _LINE = msgspec.json.Decoder(_List), msgspec.json.Decoder(_Line)
_EVENT, _VERSIONED = msgspec.json.Decoder(KubernetesEvent), msgspec.json.Decoder(_Versioned)
_STATUS = msgspec.json.Decoder(_Status)


class _Gone(Exception):
    """The server no longer has the changes since our version (410)."""


class _Failed(Exception):
    """A request failed: ``outcome`` for the counter, the message for the log."""

    def __init__(self, outcome: str, message: str, *, permanent: bool = False, after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.outcome, self.permanent, self.after_seconds = outcome, permanent, after_seconds


@dataclass(frozen=True, slots=True)
class WatchState:
    """State of the watch on one cluster.

    Attributes:
        following: whether a watch is running; if not, see ``problem``.
        kept: stored events.
        outcomes: count of requests by outcome: ``listed``, ``watched`` (started), ``gone``, ``unreachable``, ``late``,
            ``broken``, ``forbidden``, ``refused``, ``failed``, ``secret``; and ``unreadable`` Events, skipped.
        problem: what is wrong; empty if nothing is.
    """

    following: bool = False
    kept: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    problem: str = ""


class EventWatch:
    """Watches the Events of one mesh's cluster.

    Args:
        permanent_seconds: wait before a retry after an error that needs a permission first.
    """

    def __init__(
        self,
        mesh: str,
        server: Endpoint,
        namespace: str = "",
        backoff: Backoff | None = None,
        permanent_seconds: float = 300.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._mesh, self._server, self._clock = mesh, server, clock
        within = f"/namespaces/{namespace}" if namespace else ""
        self._url = join_url(server.url, f"/api/v1{within}/events")
        self._backoff = backoff or Backoff()
        self._permanent_seconds = permanent_seconds
        self._memory = EventMemory()
        self._version = ""  # resource version to watch from; empty: list first
        self._state = WatchState()
        self._is_problem_logged = False

    @property
    def state(self) -> WatchState:
        """The current state."""
        return replace(self._state, kept=len(self._memory))

    def find(self, services: frozenset[str], workload_services: WorkloadServices) -> tuple[ClusterEvent, ...]:
        """Events about these services within the last hour, newest first; see :meth:`EventMemory.find`."""
        return self._memory.find(services, workload_services, self._clock())

    async def run(self) -> None:
        """List and watch until cancelled."""
        failures = 0
        while True:
            try:
                failures = 0 if await self._list_and_watch() else failures + 1
                seconds = self._backoff.seconds(failures) if failures else 0.0
            except _Gone:
                self._version, failures = "", failures + 1
                self._count("gone")
                seconds = self._backoff.seconds(failures)
            except _Failed as error:
                failures += 1
                self._report_problem(error, persists=error.permanent or failures > 1)
                after = self._backoff.seconds(failures, error.after_seconds)
                seconds = self._permanent_seconds if error.permanent else after
            except Exception as error:  # a bug must not end the watch
                failures += 1
                log.exception("mesh %s: watching Kubernetes Events failed", self._mesh)
                self._state = replace(self._state, following=False, problem=f"{type(error).__name__}: {error}")
                seconds = self._permanent_seconds
            await asyncio.sleep(seconds)

    async def _list_and_watch(self) -> bool:
        """List if necessary, then watch until the server ends the watch.

        Returns:
            Whether the watch received anything or lasted a while.

        Raises:
            _Gone, _Failed: if it ended in any other way.
        """
        try:
            async with httpx.AsyncClient(
                verify=await asyncio.to_thread(self._server.ssl_context) if self._url.startswith("https:") else True,
                timeout=httpx.Timeout(LIST_SECONDS, read=WATCH_SECONDS + GRACE_SECONDS),
                follow_redirects=False,
                trust_env=False,  # the API server is in the cluster, not behind a proxy
            ) as http:
                if not self._version:
                    self._version = await self._list(http)
                return await self._watch(http)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise _Failed("late", f"no response in time ({type(error).__name__})") from error
        except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
            raise _Failed("unreachable", first_line(error)) from error
        except (httpx.RequestError, httpx.StreamError) as error:
            raise _Failed("broken", first_line(error)) from error
        except (SecretUnreadable, BadSettings) as error:
            raise _Failed("secret", str(error), permanent=True) from error

    async def _list(self, http: httpx.AsyncClient) -> str:
        """Store all events, page by page. Returns the version to watch from."""
        more: str | None = None
        while True:
            parameters = {"limit": str(PAGE), **({"continue": more} if more else {})}
            async with asyncio.timeout(LIST_SECONDS), self._get(http, parameters) as reply:
                body = b"".join([part async for part in _read_bounded(reply, MAX_BYTES)])
            try:
                page = _LIST.decode(body)
            except msgspec.MsgspecError as error:
                raise _Failed("broken", f"expected a list of Events, got {error}") from error
            for item in page.items or ():
                self._remember(item)
            metadata = page.metadata or Metadata()
            more = metadata.continue_
            if not more:
                self._count("listed")
                return metadata.resource_version or ""

    async def _watch(self, http: httpx.AsyncClient) -> bool:
        parameters = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        began, lines = time.monotonic(), 0
        async with self._get(http, parameters) as reply:
            self._report_success()
            async for line in _read_lines(reply):
                self._handle_line(line)
                lines += 1
        return bool(lines) or time.monotonic() - began >= SHORT_SECONDS

    @asynccontextmanager
    async def _get(self, http: httpx.AsyncClient, parameters: dict[str, str]) -> AsyncIterator[httpx.Response]:
        """Send a request; the body of the reply is still to be read.

        Raises:
            _Gone, _Failed: if the server refuses it.
        """
        credentials = await asyncio.to_thread(self._server.request_headers)
        headers = {"accept": "application/json", "user-agent": "tagae", **credentials}
        async with http.stream("GET", self._url, params=parameters, headers=headers) as reply:
            if reply.is_success:
                yield reply
                return
            body = b"".join([part async for part in _read_bounded(reply, MAX_BYTES)])
            raise _error_for(
                reply.status_code, _error_message(body), parse_retry_after(reply.headers.get("retry-after", ""))
            )

    def _handle_line(self, line: bytes) -> None:
        """Process one line of a watch. Skip it if it is unreadable, because a retry would return the same line.

        Raises:
            _Gone, _Failed: if the line reports an error.
        """
        try:
            change = _LINE.decode(line)
            if change.type == "ERROR":
                status = _STATUS.decode(change.object)
                raise _error_for(status.code or 0, f"{status.reason or ''} {status.message or ''}".strip(), 0.0)
            # The version counts even if the rest is unreadable, so that the next watch does not begin with this line.
            self._version = _VERSIONED.decode(change.object).version or self._version
        except msgspec.MsgspecError as error:
            self._skip(error)
            return
        if change.type not in ("BOOKMARK", "DELETED"):  # the server drops old events; the memory has its own age limit
            self._remember(change.object)

    def _remember(self, item: msgspec.Raw) -> None:
        """Store an event; skip and count it if it is unreadable, because the others still explain incidents."""
        try:
            event = _EVENT.decode(item)
        except msgspec.MsgspecError as error:
            self._skip(error)
        else:
            self._memory.add(event, self._clock())

    def _skip(self, error: Exception) -> None:
        if not self._state.outcomes.get("unreadable"):
            log.warning("mesh %s: skipped an unreadable Kubernetes Event: %s", self._mesh, error)
        self._count("unreadable")

    def _report_success(self) -> None:
        self._count("watched")
        if self._is_problem_logged:
            log.info("mesh %s: Kubernetes Events are available again", self._mesh)
        self._is_problem_logged = False
        self._state = replace(self._state, following=True, problem="")

    def _report_problem(self, error: _Failed, *, persists: bool) -> None:
        """Log the problem once until it is resolved. A connection that is lost and restored at once is not logged."""
        self._count(error.outcome)
        self._state = replace(self._state, following=False, problem=f"{error.outcome}: {error}")
        if persists and not self._is_problem_logged:
            log.warning("mesh %s: continuing without Kubernetes Events: %s", self._mesh, self._state.problem)
            self._is_problem_logged = True

    def _count(self, outcome: str) -> None:
        outcomes = {**self._state.outcomes, outcome: self._state.outcomes.get(outcome, 0) + 1}
        self._state = replace(self._state, outcomes=outcomes)


async def _read_bounded(reply: httpx.Response, most: int) -> AsyncIterator[bytes]:
    """Yield the parts of a body.

    Raises:
        _Failed: if it has more than ``most`` bytes.
    """
    size = 0
    async for part in reply.aiter_bytes():
        size += len(part)
        if size > most:
            raise _Failed("broken", f"a reply of more than {most} bytes")
        yield part


async def _read_lines(reply: httpx.Response) -> AsyncIterator[bytes]:
    """Yield complete lines as they arrive.

    Raises:
        _Failed: if the last line is incomplete, or a line has more than ``MAX_LINE`` bytes.
    """
    rest = b""
    async for part in reply.aiter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
        if len(rest) > MAX_LINE:
            raise _Failed("broken", f"a line of more than {MAX_LINE} bytes")
    if rest.strip():
        raise _Failed("broken", "the connection ended in the middle of a line")


def _error_for(status: int, message: str, after_seconds: float) -> Exception:
    if status == _GONE:
        return _Gone()
    if status in _PERMANENT:
        message += "; expected permission to get, list and watch events: apply deploy/kubernetes/events.yaml"
        return _Failed("forbidden" if status != 404 else "refused", f"{status} {message}", permanent=True)
    outcome = "failed" if status >= 500 or status == 429 else "refused"
    return _Failed(outcome, f"{status} {message}", after_seconds=after_seconds)


def _error_message(body: bytes) -> str:
    """The message of a ``v1.Status``, or the start of any other body."""
    try:
        status = _STATUS.decode(body)
    except msgspec.MsgspecError:
        return " ".join(body[:300].decode("utf-8", "replace").split())
    return (status.message or "")[:300]
