"""Routes for signing in to the page and out again, with a token or at an OpenID provider."""

import html
import logging
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from starlette.exceptions import HTTPException

from serve_app.access import COOKIE, COOKIE_SECONDS, Principal, RequestHead
from serve_app.access.oidc.rules import OidcRules
from serve_app.access.sign_ins import ATTEMPT_COOKIE, ATTEMPT_SECONDS
from serve_app.deployments.http.access_control import access_rules
from serve_app.deployments.http.audit import SIGN_OUT, note_of_sign_in
from serve_app.deployments.http.bodies import read_json
from serve_app.deployments.http.page_files import file_response, is_page_request
from serve_app.deployments.http.problems import refuse
from serve_app.deployments.http.sign_ins import SignIns
from serve_app.errors import AuditGone, Forbidden, InvalidDocument, ServeError, answer
from serve_app.runtime import replica
from serve_app.web import assets

MAX_BODY_BYTES = 1024
COOKIE_WAYS = ("cookie", "oidc")  # callers who can sign out
NO_STORE = {"cache-control": "no-store"}
NO_REFERRER = {**NO_STORE, "referrer-policy": "no-referrer"}
ID_TOKEN_COOKIE = "tagae_id_token"  # identifies the sign-in to the provider; only for the sign-out route
NO_ACCESS = (
    "You have no access",
    "You signed in, but none of your groups has access to this service. Please ask an administrator of TAGAE.",
)
FAILED = ("The sign-in failed", "You are not signed in.")
log = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def identity(request: Request) -> Response:
    """The signed-in user, for the page: whether a login is needed, name, scopes, whether all meshes are visible,
    whether a cookie is used, and how to sign in: with a token, and at which provider."""
    access = access_rules()
    caller = access.identify(request.scope)
    document = {
        "needed": access.rules.has_login,
        "name": caller.name if caller else None,
        "scopes": sorted(caller.scopes) if caller else [],
        "all_meshes": bool(caller and caller.meshes is None),
        "cookie": bool(caller and caller.way in COOKIE_WAYS),
        "tokens": access.rules.tokens_file is not None,
        "provider": access.rules.oidc.name if access.rules.oidc else None,
        "from_provider": bool(caller and caller.way == "oidc"),
    }
    return Response(msgspec.json.encode(document), media_type="application/json", headers=NO_STORE)


@router.post("/login")
async def sign_in(request: Request) -> Response:
    """Put a token into a cookie: `{"token": "..."}`.

    The cookie holds the token itself. So every replica can check it without shared state, and removing the token from
    the file ends all of its sessions at once. It has no Path: the service may be below an unknown path of a proxy, and
    without Path, a browser uses the folder of this address.
    """
    document = await read_json(request, MAX_BODY_BYTES)
    token = document.get("token") if isinstance(document, dict) else None
    if not isinstance(token, str):
        raise InvalidDocument('token: expected {"token": "..."} with the token as text', pointer="/token")
    note = note_of_sign_in(request, access_rules().sign_in(token.strip(), request.scope))
    await note.begin()
    await note.finish(204)
    return _with_cookie(token.strip(), COOKIE_SECONDS, request)


async def _sign_ins() -> SignIns:
    sign_ins: SignIns | None = replica.ingress().sign_ins
    if sign_ins is None:
        raise HTTPException(404, "there is no provider to sign in at; set serve.oidc")
    return sign_ins


UseSignIns = Annotated[SignIns, Depends(_sign_ins)]


@router.get("/login/oidc")
async def begin_sign_in(request: Request, sign_ins: UseSignIns, return_to: str = "") -> Response:
    """Send the browser to the provider. `return_to` is a place on our page, such as `#mesh=shop`."""
    try:
        attempt, location = await sign_ins.sign_on.begin(return_to)
    except ServeError as error:
        return _failure(error, request, sign_ins.rules)
    cookie = _cookie(sign_ins.rules, sign_ins.rules.cookie_name(ATTEMPT_COOKIE), attempt, ATTEMPT_SECONDS)
    return _redirect(location, cookie)


@router.get("/login/callback")
async def finish_sign_in(request: Request, sign_ins: UseSignIns) -> Response:
    """The address to which the provider sends the browser back."""
    rules, parameters = sign_ins.rules, request.query_params
    attempt = rules.cookie_name(ATTEMPT_COOKIE)
    single_parameters = {name: parameters[name] for name in parameters if len(parameters.getlist(name)) == 1}
    try:
        result = await sign_ins.sign_on.finish(RequestHead(request.scope).cookie(attempt), single_parameters)
        value = sign_ins.cookies.seal(result.user)
        note = note_of_sign_in(request, Principal(result.user.name, way="oidc", user=result.user))
        await note.begin()
    except ServeError as error:
        response = _failure(error, request, sign_ins.rules)
        response.headers.append("set-cookie", _cookie(rules, attempt, "", 0))
        return response
    await note.finish(303)
    seconds = int(rules.valid_seconds)
    return _redirect(
        result.location,
        _cookie(rules, attempt, "", 0),
        _cookie(rules, sign_ins.cookies.name, value, seconds),
        _cookie(rules, _id_token_name(rules), result.id_token, seconds, _logout_path(rules)),
        # A cookie with a token would take precedence.
        _cookie(rules, COOKIE, "", 0, urlsplit(rules.home).path.rstrip("/") or "/"),
    )


@router.post("/logout")
async def sign_out(request: Request) -> Response:
    """Drop the cookies. For a user who signed in at a provider, the answer has the `location` at which the browser also
    signs out there."""
    await _record_sign_out(request)
    sign_ins = replica.ingress().sign_ins
    location, cookies = await _end_sign_in(request, sign_ins) if sign_ins else ("", [])
    response = _with_cookie("", 0, request, msgspec.json.encode({"location": location}) if location else b"")
    for cookie in cookies:
        response.headers.append("set-cookie", cookie)
    return response


async def _record_sign_out(request: Request) -> None:
    """Record a sign-out. A failure is only logged: it must not keep a user signed in."""
    principal = access_rules().identify(request.scope)
    if principal is None or principal.way not in COOKIE_WAYS:
        return
    note = note_of_sign_in(request, principal, SIGN_OUT)
    try:
        await note.begin()
        await note.finish(204)
    except AuditGone as error:
        log.error("sign-out of %r: %s", principal.name, error.message)


def _with_cookie(token: str, seconds: int, request: Request, content: bytes = b"") -> Response:
    secure = "; Secure" if access_rules().is_secure(request.scope) else ""
    response = Response(content, 200 if content else 204, NO_STORE, "application/json" if content else None)
    # Starlette's set_cookie would add a Path, see `sign_in`.
    response.headers["set-cookie"] = f"{COOKIE}={token}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return response


async def _end_sign_in(request: Request, sign_ins: SignIns) -> tuple[str, list[str]]:
    """Sign the user of a request out.

    Returns:
        The URL at which the browser also signs out at the provider, empty if the user did not sign in there; and the
        values of ``Set-Cookie`` that drop the cookies.
    """
    rules, head = sign_ins.rules, RequestHead(request.scope)
    cookies = [
        _cookie(rules, sign_ins.cookies.name, "", 0),
        _cookie(rules, _id_token_name(rules), "", 0, _logout_path(rules)),
    ]
    user = sign_ins.cookies.user(head.cookie(sign_ins.cookies.name))
    if user is None:
        return "", cookies
    return await sign_ins.sign_on.end(user, head.cookie(_id_token_name(rules))), cookies


def _failure(error: ServeError, request: Request, rules: OidcRules) -> Response:
    """A page that says why a sign-in failed, and what to do next; a problem document for programs."""
    log.warning("sign-in at the provider: %s", error.message)
    problem = refuse(request.app.state.instruments, error)
    if not is_page_request(request.scope):
        return problem
    head, story = NO_ACCESS if isinstance(error, Forbidden) else FAILED
    home, reason = html.escape(rules.home), html.escape(error.message)
    page = assets.render("refused.html", "../", head=head, home=home, story=story, reason=reason)
    response = file_response(page, request.headers, {**assets.HEADERS, **NO_REFERRER})
    response.status_code = answer(error).status
    return response


def _redirect(location: str, *cookies: str) -> Response:
    response = Response(status_code=303, headers={**NO_REFERRER, "location": location})
    for cookie in cookies:
        response.headers.append("set-cookie", cookie)
    return response


def _id_token_name(rules: OidcRules) -> str:
    return f"__Secure-{ID_TOKEN_COOKIE}" if rules.is_secure else ID_TOKEN_COOKIE


def _logout_path(rules: OidcRules) -> str:
    return urlsplit(rules.home).path + "logout"


def _cookie(rules: OidcRules, name: str, value: str, seconds: int, path: str = "/") -> str:
    """The value of ``Set-Cookie``; if the cookie's value is empty, it drops the cookie.

    Browsers also send the cookie when another site's link leads to our page, for example to a report. The ``Origin``
    check protects changes.
    """
    secure = "; Secure" if rules.is_secure else ""
    return f"{name}={value}; Path={path}; Max-Age={seconds if value else 0}; HttpOnly; SameSite=Lax{secure}"
