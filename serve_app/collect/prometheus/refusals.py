"""Why a query has no usable reply, and what to do about it: refusals, redirects, pages of a login."""

import re
from typing import Literal
from urllib.parse import urljoin, urlsplit

import msgspec
import requests

API_PATH = "/api/v1"
QUERY_PATH = f"{API_PATH}/query"
MOST_DETAIL = 300  # characters of a failure's description
_SEARCHED = 1 << 16  # bytes of a body in which a message is looked for

Failure = Literal[
    "unreachable", "late", "refused", "overloaded", "forbidden", "unreadable", "too_large", "busy", "incomplete"
]


class QueryFailed(requests.RequestException):
    """A query without a usable reply, and why."""

    def __init__(self, failed: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failed = failed


_STATUS: dict[int, Failure] = {
    206: "incomplete", 401: "forbidden", 403: "forbidden", 407: "forbidden", 429: "overloaded", 503: "overloaded",
}  # fmt: skip
MAY_BE_THE_METHOD = (403, 404, 405, 411, 415, 501)  # statuses with which gateways refuse POST or GET
_REDIRECTS = (301, 302, 303, 307, 308)
LOGIN = (
    "is a login in front of this Prometheus? give the credentials that it accepts, or the address of Prometheus "
    "behind it"
)
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)


class _Message(msgspec.Struct):
    error: str | None = None
    message: str | None = None


def refusal(reply: requests.Response, url: str, method: str) -> QueryFailed:
    """The failure for a status other than 200.

    Args:
        reply: the whole reply.
        url: of the request.
        method: of the request.
    """
    status = reply.status_code
    failed = _STATUS.get(status, "refused")
    if status in _REDIRECTS:
        return QueryFailed(failed, f"{status} {_redirect(url, reply.headers.get('Location', ''))}")
    text = _text(reply)
    detail = f"{status} {text}"[:MOST_DETAIL].rstrip()
    if "no org id" in text:
        detail += "; name the tenant: headers = {X-Scope-OrgID = ...}"
    elif status == 414 or (status == 431 and method == "GET"):
        detail += "; the queries do not fit in a URL: allow POST"
    return QueryFailed(failed, detail)


def _redirect(url: str, location: str) -> str:
    """What to do about a redirect. Its query can have a secret, so it is left out; it is never followed, because it
    would carry credentials to another server."""
    target, own = urlsplit(urljoin(url, location)), urlsplit(url)
    where = f"{target.scheme}://{target.netloc.rpartition('@')[2]}{target.path}"
    if target.hostname == own.hostname and target.path.endswith(QUERY_PATH):
        return f"redirects to {where}; set `prometheus` to {where.removesuffix(QUERY_PATH)}"
    return f"redirects to {where}; {LOGIN}"


def is_html(reply: requests.Response) -> bool:
    """Whether a reply is a page for people. Some gateways call JSON text/html, so its first character decides."""
    begin = reply.content[:200].lstrip()[:1]
    return begin == b"<" or (begin not in (b"", b"{") and "text/html" in reply.headers.get("Content-Type", "").lower())


def html_page(reply: requests.Response) -> str:
    """A description of an HTML page, with its title if it has one."""
    title = _TITLE.search(reply.content[:_SEARCHED])
    name = " ".join(title[1].decode("utf-8", "replace").split())[:80] if title else ""
    return f"an HTML page ({name})" if name else "an HTML page"


def _text(reply: requests.Response) -> str:
    """The message of a reply: of Prometheus' error, or the start of any other body, in one line."""
    if is_html(reply):
        return html_page(reply)
    text = reply.content[:_SEARCHED].decode("utf-8", "replace")
    try:
        body = msgspec.json.decode(reply.content, type=_Message)
        text = body.error or body.message or text
    except msgspec.MsgspecError:
        pass
    return " ".join(text.split())[:MOST_DETAIL]
