"""Instant queries to one Prometheus: all of one instant, under one deadline, none repeated.

prometheus-api-client does the talking. What it leaves open is closed in its session: queries travel in the body of a
POST (a long one does not fit a URL), nothing is retried (Prometheus answers 503 when it is overloaded, and retries make
that worse), a timeout is of the whole reply and not of each read from the socket, the reply has a limit, its warnings
are kept, and it is decoded by schema, ten times as fast as into dictionaries.
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

Numbers = NDArray[np.float64]

MOST_BYTES = 128 << 20  # of one reply
CHUNK = 1 << 16  # bytes read at a time: a reply that trickles is noticed between two

Failed = Literal["unreachable", "late", "refused", "overloaded", "forbidden", "unreadable", "too_large", "busy"]


@dataclass(frozen=True, slots=True)
class Samples:
    """An instant vector in columns.

    Attributes:
        label_sets: of each sample, as they came (JSON).
        values: float64 ``[R]``.
    """

    label_sets: Sequence[bytes] = ()
    values: Numbers = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.label_sets)


# Hundreds of thousands of these come at once, and none can be part of a cycle.
class _Point(msgspec.Struct, array_like=True, gc=False):
    at: float
    value: float  # which comes as text


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
    """What a query brought.

    Attributes:
        samples: of the instant vector; empty where no series matches.
        warnings: Prometheus' own, such as a part of a federation that did not answer.
        failed: why there is no answer; empty where there is one, even an empty one.
        detail: of the failure, for the log.
        seconds: until it was here.
        size: of the reply, bytes.
    """

    samples: Samples = field(default_factory=Samples)
    warnings: tuple[str, ...] = ()
    failed: Failed | Literal[""] = ""
    detail: str = ""
    seconds: float = 0.0
    size: int = 0


class Prometheus:
    """One Prometheus. Queries run a few at a time in threads, which outlive a deadline only as long as their socket.

    Args:
        endpoint: where it is.
        at_once: queries at a time.
        most_bytes: of one reply, unpacked.
        compressed: ask for gzip: a tenth of the bytes, for more work at both ends.
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
        """Every query at the same instant.

        Args:
            queries: PromQL by a name of the caller's.
            at: the instant.
            within: seconds for all of them together; what is not here then is ``late``.

        Returns:
            An answer for each name; a query that failed says so and spoils no other.
        """
        self._running = {future for future in self._running if not future.done()}
        if len(self._running) >= self._at_once:  # all threads still hang on an earlier poll: do not pile up more
            return {name: QueryAnswer(failed="busy", detail="earlier queries have not ended") for name in queries}
        until = time.monotonic() + within
        asked = {name: self._threads.submit(self._one, query, at, until) for name, query in queries.items()}
        wait(asked.values(), timeout=within)
        late = QueryAnswer(failed="late", detail=f"no answer within {within:g} s", seconds=within)
        answers = {name: future.result() if future.done() else late for name, future in asked.items()}
        self._running |= {future for future in asked.values() if not future.done() and not future.cancel()}
        return answers

    def close(self) -> None:
        """Give up what still runs."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._connect.close()

    def _one(self, query: str, at: datetime, until: float) -> QueryAnswer:
        began = time.monotonic()
        left = until - began
        if left <= 0:
            return QueryAnswer(failed="late", detail="its turn did not come in time")
        # Seconds without a unit: with one, Prometheus takes no point ("5.000s" is 400).
        asked = {"time": f"{at.timestamp():.3f}", "timeout": f"{max(left, 0.001):.3f}"}
        try:
            reply: _Decoded = self._connect.custom_query(query, asked, timeout=left)
        except PrometheusApiClientException as error:
            return QueryAnswer(failed=_refusal(str(error)), detail=str(error)[:300], seconds=time.monotonic() - began)
        except requests.RequestException as error:
            return QueryAnswer(failed=_failure(error), detail=_first_line(error), seconds=time.monotonic() - began)
        return QueryAnswer(reply.samples, reply.warnings, seconds=time.monotonic() - began, size=reply.size)


@dataclass(frozen=True, slots=True)
class _Decoded:
    samples: Samples
    warnings: tuple[str, ...]
    size: int


class _TooLarge(requests.RequestException):
    """A reply beyond the limit."""


class _Reply(requests.Response):
    """A reply whose body is here, and is decoded by schema."""

    def json(self, **_: Any) -> dict[str, dict[str, _Decoded]]:
        """In the place where prometheus-api-client looks for its result: ours.

        Raises:
            requests.exceptions.InvalidJSONError: half a body, or another document.
        """
        try:
            body = _decoded(self.content)
        except msgspec.MsgspecError as error:
            raise requests.exceptions.InvalidJSONError(f"{error} in {len(self.content)} bytes") from error
        if body.data is None or body.data.resultType != "vector":
            raise requests.exceptions.InvalidJSONError(
                f"expected an instant vector, came {(body.data or _Data()).resultType or body.error or 'no data'!r}"
            )
        return {"data": {"result": _Decoded(_in_columns(body.data.result), tuple(body.warnings), len(self.content))}}


class _Session(requests.Session):
    def __init__(self, endpoint: Endpoint, most_bytes: int) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self.auth = _Auth(endpoint)
        if endpoint.ca_file:
            self.verify = str(endpoint.ca_file)

    def request(self, method: str, url: str, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        """The parameters of a POST as its body; ``timeout`` seconds from now until the last byte."""
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
                raise _TooLarge(f"more than {self._most_bytes} bytes; ask for less or raise the limit")
            if time.monotonic() > until:
                raise requests.ReadTimeout("the reply trickles")
        return b"".join(parts)


class _Auth(AuthBase):
    """Secrets are read from their files with every request: they are rotated."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            request.headers.update(self._endpoint.auth_headers())
        except SecretUnreadable as error:
            raise requests.RequestException(f"secret: {error}") from error
        return request


_BODY = msgspec.json.Decoder(_Body, strict=False)  # numbers are text: read on the way, in a third of the time


def _decoded(content: bytes) -> _Body:
    try:
        return _BODY.decode(content)
    except msgspec.ValidationError:
        return _BODY.decode(content.replace(b'"+Inf"]', b'"Inf"]'))  # the one number that it does not know


def _in_columns(samples: Sequence[_Sample]) -> Samples:
    values = np.fromiter((one.value.value for one in samples), np.float64, len(samples))
    return Samples([bytes(one.metric) for one in samples], values)


_STATUS: dict[str, Failed] = {"401": "forbidden", "403": "forbidden", "503": "overloaded", "429": "overloaded"}


def _refusal(message: str) -> Failed:
    """From the exception's text, ``HTTP Status Code 503 (b'...')``, which is all that is handed on."""
    status = message.removeprefix("HTTP Status Code ")[:3]
    return _STATUS.get(status, "refused")


def _failure(error: requests.RequestException) -> Failed:
    if isinstance(error, _TooLarge):
        return "too_large"
    if isinstance(error, requests.Timeout):
        return "late"
    if isinstance(error, requests.exceptions.InvalidJSONError | requests.exceptions.ContentDecodingError):
        return "unreadable"
    if isinstance(error, requests.ConnectionError) or isinstance(error.__cause__, ssl.SSLError):
        return "unreachable"
    return "unreadable"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
