"""An API server for Events only: a watch without a version begins with all Events, and continues with new ones.

The protocol: https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-watch.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.http_server import QuietHandler, serve_in_thread

TOKEN = "let-me-in"
PAGES = "/api/v1/events"


def event(
    reason: str = "BackOff",
    pod: str = "cart-v1-5f7c9d8b64-x7k2p",
    *,
    namespace: str = "shop",
    uid: str = "",
    message: str = "Back-off restarting failed container",
    age_seconds: float = 30.0,
    count: int = 1,
    kind: str = "Pod",
    now: datetime | None = None,
) -> dict[str, Any]:
    """Return an Event in the format of a kubelet, of this age at ``now`` (default: the clock)."""
    last = (now or datetime.now(UTC)) - timedelta(seconds=age_seconds)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod}.17", "namespace": namespace, "uid": uid or f"{reason}-{pod}"},
        "involvedObject": {"kind": kind, "namespace": namespace, "name": pod, "apiVersion": "v1"},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "count": count,
        "firstTimestamp": _second(last - timedelta(seconds=60)),
        "lastTimestamp": _second(last),
        "eventTime": None,
        "source": {"component": "kubelet"},
    }


def _second(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass
class ApiServer:
    """The server's Events and its behaviour.

    Attributes:
        token: that it accepts.
        allowed: whether a client with the token may read Events.
        bodies: whole bodies of the next answers, for any request.
        asked: query of each accepted request.
        sent: lines for watchers; None breaks the connection at that place.
    """

    token: str = TOKEN
    allowed: bool = True
    bodies: list[tuple[int, bytes]] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    sent: list[bytes | None] = field(default_factory=list)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    url: str = ""
    more: threading.Condition = field(default_factory=threading.Condition)
    watchers: int = 0

    def tell(self, one: dict[str, Any]) -> None:
        """Add an event and send it to every watcher."""
        with self.more:
            self.events[one["metadata"]["uid"]] = one
        self.say(_line(one))

    def say(self, line: bytes | None) -> None:
        """Send these bytes to all watchers; None: break the connection."""
        with self.more:
            self.sent.append(line)
            self.more.notify_all()


def _line(one: dict[str, Any]) -> bytes:
    return json.dumps({"type": "ADDED", "object": one}).encode() + b"\n"


class _Request(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        api = self.server.api
        if self.headers.get("Authorization") != f"Bearer {api.token}":
            self._refuse(401, "Unauthorized")
            return
        if not api.allowed:
            self._refuse(403, 'events is forbidden: User "tagae" cannot list resource "events" in API group ""')
            return
        parts = urlsplit(self.path)
        if parts.path not in (PAGES, "/api/v1/namespaces/shop/events"):
            self._refuse(404, "the server could not find the requested resource")
            return
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        api.asked.append(asked)
        if api.bodies:
            status, body = api.bodies.pop(0)
            self._send(status, body)
        else:
            self._watch(api)

    def _watch(self, api: ApiServer) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with api.more:
            place, known = len(api.sent), list(api.events.values())
            api.watchers += 1
            api.more.notify_all()
        try:
            for one in known:
                self._chunk(_line(one))
            while (line := self._next_line(api, place)) is not None:
                self._chunk(line)
                place += 1
            self.close_connection = True  # without the last chunk, so the connection breaks
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has closed the watch
        finally:
            with api.more:
                api.watchers -= 1

    def _next_line(self, api: ApiServer, place: int) -> bytes | None:
        """Wait for the line at this place, and return it."""
        with api.more:
            api.more.wait_for(lambda: len(api.sent) > place or self.server.ending)
            return None if self.server.ending else api.sent[place]

    def _chunk(self, part: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.flush()

    def _refuse(self, code: int, message: str) -> None:
        self._send(code, json.dumps({"kind": "Status", "code": code, "message": message}).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send(status, body, content_type="application/json")


class _Server(ThreadingHTTPServer):
    api: ApiServer
    ending = False


@contextmanager
def start_api(api: ApiServer, port: int = 0) -> Iterator[ApiServer]:
    """Run the server at ``api.url``, on a free port or on this one."""
    server = _Server(("127.0.0.1", port), _Request)
    server.api = api
    with serve_in_thread(server) as api.url:
        try:
            yield api
        finally:
            with api.more:
                server.ending = True
                api.more.notify_all()
