"""Access control as ASGI middleware: it decides before any byte of a body is read."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.access import Access, Principal
from serve_app.deployments.problems import refuse
from serve_app.errors import ServeError

PRINCIPAL, ACCESS = "principal", "access"  # in the state of a request
POLICY_VIOLATION = 1008  # of a websocket, RFC 6455


class AccessControl:
    """Middleware: who may not do what they ask for gets an answer here, and nothing behind it runs.

    Args:
        app: what it protects.
        access: gives the rules; called with each request, since the rules are made after the application.
        prefix: of the paths of ``app``, where it is not the service itself.
    """

    def __init__(self, app: ASGIApp, access: Callable[[], Access], prefix: str = "") -> None:
        self._app, self._access, self._prefix = app, access, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._decide(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        # Anything else gets no answer, which ends its connection.

    async def _decide(self, scope: Scope, receive: Receive, send: Send) -> None:
        access = self._access()
        try:
            principal = access.check(
                scope["method"],
                self._prefix + route_path(scope),
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
    """The path that the router matches: without that below which Serve mounts the application."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :]
    return path


def principal_of(request: Request) -> Principal:
    """Who asks, as the middleware found."""
    found: Principal = getattr(request.state, PRINCIPAL)
    return found


def access_of(request: Request) -> Access:
    """The rules that the request passed."""
    found: Access = getattr(request.state, ACCESS)
    return found
