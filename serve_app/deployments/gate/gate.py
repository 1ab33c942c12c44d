"""The gate: every request passes through it before Serve sees it.

It runs in the process that listens (Serve's proxy, or an ingress replica where Serve listens there) and shields the
replicas from requests that they cannot serve. It checks access before it reads any part of a body. It reads the body
within a time limit and at a minimum rate, so that a slow client occupies a connection, but never a replica's slot. It
admits a request, lets a snapshot wait for capacity, or refuses it. It repeats a request that a dying replica dropped:
all requests may be repeated. In any case, the client gets an answer by the deadline (docs/decisions/0008).

Serve calls :func:`middlewares` in each process that listens (``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH``).
"""

import asyncio
import logging
import random
import re
import time
from dataclasses import dataclass

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.access import Access
from serve_app.deployments.gate import connections
from serve_app.deployments.gate.admission import Admission, RequestKind
from serve_app.deployments.gate.connections import MAX_HEADER_BYTES
from serve_app.deployments.gate.waiting_room import WaitingRoom
from serve_app.deployments.http.access_control import POLICY_VIOLATION, hand_principal
from serve_app.deployments.http.handed_bodies import MAX_BYTES, hand_body, replay_body
from serve_app.deployments.http.page_files import answer_page_files, is_page_request, waiting_response
from serve_app.deployments.http.problems import MEDIA_TYPE, refuse
from serve_app.deployments.http.traced_requests import trace_requests
from serve_app.errors import (
    DeadlineExceeded,
    DocumentTooLarge,
    HeadersTooLarge,
    NoCapacity,
    Overloaded,
    ServeError,
    SlowRequest,
    answer,
)
from serve_app.metrics import REQUESTS, SNAPSHOTS_DROPPED, Instruments, Outcome, outcome_of
from serve_app.runtime.environment import handed_settings
from serve_app.runtime.replica import open_instruments
from serve_app.runtime.reporting import start_reporting
from serve_app.runtime.rpc import RETRY_AFTER_SECONDS, WAIT_HEADER
from serve_app.settings import Settings
from serve_app.settings.access import serve_rules
from serve_app.web import assets

BROKEN = 500  # status that an incomplete answer counts as
BODY_SECONDS = 30.0  # for a request's body
BODY_BYTES_PER_SECOND = 1024  # minimum rate after the grace period
GRACE_SECONDS = 5.0  # before a body's rate is checked
GRACE_SPREAD = 2.0  # random factor of the grace period, so that simultaneous clients are not all cut off at once
TRICKLE_BYTES = 512  # a smaller piece of a body counts as a trickle
TRICKLES = 4  # after this many, pieces are read together, every tenth of a second
TRICKLE_SECONDS = 0.1
MAX_BODIES = 8  # bodies of the maximum size that all requests together can have in memory
SLACK = 1.05  # times a deadline: the ingress answers at the deadline itself, with more detail
PAUSE_SECONDS = 0.1  # between two attempts
START_SECONDS = 300.0  # how long a service that has never answered counts as starting instead of failing
STARTING_PAGE_SECONDS = 1.0  # how long a browser waits for a starting service
OPEN_ENDED = re.compile(r"/-/.*|/v1/meshes/[^/]*/verdicts/stream")  # Serve's own routes, and streams
PROBES = frozenset({"/healthz", "/readyz"})
UNLIMITED = re.compile(r"/(static/.*|docs|login(/.*)?|logout|healthz|readyz)?")
MESH = re.compile(r"/v1/meshes/([^/]*)(?:/(.*))?")
# Kinds of posts to a mesh by path. All other posts are a person's actions on the page.
POSTS = {"snapshots": RequestKind.PUSH, "baseline": RequestKind.BATCH, "otlp/v1/metrics": RequestKind.PUSH}
DROPS = {429: "overload", 504: "deadline"}  # reason by status, for answers to snapshots
SCORE = "/v1/score"  # takes many snapshots, and no mesh waits for the answer
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """One request's state in the gate.

    Attributes:
        kind: None: no limit applies.
        deadline_seconds: None: it has no deadline.
    """

    kind: RequestKind | None
    mesh: str
    deadline_seconds: float | None
    is_probe: bool = False

    @property
    def brings_snapshots(self) -> bool:
        """Whether one of our routes reads its snapshots or metrics. Other applications behind the gate do not know
        about handed bodies."""
        return self.kind not in (None, RequestKind.READ)


class Gate:
    """ASGI middleware. Use it from one event loop.

    Args:
        settings: ``serve`` and ``limits`` are used.
        access: finds the caller, whom the application gets in the scope.
    """

    def __init__(self, app: ASGIApp, settings: Settings, access: Access, instruments: Instruments) -> None:
        self._app, self._access, self._instruments = answer_page_files(app), access, instruments
        self._front, self._max_body_bytes = settings.serve, settings.limits.max_body_bytes
        self._admission = Admission(settings.serve.deadline_seconds)
        self._room = WaitingRoom(self._admission)
        self._buffered_bytes = 0  # bytes of bodies in memory
        self._began = time.monotonic()
        self._has_answered = False  # whether the service has ever answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tracker, request = TrackedSend(send), None
        try:
            self._check_headers(scope)
            scope = hand_principal(scope, self._access.check(scope))
            request = self._request(scope)
            if request.deadline_seconds is None:
                await self._app(scope, receive, tracker)
            else:
                await self._admit_and_send(request, request.deadline_seconds, scope, receive, tracker)
            self._count(request, tracker, tracker.status if tracker.has_ended else BROKEN)
        except ServeError as error:
            if request is not None:
                self._count(request, tracker, answer(error).status)
            if tracker.has_begun:
                raise  # uvicorn closes the connection, which tells the client that the answer is incomplete
            response = refuse(self._instruments, error)
            if is_page_request(scope) and isinstance(error, NoCapacity | DeadlineExceeded):
                response = waiting_response(error, scope, is_starting=self._is_starting())
            elif isinstance(error, SlowRequest | HeadersTooLarge | DocumentTooLarge):
                response.headers["connection"] = "close"  # the rest of the request may never arrive
            await response(scope, receive, send)
        except Exception:
            if request is not None:
                self._count(request, tracker, BROKEN)
            raise

    def _count(self, request: Request, tracker: "TrackedSend", status: int) -> None:
        """Count a request by the status of its answer. Failures while the service starts do not count."""
        if request.kind is not None or request.is_probe:  # the gate itself may have answered others
            self._has_answered |= 0 < tracker.status < 500
        if request.kind is None:
            return
        if request.kind is RequestKind.PUSH and status in DROPS:
            self._instruments.count(SNAPSHOTS_DROPPED, reason=DROPS[status])
        outcome = Outcome.ABANDONED if tracker.is_abandoned else outcome_of(status)
        if self._is_starting() and outcome is Outcome.FAILED:
            return
        self._instruments.count(
            REQUESTS, kind="push" if request.kind is RequestKind.PUSH else "other", outcome=outcome.value
        )

    def _is_starting(self) -> bool:
        """Whether the service has not answered yet, and may still be starting."""
        return not self._has_answered and time.monotonic() - self._began < START_SECONDS

    def _check_headers(self, scope: Scope) -> None:
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        size += len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if size > MAX_HEADER_BYTES:
            raise HeadersTooLarge(
                f"headers: expected at most {MAX_HEADER_BYTES} bytes with the request line, got {size}; "
                "send fewer or shorter ones"
            )

    async def _admit_and_send(
        self, request: Request, seconds: float, scope: Scope, receive: Receive, send: "TrackedSend"
    ) -> None:
        if request.kind and not self._room.is_open(request.kind, request.mesh):
            raise self._refusal()
        body = await self._body(scope, receive)
        received_at = time.monotonic()
        try:
            ticket = await self._room.enter(request.kind, request.mesh) if request.kind else None
            if request.kind and ticket is None:
                raise self._refusal()
            try:
                await self._send_until_answered(received_at, seconds, request, scope, body, receive, send)
            finally:
                if ticket:
                    self._room.leave(ticket)
        finally:
            self._buffered_bytes -= len(body)

    def _request(self, scope: Scope) -> Request:
        path, seconds = scope["path"], self._front.deadline_seconds
        if OPEN_ENDED.fullmatch(path):
            return Request(None, "", None)
        if UNLIMITED.fullmatch(path):
            if self._is_starting() and is_page_request(scope):
                seconds = min(seconds, STARTING_PAGE_SECONDS)
            return Request(None, "", seconds, is_probe=path in PROBES)
        if path == SCORE:
            return Request(RequestKind.BATCH, "", seconds)
        match = MESH.fullmatch(path)
        if match is None or scope["method"] != "POST":
            return Request(RequestKind.READ, "", seconds)
        return Request(POSTS.get(match[2], RequestKind.READ), match[1], seconds)

    def _refusal(self) -> Overloaded:
        wait = self._admission.retry_after_seconds()
        return Overloaded(
            "the service has as many requests in progress as it can finish in time; nothing was changed; try again "
            f"in {wait:.0f} s",
            retry_after_seconds=wait,
        )

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Read the whole body. Its bytes count as buffered until the request ends. Pieces are copied once.

        Raises:
            SlowRequest: it did not arrive in time.
            DocumentTooLarge: it is too long for any route.
            Overloaded: other bodies use all the reserved memory.
        """
        start, trickles, size = time.monotonic(), 0, 0
        pieces: list[bytes] = []
        grace = GRACE_SECONDS * random.uniform(1.0, GRACE_SPREAD)
        try:
            while True:
                deadline = start + min(BODY_SECONDS, grace + size / BODY_BYTES_PER_SECOND)
                async with asyncio.timeout(deadline - time.monotonic()):
                    message = await receive()
                if message["type"] == "http.disconnect":
                    raise SlowRequest(f"body: the connection ended after {size} bytes; send the whole body")
                piece = message.get("body", b"")
                trickles += len(piece) < TRICKLE_BYTES
                if piece:
                    pieces.append(piece)
                size += len(piece)
                self._buffered_bytes += len(piece)
                if size > self._max_body_bytes:
                    raise DocumentTooLarge(
                        f"body: exceeds {self._max_body_bytes} bytes; raise limits.max_body_bytes or split the mesh"
                    )
                if self._buffered_bytes > MAX_BODIES * self._max_body_bytes:
                    raise Overloaded(
                        "body: other requests use all the memory for bodies; try again later",
                        retry_after_seconds=RETRY_AFTER_SECONDS,
                    )
                if not message.get("more_body", False):
                    return b"".join(pieces)  # a single piece is not copied
                if trickles > TRICKLES:
                    await asyncio.sleep(TRICKLE_SECONDS)
        except TimeoutError:
            self._buffered_bytes -= size
            raise SlowRequest(
                f"body: expected the whole body within {BODY_SECONDS:g} s and at least {BODY_BYTES_PER_SECOND} "
                f"bytes/s after {grace:.1f} s, got {size} bytes in {time.monotonic() - start:.1f} s; send it faster"
            ) from None
        except BaseException:  # also if the request is cancelled
            self._buffered_bytes -= size
            raise

    async def _send_until_answered(
        self,
        received_at: float,
        seconds: float,
        request: Request,
        scope: Scope,
        body: bytes,
        receive: Receive,
        send: "TrackedSend",
    ) -> None:
        """Send the request to the replicas until it is answered or the deadline passes. A dropped request is repeated.

        Args:
            received_at: when the whole request had arrived, s of the monotonic clock: a wait for capacity counts, too.
            seconds: time from then to its deadline.
        """
        is_handed = request.brings_snapshots and len(body) <= MAX_BYTES
        deadline = received_at + SLACK * seconds
        headers = [(name, value) for name, value in scope["headers"] if name != WAIT_HEADER.encode()]
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                while True:
                    attempt, watched_receive = Attempt(send), send.watch(receive)
                    wait = f"{time.monotonic() - received_at:.6f}"
                    attempt_scope = {**scope, "headers": [*headers, (WAIT_HEADER.encode(), wait.encode())]}
                    if is_handed:
                        await self._app(hand_body(attempt_scope, body), watched_receive, attempt)
                    else:
                        await self._app(attempt_scope, replay_body(body, watched_receive), attempt)
                    if attempt.was_answered or send.is_abandoned:
                        return
                    if attempt.is_not_found and self._has_answered:  # Serve knows the applications: it is theirs
                        await attempt.release()
                        return
                    if time.monotonic() + PAUSE_SECONDS >= deadline:
                        break
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            if send.has_begun:
                raise DeadlineExceeded("the response was not complete at the deadline") from None
            raise DeadlineExceeded(
                "no answer before the deadline; whether the request took effect is unknown; retrying is safe",
                retry_after_seconds=RETRY_AFTER_SECONDS,
                stored="unknown",
            ) from None
        raise NoCapacity(
            "no replica could answer before the deadline; retrying is safe; check the log if this persists",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )


class TrackedSend:
    """A ``send`` that tracks its request's answer.

    Attributes:
        is_abandoned: whether the client left before the answer ended.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.has_ended = False
        self.is_abandoned = False

    @property
    def has_begun(self) -> bool:
        return self.status > 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.has_ended = not message.get("more_body", False)
        await self._send(message)

    def watch(self, receive: Receive) -> Receive:
        """A ``receive`` that records whether the client leaves."""

        async def receive_and_note() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not self.has_ended:
                self.is_abandoned = True
            return message

        return receive_and_note


class Attempt:
    """A ``send`` that holds back an answer that may be Serve's own, for a missing or unready replica."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._held_messages: list[Message] = []
        self.was_answered = False

    @property
    def is_not_found(self) -> bool:
        """Whether the answer is a 404, either from another application or from Serve, which knows none yet."""
        return bool(self._held_messages) and self._held_messages[0]["status"] == 404

    async def __call__(self, message: Message) -> None:
        is_start = message["type"] == "http.response.start"
        if self._held_messages or (is_start and message["status"] in (404, 408, 500, 503) and not _is_problem(message)):
            self._held_messages.append(message)
        else:
            self.was_answered = True
            await self._send(message)

    async def release(self) -> None:
        for message in self._held_messages:
            await self._send(message)


def middlewares() -> list[Middleware]:
    """The middleware that Serve puts in front of this process's HTTP server."""
    return middlewares_for(handed_settings())


def middlewares_for(settings: Settings) -> list[Middleware]:
    """The middleware for the HTTP server that this process starts next."""
    start_reporting(settings, "gate")
    connections.install()
    access = Access(serve_rules(settings))
    assets.files()  # compresses them now, not during the first request
    gate = Middleware(Gate, settings=settings, access=access, instruments=open_instruments())
    return [Middleware(trace_requests, place="gate"), gate]


def _is_problem(start: Message) -> bool:
    return any(name == b"content-type" and value.startswith(MEDIA_TYPE.encode()) for name, value in start["headers"])
