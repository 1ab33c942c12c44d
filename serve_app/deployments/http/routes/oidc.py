"""Routes to sign in at an OpenID provider, and out again."""

import html
import logging
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response
from starlette.exceptions import HTTPException

from serve_app.access import COOKIE, Principal
from serve_app.access.oidc.rules import OidcRules
from serve_app.access.sign_ins import ATTEMPT_COOKIE, ATTEMPT_SECONDS
from serve_app.deployments.http.access_control import access_rules
from serve_app.deployments.http.audit import note_of_sign_in
from serve_app.deployments.http.page_files import file_response, is_page_request
from serve_app.deployments.http.problems import refuse
from serve_app.deployments.http.sign_ins import SignIns
from serve_app.errors import Forbidden, ServeError, answer
from serve_app.runtime import replica
from serve_app.web import assets

NO_STORE = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
ID_TOKEN_COOKIE = "tagae_id_token"  # names the sign-in to the provider; only for the route that signs out
NO_ACCESS = (
    "You have no access",
    "You signed in, but none of your groups has access to this service. Please ask an administrator of TAGAE.",
)
FAILED = ("The sign-in failed", "You are not signed in.")
log = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)


async def _sign_ins() -> SignIns:
    found: SignIns | None = replica.ingress().sign_ins
    if found is None:
        raise HTTPException(404, "there is no provider to sign in at; set serve.oidc")
    return found


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
    """Where the provider sends the browser back to."""
    rules, parameters = sign_ins.rules, request.query_params
    attempt = rules.cookie_name(ATTEMPT_COOKIE)
    once = {name: parameters[name] for name in parameters if len(parameters.getlist(name)) == 1}
    try:
        signed_in = await sign_ins.sign_on.finish(access_rules().cookie(request.scope["headers"], attempt), once)
        value = sign_ins.cookies.seal(signed_in.user)
        note = note_of_sign_in(request, Principal(signed_in.user.name, way="oidc", user=signed_in.user))
        await note.begin()
    except ServeError as error:
        response = _failure(error, request, sign_ins.rules)
        response.headers.append("set-cookie", _cookie(rules, attempt, "", 0))
        return response
    await note.finish(303)
    seconds = int(rules.valid_seconds)
    return _redirect(
        signed_in.location,
        _cookie(rules, attempt, "", 0),
        _cookie(rules, sign_ins.cookies.name, value, seconds),
        _cookie(rules, _id_token_name(rules), signed_in.id_token, seconds, _logout_path(rules)),
        # If a token is in a cookie, that cookie would win.
        _cookie(rules, COOKIE, "", 0, urlsplit(rules.home).path.rstrip("/") or "/"),
    )


async def end_sign_in(request: Request, sign_ins: SignIns) -> tuple[str, list[str]]:
    """Sign the user of a request out.

    Returns:
        URL at which the browser signs out at the provider too, empty if the user did not sign in there; and the values
        of ``Set-Cookie`` that drop the cookies.
    """
    rules, access, headers = sign_ins.rules, access_rules(), request.scope["headers"]
    dropped = [
        _cookie(rules, sign_ins.cookies.name, "", 0),
        _cookie(rules, _id_token_name(rules), "", 0, _logout_path(rules)),
    ]
    user = sign_ins.cookies.user(access.cookie(headers, sign_ins.cookies.name))
    if user is None:
        return "", dropped
    return await sign_ins.sign_on.end(user, access.cookie(headers, _id_token_name(rules))), dropped


def _failure(error: ServeError, request: Request, rules: OidcRules) -> Response:
    """The page that says why a sign-in failed, and how to go on; a problem document for programs."""
    log.warning("sign-in at the provider: %s", error.message)
    problem = refuse(request.app, error)
    if not is_page_request(request.scope):
        return problem
    head, story = NO_ACCESS if isinstance(error, Forbidden) else FAILED
    home, reason = html.escape(rules.home), html.escape(error.message)
    page = assets.render("refused.html", "../", head=head, home=home, story=story, reason=reason)
    response = file_response(page, request.headers, {**assets.HEADERS, **NO_STORE})
    response.status_code = answer(error).status
    return response


def _redirect(location: str, *cookies: str) -> Response:
    response = Response(status_code=303, headers={**NO_STORE, "location": location})
    for cookie in cookies:
        response.headers.append("set-cookie", cookie)
    return response


def _id_token_name(rules: OidcRules) -> str:
    return f"__Secure-{ID_TOKEN_COOKIE}" if rules.is_secure else ID_TOKEN_COOKIE


def _logout_path(rules: OidcRules) -> str:
    return urlsplit(rules.home).path + "logout"


def _cookie(rules: OidcRules, name: str, value: str, seconds: int, path: str = "/") -> str:
    """The value of ``Set-Cookie``; without a value of the cookie, it drops the cookie.

    Browsers send the cookie too when a link of another site leads to our page, for example to a report. The check of
    ``Origin`` protects changes.
    """
    secure = "; Secure" if rules.is_secure else ""
    return f"{name}={value}; Path={path}; Max-Age={seconds if value else 0}; HttpOnly; SameSite=Lax{secure}"
