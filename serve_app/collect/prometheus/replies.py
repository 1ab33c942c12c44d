"""Replies of a metrics store: their series, or why there are none and what to do about it.

A reply may say that a part of it is missing. Then the query counts as failed:

| store | how it says that a part is missing |
|---|---|
| Prometheus | a warning for each remote read or federated source that failed, or for a limit that cut the result |
| Thanos | a warning for each store that did not answer (partial response) |
| Cortex | a warning, "query result may contain partial data" |
| VictoriaMetrics | ``"isPartial": true`` |
| M3, Chronosphere | a warning |

Since version 2.48, Prometheus also sends hints about the query in the same list. They begin with "PromQL info" or
"PromQL warning", and later versions send the former in a list of their own, ``infos``. Stores that use its engine send
the same texts. A warning that is not a known hint counts as a sign of a missing part.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

import msgspec
import requests

API_PATH = "/api/v1"
QUERY_PATH = f"{API_PATH}/query"
MAX_DETAIL = 300  # characters in a failure's description
_SEARCHED = 1 << 16  # search for a message in this many bytes of a body

Failure = Literal[
    "unreachable", "late", "refused", "overloaded", "forbidden", "unreadable", "too_large", "busy", "incomplete"
]


class QueryFailed(requests.RequestException):
    """A query without a usable reply, and why.

    Attributes:
        status: HTTP status if the reply refuses the query; else 0.
        warnings: the store's remarks on the query and its answer.
    """

    def __init__(self, failure: Failure, detail: str, status: int = 0, warnings: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.failed, self.status, self.warnings = failure, status, warnings


_STATUS: dict[int, Failure] = {
    206: "incomplete", 401: "forbidden", 403: "forbidden", 407: "forbidden", 429: "overloaded", 503: "overloaded",
}  # fmt: skip
_REDIRECTS = (301, 302, 303, 307, 308)
LOGIN = (
    "is a login in front of this Prometheus? give the credentials that it accepts, or the address of Prometheus "
    "behind it"
)
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)


# A reply can hold 100,000 of the following objects. gc=False is safe, because they never form cycles.
# Any field may be null: some stores and gateways write null for an empty list.
class TimedValue(msgspec.Struct, array_like=True, gc=False):
    """The time and the value of a sample."""

    at: float | None
    value: float | None  # sent as text


class StoreSeries(msgspec.Struct, gc=False):
    """A reply's series: ``value`` at an instant, or ``values`` over a range. A native histogram has neither."""

    metric: msgspec.Raw
    value: TimedValue | None = None
    values: list[TimedValue] | None = None


class _Data(msgspec.Struct):
    resultType: str | None = None  # noqa: N815 - Prometheus' name
    result: list[StoreSeries | None] | None = None


class _Body(msgspec.Struct):
    status: str | None = None
    data: _Data | None = None
    error: str | None = None
    warnings: list[str | None] | None = None
    infos: list[str | None] | None = None
    isPartial: bool | None = None  # noqa: N815 - VictoriaMetrics' name


class Result(list[StoreSeries]):
    """A reply's series, and the store's remarks on the query."""

    warnings: tuple[str, ...] = ()


class StoreReply(requests.Response):
    """A reply whose body has been read completely.

    Attributes:
        harmless: texts; a warning that contains one of them does not make the reply incomplete.
    """

    harmless: Sequence[str] = ()

    def json(self, **_: Any) -> dict[str, dict[str, Result]]:
        """Return the body, decoded by schema: a tenth of the time that dictionaries take.

        Raises:
            QueryFailed: the body is unreadable or incomplete, or its result type does not fit the query.
        """
        if is_html(self):
            raise QueryFailed("unreadable", f"expected JSON, got {html_page(self)}; {LOGIN}")
        try:
            body = _decode(self.content)
        except msgspec.MsgspecError as error:
            raise QueryFailed("unreadable", f"{error} in {len(self.content)} bytes") from error
        if body.status == "error":
            raise QueryFailed("refused", body.error or "an error without a message")
        kind = "matrix" if urlsplit(self.url).path.endswith("_range") else "vector"
        data = body.data or (_Data() if body.status == "success" and not body.error else None)
        if data is None or (data.resultType or ("" if data.result else kind)) != kind:
            result_type = (data or _Data()).resultType or body.error or "no data"
            raise QueryFailed("unreadable", f"expected a {kind}, got {result_type!r}")
        warnings = tuple(filter(None, body.warnings or ()))
        remarks = (*warnings, *filter(None, body.infos or ()))
        missing = missing_parts(warnings, is_partial=bool(body.isPartial), harmless=self.harmless)
        if missing:
            raise QueryFailed("incomplete", "; ".join(missing)[:MAX_DETAIL], warnings=remarks)
        result = Result(filter(None, data.result or ()))
        result.warnings = remarks
        return {"data": {"result": result}}


_BODY = msgspec.json.Decoder(_Body, strict=False)  # strict=False decodes numbers from text, in a third of the time


def _decode(content: bytes) -> _Body:
    try:
        return _BODY.decode(content)
    except msgspec.ValidationError:
        return _BODY.decode(content.replace(b'"+Inf"]', b'"Inf"]'))  # the one number that msgspec cannot read


_HINTS = re.compile(
    r"PromQL (info|warning)\b"
    r"|\d+ more (info|warning) annotations omitted"  # Prometheus sends the first ten of each kind
    # The same hints without the prefix, as older versions and other engines write them.
    r"|metric might not be a counter"
    r"|bucket label \S+ is missing or has a malformed value|no bucket label or malformed label value"
    r"|histogram_quantile (needed to be )?fixed for monotonicity|input to histogram_(quantile|fraction)"
    r"|quantile value should be between"
    r"|ignored histograms?\b|mix of (histograms and floats|classic and native histograms)"
    r"|\bdeprecated\b"
    r"|resolution larger than query range",  # M3: the query asks for more detail than is stored
    re.IGNORECASE,
)
# A text with one of these words is never a hint.
_CUT = re.compile(
    r"\b(partial|incomplete|truncated|timed? ?out|unavailable|unreachable|not exhaustive)\b", re.IGNORECASE
)


def is_hint(warning: str) -> bool:
    """Return whether a warning concerns the query and not the answer."""
    if re.match(r"PromQL (info|warning)\b", warning):  # may quote any metric name
        return True
    return bool(_HINTS.search(warning)) and not _CUT.search(warning)


def missing_parts(warnings: Sequence[str], *, is_partial: bool, harmless: Sequence[str] = ()) -> tuple[str, ...]:
    """Return a store's statements about missing parts of its answer; empty if the answer is complete.

    Args:
        harmless: texts; a statement that contains one of them does not count.
    """
    statements = [warning for warning in warnings if not is_hint(warning)]
    if is_partial:
        statements.append("isPartial: true")
    return tuple(dict.fromkeys(text for text in statements if not any(part in text for part in harmless)))


class _Message(msgspec.Struct):
    error: str | None = None
    message: str | None = None


def refusal(reply: requests.Response, method: str) -> QueryFailed:
    """Return the failure for a status other than 200."""
    status = reply.status_code
    failure = _STATUS.get(status, "refused")
    if status in _REDIRECTS:
        return QueryFailed(failure, f"{status} {_redirect(reply.url, reply.headers.get('Location', ''))}", status)
    text = _text(reply)
    detail = f"{status} {text}"[:MAX_DETAIL].rstrip()
    if "no org id" in text:
        detail += "; name the tenant: headers = {X-Scope-OrgID = ...}"
    elif status == 414 or (status == 431 and method == "GET"):
        detail += "; the queries do not fit in a URL: allow POST"
    return QueryFailed(failure, detail, status)


def _redirect(url: str, location: str) -> str:
    """Describe a redirect and its remedy, without its query, which may contain a secret. Redirects are never followed,
    because that would send credentials to another server."""
    target, source = urlsplit(urljoin(url, location)), urlsplit(url)
    address = f"{target.scheme}://{target.netloc.rpartition('@')[2]}{target.path}"
    if target.hostname == source.hostname and target.path.endswith(QUERY_PATH):
        return f"redirects to {address}; set `prometheus` to {address.removesuffix(QUERY_PATH)}"
    return f"redirects to {address}; {LOGIN}"


def is_html(reply: requests.Response) -> bool:
    """Return whether a reply is a web page. Some gateways label JSON as text/html, so the first character decides."""
    begin = reply.content[:200].lstrip()[:1]
    return begin == b"<" or (begin not in (b"", b"{") and "text/html" in reply.headers.get("Content-Type", "").lower())


def html_page(reply: requests.Response) -> str:
    """Return a description of an HTML page, with its title if it has one."""
    title = _TITLE.search(reply.content[:_SEARCHED])
    name = " ".join(title[1].decode("utf-8", "replace").split())[:80] if title else ""
    return f"an HTML page ({name})" if name else "an HTML page"


def _text(reply: requests.Response) -> str:
    """Return a reply's message in one line: Prometheus' error, or the start of any other body."""
    if is_html(reply):
        return html_page(reply)
    text = reply.content[:_SEARCHED].decode("utf-8", "replace")
    try:
        body = msgspec.json.decode(reply.content, type=_Message)
        text = body.error or body.message or text
    except msgspec.MsgspecError:
        pass
    return " ".join(text.split())[:MAX_DETAIL]
