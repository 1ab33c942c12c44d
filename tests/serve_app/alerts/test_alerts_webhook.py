"""Events to webhooks: at least once, in order, signed."""

import hashlib
import hmac
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from serve_app.alerts import event_queue
from serve_app.alerts.alert import IncidentEvent
from serve_app.alerts.event_queue import MAX_FAILURES, MAX_FAILURES_ALONE, QueueLimits
from serve_app.alerts.receivers.webhook import signature
from serve_app.net.backoff import Backoff
from tests.serve_app.alerts.alerting import (
    NOW,
    Request,
    accept,
    eventually,
    incident,
    metric_value,
    receivers,
    resend_after,
    sending,
    start_endpoints,
    start_notifier,
    until_counted,
    verdict,
)

DROPPED, FAILED = "tagae_notifications_dropped_total", "tagae_notifications_failed_total"


def _events(requests: list[Request]) -> list[tuple[str, str]]:
    return [(request.json["incident"]["id"], request.json["event"]) for request in requests]


async def test_an_event_has_all_fields(tmp_path: Path) -> None:
    async with sending("webhooks", 200, tmp_path) as (server, notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        (request,) = await server.until(lambda requests: len(requests) == 1)
    document = request.json
    assert (
        document.items()
        >= {
            "version": 1,
            "event": "opened",
            "sequence": 1,
            "at": "2026-03-01T03:14:00+00:00",
            "cluster": "eu-1",
            "mesh": "shop",
        }.items()
    )
    assert document["incident"]["severity"] == "minor"
    assert [suspect["service"] for suspect in document["incident"]["suspects"]] == ["shop/cart", "shop/web"]
    assert document["incident"]["suspects"][0]["reasons"][0]["text"].startswith("p99 latency 1.2 s")
    assert document["links"]["verdict_url"] == "https://tagae.example/v1/meshes/shop/verdict"
    assert request.path == "/hook"
    assert request.headers["idempotency-key"] == document["id"]
    assert request.headers["tagae-event"] == "opened"
    assert "tagae-signature" not in request.headers


async def test_the_signature_is_of_time_and_body(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("first secret\n")
    async with sending("webhooks", 200, tmp_path, secret_file=key) as (server, notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await server.until(lambda requests: len(requests) == 1)
        key.write_text("second secret\n")  # rotated: used from the next request
        accept(notifier, "shop", verdict(), NOW)
        requests = await server.until(lambda requests: len(requests) == 2)
    for request, secret in zip(requests, (b"first secret", b"second secret"), strict=True):
        at, _, digest = request.headers["tagae-signature"].partition(",v1=")
        signed = at.removeprefix("t=").encode() + b"." + request.body
        assert digest == hmac.new(secret, signed, hashlib.sha256).hexdigest()
    assert signature("s", b"x", 1) != signature("s", b"x", 2)


async def test_events_wait_for_a_missing_secret(tmp_path: Path) -> None:
    key = tmp_path / "key"
    async with sending("webhooks", 200, tmp_path, secret_file=key) as (server, notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: metric_value(instruments, FAILED, receiver="webhook", reason="secret") > 0)
        assert server.requests == []
        key.write_text("secret")
        (request,) = await server.until(lambda requests: len(requests) == 1)
    assert "tagae-signature" in request.headers


@pytest.mark.parametrize("trouble", [503, 500, 429, 401, "half", "close", "hang"])
async def test_events_arrive_in_order_despite_failures(trouble: int | str, tmp_path: Path) -> None:
    """Every other request fails."""
    requests: list[Request] = []

    def behaviour(request: Request) -> int | str:
        requests.append(request)
        return trouble if len(requests) % 2 else 200

    async with sending("webhooks", behaviour, tmp_path, deadline_seconds=0.5) as (server, notifier, _):
        accept(notifier, "shop", verdict(incident("a"), incident("b", "pay/bank")), NOW)
        accept(notifier, "shop", verdict(incident("a", severity="major"), incident("b", "pay/bank")), NOW)
        accept(notifier, "shop", verdict(incident("a", "shop/cart", "pay/bank", severity="major", age=300)), NOW)
        accept(notifier, "shop", verdict(), NOW)
        await server.until(lambda requests: len({r.headers["idempotency-key"] for r in requests}) == 5)
    deliveries = list({r.headers["idempotency-key"]: r for r in server.requests}.values())
    assert _events(deliveries) == [
        ("a", "opened"),
        ("b", "opened"),
        ("a", "severity_raised"),
        ("b", "merged"),
        ("a", "resolved"),
    ]
    for request in server.requests:  # the same event is the same bytes
        assert request.body == next(r.body for r in deliveries if r.json["id"] == request.json["id"])


@pytest.mark.parametrize("status", [400, 404, 410, 422])
async def test_a_refused_event_is_not_retried(status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with sending(
        "webhooks", lambda request: status if request.json["incident"]["id"] == "a" else 200, tmp_path
    ) as (server, notifier, instruments):
        accept(notifier, "shop", verdict(incident("a"), incident("b", "pay/bank")), NOW)
        requests = await server.until(lambda requests: len(requests) == 2)
    assert metric_value(instruments, DROPPED, receiver="webhook", reason="refused") == 1
    assert _events(requests) == [("a", "opened"), ("b", "opened")]
    assert "is not retried" in caplog.text
    assert "/hook" not in caplog.text  # its path may be a secret


@pytest.mark.parametrize("trouble", [500, "close"], ids=str)
async def test_an_event_that_is_never_taken_holds_up_no_other_incident(
    trouble: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_queue, "SET_ASIDE_SECONDS", 0.0)

    def behaviour(request: Request) -> int | str:
        return trouble if request.json["incident"]["id"] == "a" else 200

    async with sending("webhooks", behaviour, tmp_path) as (server, notifier, instruments):
        accept(notifier, "shop", verdict(incident("a"), incident("b", "pay/bank"), incident("c", "pay/card")), NOW)
        await until_counted(1, instruments, DROPPED, receiver="webhook", reason="set_aside")
        await eventually(lambda: notifier.count_waiting()["webhook"] == 0)
    assert metric_value(instruments, "tagae_notifications_sent_total", receiver="webhook") == 2
    taken = [name for name, _ in _events(server.requests)]
    assert (taken.count("a"), taken.count("b"), taken.count("c")) == (MAX_FAILURES + 1, 1, 1)


async def test_a_receiver_that_fails_now_and_then_loses_no_event(tmp_path: Path) -> None:
    """It recovers from an outage, with some of its servers: an event that fails right after another was taken is sent
    again."""
    counts: Counter[str] = Counter()

    def behaviour(request: Request) -> int:
        name = request.json["incident"]["id"]
        counts[name] += 1
        return 502 if name == "a" and counts[name] < MAX_FAILURES + 3 else 200

    async with sending("webhooks", behaviour, tmp_path) as (_, notifier, instruments):
        accept(notifier, "shop", verdict(incident("a"), incident("b", "pay/bank"), incident("c", "pay/card")), NOW)
        await until_counted(3, instruments, "tagae_notifications_sent_total", receiver="webhook")
    assert metric_value(instruments, DROPPED) == 0


async def test_an_outage_sets_no_event_aside(tmp_path: Path) -> None:
    incident_ids: list[str] = []

    def behaviour(request: Request) -> int:
        incident_ids.append(request.json["incident"]["id"])
        return 500 if len(incident_ids) < 30 else 200

    async with sending("webhooks", behaviour, tmp_path) as (_, notifier, instruments):
        accept(notifier, "shop", verdict(incident("a"), incident("b", "pay/bank"), incident("c", "pay/card")), NOW)
        await until_counted(3, instruments, "tagae_notifications_sent_total", receiver="webhook")
    assert metric_value(instruments, DROPPED) == 0


async def test_the_newest_event_replaces_one_that_is_never_taken(tmp_path: Path) -> None:
    def behaviour(request: Request) -> int:
        return 500 if request.json["event"] == "opened" else 200

    async with sending("webhooks", behaviour, tmp_path) as (server, notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        accept(notifier, "shop", verdict(), NOW)
        await until_counted(1, instruments, DROPPED, receiver="webhook", reason="set_aside")
    assert metric_value(instruments, "tagae_notifications_sent_total", receiver="webhook") == 1
    assert [event for _, event in _events(server.requests)] == ["opened"] * MAX_FAILURES_ALONE + ["resolved"]


def test_a_full_queue_drops_the_oldest() -> None:
    events = tuple(IncidentEvent(str(i), NOW + timedelta(hours=i), {}) for i in range(30))
    remaining, dropped = QueueLimits(max_events=10).trim(events, NOW + timedelta(hours=29))
    assert [event.id for event in remaining] == [str(i) for i in range(20, 30)]
    assert dropped == {"expired": 6, "full": 14}
    assert QueueLimits().trim(events[:3], NOW)[0] == events[:3]


async def test_events_that_wait_too_long_are_counted(tmp_path: Path) -> None:
    async with start_endpoints(503) as (server,):
        to = receivers(
            webhooks=[server], queue=QueueLimits(max_events=2), backoff=Backoff(3600, 3600), drain_seconds=0.0
        )
        async with start_notifier(to, tmp_path) as (notifier, instruments):
            for i in range(5):
                accept(notifier, "shop", verdict(incident(f"i{i}", age=i)), NOW)
            await server.until(lambda requests: len(requests) == 1)
            await eventually(lambda: notifier.count_waiting()["webhook"] == 2)
            dropped = metric_value(instruments, DROPPED, receiver="webhook", reason="full")
            assert dropped == 7  # five opened and four resolved


async def test_one_hanging_webhook_does_not_delay_the_others(tmp_path: Path) -> None:
    async with start_endpoints("hang", 200) as (bad, good):
        to = replace(
            receivers([good], webhooks=[bad, good], drain_seconds=0.0), deadline_seconds=3600.0, timing=resend_after()
        )
        async with start_notifier(to, tmp_path) as (notifier, _):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            await bad.until(lambda requests: len(requests) == 1)
            accept(notifier, "shop", verdict(), NOW)
            await good.until(lambda requests: sum(r.path == "/hook" for r in requests) == 2)
            assert len(bad.requests) == 1
            await eventually(lambda: notifier.count_waiting()["webhook"] == 2)
