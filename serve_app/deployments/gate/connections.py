"""Client connections: their maximum number, and how long a client may take to send headers.

uvicorn limits neither. Serve builds its uvicorn server itself and accepts no protocol class, so :func:`install` puts
ours into uvicorn's table of protocols in each process that calls it.
"""

import asyncio
from collections import Counter
from typing import Any, ClassVar

import uvicorn.config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 10.0  # for a request's headers
MAX_HEADER_BYTES = 16_384  # in request line and headers together
MAX_CONNECTIONS = 4096  # of all clients
MAX_CONNECTIONS_PER_CLIENT = 2048  # from one address; a reverse proxy is one address for all of its clients
_UNAVAILABLE = b"503 Service Unavailable\r\nretry-after: 1"
_TOO_LARGE = b"431 Request Header Fields Too Large"
_RESPONSE = (
    b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits."""

    clients: ClassVar[Counter[str]] = Counter()  # open connections of this process, by address

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._address = ""  # counts for this address; empty: not counted
        self._header_timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0  # of incomplete headers received so far

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else "unix"
        for count, limit in (
            (self.clients.total(), MAX_CONNECTIONS),
            (self.clients[address], MAX_CONNECTIONS_PER_CLIENT),
        ):
            if count >= limit:
                self._close(_UNAVAILABLE, b"too many connections; close idle ones, or try again later\n")
                return
        self._address = address
        self.clients[address] += 1
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()
        if self._address:
            self.clients[self._address] -= 1
            if not self.clients[self._address]:
                del self.clients[self._address]
            self._address = ""

    def data_received(self, data: bytes) -> None:
        """Parse data, and limit incomplete headers: the parser itself has no limit."""
        if self._header_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await_headers()
        super().data_received(data)
        if self._header_timer is not None and not self._is_body_left():
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                self._close(_TOO_LARGE, b"expected at most %d bytes of headers\n" % MAX_HEADER_BYTES)

    def on_headers_complete(self) -> None:
        """From here on, the body's limits apply."""
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A refused request may be answered before its body has arrived. Once it has, the connection is idle."""
        was_left = self._is_body_left()
        super().on_message_complete()
        if was_left:
            self.cycle.more_body = False
            self._stop_timer()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _is_body_left(self) -> bool:
        """Whether the rest of an answered request's body has yet to arrive. It is discarded within the time for
        headers."""
        return self.cycle is not None and self.cycle.response_complete and self.cycle.more_body

    def _await_headers(self) -> None:
        self._header_bytes = 0
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self._end_waiting)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _end_waiting(self) -> None:
        """Close a slow client's connection without an answer: it may be in the middle of a line."""
        self._header_timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _close(self, status: bytes, text: bytes) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            self.transport.write(_RESPONSE % (status, len(text), text))
            self.transport.close()


def install() -> None:
    """Make every uvicorn server that this process starts from now on use :class:`GuardedProtocol`."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:{GuardedProtocol.__name__}"
