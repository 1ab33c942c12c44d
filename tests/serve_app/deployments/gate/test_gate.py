"""The gate in front of a real HTTP server, with an application whose behaviour a test chooses."""

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from serve_app.access import Access, Principal, editing
from serve_app.access import Scope as Permission
from serve_app.deployments.gate import connections
from serve_app.deployments.gate import gate as gates
from serve_app.deployments.gate.gate import Gate
from serve_app.deployments.http import handed_bodies
from serve_app.deployments.http.access_control import HANDED
from serve_app.deployments.http.handed_bodies import take_handed_bodies
from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import Outcome
from serve_app.runtime.rpc import WAIT_HEADER
from serve_app.settings import Settings
from serve_app.settings.access import serve_rules
from serve_app.web.assets import CACHE_PERMANENTLY, files
from tests.serve_app.alerts.alerting import metric_value
from tests.serve_app.running import eventually
from tests.timing import TIME_FACTOR

NEVER = 36_000.0  # s: longer than any deadline here
SHORT = 0.5 * TIME_FACTOR  # s: the deadline of a request that is not answered in time
PUSH = "/v1/meshes/shop/snapshots"
HOST = (b"host", b"localhost")
PEERS: list["Peer"] = []  # of the current test
Behave = Callable[["Behind", Scope, Receive, Send], Awaitable[None]]


@dataclass
class Behind:
    """The application behind the gate."""

    behave: Behave
    requests: list[tuple[str, bytes, dict[str, str]]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    instruments: PrometheusInstruments = field(default_factory=lambda: PrometheusInstruments(replica="test"))
    callers: list[Principal] = field(default_factory=list)  # whom the gate handed on

    def has_requests(self, number: int) -> bool:
        """Whether so many requests arrived."""
        return len(self.requests) == number

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((scope["path"], body, headers))
        self.callers.append(scope["extensions"][HANDED])
        await self.behave(self, scope, receive, send)


async def answer(send: Send, status: int, body: bytes, media_type: str = "application/json") -> None:
    headers = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def always(status: int, body: bytes, media_type: str = "application/json") -> Behave:
    """Return a behaviour with the same answer to every request."""

    async def behave(_: Behind, __: Scope, ___: Receive, send: Send) -> None:
        await answer(send, status, body, media_type)

    return behave


ok = always(200, b'{"ok":true}')


async def wait(behind: Behind, _: Scope, __: Receive, send: Send) -> None:
    while not behind.release.is_set():
        await asyncio.sleep(0.01)
    await answer(send, 200, b"{}")


async def hold_pushes(behind: Behind, scope: Scope, receive: Receive, send: Send) -> None:
    await (wait if scope["method"] == "POST" else ok)(behind, scope, receive, send)


@contextmanager
def gate(behave: Behave, **front: Any) -> Iterator[tuple[int, Behind]]:
    """A server on a free loopback port, and the application behind its gate."""
    front = {"deadline_seconds": 5.0 * TIME_FACTOR, **front}
    settings = Settings(serve=front, limits={"max_body_bytes": 4096})
    behind = Behind(behave)
    files()  # are compressed now, not while a connection waits
    table = dict(uvicorn.config.HTTP_PROTOCOLS)
    connections.install()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(2048)
        config = uvicorn.Config(
            Gate(take_handed_bodies(behind), settings, Access(serve_rules(settings)), behind.instruments),
            lifespan="off",
            log_config=None,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1], behind
        finally:
            while PEERS:
                PEERS.pop().socket.close()
            behind.release.set()
            server.should_exit = server.force_exit = True
            thread.join(240 * TIME_FACTOR)
            uvicorn.config.HTTP_PROTOCOLS.clear()
            uvicorn.config.HTTP_PROTOCOLS.update(table)
            connections.GuardedProtocol.clients.clear()
    assert not thread.is_alive()


class Peer:
    """A client that controls each byte."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=240 * TIME_FACTOR)
        PEERS.append(self)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def begin(self, length: int, path: str = PUSH, host: str = "localhost", headers: str = "") -> None:
        """Send the head of a push with a body of this length."""
        self.send(f"POST {path} HTTP/1.1\r\nhost: {host}\r\n{headers}content-length: {length}\r\n\r\n".encode())

    def post(self, path: str = PUSH, body: bytes = b"{}", headers: str = "") -> tuple[int, dict[str, str], bytes]:
        self.begin(len(body), path, headers=headers)
        self.send(body)
        return self.answer()

    def get(self, path: str, headers: str = "") -> tuple[int, dict[str, str], bytes]:
        self.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n".encode())
        return self.answer()

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body; status 0: the server closed the connection."""
        data = b""
        while b"\r\n\r\n" not in data:
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                return 0, {}, data
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        while len(body) < int(headers.get("content-length", 0)):
            body += self.socket.recv(65536)
        return int(lines[0].split()[1]), headers, body

    def is_closed(self) -> bool:
        """Wait for the end of the connection, and return whether the server ended it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


@pytest.fixture
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate tries once, since the deadline would pass in the pause after it."""
    monkeypatch.setattr(gates, "PAUSE_SECONDS", NEVER)


def is_problem(body: bytes, code: str) -> bool:
    found = json.loads(body)
    return bool(found["type"] == f"urn:tagae:problem:{code}" and found["detail"])


def test_a_request_passes_whole_with_stamps_only_from_the_gate() -> None:
    with gate(ok) as (port, behind):
        peer = Peer(port)
        assert peer.post(body=b"x" * 4096, headers=f"{WAIT_HEADER}: 1000.0\r\n")[0] == 200
        assert peer.get("/v1/meshes")[0] == 200  # on the same connection
        (path, body, headers), (other, *_) = behind.requests
        assert (path, body, other) == (PUSH, b"x" * 4096, "/v1/meshes")
        assert 0.0 <= float(headers[WAIT_HEADER]) < 1000.0, "it is the gate's, and not the client's"


def test_a_slow_body_is_cut_off_and_never_reaches_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "BODY_SECONDS", 1.0 * TIME_FACTOR)
    with gate(ok) as (port, behind):
        peer = Peer(port)
        peer.begin(4000)
        for _ in range(8):
            peer.send(b" ")
        status, headers, body = peer.answer()
        assert (status, headers["connection"], is_problem(body, "slow-request")) == (408, "close", True)
        assert peer.is_closed()
        assert behind.requests == []


def test_a_body_in_small_pieces_passes_if_it_is_complete_in_time() -> None:
    with gate(ok) as (port, behind):
        peer = Peer(port)
        peer.begin(40)
        for i in range(40):
            peer.send(b"%d" % (i % 10))
        assert peer.answer()[0] == 200
        assert behind.requests[0][1] == b"0123456789" * 4


@pytest.mark.parametrize(
    ("path", "size", "is_handed"),
    [
        (PUSH, 0, True),
        (PUSH, 2**20, True),
        (PUSH, 2**20 + 1, False),
        ("/v1/meshes/shop/baseline", 9, True),
        ("/v1/score", 9, True),
        ("/v1/meshes/shop/feedback", 9, False),
        ("/beside/v1/meshes/shop/snapshots", 9, False),  # another application, which may not know of handed bodies
    ],
)
def test_a_body_of_one_piece_is_passed_on_itself(path: str, size: int, is_handed: bool) -> None:
    sent, passed = bytes(size), list[tuple[bool, bytes]]()

    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == path:
            handed = scope.get("extensions", {}).get(handed_bodies.EXTENSION)
            passed.append((handed is not None, (await receive())["body"] if handed is None else handed))
        await answer(send, 200, b"{}")

    async def push() -> None:
        pieces = [{"body": sent, "more_body": True}, {"body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", **pieces.pop(0)}

        async def ignore(_: Any) -> None:
            pass

        settings = Settings()
        app = Gate(behind, settings, Access(serve_rules(settings)), PrometheusInstruments(replica="test"))
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": [HOST]}
        await app({**scope, "scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1)}, receive, ignore)

    asyncio.run(push())
    [(was_handed, body)] = passed
    assert was_handed is is_handed
    assert body is sent


async def test_the_body_of_a_cancelled_request_takes_no_memory() -> None:
    settings = Settings(limits={"max_body_bytes": 4096})
    app = Gate(partial(ok, Behind(ok)), settings, Access(serve_rules(settings)), PrometheusInstruments(replica="test"))
    scope = {"type": "http", "method": "POST", "path": PUSH, "query_string": b"", "headers": [HOST]}
    statuses: list[int] = []

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    async def push(*pieces: bytes) -> None:
        left, has_all = list(pieces), asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not left:
                has_all.set()
                await asyncio.Event().wait()
            return {"type": "http.request", "body": left.pop(0), "more_body": pieces[-1] != b""}

        pushing = asyncio.create_task(
            app({**scope, "scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1)}, receive, send)
        )
        has_ended = asyncio.create_task(has_all.wait())
        await asyncio.wait([pushing, has_ended], return_when=asyncio.FIRST_COMPLETED)
        for task in (pushing, has_ended):
            task.cancel()
        await asyncio.gather(pushing, has_ended, return_exceptions=True)

    for _ in range(gates.MAX_BODIES):
        await push(bytes(4096))
    assert statuses == []
    await push(b"x", b"")
    assert statuses[0] == 200


def test_slow_headers_are_cut_off_on_new_and_on_used_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.5 * TIME_FACTOR)
    with gate(ok) as (port, behind):
        new, used = Peer(port), Peer(port)
        new.send(b"GET / HTTP/1.1\r\nhost:")
        assert used.get("/v1/meshes")[0] == 200
        used.send(b"G")
        assert new.is_closed()
        assert used.is_closed()
        assert len(behind.requests) == 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: %b\r\n\r\n" % (b"a" * 20_000),
        b"GET / HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % (b"x-many: a\r\n" * 2000),
        b"GET /%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"a" * 20_000),
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-endless: %b" % (b"a" * 200_000),
    ],
)
def test_large_headers_are_refused(request_bytes: bytes) -> None:
    with gate(ok) as (port, behind):
        peer = Peer(port)
        peer.send(request_bytes)
        status, headers, _ = peer.answer()
        assert (status, headers["connection"]) == (431, "close")
        assert behind.requests == []


def test_a_large_body_is_refused_with_and_without_content_length() -> None:
    with gate(ok) as (port, behind):
        peer = Peer(port)
        status, _, body = peer.post(body=b"x" * 5000)
        assert (status, is_problem(body, "document-too-large")) == (413, True)
        peer = Peer(port)
        peer.send(f"POST {PUSH} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        peer.send(b"1388\r\n" + b"x" * 5000 + b"\r\n")
        assert peer.answer()[0] == 413
        assert behind.requests == []


def test_connections_are_limited_in_total_and_for_each_client() -> None:
    for limit in ("MAX_CONNECTIONS", "MAX_CONNECTIONS_PER_CLIENT"):
        with pytest.MonkeyPatch.context() as patch, gate(ok) as (port, _):
            patch.setattr(connections, limit, 16)
            held = [Peer(port) for _ in range(16)]
            for peer in held:
                assert peer.get("/v1/meshes")[0] == 200
            status, headers, _ = Peer(port).answer()
            assert (status, headers["retry-after"]) == (503, "1")
            held[0].socket.close()
            while (peer := Peer(port)).get("/v1/meshes")[
                0
            ] != 200:  # once the server has noticed the end of the other connection
                peer.socket.close()


def test_too_many_pushes_are_refused_and_health_routes_never() -> None:
    with gate(wait) as (port, behind):
        peers = [push(port, f"m{i}") for i in range(40)]
        refused = [peer.answer() for peer in peers[9:]]  # the initial limit is 8
        assert {status for status, _, _ in refused} == {429}
        assert all(int(headers["retry-after"]) >= 1 for _, headers, _ in refused)
        assert all(is_problem(body, "overloaded") for _, _, body in refused)
        health = Peer(port)
        health.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        read = Peer(port)
        read.send(b"GET /v1/meshes HTTP/1.1\r\nhost: localhost\r\n\r\n")
        behind.release.set()
        assert health.answer()[0] == 200
        assert read.answer()[0] == 200  # some places are reserved for reads
        assert [peer.answer()[0] for peer in peers[:8]] == [200] * 8


def push(port: int, mesh: str) -> Peer:
    peer = Peer(port)
    peer.begin(2, f"/v1/meshes/{mesh}/snapshots")
    peer.send(b"{}")
    return peer


def count_dropped(behind: Behind, reason: str) -> float:
    return metric_value(behind.instruments, "tagae_snapshots_dropped_total", reason=reason)


def test_under_overload_the_last_snapshots_are_refused_and_counted() -> None:
    with gate(wait, deadline_seconds=600) as (port, behind):
        under_way = [push(port, f"m{i}") for i in range(8)]
        assert eventually(lambda: len(behind.requests) == 8)
        others = [push(port, f"n{i}") for i in range(10)]  # eight can wait
        assert eventually(lambda: count_dropped(behind, "overload") == 2)
        behind.release.set()
        assert {peer.answer()[0] for peer in under_way} == {200}
        assert Counter(peer.answer()[0] for peer in others) == {200: 8, 429: 2}


def test_a_snapshot_beyond_its_deadline_is_counted() -> None:
    with gate(wait, deadline_seconds=0.05) as (port, behind):
        assert push(port, "shop").answer()[0] == 504
        assert count_dropped(behind, "deadline") == 1


def refused_early(port: int, body_bytes: int) -> Peer:
    """Return a client whose push was refused before its body was sent, because all places are taken."""
    for i in range(16):  # the initial limit is 8, and as many can wait
        push(port, f"m{i}")
    while True:  # until the other pushes have their places
        peer = Peer(port)
        peer.begin(body_bytes)
        peer.socket.settimeout(1.0)
        try:
            status, _, problem = peer.answer()
        except TimeoutError:
            peer.socket.close()
            continue
        peer.socket.settimeout(240 * TIME_FACTOR)
        assert (status, is_problem(problem, "overloaded")) == (429, True)
        return peer


def test_without_room_a_push_is_refused_before_its_body_is_read() -> None:
    with gate(wait, deadline_seconds=600) as (port, behind):
        peer = refused_early(port, body_bytes=3000)
        peer.send(b"x" * 3000)  # the body is dropped
        behind.release.set()
        assert peer.get("/v1/meshes")[0] == 200  # the connection still works
        peer.send(b"x" * 10)
        assert peer.answer()[0] == 400


def test_a_wait_for_room_is_part_of_the_time_to_the_deadline() -> None:
    with gate(wait, deadline_seconds=600) as (port, behind):
        refused_early(port, body_bytes=3)
        time.sleep(0.2)  # eight pushes wait
        behind.release.set()
        assert eventually(partial(behind.has_requests, 16))
        assert sum(float(headers[WAIT_HEADER]) >= 0.2 for _, _, headers in behind.requests) >= 8


def test_body_and_next_request_after_an_early_refusal_must_arrive_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.5 * TIME_FACTOR)
    with gate(wait, deadline_seconds=600) as (port, _):
        never_ends, slow_next = refused_early(port, body_bytes=3000), refused_early(port, body_bytes=3)
        never_ends.send(b"x")
        slow_next.send(b"xxx")
        slow_next.send(b"GET / HTTP")
        assert never_ends.is_closed()
        assert slow_next.is_closed()


def test_a_request_that_a_dying_replica_dropped_is_sent_again() -> None:
    async def dies_twice(behind: Behind, _: Scope, __: Receive, send: Send) -> None:
        if len(behind.requests) < 3:
            await answer(send, 500, b"The actor died unexpectedly", "text/plain")
        else:
            await answer(send, 200, b'{"sequence":1}')

    with gate(dies_twice) as (port, behind):
        status, _, body = Peer(port).post(body=b'{"a":1}')
        assert (status, body) == (200, b'{"sequence":1}')
        assert [sent for _, sent, _ in behind.requests] == [b'{"a":1}'] * 3


def test_an_error_of_the_service_itself_is_not_repeated() -> None:
    with gate(always(500, b"{}", "application/problem+json")) as (port, behind):
        assert Peer(port).post()[0] == 500
        assert len(behind.requests) == 1


@pytest.mark.parametrize("status", [404, 503])
def test_an_absent_service_is_503_with_a_time_to_retry(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_absent(behind: Behind, _: Scope, __: Receive, send: Send) -> None:
        if len(behind.requests) == 3:
            monkeypatch.setattr(gates, "PAUSE_SECONDS", NEVER)  # so that this is the last attempt
        await answer(send, status, b"x", "text/plain")

    with gate(is_absent) as (port, behind):
        came, headers, problem = Peer(port).post()
        assert (came, headers["retry-after"], is_problem(problem, "no-capacity")) == (503, "1", True)
        assert len(behind.requests) == 3


def test_a_404_of_another_application_is_passed_on_once_the_service_has_answered() -> None:
    async def has_one_page(_: Behind, scope: Scope, __: Receive, send: Send) -> None:
        found = scope["path"] == "/healthz"
        await answer(send, 200 if found else 404, b"here" if found else b"not here", "text/plain")

    with gate(has_one_page) as (port, behind):
        assert Peer(port).get("/healthz")[0] == 200
        status, _, body = Peer(port).post()
        assert (status, body) == (404, b"not here")
        assert len(behind.requests) == 2


def test_the_caller_is_handed_to_the_application(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    reader = editing.create(file, "reader", [Permission.READ])
    with gate(ok, tokens_file=file) as (port, behind):
        assert Peer(port).get("/v1/meshes", f"authorization: Bearer {reader}\r\n")[0] == 200
        assert Peer(port).get("/healthz", f"authorization: Bearer {reader}\r\n")[0] == 200
        first, second = behind.callers
        assert (first.name, first.scopes, first.way) == ("reader", {Permission.READ}, "token")
        assert second == Principal(), "an open route has no caller"


def test_a_missing_answer_is_504_and_the_problem_describes_the_known_state() -> None:
    with gate(wait, deadline_seconds=SHORT) as (port, _):
        status, headers, body = Peer(port).post()
        assert (status, headers["retry-after"], is_problem(body, "deadline-exceeded")) == (504, "1", True)
        assert json.loads(body)["stored"] == "unknown"


def test_the_place_of_a_client_that_disconnects_is_released() -> None:
    with gate(wait, deadline_seconds=SHORT) as (port, behind):
        for _ in range(3):
            peers = [push(port, f"m{i}") for i in range(4)]
            assert [peer.answer()[0] for peer in peers] == [504] * 4
        behind.release.set()
        assert Peer(port).post()[0] == 200


def test_websockets_are_refused() -> None:
    with gate(ok) as (port, behind):
        headers = (
            "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eA==\r\n"
        )
        assert Peer(port).get("/v1/meshes", headers)[0] in (403, 400)
        assert behind.requests == []


def test_a_forbidden_request_is_refused_before_its_body_is_read() -> None:
    with gate(ok) as (port, behind):
        peer = Peer(port)
        peer.begin(4000, host="evil.example")
        status, _, body = peer.answer()
        assert (status, is_problem(body, "wrong-host")) == (421, True)
        assert behind.requests == []


# files of the page


def test_files_of_the_page_are_answered_without_the_application() -> None:
    digest, found = files()
    with gate(ok) as (port, behind):
        peer = Peer(port)
        status, headers, body = peer.get(f"/static/{digest}/main.js", "accept-encoding: br\r\n")
        assert (status, headers["content-encoding"], body) == (200, "br", found["main.js"].brotli)
        assert headers["cache-control"] == CACHE_PERMANENTLY["cache-control"]
        assert behind.requests == []
        assert peer.get(f"/static/{digest}/nothing.js")[0] == 200, "the application answers, here with 200 for any path"
        assert peer.get(f"/static/{'0' * 16}/main.js")[0] == 200
        assert [path for path, _, _ in behind.requests] == [
            f"/static/{digest}/nothing.js",
            f"/static/{'0' * 16}/main.js",
        ]


def test_a_file_of_the_page_is_refused_for_another_host() -> None:
    with gate(ok) as (port, behind):
        peer = Peer(port)
        peer.send(f"GET /static/{files()[0]}/main.js HTTP/1.1\r\nhost: evil.example\r\n\r\n".encode())
        assert peer.answer()[0] == 421
        assert behind.requests == []


# what is counted


def outcomes(behind: Behind, kind: str = "push") -> dict[str, int]:
    counted = {
        one.value: int(metric_value(behind.instruments, "tagae_requests_total", kind=kind, outcome=one.value))
        for one in Outcome
    }
    return {outcome: number for outcome, number in counted.items() if number}


def test_requests_are_counted_by_what_became_of_them() -> None:
    statuses = iter([200, 200, 409, 422, 429, 500, 507, 200, 404, 503])

    async def answers(_: Behind, __: Scope, ___: Receive, send: Send) -> None:
        await answer(send, next(statuses), b"{}", "application/problem+json")

    with gate(answers) as (port, behind):
        peer = Peer(port)
        for _ in range(7):
            peer.post()
        for _ in range(3):
            peer.get("/v1/meshes")
        # Others do not count: health, files, refused hosts, streams.
        for path in ("/healthz", f"/static/{files()[0]}/main.js"):
            statuses = iter([200])
            assert peer.get(path)[0] == 200
        statuses = iter([200])
        assert peer.get("/v1/meshes/shop/verdicts/stream")[0] == 200
        peer.begin(0, host="evil.example")
        assert peer.answer()[0] == 421
        pushes = {"served": 2, "client": 2, "shed": 1, "failed": 2}
        assert eventually(lambda: outcomes(behind) == pushes), outcomes(behind)
        others = {"served": 1, "client": 1, "failed": 1}
        assert eventually(lambda: outcomes(behind, "other") == others), outcomes(behind, "other")


def test_metrics_of_opentelemetry_are_pushes_in_every_count() -> None:
    statuses = iter([200, 429])

    async def answers(_: Behind, __: Scope, ___: Receive, send: Send) -> None:
        await answer(send, next(statuses), b"{}", "application/problem+json")

    with gate(answers) as (port, behind):
        for _ in range(2):
            peer = Peer(port)
            peer.begin(2, "/v1/meshes/shop/otlp/v1/metrics")
            peer.send(b"{}")
            peer.answer()
        assert eventually(lambda: outcomes(behind) == {"served": 1, "shed": 1}), outcomes(behind)
        assert count_dropped(behind, "overload") == 1


def test_a_push_that_misses_its_deadline_failed() -> None:
    with gate(hold_pushes, deadline_seconds=SHORT) as (port, behind):
        assert Peer(port).get("/v1/meshes")[0] == 200  # it is no longer starting
        assert Peer(port).post()[0] == 504
        assert eventually(lambda: outcomes(behind) == {"failed": 1})


@pytest.mark.parametrize("raises", [False, True])
def test_an_answer_that_breaks_off_failed(raises: bool) -> None:
    async def breaks(_: Behind, __: Scope, ___: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        if raises:
            raise RuntimeError("as planned")

    with gate(breaks) as (port, behind):
        push(port, "shop")
        assert eventually(lambda: outcomes(behind) == {"failed": 1}), outcomes(behind)


def test_a_push_whose_client_left_is_abandoned_and_not_sent_again() -> None:
    async def leaves(behind: Behind, _: Scope, receive: Receive, __: Send) -> None:
        peer.socket.close()
        while (await receive())["type"] != "http.disconnect":
            pass  # as Serve, which then ends without an answer

    with gate(leaves, deadline_seconds=600) as (port, behind):
        peer = Peer(port)  # which the application closes
        peer.begin(2)
        peer.send(b"{}")
        assert eventually(lambda: outcomes(behind) == {"abandoned": 1}), outcomes(behind)
        assert len(behind.requests) == 1


@pytest.mark.usefixtures("one_attempt")
def test_what_fails_while_the_service_starts_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = iter([503, 503, 200, 503, 503])

    async def starts(_: Behind, __: Scope, ___: Receive, send: Send) -> None:
        await answer(send, next(statuses), b"x", "text/plain")

    with gate(starts) as (port, behind):
        peer = Peer(port)
        assert (peer.post()[0], peer.get("/v1/meshes")[0]) == (503, 503)
        assert outcomes(behind) == outcomes(behind, "other") == {}
        assert (peer.post()[0], peer.post()[0]) == (200, 503)
        assert eventually(lambda: outcomes(behind) == {"served": 1, "failed": 1})
    monkeypatch.setattr(gates, "START_SECONDS", 0.0)  # it has been starting for too long
    with gate(starts) as (port, behind):
        assert Peer(port).post()[0] == 503
        assert eventually(lambda: outcomes(behind) == {"failed": 1})


@pytest.mark.usefixtures("one_attempt")
def test_the_start_ends_with_the_first_probe_that_the_service_answers() -> None:
    async def starts(_: Behind, scope: Scope, __: Receive, send: Send) -> None:
        is_probe = scope["path"] == "/healthz"
        await answer(send, 200 if is_probe else 503, b"x", "text/plain")

    with gate(starts) as (port, behind):
        peer = Peer(port)
        assert peer.post()[0] == 503
        assert peer.get(f"/static/{files()[0]}/waiting.js")[0] == 200  # from the gate itself
        assert outcomes(behind) == {}
        assert (peer.get("/healthz")[0], peer.post()[0]) == (200, 503)
        assert eventually(lambda: outcomes(behind) == {"failed": 1})


@pytest.mark.usefixtures("one_attempt")
@pytest.mark.parametrize("path", ["/", "/demo/", "/docs"])
def test_a_browser_gets_a_page_that_waits_for_the_service(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "STARTING_PAGE_SECONDS", 5.0 * TIME_FACTOR)
    browser = "accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n"
    with gate(always(404, b"not found", "text/plain")) as (port, _):
        status, headers, body = Peer(port).get(path, browser)
        assert (status, headers["content-type"], headers["cache-control"]) == (
            503,
            "text/html; charset=utf-8",
            "no-store",
        )
        assert "script-src 'self'" in headers["content-security-policy"]
        assert b"TAGAE is starting" in body
        root = "../" * (path.count("/") - 1)
        assert f'src="{root}static/{files()[0]}/waiting.js"'.encode() in body, "it works below a path of a proxy"
        for others in ("", "accept: application/json\r\n", "accept: */*\r\n"):
            status, _, body = Peer(port).get(path, others)
            assert (status, is_problem(body, "no-capacity")) == (503, True), "programs get the error as a document"
        assert Peer(port).post()[0] == 503


@pytest.mark.usefixtures("one_attempt")
def test_a_browser_reads_that_a_service_which_answered_before_is_down() -> None:
    async def dies(behind: Behind, _: Scope, __: Receive, send: Send) -> None:
        await answer(send, 200 if len(behind.requests) == 1 else 503, b"x", "text/plain")

    with gate(dies) as (port, _):
        assert Peer(port).get("/v1/meshes")[0] == 200
        status, _, body = Peer(port).get("/", "accept: text/html\r\n")
        assert (status, b"TAGAE does not answer" in body) == (503, True)
