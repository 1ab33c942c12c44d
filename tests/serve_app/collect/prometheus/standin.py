"""A Prometheus on a free port, with a behaviour that tests choose."""

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.net.endpoint import Endpoint
from serve_app.settings import CollectorSettings, MeshSettings
from tests.http_server import serve_in_thread

Samples = list[tuple[dict[str, str], str]]
Behaviour = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One query, with everything that a behaviour needs to answer it."""

    body: bytes
    query: dict[str, str]

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(self.body.decode())

    def do_GET(self) -> None:
        self.body = b""
        self._answer(urlsplit(self.path).query)

    def _answer(self, query: str) -> None:
        self.query = {name: values[0] for name, values in parse_qs(query).items()}
        self.server.asked.append(self.query)  # type: ignore[attr-defined]
        try:
            self.server.behaviour(self)  # type: ignore[attr-defined]
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has closed the connection, which these tests provoke

    def send(
        self, status: int, body: bytes, length: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | dict(headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keep requests out of the output of the tests."""


def vector(samples: Samples, **more: Any) -> bytes:
    """Return a successful answer with an instant vector."""
    result = [{"metric": labels, "value": [1700000000.123, value]} for labels, value in samples]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}, **more}).encode()


def range_of(query: Mapping[str, str]) -> list[float]:
    """Return the instants of a range query."""
    start, end, step = (float(query[key]) for key in ("start", "end", "step"))
    return [start + number * step for number in range(round((end - start) / step) + 1)]


def matrix(answers: Mapping[float, Samples]) -> bytes:
    """Return a successful answer with a range vector: of each instant, what an instant query would return."""
    series: dict[str, list[tuple[float, str]]] = {}
    for at, samples in answers.items():
        for labels, value in samples:
            series.setdefault(json.dumps(labels), []).append((at, value))
    result = [{"metric": json.loads(labels), "values": values} for labels, values in series.items()]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def respond_with(samples: Samples, **more: Any) -> Behaviour:
    return lambda request: request.send(200, vector(samples, **more))


def fails(status: int, message: str = "no") -> Behaviour:
    body = json.dumps({"status": "error", "errorType": "execution", "error": message}).encode()
    return lambda request: request.send(status, body)


def respond_after(seconds: float) -> Behaviour:
    def behave(request: Request) -> None:
        time.sleep(seconds)
        request.send(200, vector([]))

    return behave


def trickles(seconds: float) -> Behaviour:
    """Send a byte now and then. Every read from the socket is quick, but the answer never ends."""

    def behave(request: Request) -> None:
        body = vector([({"a": "b"}, "1")])
        request.send(200, body[:1], length=len(body))
        for byte in body[1:]:
            time.sleep(seconds)
            request.wfile.write(bytes([byte]))
            request.wfile.flush()

    return behave


@contextmanager
def start_server(behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> Iterator[ThreadingHTTPServer]:
    """Run a server with this behaviour on a free port. ``asked`` collects the queries."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Request)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # print no refused handshake
    server.behaviour, server.asked = behaviour, []  # type: ignore[attr-defined]
    with serve_in_thread(server):
        yield server


@contextmanager
def start_source(behaviour: Behaviour, collector: CollectorSettings | None = None, **mesh: Any) -> Iterator[MeshSource]:
    """Run a server with this behaviour, and open the source of a mesh with these settings that reads it."""
    with start_server(behaviour) as server:
        settings = MeshSettings.model_validate({"prometheus": url_of(server), **mesh})
        with closing(MeshSource(settings, collector or CollectorSettings())) as source:
            yield source


@contextmanager
def start_client(
    behaviour: Behaviour, path: str = "", client: dict[str, Any] | None = None, **endpoint: Any
) -> Iterator[Prometheus]:
    """Run a server with this behaviour, and open a client of it. ``client`` and ``endpoint``: what differs in both."""
    with (
        start_server(behaviour) as server,
        closing(Prometheus(Endpoint(url_of(server) + path, **endpoint), **(client or {}))) as prometheus,
    ):
        prometheus.asked = server.asked  # type: ignore[attr-defined]
        yield prometheus


def url_of(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"
