"""One POST to one endpoint, under one deadline; every way it can fail has a name."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

import httpx

from serve_app.net.endpoint import Endpoint, SecretUnreadable, ssl_context

Failed = Literal["unreachable", "late", "broken", "overloaded", "failed", "forbidden", "refused", "secret"]
_TOLD = 300  # bytes of an answer, for the log
_OVERLOADED, _FORBIDDEN, _PASSING = (429, 503), (401, 403), (408, 425)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a POST.

    Attributes:
        failed: why it is not acknowledged; empty: it is. ``refused`` and ``forbidden`` will not pass by waiting.
        status: of HTTP; 0: none came.
        detail: for the log.
        retry_after_seconds: as the other side asks for.
    """

    failed: Failed | Literal[""] = ""
    status: int = 0
    detail: str = ""
    retry_after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after failures in a row: doubling, at most ``longest_seconds``, and up to half of it less by
    chance, so that those who failed together do not come back together."""

    first_seconds: float = 1.0
    longest_seconds: float = 60.0

    def seconds(self, failures: int, retry_after_seconds: float = 0.0) -> float:
        """Before the next try, after ``failures`` (1 or more); never sooner than the other side asked for, if it asked
        for no more than the longest."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, 30)
        asked = min(retry_after_seconds, self.longest_seconds)
        return max(asked, min(doubled, self.longest_seconds) * random.uniform(0.5, 1.0))


class HttpSender:
    """Posts to one endpoint, one request at a time.

    Raises:
        BadSettings: the certificates cannot be read.
    """

    def __init__(self, endpoint: Endpoint, deadline_seconds: float = 10.0) -> None:
        self.endpoint = endpoint
        self._deadline = deadline_seconds
        self._http = httpx.AsyncClient(
            verify=ssl_context(endpoint.ca_file),
            timeout=None,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=1),
        )

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Send JSON; the deadline is of the whole exchange, so that an answer that trickles is late too."""
        try:
            async with asyncio.timeout(self._deadline):
                sent = {
                    "content-type": "application/json",
                    "user-agent": "tagae",
                    **headers,
                    **await asyncio.to_thread(self.endpoint.auth_headers),
                }
                return await self._exchange(body, sent)
        except (TimeoutError, httpx.TimeoutException):
            return Reply("late", detail=f"no whole answer within {self._deadline:g} s")
        except SecretUnreadable as error:
            return Reply("secret", detail=str(error))
        except (httpx.ConnectError, httpx.ProxyError, httpx.UnsupportedProtocol) as error:
            return Reply("unreachable", detail=_first_line(error))
        except (httpx.RequestError, httpx.StreamError) as error:
            return Reply("broken", detail=_first_line(error))

    async def close(self) -> None:
        await self._http.aclose()

    async def _exchange(self, body: bytes, headers: Mapping[str, str]) -> Reply:
        async with self._http.stream("POST", self.endpoint.url, content=body, headers=headers) as response:
            content = b""
            async for part in response.aiter_bytes():  # to its end: half an answer acknowledges nothing
                content += part[: _TOLD - len(content)]
        return _reply(response, content)


def _reply(response: httpx.Response, content: bytes) -> Reply:
    status = response.status_code
    if response.is_success:
        return Reply(status=status)
    failed: Failed = "failed" if status >= 500 or status in _PASSING else "refused"
    failed = "overloaded" if status in _OVERLOADED else "forbidden" if status in _FORBIDDEN else failed
    said = " ".join(content.decode("utf-8", "replace").split())
    return Reply(failed, status, f"{status} {said}".strip(), retry_after(response.headers.get("retry-after", "")))


def retry_after(given: str) -> float:
    """Seconds, given as such or as a date (RFC 9110); 0 for what is neither."""
    if given.isascii() and given.isdigit() and len(given) < 10:
        return float(given)
    try:
        at = parsedate_to_datetime(given)
    except ValueError:
        return 0.0
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:_TOLD]
