"""Access control of the sidecar, for gRPC and for the metrics page, by the rules of ``serve_app.access``."""

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import unquote
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from prometheus_client import CollectorRegistry, make_wsgi_app

from serve_app.access import Access, Scope
from serve_app.access.routes import Need
from serve_app.api.problems import problem
from serve_app.errors import ServeError, Unauthenticated, answer
from serve_app.metrics import FAILED_LOGINS, REFUSALS, Instruments
from serve_app.sidecar.generated.verdicts_pb2 import DESCRIPTOR
from serve_app.sidecar.service import abort

HEALTH = f"/{health_pb2.DESCRIPTOR.services_by_name['Health'].full_name}/"
METHODS = {"Latest": Scope.READ, "Watch": Scope.READ, "Push": Scope.WRITE}
_SERVICE = f"/{DESCRIPTOR.services_by_name['Verdicts'].full_name}/"

Handler = Any  # grpc.RpcMethodHandler, which is not typed


def scope_of(method: str) -> Scope | None:
    """The scope that a method needs. None: it is open, as health checks are. An unknown method needs ``admin``."""
    if method.startswith(HEALTH):
        return None
    return METHODS.get(method.removeprefix(_SERVICE), Scope.ADMIN)


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc] # grpc is not typed
    """Refuses a call before its message is read.

    Args:
        access: the rules.
        mesh: of the sidecar.
        instruments: count the refusals.
    """

    def __init__(self, access: Access, mesh: str, instruments: Instruments) -> None:
        self._access, self._mesh, self._instruments = access, mesh, instruments

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], call: grpc.HandlerCallDetails
    ) -> Handler:
        scope = scope_of(call.method)
        if scope is None or not self._access.has_login:  # then only this machine can connect, or everyone may
            return await continuation(call)
        values = [value for name, value in call.invocation_metadata if name == "authorization"]
        authorization = values[0] if len(values) == 1 else None
        needed = Need(scope, self._mesh)
        principal = self._access.find_bearer(authorization, needed)
        if principal is None:
            return self._refusal(authorization, needed, call.method)
        handler = await continuation(call)
        if handler is None or not handler.response_streaming:
            return handler
        return _end_with_token(handler, lambda: self._access.is_valid(principal))

    def _refusal(self, authorization: str | None, needed: Need, method: str) -> Handler:
        """A method that answers with the reason. It takes a stream of messages, so that gRPC reads none before."""

        async def refuse(_: Any, context: Any) -> None:
            error: ServeError = Unauthenticated("authorization: the token was changed just now; send the call again")
            try:
                self._access.check_bearer(authorization, peer_host(context.peer()), needed, method)
            except ServeError as reason:
                error = reason
            count_refusal(self._instruments, error)
            await abort(context, error)

        return grpc.stream_stream_rpc_method_handler(refuse)


def _end_with_token(handler: Handler, is_valid: Callable[[], bool]) -> Handler:
    """The same method; its stream ends when the caller's token is no longer valid."""

    async def answer(request: Any, context: Any) -> Any:
        async for one in handler.unary_stream(request, context):
            if not is_valid():
                await abort(context, Unauthenticated("authorization: the token was removed or has expired"))
            yield one

    return grpc.unary_stream_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)


def peer_host(peer: str) -> str:
    """The address in ``ipv4:127.0.0.1:50000`` or ``ipv6:[::1]:50000``."""
    kind, _, place = unquote(peer).partition(":")
    return place.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""


def count_refusal(instruments: Instruments, error: ServeError) -> None:
    """Count an error, and a failed login as such."""
    instruments.count(REFUSALS, code=answer(error).code)
    if reason := error.details.get("reason"):
        instruments.count(FAILED_LOGINS, reason=reason)


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each scrape."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    timeout = 10  # s, for a client that connects and sends nothing

    def log_message(self, *_: object) -> None:
        """Scrapes are not logged."""


def metrics_server(
    host: str,
    port: int,
    registry: CollectorRegistry,
    access: Access,
    instruments: Instruments,
    context: ssl.SSLContext | None,
) -> WSGIServer:
    """A server for ``/metrics`` that is bound and does not serve yet.

    Raises:
        OSError: it cannot listen there.
    """
    page = make_wsgi_app(registry)

    def answer_if_allowed(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        try:
            # Every path of this port shows the same page, so each is held to the rule of /metrics.
            access.check(
                environ["REQUEST_METHOD"],
                "/metrics",
                _headers(environ),
                (environ.get("REMOTE_ADDR", ""), 0),
                http_version=environ.get("SERVER_PROTOCOL", "").removeprefix("HTTP/"),
            )
        except ServeError as error:
            count_refusal(instruments, error)
            return _refuse(error, start)
        answered: Iterable[bytes] = page(environ, start)
        return answered

    family = _Server6 if ":" in host else _Server
    server = make_server(host, port, answer_if_allowed, family, _Quiet)
    if context is not None:
        # The handshake waits until the thread of the connection reads, so that one slow client blocks no other.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


def _headers(environ: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them."""
    return [
        (name.removeprefix("HTTP_").replace("_", "-").lower().encode(), str(value).encode("latin-1", "replace"))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]


def _refuse(error: ServeError, start: Callable[..., Any]) -> Iterable[bytes]:
    document = problem(error)
    headers = [("content-type", "application/problem+json")]
    if document.status == HTTPStatus.UNAUTHORIZED:
        headers.append(("www-authenticate", 'Bearer realm="tagae"'))
    start(f"{document.status} {HTTPStatus(document.status).phrase}", headers)
    return [document.model_dump_json(exclude_none=True).encode()]
