"""Routes to sign in to the page and out again."""

import msgspec
from fastapi import APIRouter, Request, Response

from serve_app.access import COOKIE, COOKIE_SECONDS
from serve_app.deployments.http.access_control import access_of
from serve_app.deployments.http.bodies import read_json
from serve_app.errors import InvalidDocument

MOST_BODY_BYTES = 1024
NO_STORE = {"cache-control": "no-store"}

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def identity(request: Request) -> Response:
    """The signed-in user, for the page: whether a login is needed, name, scopes, whether all meshes are visible,
    and whether a cookie is used."""
    found = access_of(request).identify(request.scope["headers"], request.scope.get("client"))
    document = {
        "needed": access_of(request).has_login,
        "name": found.name if found else None,
        "scopes": sorted(found.scopes) if found else [],
        "all_meshes": bool(found and found.meshes is None),
        "cookie": bool(found and found.way == "cookie"),
    }
    return Response(msgspec.json.encode(document), media_type="application/json", headers=NO_STORE)


@router.post("/login")
async def sign_in(request: Request) -> Response:
    """Put a token into a cookie: `{"token": "..."}`.

    The cookie holds the token itself. So every replica can check it without shared state, and removing the token
    from the file ends all of its sessions at once. It has no Path: the service may be below a path of a proxy that
    it does not know, and without Path a browser takes the folder of this address, which is the right one.
    """
    document = await read_json(request, MOST_BODY_BYTES)
    token = document.get("token") if isinstance(document, dict) else None
    if not isinstance(token, str):
        raise InvalidDocument('token: expected {"token": "..."} with the token as text', pointer="/token")
    headers, client = request.scope["headers"], request.scope.get("client")
    access_of(request).sign_in(token.strip(), headers, client, "POST '/login'")
    return _with_cookie(token.strip(), COOKIE_SECONDS, request)


@router.post("/logout")
async def sign_out(request: Request) -> Response:
    """Delete the cookie."""
    return _with_cookie("", 0, request)


def _with_cookie(token: str, seconds: int, request: Request) -> Response:
    is_secure = access_of(request).is_secure(
        request.scope.get("scheme", "http"), request.scope["headers"], request.scope.get("client")
    )
    response = Response(status_code=204, headers=NO_STORE)
    # Starlette's set_cookie would add a Path, see `sign_in`.
    attributes = f"{COOKIE}={token}; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}"
    response.headers["set-cookie"] = attributes
    return response
