"""Watch the Events of one Kubernetes API server until cancelled.

A watch without a version begins with all Events that the server has, and continues with new ones. The memory knows each
Event by its id, so a watch that ended begins again in the same way, and there is no list, no version and no bookmark.

Failures never end the watch: each is logged once, counted and retried later. Without permission to read Events, or
without an API server, incidents are still reported, but without Events beside them.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import httpx
import msgspec

from model.verdict import ClusterEvent
from serve_app.collect.kubernetes.events import EventMemory, KubernetesEvent
from serve_app.collect.prometheus.workloads import WorkloadServices
from serve_app.errors import BadSettings
from serve_app.net.backoff import Backoff, parse_retry_after
from serve_app.net.endpoint import Endpoint, SecretUnreadable, join_url
from serve_app.net.http import first_line

log = logging.getLogger(__name__)

MAX_LINE = 4 << 20  # bytes in one line of a watch; an object has at most 1.5 MiB
MAX_ERROR = 1 << 16  # bytes read from a refusal
CONNECT_SECONDS = 30.0
WATCH_SECONDS = 600  # after this time the server ends a watch; the next one sends all Events again
GRACE_SECONDS = 15.0  # after that time, the connection counts as dead
SHORT_SECONDS = 5.0  # a watch that ends sooner than this counts as a failure
_PERMANENT = (401, 403, 404)  # the cause must be fixed first; retrying soon does not help
PERMANENT_SECONDS = 300.0  # wait before a retry after one of these


class _Line(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _Status(msgspec.Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None


_LINE, _EVENT = msgspec.json.Decoder(_Line), msgspec.json.Decoder(KubernetesEvent)
_STATUS = msgspec.json.Decoder(_Status)


class _Failed(Exception):
    """A request failed: ``outcome`` for the counter, the message for the log."""

    def __init__(self, outcome: str, message: str, *, permanent: bool = False, after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.outcome, self.permanent, self.after_seconds = outcome, permanent, after_seconds


@dataclass(frozen=True, slots=True)
class WatchState:
    """State of the watch on one cluster.

    Attributes:
        outcomes: count of requests by outcome: ``watched`` (started), ``unreachable``, ``late``, ``broken``,
            ``forbidden``, ``refused``, ``failed``, ``secret``; and ``unreadable`` lines, skipped.
    """

    following: bool = False
    stored_events: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    problem: str = ""


class EventWatch:
    """Watches the Events of one mesh's cluster."""

    def __init__(self, mesh: str, server: Endpoint, namespace: str = "", backoff: Backoff | None = None) -> None:
        self._mesh, self._server = mesh, server
        within = f"/namespaces/{namespace}" if namespace else ""
        self._url = join_url(server.url, f"/api/v1{within}/events")
        self._backoff = backoff or Backoff()
        self._memory = EventMemory()
        self._state = WatchState()
        self._is_problem_logged = False

    @property
    def state(self) -> WatchState:
        return replace(self._state, stored_events=len(self._memory))

    def find(self, services: frozenset[str], workload_services: WorkloadServices) -> tuple[ClusterEvent, ...]:
        """Return the events about these services within the last hour, newest first; see :meth:`EventMemory.find`."""
        return self._memory.find(services, workload_services, datetime.now(UTC))

    async def run(self) -> None:
        """Watch until cancelled."""
        failures = 0
        while True:
            try:
                failures = 0 if await self._watch() else failures + 1
                seconds = self._backoff.seconds(failures) if failures else 0.0
            except _Failed as error:
                failures += 1
                self._report_problem(error, persists=error.permanent or failures > 1)
                after = self._backoff.seconds(failures, error.after_seconds)
                seconds = PERMANENT_SECONDS if error.permanent else after
            except Exception as error:  # a bug must not end the watch
                failures += 1
                log.exception("mesh %s: watching Kubernetes Events failed", self._mesh)
                self._state = replace(self._state, following=False, problem=f"{type(error).__name__}: {error}")
                seconds = PERMANENT_SECONDS
            await asyncio.sleep(seconds)

    async def _watch(self) -> bool:
        """Watch until the server ends the watch.

        Returns:
            Whether the watch lasted a while.

        Raises:
            _Failed: if it ended in any other way.
        """
        began = time.monotonic()
        try:
            headers = await asyncio.to_thread(self._server.request_headers)
            is_secure = self._url.startswith("https:")
            verify = await asyncio.to_thread(self._server.ssl_context) if is_secure else True
            async with (
                httpx.AsyncClient(
                    verify=verify,
                    timeout=httpx.Timeout(CONNECT_SECONDS, read=WATCH_SECONDS + GRACE_SECONDS),
                    follow_redirects=False,
                    trust_env=False,  # the API server is in the cluster, not behind a proxy
                ) as http,
                http.stream(
                    "GET",
                    self._url,
                    params={"watch": "1", "timeoutSeconds": str(WATCH_SECONDS)},
                    headers={"accept": "application/json", "user-agent": "tagae", **headers},
                ) as reply,
            ):
                if not reply.is_success:
                    message = _error_message(await anext(reply.aiter_bytes(MAX_ERROR), b""))
                    after = parse_retry_after(reply.headers.get("retry-after", ""))
                    raise _error_for(reply.status_code, message, after)
                self._report_success()
                async for line in _read_lines(reply):
                    self._handle_line(line)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise _Failed("late", f"no response in time ({type(error).__name__})") from error
        except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
            raise _Failed("unreachable", first_line(error)) from error
        except (httpx.RequestError, httpx.StreamError) as error:
            raise _Failed("broken", first_line(error)) from error
        except (SecretUnreadable, BadSettings) as error:
            raise _Failed("secret", str(error), permanent=True) from error
        return time.monotonic() - began >= SHORT_SECONDS

    def _handle_line(self, line: bytes) -> None:
        """Store the event of a line; skip and count it if it is unreadable, because the others still explain incidents.

        Raises:
            _Failed: if the line reports an error.
        """
        try:
            change = _LINE.decode(line)
            if change.type == "ERROR":
                status = _STATUS.decode(change.object)
                raise _error_for(status.code or 0, f"{status.reason or ''} {status.message or ''}".strip(), 0.0)
            if change.type != "DELETED":  # the server drops old events; the memory has its own age limit
                self._memory.add(_EVENT.decode(change.object), datetime.now(UTC))
        except msgspec.MsgspecError as error:
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


async def _read_lines(reply: httpx.Response) -> AsyncIterator[bytes]:
    """Yield complete lines as they arrive.

    Raises:
        _Failed: if the last line is incomplete, or a line has more than ``MAX_LINE`` bytes.
    """
    remainder = b""
    async for part in reply.aiter_bytes():
        *lines, remainder = (remainder + part).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(remainder) > MAX_LINE:
            raise _Failed("broken", f"a line exceeds {MAX_LINE} bytes")
    if remainder.strip():
        raise _Failed("broken", "the connection ended in the middle of a line")


def _error_for(status: int, message: str, after_seconds: float) -> _Failed:
    if status in _PERMANENT:
        message += "; expected permission to get, list and watch events: apply deploy/kubernetes/events.yaml"
        return _Failed("forbidden" if status != 404 else "refused", f"{status} {message}", permanent=True)
    outcome = "failed" if status >= 500 or status == 429 else "refused"
    return _Failed(outcome, f"{status} {message}", after_seconds=after_seconds)


def _error_message(body: bytes) -> str:
    """Return the message of a ``v1.Status``, or the start of any other body."""
    try:
        status = _STATUS.decode(body)
    except msgspec.MsgspecError:
        return " ".join(body[:300].decode("utf-8", "replace").split())
    return (status.message or "")[:300]
