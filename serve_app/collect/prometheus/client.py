"""Send queries to one Prometheus: all queries of one instant share a deadline, and none is retried.

prometheus-api-client builds and sends each query (``custom_query``, ``custom_query_range``), with its URL, its method
and a session that has our limits. The session adds what the library lacks:

- The parameters of a POST go into its body, because a long query does not fit in a URL.
- The deadline covers the whole reply, not each read from the socket, and the size of a reply is limited.
- Redirects are not followed, credentials are read again for each query, and a refused token is replaced once.
- Replies are decoded by schema (``replies.py``). As dictionaries, the reply for a large mesh takes ten times as long.
"""

import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import compress
from math import nan
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit, urlunsplit

import numpy as np
import requests
import urllib3
from numpy.typing import NDArray
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.util import Retry

from serve_app.collect.prometheus.replies import API_PATH, QUERY_PATH, Failure, QueryFailed, Result, StoreReply, refusal
from serve_app.net.endpoint import Endpoint, SecretUnreadable
from serve_app.net.http import first_line
from serve_app.net.tokens import NoToken, TokenSource

Numbers = NDArray[np.float64]
K = TypeVar("K")

MAX_BYTES = 128 << 20  # in one reply
CHUNK = 1 << 20  # bytes per read; the deadline is checked after each
_TOLERANCE_SECONDS = 1e-3  # closer instants are the same
MAY_BE_THE_METHOD = (403, 404, 405, 411, 415, 501)  # statuses with which gateways refuse POST or GET
OTHER_METHOD_SECONDS = 60.0  # wait after both POST and GET were refused, before the other method is tried again


@dataclass(frozen=True, slots=True)
class Samples:
    """An instant vector in columns."""

    label_sets: Sequence[bytes] = ()  # [R], as received (JSON)
    values: Numbers = field(default_factory=lambda: np.empty(0))  # [R]

    def __len__(self) -> int:
        return len(self.label_sets)


@dataclass(frozen=True, slots=True)
class Instants:
    """The instants of a range query."""

    begin: float  # Unix time of the first, in whole seconds
    step: float  # s
    count: int

    @property
    def end(self) -> float:
        """Unix time of the last, s."""
        return self.begin + (self.count - 1) * self.step

    def times(self) -> Iterator[datetime]:
        """Yield the instants, oldest first."""
        for number in range(self.count):
            yield datetime.fromtimestamp(self.begin + number * self.step, UTC)

    def find(self, at: float) -> int | None:
        """Return the index of an instant; None if it is not in the range."""
        number = round((at - self.begin) / self.step)
        is_instant = 0 <= number < self.count and abs(self.begin + number * self.step - at) < _TOLERANCE_SECONDS
        return number if is_instant else None


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The result of one query.

    Attributes:
        samples: the instant vector; empty if no series matches.
        warnings: what Prometheus says about the query or its answer. If it says that a part may be missing, the query
            counts as failed: ``incomplete``.
        failed: why the query failed; empty if it succeeded, even with an empty result.
    """

    samples: Samples = field(default_factory=Samples)
    warnings: tuple[str, ...] = ()
    failed: Failure | Literal[""] = ""
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RangeAnswer:
    """The result of a range query."""

    outcome: QueryAnswer  # whether it failed, and why
    label_sets: Sequence[bytes] = ()  # [R], as received (JSON)
    values: Numbers = field(default_factory=lambda: np.empty((0, 0)))  # [R, T]
    present: NDArray[np.bool_] = field(default_factory=lambda: np.empty((0, 0), bool))  # [R, T], has a sample

    def at(self, number: int) -> QueryAnswer:
        """Return the result at one instant, as an instant query would return it."""
        if self.outcome.failed or not self.label_sets:
            return self.outcome
        present = self.present[:, number]
        if present.all():
            return QueryAnswer(Samples(self.label_sets, self.values[:, number]))
        return QueryAnswer(Samples([*compress(self.label_sets, present.tolist())], self.values[present, number]))


class Evaluator(Protocol):
    """Evaluates queries at one instant."""

    def ask(self, queries: Mapping[K, str], at: datetime, within: float) -> dict[K, QueryAnswer]:
        """Evaluate all queries at one instant.

        Args:
            queries: PromQL by name; the caller chooses the names.
            within: deadline for all queries together, s. Queries without a result by then are ``late``.

        Returns:
            A result for each name. A failed query does not affect the others.
        """


class Prometheus:
    """A client of one Prometheus, an :class:`Evaluator`. Queries run in a few threads; a thread ends soon after its
    query's deadline.

    Args:
        at_once: concurrent queries.
        max_bytes: largest reply, decompressed.
        tokens: issues bearer tokens, instead of the endpoint's credentials.
        harmless_warnings: parts of warnings that do not make an answer incomplete.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        at_once: int = 4,
        max_bytes: int = MAX_BYTES,
        *,
        tokens: TokenSource | None = None,
        harmless_warnings: Sequence[str] = (),
    ) -> None:
        url, parameters = base_address(endpoint.url)
        session = _Session(endpoint, max_bytes, tokens, harmless_warnings)
        session.headers["Accept-Encoding"] = (
            "identity"  # gzip sends a tenth of the bytes, but takes more time at both ends
        )
        session.params = parameters
        # Prometheus answers 503 when it is overloaded, so that repeating a query would make it worse.
        once = Retry(0, redirect=0)
        self._libraries = {
            method: PrometheusConnect(url, session=session, retry=once, method=method) for method in ("POST", "GET")
        }
        session.mount(url, HTTPAdapter(pool_maxsize=at_once, max_retries=once))
        self._session, self._method = session, "POST"
        self._other_from = 0.0  # earliest time to try the other method
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="prometheus")
        self._running: set[Future[QueryAnswer]] = set()

    def ask(self, queries: Mapping[K, str], at: datetime, within: float) -> dict[K, QueryAnswer]:
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

    def ask_range(self, queries: Collection[str], instants: Instants, within: float) -> dict[str, RangeAnswer]:
        """Evaluate all queries at many instants: at most 11,000, the limit of Prometheus."""
        until = time.monotonic() + within
        futures = {query: self._threads.submit(self._query_range, query, instants, until) for query in queries}
        return {query: future.result() for query, future in futures.items()}

    def close(self) -> None:
        """Cancel running queries and close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._session.close()

    def _query(self, query: str, at: datetime, until: float) -> QueryAnswer:
        began = time.monotonic()
        if until <= began:
            return QueryAnswer(failed="late", detail="still queued at the deadline")
        instant = {"time": f"{at.timestamp():.3f}"}
        try:
            result = self._send(
                until, lambda library, seconds: library.custom_query(query, instant | _limit(seconds), timeout=seconds)
            )
        except OSError as error:  # the library's base class for errors; unreadable certificates raise it, too
            return _failed(error, time.monotonic() - began)
        values = np.array(
            [nan if (sample := series.value) is None or sample.value is None else sample.value for series in result]
        )
        samples = Samples([bytes(series.metric) for series in result], values)
        return QueryAnswer(samples, result.warnings, seconds=time.monotonic() - began)

    def _query_range(self, query: str, instants: Instants, until: float) -> RangeAnswer:
        if until <= time.monotonic():
            return RangeAnswer(QueryAnswer(failed="late", detail="still queued at the deadline"))
        begin, end = (datetime.fromtimestamp(at, UTC) for at in (instants.begin, instants.end))
        step = f"{instants.step:.3f}"
        try:
            all_series = self._send(
                until,
                lambda library, seconds: library.custom_query_range(query, begin, end, step, _limit(seconds), seconds),
            )
        except OSError as error:
            return RangeAnswer(_failed(error))
        counts = [len(series.values or ()) for series in all_series]
        points = [point for series in all_series for point in series.values or ()]
        at = np.array([point.at for point in points], np.float64)  # null becomes NaN
        number = np.rint((at - instants.begin) / instants.step)
        is_instant = np.abs(instants.begin + number * instants.step - at) < _TOLERANCE_SECONDS
        is_instant &= (number >= 0) & (number < instants.count)
        row = np.repeat(np.arange(len(counts)), counts)[is_instant]
        cell = row, number[is_instant].astype(np.int64)
        shape = len(counts), instants.count
        values, present = np.full(shape, np.nan), np.zeros(shape, bool)
        values[cell] = np.array([point.value for point in points], np.float64)[is_instant]
        present[cell] = True
        return RangeAnswer(QueryAnswer(), [bytes(series.metric) for series in all_series], values, present)

    def _send(self, until: float, ask: Callable[[PrometheusConnect, float], Result]) -> Result:
        """Send a query. Gateways that allow only one of POST and GET refuse the other in several ways. The client
        remembers the one that works.

        Raises:
            OSError: there is no usable reply.
        """
        method = self._method
        try:
            return ask(self._libraries[method], max(until - time.monotonic(), 0.001))
        except QueryFailed as error:
            if error.status not in MAY_BE_THE_METHOD or time.monotonic() < self._other_from:
                raise
            refusal_error, other_method = error, "GET" if method == "POST" else "POST"
        try:
            result = ask(self._libraries[other_method], max(until - time.monotonic(), 0.001))
        except QueryFailed as error:
            if error.status in MAY_BE_THE_METHOD:
                self._other_from = time.monotonic() + OTHER_METHOD_SECONDS
                raise refusal_error from None
            self._method = other_method
            raise
        self._method = other_method
        return result


class _Session(requests.Session):
    def __init__(self, endpoint: Endpoint, max_bytes: int, tokens: TokenSource | None, harmless: Sequence[str]) -> None:
        super().__init__()
        self._max_bytes, self._tokens, self._harmless = max_bytes, tokens, tuple(harmless)
        self.auth = _Auth(endpoint, tokens)
        if endpoint.ca_file:
            self.verify = str(endpoint.ca_file)
        if endpoint.certificate_file:
            certificate = str(endpoint.certificate_file)
            self.cert = (certificate, str(endpoint.key_file)) if endpoint.key_file else certificate

    def request(self, method: str, url: str, **options: Any) -> StoreReply:  # type: ignore[override]
        """Send a query; ``timeout`` covers the whole reply, s.

        Raises:
            QueryFailed: if the reply's status is not 200.
        """
        until = time.monotonic() + options["timeout"]
        if method == "POST":
            options["data"] = options.pop("params")
        reply = self._send(method, url, until, options)
        if reply.status_code == 401 and self._has_new_token(reply):
            reply = self._send(method, url, until, options)
        if reply.status_code != 200:
            raise refusal(reply, method)
        return reply

    def _send(self, method: str, url: str, until: float, options: Mapping[str, Any]) -> StoreReply:
        """Send a request and read the whole reply."""
        limits = {"timeout": max(until - time.monotonic(), 0.001), "stream": True, "allow_redirects": False}
        reply = super().request(method, url, **{**options, **limits})
        with reply:
            try:
                content = self._read(reply, until)
            except urllib3.exceptions.ReadTimeoutError as error:
                raise requests.ReadTimeout(str(error)) from error
            except urllib3.exceptions.HTTPError as error:
                raise requests.exceptions.ContentDecodingError(str(error)) from error
        whole = StoreReply()
        whole.status_code, whole.headers, whole.url = reply.status_code, reply.headers, reply.url
        whole.request, whole._content, whole.harmless = reply.request, content, self._harmless
        return whole

    def _has_new_token(self, reply: requests.Response) -> bool:
        """Return whether a token source has another token than the one that was refused."""
        if self._tokens is None:
            return False
        refused_token = str(reply.request.headers.get("Authorization", "")).removeprefix("Bearer ")
        self._tokens.reject(refused_token)
        return _issue(self._tokens) != refused_token

    def _read(self, reply: requests.Response, until: float) -> bytes:
        parts, size = [], 0
        while part := reply.raw.read1(CHUNK, decode_content=True):
            parts.append(part)
            size += len(part)
            if size > self._max_bytes:
                raise QueryFailed(
                    "too_large",
                    f"more than {self._max_bytes} bytes; load the rules that `tagae rules` prints into this Prometheus",
                )
            if time.monotonic() > until:
                raise requests.ReadTimeout("the reply was too slow")
        return b"".join(parts)


def base_address(url: str) -> tuple[str, dict[str, list[str]]]:
    """Return the address of a Prometheus, and the parameters to add to each query. Users also give the API's address,
    or its query URL."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    for end in (QUERY_PATH, API_PATH):
        path = path.removesuffix(end)
    parameters = parse_qs(parts.query, keep_blank_values=True)
    return urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", "")), parameters


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


def _limit(seconds: float) -> dict[str, str]:
    """Return the deadline in Prometheus: seconds without a unit, because it refuses a unit with a decimal point
    ("5.000s")."""
    return {"timeout": f"{seconds:.3f}"}


def _failed(error: OSError, seconds: float = 0.0) -> QueryAnswer:
    if isinstance(error, QueryFailed):
        return QueryAnswer(warnings=error.warnings, failed=error.failed, detail=str(error), seconds=seconds)
    return QueryAnswer(failed=_classify_error(error), detail=_describe(error), seconds=seconds)


def _classify_error(error: OSError) -> Failure:
    if isinstance(error, requests.Timeout):
        return "late"
    if isinstance(error, requests.exceptions.ContentDecodingError):
        return "unreadable"
    if isinstance(error, requests.ConnectionError) or isinstance(error.__cause__, ssl.SSLError):
        return "unreachable"
    return "unreadable" if isinstance(error, requests.RequestException) else "unreachable"


def _describe(error: OSError) -> str:
    """Return the operating system's reason, such as "connection refused", or else the first line of the error."""
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
