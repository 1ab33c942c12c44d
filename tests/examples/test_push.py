"""examples/push.py: rows become snapshots, and a busy service is tried again. A real service gets them in
``tests/serve_app/test_examples.py``."""

import csv
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from examples.push import push, read_snapshots
from tests.http_server import QuietHandler, serve_in_thread

SNAPSHOT = {"observed_at": "2026-03-01T12:00:00Z", "services": [], "calls": []}


def test_rows_of_one_time_are_one_snapshot_and_empty_cells_are_left_out() -> None:
    text = """time,source,service,request_rate,error_rate,p99_latency
12:00,,a/web,30,0.001,
12:00,a/web,a/cart,20,,0.06
12:15,,a/web,31,,
"""
    assert list(read_snapshots(csv.DictReader(text.splitlines()))) == [
        {
            "observed_at": "12:00",
            "services": [{"namespace": "a", "name": "web", "metrics": {"error_rate": 0.001, "request_rate": 30.0}}],
            "calls": [{"source": "a/web", "destination": "a/cart", "requests_per_second": 20.0, "p99_latency": 0.06}],
        },
        {
            "observed_at": "12:15",
            "services": [{"namespace": "a", "name": "web", "metrics": {"request_rate": 31.0}}],
            "calls": [],
        },
    ]


def answering(*statuses: int) -> tuple[ThreadingHTTPServer, list[dict[str, str]]]:
    """Return a server that answers requests with these statuses in turn, and the list of the headers it receives."""
    left, received = iter(statuses), []

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.body()
            received.append(dict(self.headers))
            self.send(next(left), b'{"status": "normal"}', retry_after="0")

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler), received


@pytest.fixture
def busy() -> Iterator[tuple[str, list[dict[str, str]]]]:
    server, received = answering(429, 503, 200)
    with serve_in_thread(server) as url:
        yield url, received


def test_a_busy_service_is_tried_again(busy: tuple[str, list[dict[str, str]]]) -> None:
    url, received = busy
    assert push(url, "shop", SNAPSHOT, "the-token") == {"status": "normal"}
    assert [headers["Authorization"] for headers in received] == ["Bearer the-token"] * 3


def test_a_refused_snapshot_ends_it_with_the_answer() -> None:
    server, received = answering(422)
    with (
        serve_in_thread(server) as url,
        pytest.raises(SystemExit, match="refused the snapshot of 2026-03-01T12:00:00Z"),
    ):
        push(url, "shop", SNAPSHOT)
    assert len(received) == 1
