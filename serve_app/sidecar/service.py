"""The service of ``verdicts.proto`` as an adapter: each call is a request to the HTTP application of this process.

So HTTP and gRPC share access, limits, audit, metrics and errors. Messages are converted by protobuf's own JSON mapping:
a snapshot in a message gets the same checks as one in JSON, with the same error texts and pointers.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf import json_format
from starlette.types import ASGIApp, Message, Receive

from serve_app.alerts.annotations import truncate
from serve_app.api.schemas.problem import Problem, problem
from serve_app.errors import ANSWERS, InvalidDocument, MalformedDocument, NoCapacity, UnknownMesh
from serve_app.settings.base import check_mesh_name
from serve_app.sidecar.generated.verdicts_pb2 import DESCRIPTOR, LatestRequest, Snapshot, Verdict, WatchRequest

SERVICE = DESCRIPTOR.services_by_name["Verdicts"].full_name
MESH = "tagae-mesh"  # key of a call's metadata: the mesh's name
PASSED_ON = ("authorization", "traceparent")  # metadata that becomes headers
MAX_LETTERS = 600  # in a status text: encoded, it stays below the 8 KiB of metadata that a peer accepts
MAX_WAITING = 4  # verdicts for one watcher: a collector that catches up sends several at once
PAUSE_SECONDS = 0.5  # wait before a watcher of a mesh without a verdict asks again
UNKNOWN_MESH = f"urn:tagae:problem:{ANSWERS[UnknownMesh].code}"
STATUS = {  # gRPC status by HTTP status
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    421: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    431: grpc.StatusCode.INVALID_ARGUMENT,
    500: grpc.StatusCode.INTERNAL,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
log = logging.getLogger(__name__)


class Refused(Exception):
    """The application answered with a problem."""

    def __init__(self, document: Problem) -> None:
        super().__init__(document.detail)
        self.document = document


class Verdicts:
    """Answers calls. ``mesh`` is the default mesh name."""

    def __init__(self, app: ASGIApp, mesh: str) -> None:
        self._app, self._mesh = app, mesh
        self._watchers: set[asyncio.Queue[bytes | Refused]] = set()

    def handler(self) -> Any:
        """The methods for a gRPC server. Requests are read as streams of one message, so that a call without access is
        refused before its message is read."""
        methods = {
            "Latest": grpc.stream_unary_rpc_method_handler(
                self._latest, LatestRequest.FromString, Verdict.SerializeToString
            ),
            "Watch": grpc.stream_stream_rpc_method_handler(
                self._watch, WatchRequest.FromString, Verdict.SerializeToString
            ),
            "Push": grpc.stream_unary_rpc_method_handler(self._push, Snapshot.FromString, Verdict.SerializeToString),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def end(self) -> None:
        ending = Refused(problem(NoCapacity("the service is shutting down; watch again after its restart")))
        for queue in self._watchers:
            _replace(queue, ending)

    async def _latest(self, _: AsyncIterator[LatestRequest], context: Any) -> Verdict:
        return await self._ask(context, "GET", "verdict", _empty_body)

    async def _push(self, messages: AsyncIterator[Snapshot], context: Any) -> Verdict:
        async def read() -> bytes:
            async for message in messages:
                return await asyncio.to_thread(snapshot_document, message)
            raise MalformedDocument("body: expected a snapshot, got no message; send one")

        return await self._ask(context, "POST", "snapshots", read)

    async def _ask(self, context: Any, method: str, route: str, read: Callable[[], Awaitable[bytes]]) -> Verdict:
        body = bytearray()

        async def collect(piece: bytes) -> None:
            body.extend(piece)

        try:
            await self._request(context, method, route, read, collect)
        except Exception as error:
            await abort(context, error)
        return verdict_message(bytes(body))

    async def _watch(self, _: AsyncIterator[WatchRequest], context: Any) -> AsyncIterator[Verdict]:
        """Send each verdict. A slow watcher misses older verdicts, and delays no other watcher."""
        queue: asyncio.Queue[bytes | Refused] = asyncio.Queue(MAX_WAITING)
        following = asyncio.create_task(self._follow(context, queue))
        self._watchers.add(queue)
        try:
            while not isinstance(entry := await queue.get(), Refused):
                yield verdict_message(entry)
            await abort(context, entry)
        finally:
            self._watchers.discard(queue)
            following.cancel()

    async def _follow(self, context: Any, queue: "asyncio.Queue[bytes | Refused]") -> None:
        """Read the stream of verdicts, reopen it when it ends, and keep the newest verdicts."""
        headers: dict[str, str] = {}

        async def keep(piece: bytes) -> None:
            event = b""
            for line in piece.splitlines():
                name, _, value = line.partition(b": ")
                if name == b"id":
                    headers["last-event-id"] = value.decode()
                elif name == b"event":
                    event = value
                elif name == b"data" and event == b"verdict":
                    _replace(queue, value)

        while True:
            try:
                await self._request(context, "GET", "verdicts/stream", _empty_body, keep, headers)
            except Exception as error:
                refusal = _refusal(error)
                if refusal.document.type != UNKNOWN_MESH:
                    _replace(queue, refusal)
                    return
                await asyncio.sleep(PAUSE_SECONDS)

    async def _request(
        self,
        context: Any,
        method: str,
        route: str,
        read: Callable[[], Awaitable[bytes]],
        on_piece: Callable[[bytes], Awaitable[None]],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a request to the application: ``read`` returns its body; ``on_piece`` gets each piece of a successful
        answer.

        Raises:
            Refused: the application answered with a problem.
            BadMeshName: no mesh can have this name.
        """
        metadata = list(context.invocation_metadata() or ())
        mesh = check_mesh_name(str(dict(metadata).get(MESH, self._mesh)))
        request_headers = [("host", "localhost"), ("content-type", "application/json"), *(headers or {}).items()]
        request_headers += [(name, value) for name, value in metadata if name in PASSED_ON]
        path = f"/v1/meshes/{mesh}/{route}"
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode("utf-8", "replace")) for name, value in request_headers],
            "client": (peer_host(context.peer()), 0),
            "server": None,
            "state": {},
        }
        status, refusal = 0, bytearray()

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status < 400:
                await on_piece(message.get("body", b""))
            else:
                refusal.extend(message.get("body", b""))

        await self._app(scope, _receive(read), send)
        if status >= 400:
            raise Refused(Problem.model_validate_json(bytes(refusal)))


def _receive(read: Callable[[], Awaitable[bytes]]) -> Receive:
    """A ``receive`` that returns the body once and then waits: the client leaves by cancelling the call."""
    is_read = False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            await asyncio.Event().wait()
        is_read = True
        return {"type": "http.request", "body": await read(), "more_body": False}

    return receive


async def _empty_body() -> bytes:
    return b""


def _replace(queue: "asyncio.Queue[bytes | Refused]", entry: bytes | Refused) -> None:
    """Add the newest entry to a queue, in place of the oldest if it is full."""
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(entry)


def _refusal(error: Exception) -> Refused:
    return error if isinstance(error, Refused) else Refused(problem(error))


async def abort(context: Any, error: Exception) -> None:
    """End a call with an error: its status, its text, and the problem type in the trailing metadata."""
    document = _refusal(error).document
    code = STATUS[document.status]
    if code is grpc.StatusCode.INTERNAL:
        log.error("a request failed", exc_info=error)
    metadata = (("tagae-problem", document.type), *((("tagae-pointer", document.pointer),) if document.pointer else ()))
    await context.abort(code, truncate(document.detail, MAX_LETTERS), metadata)


def verdict_message(document: bytes) -> Verdict:
    """Convert a verdict's JSON document to a message. Fields of later versions are left out."""
    message: Verdict = json_format.Parse(document, Verdict(), ignore_unknown_fields=True)
    return message


def snapshot_document(message: Snapshot) -> bytes:
    """Convert a snapshot's message to a JSON document. Missing fields are empty or left out; the document's check
    reports them.

    Raises:
        InvalidDocument: its time is not valid.
    """
    try:
        document: str = json_format.MessageToJson(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True, indent=None
        )
    except (json_format.Error, ValueError) as error:
        detail = f"expected a time between the years 1 and 9999 ({str(error).rstrip('.')}); correct it"
        raise InvalidDocument(
            f"/observed_at: {detail}",
            pointer="/observed_at",
            errors=[{"pointer": "/observed_at", "detail": detail}],
        ) from None
    return document.encode()


def peer_host(peer: str) -> str:
    """The address in ``ipv4:127.0.0.1:50000`` or ``ipv6:[::1]:50000``; loopback for a Unix socket."""
    kind, _, place = unquote(peer).partition(":")
    return place.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else "127.0.0.1"
