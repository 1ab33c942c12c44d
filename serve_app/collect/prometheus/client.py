"""Send instant queries to one Prometheus: all queries of one instant share a deadline, and none is retried.

The HTTP session adds what prometheus-api-client lacks. Queries are sent in the body of a POST, because a long query
does not fit in a URL; with GET where a gateway refuses POST. Nothing is retried, because Prometheus answers 503 when
it is overloaded. A timeout covers the whole reply, not each read from the socket. The size of a reply is limited, and
what the store says about it is read: an answer that may be incomplete counts as failed (``completeness.py``). Replies
are decoded by schema, ten times as fast as into dictionaries.
"""

import re
import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

import msgspec
import numpy as np
import requests
import urllib3
from numpy.typing import NDArray
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.util import Retry

from serve_app.collect.prometheus.completeness import missing_parts
from serve_app.net.endpoint import Endpoint, SecretUnreadable, join_url
from serve_app.net.http import first_line
from serve_app.net.tokens import NoToken, TokenSource

Numbers = NDArray[np.float64]

MOST_BYTES = 128 << 20  # in one reply
CHUNK = 1 << 16  # bytes per read; the deadline is checked after each

QUERY_PATH = "/api/v1/query"
MOST_DETAIL = 300  # characters of a failure's description

Failure = Literal[
    "unreachable", "late", "refused", "overloaded", "forbidden", "unreadable", "too_large", "busy", "incomplete"
]


@dataclass(frozen=True, slots=True)
class Samples:
    """An instant vector in columns.

    Attributes:
        label_sets: label set of each sample, as received (JSON).
        values: float64 ``[R]``.
    """

    label_sets: Sequence[bytes] = ()
    values: Numbers = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.label_sets)


# A reply can hold hundreds of thousands of these. gc=False is safe, because none can be part of a cycle.
# Any part may be null: some stores and gateways write null for an empty list.
class _Point(msgspec.Struct, array_like=True, gc=False):
    at: float | None
    value: float | None  # sent as text


class _Sample(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    value: _Point | None = None  # a native histogram has none


class _Data(msgspec.Struct):
    resultType: str | None = None  # noqa: N815 - Prometheus' name
    result: list[_Sample] | None = None


class _Body(msgspec.Struct):
    status: str | None = None
    data: _Data | None = None
    error: str | None = None
    warnings: list[str | None] | None = None
    infos: list[str | None] | None = None
    isPartial: bool | None = None  # noqa: N815 - VictoriaMetrics' name


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The result of one query.

    Attributes:
        samples: the instant vector; empty if no series matches.
        warnings: what Prometheus says about the query or its answer. If it says that a part may be missing, the query
            counts as failed: ``incomplete``.
        failed: why the query failed; empty if it succeeded, even with an empty result.
        detail: description of the failure, for the log.
        seconds: time until the result was complete.
        size: size of the reply, bytes.
    """

    samples: Samples = field(default_factory=Samples)
    warnings: tuple[str, ...] = ()
    failed: Failure | Literal[""] = ""
    detail: str = ""
    seconds: float = 0.0
    size: int = 0


class Prometheus:
    """A client of one Prometheus. Queries run in a few threads; a thread ends soon after its query's deadline.

    Args:
        endpoint: address and credentials.
        at_once: concurrent queries.
        most_bytes: largest reply, decompressed.
        compressed: whether to ask for gzip: a tenth of the bytes, but more CPU time at both ends.
        tokens: issues bearer tokens, instead of the endpoint's credentials.
        harmless_warnings: parts of warnings that do not make an answer incomplete.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        at_once: int = 4,
        most_bytes: int = MOST_BYTES,
        *,
        compressed: bool = False,
        tokens: TokenSource | None = None,
        harmless_warnings: Sequence[str] = (),
    ) -> None:
        session = _Session(endpoint, most_bytes, tokens)
        session.headers["Accept-Encoding"] = "gzip" if compressed else "identity"
        base = endpoint.origin
        self._harmless = tuple(harmless_warnings)
        self._connect = PrometheusConnect(base, session=session, retry=Retry(0, redirect=0), method="POST")
        session.mount(base, HTTPAdapter(pool_maxsize=at_once, max_retries=Retry(0, redirect=0)))
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="prometheus")
        self._running: set[Future[QueryAnswer]] = set()

    def ask(self, queries: Mapping[str, str], at: datetime, within: float) -> dict[str, QueryAnswer]:
        """Evaluate all queries at one instant.

        Args:
            queries: PromQL by name; the caller chooses the names.
            at: the instant.
            within: deadline for all queries together, s. Queries without a result by then are ``late``.

        Returns:
            A result for each name. A failed query does not affect the others.
        """
        self._running = {future for future in self._running if not future.done()}
        if len(self._running) >= self._at_once:  # all threads still wait for an earlier poll: do not add more
            return {name: QueryAnswer(failed="busy", detail="earlier queries are still running") for name in queries}
        until = time.monotonic() + within
        futures = {name: self._threads.submit(self._query, query, at, until) for name, query in queries.items()}
        wait(futures.values(), timeout=within)
        late = QueryAnswer(failed="late", detail=f"no response within {within:g} s", seconds=within)
        answers = {name: future.result() if future.done() else late for name, future in futures.items()}
        self._running |= {future for future in futures.values() if not future.done() and not future.cancel()}
        return answers

    def close(self) -> None:
        """Cancel running queries and close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._connect.close()

    def _query(self, query: str, at: datetime, until: float) -> QueryAnswer:
        began = time.monotonic()
        left = until - began
        if left <= 0:
            return QueryAnswer(failed="late", detail="still queued at the deadline")
        # Seconds without a unit, because Prometheus refuses a unit with a decimal point ("5.000s").
        parameters = {"time": f"{at.timestamp():.3f}", "timeout": f"{max(left, 0.001):.3f}"}
        try:
            reply: _DecodedReply = self._connect.custom_query(query, parameters, timeout=left)
        except OSError as error:  # the base class of all errors of requests; unreadable certificates are no others
            return QueryAnswer(failed=_classify_error(error), detail=_describe(error), seconds=time.monotonic() - began)
        seconds = time.monotonic() - began
        missing = missing_parts(
            reply.warnings, reply.headers, is_partial=reply.is_partial, harmless=self._harmless
        )
        said = (*reply.warnings, *reply.infos)
        if missing:
            detail = "; ".join(missing)[:MOST_DETAIL]
            return QueryAnswer(warnings=said, failed="incomplete", detail=detail, seconds=seconds, size=reply.size)
        return QueryAnswer(reply.samples, said, seconds=seconds, size=reply.size)


@dataclass(frozen=True, slots=True)
class _DecodedReply:
    samples: Samples
    warnings: tuple[str, ...]
    infos: tuple[str, ...]
    is_partial: bool
    headers: Mapping[str, str]
    size: int


class _Failed(requests.RequestException):
    """A query without a usable reply, and why."""

    def __init__(self, failed: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failed = failed


class _Reply(requests.Response):
    """A complete reply that is decoded by schema."""

    def json(self, **_: Any) -> dict[str, dict[str, _DecodedReply]]:
        """The decoded reply, at the place where prometheus-api-client looks for its result.

        Raises:
            _Failed: if the body is incomplete or is not an instant vector.
        """
        if _is_html(self):
            raise _Failed("unreadable", f"expected JSON, got {_html_page(self)}; {_LOGIN}")
        try:
            body = _decode(self.content)
        except msgspec.MsgspecError as error:
            raise _Failed("unreadable", f"{error} in {len(self.content)} bytes") from error
        if body.status == "error":
            raise _Failed("refused", body.error or "an error without a message")
        if body.data is None or (body.data.resultType or ("" if body.data.result else "vector")) != "vector":
            found = (body.data or _Data()).resultType or body.error or "no data"
            raise _Failed("unreadable", f"expected an instant vector, got {found!r}")
        decoded = _DecodedReply(
            _to_samples(body.data.result or ()),
            tuple(filter(None, body.warnings or ())),
            tuple(filter(None, body.infos or ())),
            bool(body.isPartial),
            self.headers,
            len(self.content),
        )
        return {"data": {"result": decoded}}


class _Session(requests.Session):
    def __init__(self, endpoint: Endpoint, most_bytes: int, tokens: TokenSource | None) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self._url = join_url(endpoint.url, QUERY_PATH)
        self._method = "POST"
        self._tokens = tokens
        self.auth = _Auth(endpoint, tokens)
        if endpoint.ca_file:
            self.verify = str(endpoint.ca_file)
        if endpoint.certificate_file:
            own = str(endpoint.certificate_file)
            self.cert = (own, str(endpoint.key_file)) if endpoint.key_file else own

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """Send a query, whatever method and URL prometheus-api-client has in mind; ``timeout`` covers the whole reply, s.

        Gateways that allow only one of POST and GET refuse the other in several ways. The one that works is remembered.

        Raises:
            _Failed: if the reply has another status than 200.
        """
        until = time.monotonic() + kwargs["timeout"]
        used = self._method
        reply = self._send(used, until, kwargs)
        if reply.status_code == 401 and self._tokens is not None and self._has_new_token(reply):
            reply = self._send(used, until, kwargs)
        if reply.status_code in _MAY_BE_THE_METHOD:
            other = "GET" if used == "POST" else "POST"
            second = self._send(other, until, kwargs)
            if second.status_code not in _MAY_BE_THE_METHOD:
                self._method, reply = other, second
        if reply.status_code != 200:
            raise _refusal(reply, self._url, self._method)
        return reply

    def _send(self, method: str, until: float, options: Mapping[str, Any]) -> _Reply:
        """Send a request and read the whole reply. Parameters of a POST go into its body."""
        parameters = {"data" if method == "POST" else "params": options["params"]}
        options = {**options, "params": None, **parameters, "timeout": max(until - time.monotonic(), 0.001)}
        reply = super().request(method, self._url, **options, stream=True, allow_redirects=False)
        with reply:
            try:
                content = self._read(reply, until)
            except urllib3.exceptions.ReadTimeoutError as error:
                raise requests.ReadTimeout(str(error)) from error
            except urllib3.exceptions.HTTPError as error:
                raise requests.exceptions.ContentDecodingError(str(error)) from error
        whole = _Reply()
        whole.status_code, whole.headers, whole.url = reply.status_code, reply.headers, reply.url
        whole.request, whole._content = reply.request, content
        return whole

    def _has_new_token(self, reply: requests.Response) -> bool:
        """Whether there is another token than the one that was refused."""
        refused = str(reply.request.headers.get("Authorization", "")).removeprefix("Bearer ")
        if self._tokens is None:
            return False
        self._tokens.reject(refused)
        return _issue(self._tokens) != refused

    def _read(self, reply: requests.Response, until: float) -> bytes:
        parts, size = [], 0
        while part := reply.raw.read1(CHUNK, decode_content=True):
            parts.append(part)
            size += len(part)
            if size > self._most_bytes:
                raise _Failed(
                    "too_large",
                    f"more than {self._most_bytes} bytes; load the rules that `tagae rules` prints into this Prometheus",
                )
            if time.monotonic() > until:
                raise requests.ReadTimeout("the reply was too slow")
        return b"".join(parts)


class _Auth(AuthBase):
    """Adds headers and credentials. Secret files are read for each request, because secrets are rotated."""

    def __init__(self, endpoint: Endpoint, tokens: TokenSource | None) -> None:
        self._endpoint, self._tokens = endpoint, tokens

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            request.headers.update(self._endpoint.request_headers())
        except SecretUnreadable as error:
            raise _Failed("forbidden", f"secret: {error}") from error
        if self._tokens is not None:
            request.headers["Authorization"] = f"Bearer {_issue(self._tokens)}"
        return request


def _issue(tokens: TokenSource) -> str:
    try:
        return tokens.token()
    except SecretUnreadable as error:
        raise _Failed("forbidden", f"secret: {error}") from error
    except NoToken as error:
        raise _Failed("forbidden", str(error)) from error


_BODY = msgspec.json.Decoder(_Body, strict=False)  # strict=False decodes numbers from text, in a third of the time


def _decode(content: bytes) -> _Body:
    try:
        return _BODY.decode(content)
    except msgspec.ValidationError:
        return _BODY.decode(content.replace(b'"+Inf"]', b'"Inf"]'))  # the one number that msgspec cannot read


def _to_samples(samples: Sequence[_Sample]) -> Samples:
    values = np.fromiter((_number(one) for one in samples), np.float64, len(samples))
    return Samples([bytes(one.metric) for one in samples], values)


def _number(sample: _Sample) -> float:
    return np.nan if sample.value is None or sample.value.value is None else sample.value.value


_STATUS: dict[int, Failure] = {
    206: "incomplete", 401: "forbidden", 403: "forbidden", 407: "forbidden", 429: "overloaded", 503: "overloaded",
}  # fmt: skip
_MAY_BE_THE_METHOD = (403, 404, 405, 501)  # statuses with which gateways refuse POST or GET
_REDIRECTS = (301, 302, 303, 307, 308)
_LOGIN = (
    "is a login in front of this Prometheus? give the credentials that it accepts, or the address of Prometheus behind it"
)
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)


class _Message(msgspec.Struct):
    error: str | None = None
    message: str | None = None


def _refusal(reply: requests.Response, url: str, method: str) -> _Failed:
    """The failure for a status other than 200."""
    status = reply.status_code
    failed = _STATUS.get(status, "refused")
    if status in _REDIRECTS:
        return _Failed(failed, f"{status} {_redirect(url, reply.headers.get('Location', ''))}")
    text = _text(reply)
    detail = f"{status} {text}"[:MOST_DETAIL].rstrip()
    if "no org id" in text:
        detail += "; name the tenant: headers = {X-Scope-OrgID = ...}"
    elif status == 414 or (status == 431 and method == "GET"):
        detail += "; the queries do not fit in a URL: allow POST"
    return _Failed(failed, detail)


def _redirect(url: str, location: str) -> str:
    """What to do about a redirect. Its query can have a secret, so it is left out; it is never followed, because it
    would carry credentials to another server."""
    target, own = urlsplit(urljoin(url, location)), urlsplit(url)
    where = f"{target.scheme}://{target.netloc.rpartition('@')[2]}{target.path}"
    if target.hostname == own.hostname and target.path.endswith(QUERY_PATH):
        return f"redirects to {where}; set `prometheus` to {where.removesuffix(QUERY_PATH)}"
    return f"redirects to {where}; {_LOGIN}"


def _is_html(reply: requests.Response) -> bool:
    kind = reply.headers.get("Content-Type", "")
    return "text/html" in kind.lower() or reply.content[:200].lstrip()[:1] == b"<"


def _html_page(reply: requests.Response) -> str:
    title = _TITLE.search(reply.content[:CHUNK])
    name = " ".join(title[1].decode("utf-8", "replace").split())[:80] if title else ""
    return f"an HTML page ({name})" if name else "an HTML page"


def _text(reply: requests.Response) -> str:
    """The message of a reply: of Prometheus' error, or the start of any other body, in one line."""
    if _is_html(reply):
        return _html_page(reply)
    text = reply.content[:CHUNK].decode("utf-8", "replace")
    try:
        body = msgspec.json.decode(reply.content, type=_Message)
        text = body.error or body.message or text
    except msgspec.MsgspecError:
        pass
    return " ".join(text.split())[:MOST_DETAIL]


def _classify_error(error: OSError) -> Failure:
    if isinstance(error, _Failed):
        return error.failed
    if isinstance(error, requests.Timeout):
        return "late"
    if isinstance(error, requests.exceptions.ContentDecodingError):
        return "unreadable"
    if isinstance(error, requests.ConnectionError) or isinstance(error.__cause__, ssl.SSLError):
        return "unreachable"
    return "unreadable" if isinstance(error, requests.RequestException) else "unreachable"


def _describe(error: OSError) -> str:
    """The operating system's reason, such as "connection refused", or else the first line of the error."""
    if isinstance(error, _Failed):
        return str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return cause.strerror.lower()
        inner = getattr(cause, "reason", None) or next(iter(cause.args), None)
        cause = cause.__cause__ or (inner if isinstance(inner, BaseException) else None)
    return first_line(error)
