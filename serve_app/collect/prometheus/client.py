"""Send instant queries to one Prometheus: all queries of one instant share a deadline, and none is retried.

The HTTP session adds what prometheus-api-client lacks. Queries are sent in the body of a POST, because a long query
does not fit in a URL; with GET where a gateway refuses POST. Nothing is retried, because Prometheus answers 503 when
it is overloaded. A timeout covers the whole reply, not each read from the socket. The size of a reply is limited, and
what the store says about it is read: an answer that may be incomplete counts as failed (``completeness.py``). Replies
are decoded by schema, ten times as fast as into dictionaries.
"""

import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

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
from serve_app.collect.prometheus.refusals import (
    API_PATH,
    LOGIN,
    MAY_BE_THE_METHOD,
    MOST_DETAIL,
    QUERY_PATH,
    Failure,
    QueryFailed,
    html_page,
    is_html,
    refusal,
)
from serve_app.net.endpoint import Endpoint, SecretUnreadable, join_url
from serve_app.net.http import first_line
from serve_app.net.tokens import NoToken, TokenSource

Numbers = NDArray[np.float64]

MOST_BYTES = 128 << 20  # in one reply
CHUNK = 1 << 16  # bytes per read; the deadline is checked after each
RANGE = "_range"  # at the end of the path of queries
NEAR = 1e-3  # s, within which two instants are one
OTHER_METHOD_SECONDS = 60.0  # after POST and GET were refused, until the other one is tried again


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


class _PointsOfSeries(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    values: list[_Point] | None = None  # a native histogram has none


class _Matrix(msgspec.Struct):
    resultType: str | None = None  # noqa: N815 - Prometheus' name
    result: list[_PointsOfSeries | None] | None = None


class _Data(msgspec.Struct):
    resultType: str | None = None  # noqa: N815 - Prometheus' name
    result: list[_Sample | None] | None = None


class _Body(msgspec.Struct):
    status: str | None = None
    data: _Data | None = None
    error: str | None = None
    warnings: list[str | None] | None = None
    infos: list[str | None] | None = None
    isPartial: bool | None = None  # noqa: N815 - VictoriaMetrics' name


@dataclass(frozen=True, slots=True)
class Instants:
    """The instants of a range query.

    Attributes:
        begin: Unix time of the first, s.
        step: time between two, s.
        count: number of them.
    """

    begin: float
    step: float
    count: int

    @property
    def end(self) -> float:
        """Unix time of the last, s."""
        return self.begin + (self.count - 1) * self.step

    def find(self, at: float) -> int | None:
        """The number of an instant; None if the range does not have it."""
        number = round((at - self.begin) / self.step)
        is_one = 0 <= number < self.count and abs(self.begin + number * self.step - at) < NEAR
        return number if is_one else None


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
        detail = f"no response within {within:.2g} s" if within > 0 else "earlier queries used up the time of this poll"
        late = QueryAnswer(failed="late", detail=detail, seconds=within)
        answers = {name: future.result() if future.done() else late for name, future in futures.items()}
        self._running |= {future for future in futures.values() if not future.done() and not future.cancel()}
        return answers

    def ask_range(self, query: str, instants: Instants, within: float) -> "RangeAnswer":
        """Evaluate a query at many instants.

        Args:
            query: PromQL.
            instants: at most 11,000, the limit of Prometheus.
            within: deadline, s.
        """
        parameters = {
            "start": f"{instants.begin:.3f}",
            "end": f"{instants.end:.3f}",
            "step": f"{instants.step:.3f}",
            "timeout": f"{max(within, 0.001):.3f}",
        }
        session = self._connect._session
        try:
            reply = session.request("POST", RANGE, params=parameters | {"query": query}, timeout=max(within, 0.001))
            matrix, missing = _read_matrix(reply, self._harmless)
        except OSError as error:
            return RangeAnswer(QueryAnswer(failed=_classify_error(error), detail=_describe(error)))
        if missing:
            return RangeAnswer(QueryAnswer(failed="incomplete", detail="; ".join(missing)[:MOST_DETAIL]))
        labels = [bytes(one.metric) for one in matrix]
        values = np.full((len(matrix), instants.count), np.nan)
        present = np.zeros(values.shape, bool)
        for row, one in enumerate(matrix):
            for point in one.values or ():
                number = None if point.at is None else instants.find(point.at)
                if number is not None:
                    values[row, number], present[row, number] = np.nan if point.value is None else point.value, True
        return RangeAnswer(QueryAnswer(size=len(reply.content)), labels, values, present)

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
        except OSError as error:  # the base class of all errors of requests; unreadable certificates raise one too
            return QueryAnswer(failed=_classify_error(error), detail=_describe(error), seconds=time.monotonic() - began)
        seconds = time.monotonic() - began
        missing = missing_parts(reply.warnings, reply.headers, is_partial=reply.is_partial, harmless=self._harmless)
        said = (*reply.warnings, *reply.infos)
        if missing:
            detail = "; ".join(missing)[:MOST_DETAIL]
            return QueryAnswer(warnings=said, failed="incomplete", detail=detail, seconds=seconds, size=reply.size)
        return QueryAnswer(reply.samples, said, seconds=seconds, size=reply.size)


@dataclass(frozen=True, slots=True, eq=False)
class RangeAnswer:
    """The result of a range query.

    Attributes:
        outcome: whether it failed, and why.
        label_sets: of each of R series, as received (JSON).
        values: float64 ``[R, T]``.
        present: bool ``[R, T]``, whether a series has a sample at an instant.
    """

    outcome: QueryAnswer
    label_sets: Sequence[bytes] = ()
    values: Numbers = field(default_factory=lambda: np.empty((0, 0)))
    present: NDArray[np.bool_] = field(default_factory=lambda: np.empty((0, 0), bool))

    def at(self, number: int) -> QueryAnswer:
        """The result at one instant, as an instant query would have it."""
        if self.outcome.failed or not self.label_sets:
            return self.outcome
        rows = np.flatnonzero(self.present[:, number]).tolist()
        return QueryAnswer(Samples([self.label_sets[i] for i in rows], self.values[rows, number]))


@dataclass(frozen=True, slots=True)
class _DecodedReply:
    samples: Samples
    warnings: tuple[str, ...]
    infos: tuple[str, ...]
    is_partial: bool
    headers: Mapping[str, str]
    size: int


class _Reply(requests.Response):
    """A complete reply that is decoded by schema."""

    def json(self, **_: Any) -> dict[str, dict[str, _DecodedReply]]:
        """The decoded reply, at the place where prometheus-api-client looks for its result.

        Raises:
            QueryFailed: if the body is incomplete or is not an instant vector.
        """
        if is_html(self):
            raise QueryFailed("unreadable", f"expected JSON, got {html_page(self)}; {LOGIN}")
        try:
            body = _decode(self.content)
        except msgspec.MsgspecError as error:
            raise QueryFailed("unreadable", f"{error} in {len(self.content)} bytes") from error
        if body.status == "error":
            raise QueryFailed("refused", body.error or "an error without a message")
        data = body.data or (_Data() if body.status == "success" and not body.error else None)
        if data is None or (data.resultType or ("" if data.result else "vector")) != "vector":
            found = (data or _Data()).resultType or body.error or "no data"
            raise QueryFailed("unreadable", f"expected an instant vector, got {found!r}")
        decoded = _DecodedReply(
            _to_samples([one for one in data.result or () if one is not None]),
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
        self._url = query_url(endpoint.url)
        self._range_url = query_url(endpoint.url, f"{QUERY_PATH}{RANGE}")
        self._method = "POST"
        self._other_from = 0.0  # when the other method may be tried
        self._tokens = tokens
        self.auth = _Auth(endpoint, tokens)
        if endpoint.ca_file:
            self.verify = str(endpoint.ca_file)
        if endpoint.certificate_file:
            own = str(endpoint.certificate_file)
            self.cert = (own, str(endpoint.key_file)) if endpoint.key_file else own

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """Send a query; ``timeout`` covers the whole reply, s. Method and URL of prometheus-api-client are not used: it
        knows no query parameters of the address.

        Gateways that allow only one of POST and GET refuse the other in several ways. The one that works is remembered.

        Raises:
            QueryFailed: if the reply has another status than 200.
        """
        until = time.monotonic() + kwargs["timeout"]
        used, target = self._method, self._range_url if url == RANGE else self._url
        reply = self._send(used, target, until, kwargs)
        if reply.status_code == 401 and self._has_new_token(reply):
            reply = self._send(used, target, until, kwargs)
        if reply.status_code in MAY_BE_THE_METHOD and time.monotonic() >= self._other_from:
            other = "GET" if used == "POST" else "POST"
            second = self._send(other, target, until, kwargs)
            if second.status_code not in MAY_BE_THE_METHOD:
                self._method, reply = other, second
            else:
                self._other_from = time.monotonic() + OTHER_METHOD_SECONDS
        if reply.status_code != 200:
            raise refusal(reply, target, self._method)
        return reply

    def _send(self, method: str, url: str, until: float, options: Mapping[str, Any]) -> _Reply:
        """Send a request and read the whole reply. Parameters of a POST go into its body."""
        parameters = {"data" if method == "POST" else "params": options["params"]}
        options = {**options, "params": None, **parameters, "timeout": max(until - time.monotonic(), 0.001)}
        reply = super().request(method, url, **options, stream=True, allow_redirects=False)
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
        """Whether a token source has another token than the one that was refused."""
        if self._tokens is None:
            return False
        refused = str(reply.request.headers.get("Authorization", "")).removeprefix("Bearer ")
        self._tokens.reject(refused)
        return _issue(self._tokens) != refused

    def _read(self, reply: requests.Response, until: float) -> bytes:
        parts, size = [], 0
        while part := reply.raw.read1(CHUNK, decode_content=True):
            parts.append(part)
            size += len(part)
            if size > self._most_bytes:
                raise QueryFailed(
                    "too_large",
                    f"more than {self._most_bytes} bytes; load the rules that `tagae rules` prints into this "
                    "Prometheus",
                )
            if time.monotonic() > until:
                raise requests.ReadTimeout("the reply was too slow")
        return b"".join(parts)


def query_url(url: str, path_of_queries: str = QUERY_PATH) -> str:
    """Where to send queries. People also give the address of the API, or of its queries."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    for end in (QUERY_PATH, API_PATH):
        path = path.removesuffix(end)
    return join_url(urlunsplit(parts._replace(path=path)), path_of_queries)


class _Auth(AuthBase):
    """Adds headers and credentials. Secret files are read for each request, because secrets are rotated."""

    def __init__(self, endpoint: Endpoint, tokens: TokenSource | None) -> None:
        self._endpoint, self._tokens = endpoint, tokens

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            request.headers.update(self._endpoint.request_headers())
        except SecretUnreadable as error:
            raise QueryFailed("forbidden", f"secret: {error}") from error
        if self._tokens is not None:
            request.headers["Authorization"] = f"Bearer {_issue(self._tokens)}"
        return request


def _issue(tokens: TokenSource) -> str:
    try:
        return tokens.token()
    except SecretUnreadable as error:
        raise QueryFailed("forbidden", f"secret: {error}") from error
    except NoToken as error:
        raise QueryFailed("forbidden", str(error)) from error


class _RangeBody(msgspec.Struct):
    status: str | None = None
    data: _Matrix | None = None
    error: str | None = None
    warnings: list[str | None] | None = None
    isPartial: bool | None = None  # noqa: N815 - VictoriaMetrics' name


def _read_matrix(reply: requests.Response, harmless: Sequence[str]) -> tuple[list[_PointsOfSeries], list[str]]:
    """The series of a reply, and why it may be incomplete.

    Raises:
        QueryFailed: the body is no matrix.
    """
    if is_html(reply):
        raise QueryFailed("unreadable", f"expected JSON, got {html_page(reply)}; {LOGIN}")
    try:
        body = _RANGE_BODY.decode(reply.content.replace(b'"+Inf"]', b'"Inf"]'))
    except msgspec.MsgspecError as error:
        raise QueryFailed("unreadable", f"{error} in {len(reply.content)} bytes") from error
    if body.status == "error" or body.data is None or body.data.resultType not in (None, "matrix"):
        raise QueryFailed("refused", body.error or "an error without a message")
    warnings = tuple(filter(None, body.warnings or ()))
    missing = missing_parts(warnings, reply.headers, is_partial=bool(body.isPartial), harmless=harmless)
    return [one for one in body.data.result or () if one is not None], list(missing)


_RANGE_BODY = msgspec.json.Decoder(_RangeBody, strict=False)
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


def _classify_error(error: OSError) -> Failure:
    if isinstance(error, QueryFailed):
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
    if isinstance(error, QueryFailed):
        return str(error)
    reason = _system_reason(error) or first_line(error)
    asks_for_certificate = "certificate required" in reason.replace("_", " ").lower()
    return f"{reason}; set certificate_file and key_file" if asks_for_certificate else reason


def _system_reason(error: OSError) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return cause.strerror.lower()
        inner = getattr(cause, "reason", None) or next(iter(cause.args), None)
        cause = cause.__cause__ or (inner if isinstance(inner, BaseException) else None)
    return ""
