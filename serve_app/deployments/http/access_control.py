"""Access control as ASGI middleware: it decides before it reads any byte of a body."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.access import Access, Principal
from serve_app.access.routes import need
from serve_app.deployments.http.problems import refuse
from serve_app.errors import ServeError

PRINCIPAL, ACCESS = "principal", "access"  # in the state of a request
POLICY_VIOLATION = 1008  # of a websocket, RFC 6455


class AccessControl:
    """Middleware: answers requests that are not allowed; they never reach the application.

    Args:
        app: what it protects.
        access: returns the rules; called for each request, since the rules are made after the application.
        prepare: called before each decision on a caller, with the scope of the request.
        prefix: of the paths of ``app``; empty for the service itself.
    """

    def __init__(
        self, app: ASGIApp, access: Callable[[], Access], prepare: Callable[[Scope], Awaitable[None]], prefix: str = ""
    ) -> None:
        self._app, self._access, self._prepare, self._prefix = app, access, prepare, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._decide(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        # Anything else gets no answer, which ends its connection.

    async def _decide(self, scope: Scope, receive: Receive, send: Send) -> None:
        access, path = self._access(), self._prefix + route_path(scope)
        try:
            if need(scope["method"], path).scope is not None:
                await self._prepare(scope)
            principal = access.check(
                scope["method"],
                path,
                scope["headers"],
                scope.get("client"),
                scope.get("scheme", "http"),
                scope.get("http_version", "1.1"),
            )
        except ServeError as error:
            await refuse(scope["app"], error)(scope, receive, send)
            return
        scope.setdefault("state", {}).update({PRINCIPAL: principal, ACCESS: access})
        await self._app(scope, receive, send)


def route_path(scope: Scope) -> str:
    """The path that the router matches, without the prefix that Serve mounts the application at."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :]
    return path


def principal_of(request: Request) -> Principal:
    """The principal of a request that the middleware admitted."""
    found: Principal = getattr(request.state, PRINCIPAL)
    return found


def access_of(request: Request) -> Access:
    """The rules that the request passed."""
    found: Access = getattr(request.state, ACCESS)
    return found
