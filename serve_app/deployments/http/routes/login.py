"""Routes to sign in to the page and out again."""

import logging

import msgspec
from fastapi import APIRouter, Request, Response

from serve_app.access import COOKIE, COOKIE_SECONDS
from serve_app.deployments.http.access_control import access_rules
from serve_app.deployments.http.audit import SIGN_OUT, note_of_sign_in
from serve_app.deployments.http.bodies import read_json
from serve_app.deployments.http.routes.oidc import end_sign_in
from serve_app.errors import AuditGone, InvalidDocument
from serve_app.runtime import replica

MAX_BODY_BYTES = 1024
COOKIE_WAYS = ("cookie", "oidc")  # of callers who can sign out
log = logging.getLogger(__name__)
NO_STORE = {"cache-control": "no-store"}

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def identity(request: Request) -> Response:
    """The signed-in user, for the page: whether a login is needed, name, scopes, whether all meshes are visible,
    whether a cookie is used, and how to sign in: with a token, and at which provider."""
    access = access_rules()
    found = access.identify(request.scope["headers"], request.scope.get("client"))
    document = {
        "needed": access.has_login,
        "name": found.name if found else None,
        "scopes": sorted(found.scopes) if found else [],
        "all_meshes": bool(found and found.meshes is None),
        "cookie": bool(found and found.way in COOKIE_WAYS),
        "tokens": access.has_tokens,
        "provider": access.rules.oidc.name if access.rules.oidc else None,
        "from_provider": bool(found and found.way == "oidc"),
    }
    return Response(msgspec.json.encode(document), media_type="application/json", headers=NO_STORE)


@router.post("/login")
async def sign_in(request: Request) -> Response:
    """Put a token into a cookie: `{"token": "..."}`.

    The cookie holds the token itself. So every replica can check it without shared state, and removing the token
    from the file ends all of its sessions at once. It has no Path: the service may be below a path of a proxy that
    it does not know, and without Path a browser takes the folder of this address, which is the right one.
    """
    document = await read_json(request, MAX_BODY_BYTES)
    token = document.get("token") if isinstance(document, dict) else None
    if not isinstance(token, str):
        raise InvalidDocument('token: expected {"token": "..."} with the token as text', pointer="/token")
    headers, client = request.scope["headers"], request.scope.get("client")
    note = note_of_sign_in(request, access_rules().sign_in(token.strip(), headers, client, "POST '/login'"))
    await note.begin()
    await note.finish(204)
    return _with_cookie(token.strip(), COOKIE_SECONDS, request)


@router.post("/logout")
async def sign_out(request: Request) -> Response:
    """Drop the cookies. For a user who signed in at a provider, the answer has the `location` at which the browser
    signs out there too."""
    await _record_sign_out(request)
    sign_ins = replica.ingress().sign_ins
    location, dropped = await end_sign_in(request, sign_ins) if sign_ins else ("", [])
    response = _with_cookie("", 0, request, msgspec.json.encode({"location": location}) if location else b"")
    for cookie in dropped:
        response.headers.append("set-cookie", cookie)
    return response


async def _record_sign_out(request: Request) -> None:
    """Record a sign-out. A failure is only logged: it must not keep a user signed in."""
    principal = access_rules().identify(request.scope["headers"], request.scope.get("client"))
    if principal is None or principal.way not in COOKIE_WAYS:
        return
    note = note_of_sign_in(request, principal, SIGN_OUT)
    try:
        await note.begin()
        await note.finish(204)
    except AuditGone as error:
        log.error("sign-out of %r: %s", principal.name, error.message)


def _with_cookie(token: str, seconds: int, request: Request, content: bytes = b"") -> Response:
    is_secure = access_rules().is_secure(
        request.scope.get("scheme", "http"), request.scope["headers"], request.scope.get("client")
    )
    response = Response(content, 200 if content else 204, NO_STORE, "application/json" if content else None)
    # Starlette's set_cookie would add a Path, see `sign_in`.
    attributes = f"{COOKIE}={token}; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}"
    response.headers["set-cookie"] = attributes
    return response
