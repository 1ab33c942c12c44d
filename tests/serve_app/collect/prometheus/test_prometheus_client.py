"""Faulty answers of a Prometheus, and how the client handles them."""

import base64
import socket
import time
from pathlib import Path

import pytest

from serve_app.collect.prometheus.client import Prometheus
from serve_app.net.endpoint import Endpoint
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.standin import Behaviour, Request, start_client
from tests.serve_app.collect.prometheus.test_access import AT, query_once
from tests.timing import TIME_FACTOR


def test_a_vector_comes_with_its_warnings() -> None:
    hint = 'PromQL warning: bucket label "le" is missing or has a malformed value of "" for metric name "x" (1:1)'
    answer = query_once(standin.respond_with([({"a": "b"}, "1.5")], warnings=[hint]))
    assert (answer.failed, answer.warnings) == ("", (hint,))
    assert (answer.samples.label_sets, answer.samples.values.tolist()) == ([b'{"a": "b"}'], [1.5])
    assert 0 < answer.seconds < 2


def test_a_query_travels_in_the_body_with_its_instant_and_deadline() -> None:
    long = "sum(" * 5000 + "up" + ")" * 5000
    with start_client(standin.respond_with([]), "/") as prometheus:
        answer = prometheus.ask({"q": long}, AT, 2.0)["q"]
        (asked,) = prometheus.asked  # type: ignore[attr-defined]
    assert answer.failed == ""
    assert (asked["query"], asked["time"]) == (long, "1772366400.000")
    assert 1.5 < float(asked["timeout"]) <= 2.0  # Prometheus refuses "2.000s"


@pytest.mark.parametrize(
    ("behaviour", "failed"),
    [
        (lambda r: r.send(200, standin.vector([({"a": "b"}, "1")])[:-9]), "unreadable"),
        (lambda r: r.send(200, b"<html>sign in</html>"), "unreadable"),
        (lambda r: r.send(200, b"[]"), "unreadable"),
        (standin.respond_with([({"a": "b"}, "much")]), "unreadable"),
        (lambda r: r.send(200, b'{"status":"success","data":{"resultType":"scalar","result":[]}}'), "unreadable"),
        (lambda r: r.send(200, standin.vector([]), length=10_000), "unreadable"),  # ends too early
        (lambda r: r.send(200, b"x" * 5000), "too_large"),
    ],
)
def test_a_failed_query_has_a_named_reason_and_is_not_retried(behaviour: Behaviour, failed: str) -> None:
    with start_client(behaviour, client={"max_bytes": 4000}) as prometheus:
        answer = prometheus.ask({"q": "up"}, AT, 2.0)["q"]
        assert len(prometheus.asked) == 1  # type: ignore[attr-defined]
    assert answer.failed == failed
    assert answer.detail
    assert len(answer.samples) == 0


def test_a_refused_connection_fails_at_once() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, but not listening
        prometheus = Prometheus(Endpoint(f"http://127.0.0.1:{held.getsockname()[1]}"))
        began = time.monotonic()
        answer = prometheus.ask({"q": "up"}, AT, 5.0)["q"]
        prometheus.close()
    assert answer.failed == "unreachable"
    assert time.monotonic() - began < 4 * TIME_FACTOR, "less than the limit of 5 s"


@pytest.mark.parametrize("behaviour", [standin.respond_after(1.5), standin.trickles(0.05)])
def test_a_deadline_holds_for_the_whole_reply(behaviour: Behaviour) -> None:
    began = time.monotonic()
    answer = query_once(behaviour, within=0.4)
    assert answer.failed == "late"
    assert time.monotonic() - began < 4 * TIME_FACTOR


def test_a_poll_without_time_left_does_not_blame_the_server() -> None:
    with start_client(standin.respond_after(0.5)) as prometheus:
        answer = prometheus.ask({"a": "a"}, AT, 0.0)["a"]
    assert answer.failed == "late"
    assert " 0 s" not in answer.detail


def test_one_slow_query_does_not_fail_the_others() -> None:
    def behave(request: Request) -> None:
        (standin.respond_after(1.0) if request.query["query"] == "slow" else standin.respond_with([({"a": "b"}, "1")]))(
            request
        )

    with start_client(behave) as prometheus:
        answers = prometheus.ask({"slow": "slow", "quick": "quick"}, AT, 0.4)
    assert (answers["slow"].failed, answers["quick"].failed) == ("late", "")


def test_polls_do_not_pile_up_on_a_prometheus_that_hangs() -> None:
    """Two queries run at a time. The third of each poll has to wait, and is not sent after its poll has ended."""
    with start_client(standin.respond_after(1.5), client={"at_once": 2}) as prometheus:
        answers = [prometheus.ask({"a": "a", "b": "b", "c": "c"}, AT, 0.2) for _ in range(3)]
        asked = [query["query"] for query in prometheus.asked]  # type: ignore[attr-defined]
    assert {a.failed for a in answers[0].values()} == {"late"}
    assert {a.failed for poll in answers for a in poll.values()} <= {"late", "busy"}
    assert len(asked) <= 6
    assert "c" not in asked


def test_secrets_are_read_again_when_they_are_rotated(tmp_path: Path) -> None:
    seen: list[str] = []

    def behave(request: Request) -> None:
        seen.append(request.headers["Authorization"])
        request.send(200, standin.vector([]))

    secret = tmp_path / "token"
    secret.write_text("one\n")
    with start_client(behave, bearer_token_file=secret) as prometheus:
        prometheus.ask({"q": "up"}, AT, 2.0)
        secret.write_text("two\n")
        prometheus.ask({"q": "up"}, AT, 2.0)
        secret.unlink()
        gone = prometheus.ask({"q": "up"}, AT, 2.0)["q"]
    assert seen == ["Bearer one", "Bearer two"]
    assert str(secret) in gone.detail
    (tmp_path / "password").write_text("geheim")
    query_once(behave, username="me", password_file=tmp_path / "password")
    assert base64.b64decode(seen[-1].removeprefix("Basic ")) == b"me:geheim"
