"""The benchmark of places: what it reads of a push, and how it sums pushes up."""

import httpx
import pytest

from benchmarks.bench_places import push, summarize
from benchmarks.figures import places


def answer(status: int = 200, missing: tuple[int, ...] = ()) -> httpx.Client:
    """Return a client that gets this answer to every push."""

    def respond(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.content) == ("POST", b"{}")
        document = {"sequence": 3, "missing_parts": list(missing), "status": "normal"}
        return httpx.Response(status, json=document, headers={"server-timing": "score;dur=4.5, total;dur=9"})

    return httpx.Client(base_url="http://127.0.0.1", transport=httpx.MockTransport(respond))


def test_the_stages_of_a_push_are_read() -> None:
    with answer() as client:
        times, status = push(client, b"{}", 3)
    assert times.pop("push") > 0
    assert (times, status) == ({"score": 4.5, "total": 9.0}, "normal")


@pytest.mark.parametrize(("client", "sequence"), [(answer(), 4), (answer(missing=(1,)), 3), (answer(503), 3)])
def test_a_push_that_is_not_scored_whole_is_no_figure(client: httpx.Client, sequence: int) -> None:
    with client, pytest.raises(AssertionError):
        push(client, b"{}", sequence)


def test_medians() -> None:
    rows = [{"push": ms, "score": 2 * ms} for ms in (1.0, 100.0, 3.0)]
    assert summarize(rows) == {"push_p50_ms": 3.0, "score_p50_ms": 6.0}


def test_the_table_has_each_size_once() -> None:
    lines = [line for line in places().splitlines() if line.startswith("| ")][1:]
    assert len(lines) == len({line.split("|")[1] for line in lines})
