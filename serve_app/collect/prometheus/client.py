"""Send instant queries to one Prometheus: all queries of one instant share a deadline, and none is retried.

The HTTP session adds what prometheus-api-client lacks. Queries are sent in the body of a POST, because a long query
does not fit in a URL. Nothing is retried, because Prometheus answers 503 when it is overloaded. A timeout covers the
whole reply, not each read from the socket. The size of a reply is limited, and its warnings are kept. Replies are
decoded by schema, ten times as fast as into dictionaries.
"""

import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import msgspec
import numpy as np
import requests
import urllib3
from numpy.typing import NDArray
from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.util import Retry

from serve_app.net.endpoint import Endpoint, SecretUnreadable
from serve_app.net.http import first_line

Numbers = NDArray[np.float64]

MOST_BYTES = 128 << 20  # in one reply
CHUNK = 1 << 16  # bytes per read; the deadline is checked after each

Failure = Literal["unreachable", "late", "refused", "overloaded", "forbidden", "unreadable", "too_large", "busy"]


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
class _Point(msgspec.Struct, array_like=True, gc=False):
    at: float
    value: float  # sent as text


class _Sample(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    value: _Point


class _Data(msgspec.Struct):
    resultType: str = ""  # noqa: N815 - Prometheus' name
    result: list[_Sample] = []


class _Body(msgspec.Struct):
    status: str = ""
    data: _Data | None = None
    error: str = ""
    warnings: list[str] = []


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The result of one query.

    Attributes:
        samples: the instant vector; empty if no series matches.
        warnings: warnings from Prometheus, for example about a part of a federation that did not answer.
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
    """

    def __init__(
        self, endpoint: Endpoint, at_once: int = 4, most_bytes: int = MOST_BYTES, *, compressed: bool = False
    ) -> None:
        session = _Session(endpoint, most_bytes)
        session.headers["Accept-Encoding"] = "gzip" if compressed else "identity"
        base = endpoint.url.rstrip("/")
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
        except PrometheusApiClientException as error:
            return QueryAnswer(
                failed=_classify_status(str(error)), detail=str(error)[:300], seconds=time.monotonic() - began
            )
        except requests.RequestException as error:
            return QueryAnswer(failed=_classify_error(error), detail=_describe(error), seconds=time.monotonic() - began)
        return QueryAnswer(reply.samples, reply.warnings, seconds=time.monotonic() - began, size=reply.size)


@dataclass(frozen=True, slots=True)
class _DecodedReply:
    samples: Samples
    warnings: tuple[str, ...]
    size: int


class _TooLarge(requests.RequestException):
    """A reply is larger than the limit."""


class _Reply(requests.Response):
    """A complete reply that is decoded by schema."""

    def json(self, **_: Any) -> dict[str, dict[str, _DecodedReply]]:
        """The decoded reply, at the place where prometheus-api-client looks for its result.

        Raises:
            requests.exceptions.InvalidJSONError: if the body is incomplete or is not an instant vector.
        """
        try:
            body = _decode(self.content)
        except msgspec.MsgspecError as error:
            raise requests.exceptions.InvalidJSONError(f"{error} in {len(self.content)} bytes") from error
        if body.data is None or body.data.resultType != "vector":
            raise requests.exceptions.InvalidJSONError(
                f"expected an instant vector, came {(body.data or _Data()).resultType or body.error or 'no data'!r}"
            )
        return {
            "data": {"result": _DecodedReply(_to_samples(body.data.result), tuple(body.warnings), len(self.content))}
        }


class _Session(requests.Session):
    def __init__(self, endpoint: Endpoint, most_bytes: int) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self.auth = _Auth(endpoint)
        if endpoint.ca_file:
            self.verify = str(endpoint.ca_file)

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """Send a request. Parameters of a POST go into its body; ``timeout`` covers the whole reply, s."""
        until = time.monotonic() + kwargs["timeout"]
        if method == "POST":
            kwargs["data"] = kwargs.pop("params", None)
        reply = super().request(method, url, **kwargs, stream=True, allow_redirects=False)
        with reply:
            try:
                content = self._read(reply, until)
            except urllib3.exceptions.ReadTimeoutError as error:
                raise requests.ReadTimeout(str(error)) from error
            except urllib3.exceptions.HTTPError as error:
                raise requests.exceptions.ContentDecodingError(str(error)) from error
        whole = _Reply()
        whole.status_code, whole.headers, whole.url = reply.status_code, reply.headers, reply.url
        whole._content = content
        return whole

    def _read(self, reply: requests.Response, until: float) -> bytes:
        parts, size = [], 0
        while part := reply.raw.read1(CHUNK, decode_content=True):
            parts.append(part)
            size += len(part)
            if size > self._most_bytes:
                raise _TooLarge(
                    f"more than {self._most_bytes} bytes; load the rules that `tagae rules` prints into this Prometheus"
                )
            if time.monotonic() > until:
                raise requests.ReadTimeout("the reply was too slow")
        return b"".join(parts)


class _Auth(AuthBase):
    """Adds credentials. Secret files are read for each request, because secrets are rotated."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            request.headers.update(self._endpoint.auth_headers())
        except SecretUnreadable as error:
            raise requests.RequestException(f"secret: {error}") from error
        return request


_BODY = msgspec.json.Decoder(_Body, strict=False)  # strict=False decodes numbers from text, in a third of the time


def _decode(content: bytes) -> _Body:
    try:
        return _BODY.decode(content)
    except msgspec.ValidationError:
        return _BODY.decode(content.replace(b'"+Inf"]', b'"Inf"]'))  # the one number that msgspec cannot read


def _to_samples(samples: Sequence[_Sample]) -> Samples:
    values = np.fromiter((one.value.value for one in samples), np.float64, len(samples))
    return Samples([bytes(one.metric) for one in samples], values)


_STATUS: dict[str, Failure] = {"401": "forbidden", "403": "forbidden", "503": "overloaded", "429": "overloaded"}


def _classify_status(message: str) -> Failure:
    """The cause, from a message such as ``HTTP Status Code 503 (b'...')``: the exception has no status attribute."""
    status = message.removeprefix("HTTP Status Code ")[:3]
    return _STATUS.get(status, "refused")


def _classify_error(error: requests.RequestException) -> Failure:
    if isinstance(error, _TooLarge):
        return "too_large"
    if isinstance(error, requests.Timeout):
        return "late"
    if isinstance(error, requests.exceptions.InvalidJSONError | requests.exceptions.ContentDecodingError):
        return "unreadable"
    if isinstance(error, requests.ConnectionError) or isinstance(error.__cause__, ssl.SSLError):
        return "unreachable"
    return "unreadable"


def _describe(error: requests.RequestException) -> str:
    """The operating system's reason, such as "connection refused", or else the first line of the error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return cause.strerror.lower()
        inner = getattr(cause, "reason", None) or next(iter(cause.args), None)
        cause = cause.__cause__ or (inner if isinstance(inner, BaseException) else None)
    return first_line(error)
