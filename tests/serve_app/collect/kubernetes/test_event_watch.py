"""Events of Kubernetes over a real connection, from a correct server and from faulty ones."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from serve_app.collect.kubernetes import watch
from serve_app.collect.kubernetes.watch import EventWatch
from serve_app.collect.loop import CollectorState
from serve_app.collect.prometheus.keys import Key
from serve_app.exporter import PrometheusInstruments
from serve_app.net.backoff import Backoff
from serve_app.net.endpoint import Endpoint
from tests.serve_app.alerts.alerting import eventually
from tests.serve_app.collect.kubernetes.api_server import TOKEN, ApiServer, event, start_api

QUICK = Backoff(0.01, 0.05)
SHOP = frozenset({"shop/cart", "shop/web", "shop/orders-db"})
SERVES: dict[Key, list[Key]] = {("shop", "cart-v1"): [("shop", "cart")]}


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PERMANENT_SECONDS", 0.05)


@asynccontextmanager
async def start_watch(url: str, folder: Path, *, namespace: str = "") -> AsyncIterator[EventWatch]:
    """Run a watch whose token is in a file."""
    (folder / "token").write_text(TOKEN)
    one = EventWatch("shop", Endpoint(url, bearer_token_file=folder / "token"), namespace, QUICK)
    task = asyncio.create_task(one.run())
    try:
        yield one
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def follow(api: ApiServer, folder: Path, *, is_watched: bool = True) -> AsyncIterator[EventWatch]:
    """Run a server, and a watch that follows it; ``is_watched``: once it does."""
    with start_api(api):
        async with start_watch(api.url, folder) as one:
            await eventually(lambda: api.watchers == 1 or not is_watched)
            yield one


def event_names(one: EventWatch) -> list[str]:
    """Return kind and service of each event, the oldest first."""
    return [f"{found.kind} {found.service}" for found in reversed(one.find(SHOP, SERVES))]


async def test_past_and_new_events_are_received(tmp_path: Path) -> None:
    api = ApiServer()
    for i in range(5):
        api.tell(event("Unhealthy", uid=str(i), age_seconds=600 - i))
    async with follow(api, tmp_path, is_watched=False) as one:
        await eventually(lambda: event_names(one) == ["Unhealthy shop/cart"] * 5)
        assert one.state.following
        api.tell(event("BackOff", count=3))
        await eventually(lambda: len(event_names(one)) == 6)
        (newest, *_) = one.find(SHOP, SERVES)
    assert (newest.kind, newest.service, newest.count) == ("BackOff", "shop/cart", 3)
    assert newest.object == "Pod cart-v1-5f7c9d8b64-x7k2p"
    assert newest.message == "Back-off restarting failed container"
    assert (newest.last - newest.first).total_seconds() == 60
    assert api.asked == [{"watch": "1", "timeoutSeconds": str(watch.WATCH_SECONDS)}]


async def test_a_watch_of_one_namespace_asks_only_for_it(tmp_path: Path) -> None:
    api = ApiServer()
    with start_api(api):
        async with start_watch(api.url, tmp_path, namespace="shop") as one:
            await eventually(lambda: one.state.following)
        async with start_watch(api.url, tmp_path, namespace="pay") as other:
            await eventually(lambda: other.state.outcomes.get("refused", 0) > 0)
            assert not other.state.following


@pytest.mark.parametrize("rest", [None, b'{"type": "ADDED", "object": {"reason": "BackOff", "metadata": {"uid": "1'])
async def test_a_watch_begins_again_after_a_broken_connection(
    tmp_path: Path, rest: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It breaks between two lines or within one. Whole lines count once, although they are sent again."""
    api = ApiServer()
    async with follow(api, tmp_path) as one:
        api.tell(event("Unhealthy"))
        if rest:
            api.say(rest)
        api.say(None)
        await eventually(lambda: one.state.outcomes.get("broken", 0) == 1)
        await eventually(lambda: api.watchers == 1)
        api.tell(event("Killing", "web-6b9f7cd5c4-qq2zt", age_seconds=1))
        await eventually(lambda: len(event_names(one)) == 2)
        state = one.state
    assert event_names(one) == ["Unhealthy shop/cart", "Killing shop/web"]
    assert state.following
    assert (state.stored_events, state.outcomes) == (2, {"watched": 2, "broken": 1})
    assert not caplog.records  # a broken connection is not logged


async def test_without_permission_one_line_is_logged_and_the_watch_starts_once_permitted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = ApiServer(allowed=False)
    api.tell(event("Unhealthy"))
    caplog.set_level(logging.INFO, logger="serve_app")
    async with follow(api, tmp_path, is_watched=False) as one:
        await eventually(lambda: one.state.outcomes.get("forbidden", 0) >= 3)
        assert not one.state.following
        assert "cannot list resource" in one.state.problem
        api.allowed = True
        await eventually(lambda: event_names(one) == ["Unhealthy shop/cart"])
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 1
    assert "continuing without Kubernetes Events: forbidden: 403" in warned[0]
    assert "deploy/kubernetes/events.yaml" in warned[0]


async def test_a_forbidden_watch_is_retried_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PERMANENT_SECONDS", 0.3)
    api = ApiServer(token="another")
    with start_api(api):
        began = time.monotonic()
        async with start_watch(api.url, tmp_path) as one:
            await eventually(lambda: one.state.outcomes.get("forbidden", 0) >= 3)
            assert time.monotonic() - began >= 2 * 0.3, "other failures are repeated after at most 0.05 s"
            state = one.state
    text = PrometheusInstruments().text(collectors=[CollectorState("shop", events=state)]).decode()
    assert 'tagae_collector_events_followed{mesh="shop"} 0.0' in text
    assert (
        f'tagae_collector_event_watches_total{{mesh="shop",outcome="forbidden"}} {state.outcomes["forbidden"]}.0'
        in text
    )


async def test_without_a_server_one_line_is_logged_and_the_watch_starts_with_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = ApiServer()
    with start_api(api):
        url = api.url  # then it is down
    async with start_watch(url, tmp_path) as one:
        await eventually(lambda: one.state.outcomes.get("unreachable", 0) >= 4)
        warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warned) == 1
        assert "unreachable" in warned[0]
        with start_api(api, port=int(url.rsplit(":", 1)[1])):
            api.tell(event("FailedScheduling"))
            await eventually(lambda: event_names(one) == ["FailedScheduling shop/cart"])
            await eventually(lambda: one.state.following and not one.state.problem)


async def test_a_missing_file_does_not_end_the_watch(tmp_path: Path) -> None:
    """Outside a cluster there is no token."""
    token = Endpoint("http://127.0.0.1:9", bearer_token_file=tmp_path / "none")
    for endpoint in (token, Endpoint("https://127.0.0.1:9", ca_file=tmp_path / "none")):
        one = EventWatch("shop", endpoint)
        task = asyncio.create_task(one.run())
        await eventually(lambda one=one: one.state.outcomes.get("secret", 0) >= 2)  # type: ignore[misc]
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_token_is_read_with_every_request(tmp_path: Path) -> None:
    api = ApiServer()
    async with follow(api, tmp_path) as one:
        api.token = "rotated"
        (tmp_path / "token").write_text("rotated\n")
        api.say(None)
        await eventually(lambda: one.state.outcomes.get("watched", 0) == 2)
        assert "forbidden" not in one.state.outcomes


@pytest.mark.parametrize(
    "line",
    [
        b"no JSON\n",
        b'{"type": "ADDED", "object": {"metadata": 7}}\n',
        b'{"type": "ADDED", "object": {"reason": "BackOff", "count": "many"}}\n',
        b'{"type": "MODIFIED", "object": {"reason": "BackOff", "lastTimestamp": "yesterday"}}\n',
        b"[]\n",
    ],
)
async def test_a_line_that_cannot_be_read_is_left_out(tmp_path: Path, line: bytes) -> None:
    api = ApiServer()
    async with follow(api, tmp_path) as one:
        api.say(line)
        api.say(b"\n")
        api.tell(event("Unhealthy"))
        await eventually(lambda: event_names(one) == ["Unhealthy shop/cart"])
        assert one.state.outcomes == {"watched": 1, "unreadable": 1}


BAD_ITEMS: list[Any] = [
    None,
    7,
    [],
    "BackOff",
    {"metadata": 7},
    {"involvedObject": "web"},
    {"reason": ["BackOff"]},
    {"message": {"text": "a"}},
    {"count": "many"},
    {"count": 1.5},
    {"series": [1]},
    {"lastTimestamp": "yesterday"},
    {"lastTimestamp": ""},
    {"lastTimestamp": 1700000000},
    {"eventTime": "2026-03-01T12:00:00"},
]


@pytest.mark.parametrize("bad", BAD_ITEMS)
async def test_a_bad_event_is_skipped_alone_and_counted(
    tmp_path: Path, bad: object, caplog: pytest.LogCaptureFixture
) -> None:
    broken = {**event("Killing"), **bad} if isinstance(bad, dict) else bad
    api = ApiServer()
    async with follow(api, tmp_path) as one:
        for item in (event("Unhealthy"), broken, event("BackOff"), broken):
            api.say(json.dumps({"type": "ADDED", "object": item}).encode() + b"\n")
        await eventually(lambda: one.state.outcomes == {"watched": 1, "unreadable": 2})
        assert sorted(event_names(one)) == ["BackOff shop/cart", "Unhealthy shop/cart"]
        assert (one.state.stored_events, one.state.problem) == (2, "")
    assert caplog.text.count("skipped an unreadable Kubernetes Event") == 1
    text = PrometheusInstruments().text(collectors=[CollectorState("shop", events=one.state)]).decode()
    assert 'tagae_collector_event_watches_total{mesh="shop",outcome="unreadable"} 2.0' in text


async def test_a_line_without_end_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_LINE", 1000)
    api = ApiServer()
    async with follow(api, tmp_path) as one:
        api.say(b"x" * 2000)
        await eventually(lambda: one.state.outcomes.get("broken", 0) >= 1)
        assert "a line exceeds 1000 bytes" in one.state.problem


async def test_a_line_with_an_error_is_a_failure(tmp_path: Path) -> None:
    api = ApiServer()
    async with follow(api, tmp_path) as one:
        api.say(b'{"type": "ERROR", "object": {"code": 500, "reason": "InternalError", "message": "etcd is away"}}\n')
        await eventually(lambda: one.state.outcomes == {"watched": 2, "failed": 1})


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (500, b"etcd is away", "failed"),
        (429, b"{}", "failed"),
        (400, b"{}", "refused"),
        (302, b"", "refused"),
        (410, b"{}", "refused"),
    ],
)
async def test_an_invalid_answer_is_requested_again(tmp_path: Path, status: int, body: bytes, outcome: str) -> None:
    api = ApiServer(bodies=[(status, body)])
    api.tell(event("Unhealthy"))
    async with follow(api, tmp_path, is_watched=False) as one:
        await eventually(lambda: event_names(one) == ["Unhealthy shop/cart"])
        await eventually(lambda: one.state.following)
        assert one.state.outcomes == {outcome: 1, "watched": 1}


async def test_a_server_that_ends_every_watch_at_once_is_asked_with_increasing_waits(tmp_path: Path) -> None:
    api = ApiServer(bodies=[(200, b"")] * 500)
    began = time.monotonic()
    async with follow(api, tmp_path, is_watched=False) as one:
        await eventually(lambda: one.state.outcomes.get("watched", 0) >= 20)
        assert time.monotonic() - began >= 16 * QUICK.max_seconds / 2, (
            "from the fourth request on, the wait is at its maximum"
        )


def test_events_are_watched_only_if_configured() -> None:
    text = PrometheusInstruments().text(collectors=[CollectorState("shop")]).decode()
    assert "events_followed{" not in text
    assert "event_watches_total{" not in text
