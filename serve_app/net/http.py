"""Sends one request to an endpoint, with a deadline for the whole exchange."""

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from serve_app.net.backoff import parse_retry_after
from serve_app.net.endpoint import Endpoint, SecretUnreadable

Failure = Literal["unreachable", "late", "broken", "overloaded", "failed", "forbidden", "refused", "secret"]
_URL = re.compile(r" with url: \S+")  # as urllib3 words it
_MAX_DETAIL = 300  # bytes of a response that are logged
_OVERLOADED, _FORBIDDEN, _TRANSIENT = (429, 503), (401, 403), (408, 425)


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a request.

    Attributes:
        failed: why the request failed; empty if it succeeded. Waiting does not help with ``refused`` and ``forbidden``.
        status: HTTP status; 0 without a response.
        retry_after_seconds: how long the server asks to wait before the next request.
        content: the response's first bytes, at most as many as requested.
    """

    failed: Failure | Literal[""] = ""
    status: int = 0
    detail: str = ""
    retry_after_seconds: float = 0.0
    content: bytes = b""


class HttpSender:
    """Sends to one endpoint, one request at a time.

    Raises:
        BadSettings: if the certificates cannot be read.
    """

    def __init__(self, endpoint: Endpoint, deadline_seconds: float = 10.0) -> None:
        self.endpoint = endpoint
        self.deadline_seconds = deadline_seconds
        self._http = httpx.AsyncClient(
            verify=endpoint.ssl_context(), timeout=None, follow_redirects=False, limits=httpx.Limits(max_connections=1)
        )

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Post JSON; see :meth:`send`."""
        return await self.send("POST", "", body, headers)

    async def send(
        self,
        method: Literal["GET", "POST", "PUT", "PATCH"],
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        keep: int = 0,
    ) -> Reply:
        """Send JSON to the endpoint's URL with ``path`` appended. The deadline covers the whole exchange, so a response
        that arrives too slowly is ``late``, too.

        Args:
            keep: number of response bytes to return.
        """
        try:
            async with asyncio.timeout(self.deadline_seconds):
                all_headers = {
                    "content-type": "application/json",
                    "user-agent": "tagae",
                    **(headers or {}),
                    **await asyncio.to_thread(self.endpoint.request_headers),
                }
                return await self._exchange(method, path, body, all_headers, keep)
        except (TimeoutError, httpx.TimeoutException):
            return Reply("late", detail=f"no complete response within {self.deadline_seconds:g} s")
        except SecretUnreadable as error:
            return Reply("secret", detail=str(error))
        except (httpx.ConnectError, httpx.ProxyError, httpx.UnsupportedProtocol) as error:
            return Reply("unreachable", detail=first_line(error))
        except (httpx.RequestError, httpx.StreamError) as error:
            return Reply("broken", detail=first_line(error))

    async def connect(self) -> Reply:
        """Open a connection, check the certificate, and close it: for a server on which any request would have an
        effect. Behind a proxy, only the proxy is tried."""
        try:
            url = urlsplit(self.endpoint.url)
            proxy = None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)
            at = urlsplit(proxy) if proxy else url
            context = self.endpoint.ssl_context() if at.scheme == "https" else None
            context = ssl.create_default_context() if context is True else context or None
            async with asyncio.timeout(self.deadline_seconds):
                await asyncio.to_thread(self.endpoint.request_headers)  # the secrets can be read
                port = at.port or (443 if at.scheme == "https" else 80)
                _, writer = await asyncio.open_connection(at.hostname, port, ssl=context)
                writer.close()
        except TimeoutError:
            return Reply("late", detail=f"no connection within {self.deadline_seconds:g} s")
        except SecretUnreadable as error:
            return Reply("secret", detail=str(error))
        except OSError as error:  # also TLS errors
            return Reply("unreachable", detail=first_line(error))
        return Reply()

    async def close(self) -> None:
        await self._http.aclose()

    async def _exchange(self, method: str, path: str, body: bytes, headers: Mapping[str, str], keep: int) -> Reply:
        max_bytes, content = max(keep, _MAX_DETAIL), b""
        async with self._http.stream(method, self.endpoint.url + path, content=body, headers=headers) as response:
            async for part in response.aiter_bytes():  # read completely: half a response acknowledges nothing
                content += part[: max_bytes - len(content)]
        return replace(_reply(response, content[:_MAX_DETAIL]), content=content[:keep])


def _reply(response: httpx.Response, content: bytes) -> Reply:
    status = response.status_code
    if response.is_success:
        return Reply(status=status)
    failure: Failure = "failed" if status >= 500 or status in _TRANSIENT else "refused"
    failure = "overloaded" if status in _OVERLOADED else "forbidden" if status in _FORBIDDEN else failure
    text = " ".join(content.decode("utf-8", "replace").split())
    return Reply(
        failure, status, f"{status} {text}".strip(), parse_retry_after(response.headers.get("retry-after", ""))
    )


def first_line(error: Exception) -> str:
    """Return an error's type and first line, shortened for a log line, without the request's URL, which may contain a
    secret."""
    return _URL.sub("", f"{type(error).__name__}: {error}".splitlines()[0])[:_MAX_DETAIL]
