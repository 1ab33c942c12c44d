"""A request's caller, as the gate found it.

The gate checks each request once, before it reads any byte of its body (:mod:`serve_app.deployments.gate`), and passes
the caller to the application in the scope.
"""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.access import Access, Principal
from serve_app.deployments.http.problems import refuse
from serve_app.errors import Forbidden, ServeError, Unauthenticated
from serve_app.runtime import replica

HANDED = "tagae.principal"  # scope extension set by the gate; clients cannot send it
PRINCIPAL = "principal"  # in a request's state
POLICY_VIOLATION = 1008  # websocket close code, RFC 6455


def hand_principal(scope: Scope, principal: Principal) -> Scope:
    return {**scope, "extensions": {**scope.get("extensions", {}), HANDED: principal}}


def control_access(app: ASGIApp) -> ASGIApp:
    """Middleware: refuses requests that bypassed the gate, and users whose sign-in has ended."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope.setdefault("state", {})[PRINCIPAL] = await _caller(scope)
            except ServeError as error:
                await refuse(scope["app"].state.instruments, error)(scope, receive, send)
                return
        if scope["type"] in ("http", "lifespan"):
            await app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        # Anything else gets no answer, which ends its connection.

    return answer


async def _caller(scope: Scope) -> Principal:
    principal: Principal | None = scope.get("extensions", {}).get(HANDED)
    if principal is None:
        raise Forbidden(
            "gate: expected a request that the gate has checked, got one that did not pass it; set "
            "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH to serve_app.deployments.gate.middlewares where Ray starts"
        )
    if principal.user is not None:  # another replica may have signed the user out without the gate's knowledge
        ingress = replica.ingress()
        if ingress.sign_ins is not None:
            await ingress.sign_ins.follow()
        if not ingress.access.is_valid(principal):
            raise Unauthenticated("authorization: this sign-in has ended; sign in again")
    return principal


def principal_of(request: Request) -> Principal:
    principal: Principal = getattr(request.state, PRINCIPAL)
    return principal


def access_rules() -> Access:
    access: Access = replica.ingress().access
    return access
