"""Alerts on the wire, and replicas that are down, slow, full or confused."""

import shutil
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from model.snapshot import Owner
from serve_app.alerts.alert import Alert
from serve_app.alerts.receivers.alertmanager import PostTiming, split_batches
from serve_app.net.backoff import Backoff
from serve_app.net.endpoint import Endpoint
from tests.builders import write_certificate
from tests.serve_app.alerts.alerting import (
    NOW,
    PATIENT,
    Request,
    StandIn,
    accept,
    eventually,
    firing,
    incident,
    metric_value,
    receivers,
    resend_after,
    saved,
    sending,
    start_endpoints,
    start_notifier,
    until_counted,
    verdict,
)

SENT, FAILED, DROPPED = (
    "tagae_notifications_sent_total",
    "tagae_notifications_failed_total",
    "tagae_notifications_dropped_total",
)


def _severities(request: Request) -> list[tuple[str, bool]]:
    """Return the labels of each alert in a post, and whether it has ended by then."""
    return [(alert["labels"]["severity"], _at(alert["endsAt"]) <= NOW) for alert in request.json]


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _any(test: Callable[[Any], bool]) -> Callable[[list[Request]], bool]:
    return lambda requests: any(test(request) for request in requests)


async def test_an_alert_has_the_format_of_alertmanager(tmp_path: Path) -> None:
    async with sending("alertmanagers", 200, tmp_path) as (server, notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        (request,) = await server.until(lambda requests: len(requests) == 1)
    (alert,) = request.json
    assert (request.path, request.headers["content-type"]) == ("/api/v2/alerts", "application/json")
    assert alert.keys() == {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}
    assert (_at(alert["startsAt"]), _at(alert["endsAt"])) == (NOW - timedelta(minutes=2), NOW + timedelta(minutes=4))
    assert metric_value(instruments, SENT, receiver="alertmanager") == 1


async def test_an_alert_has_the_team_for_routing_and_the_contact_for_people(tmp_path: Path) -> None:
    owned = replace(incident("a"), owner=Owner("checkout", "#checkout"))
    async with sending("alertmanagers", 200, tmp_path) as (server, notifier, _):
        accept(notifier, "shop", verdict(owned, incident("b", "pay/bank")), NOW)
        (request,) = await server.until(lambda requests: len(requests) == 1)
    first, second = sorted(request.json, key=lambda alert: str(alert["labels"]["incident"]))
    assert (first["labels"]["team"], first["annotations"]["contact"]) == ("checkout", "#checkout")
    assert "team" not in second["labels"]  # Alertmanager takes an empty label for a missing one
    assert "contact" not in second["annotations"]


async def test_a_rise_in_severity_is_one_post(tmp_path: Path) -> None:
    async with sending("alertmanagers", 200, tmp_path) as (server, notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await server.until(lambda requests: len(requests) == 1)
        accept(notifier, "shop", verdict(incident("a", severity="major")), NOW)
        requests = await server.until(lambda requests: len(requests) == 2)
    assert sorted(_severities(requests[1])) == [("major", False), ("minor", True)]


async def test_an_unchanged_alert_is_posted_again_with_a_later_end(tmp_path: Path) -> None:
    ticks = iter(range(10**6))

    def clock() -> datetime:
        return NOW + timedelta(milliseconds=next(ticks))

    async with sending("alertmanagers", 200, tmp_path, clock, timing=resend_after()) as (server, notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        requests = await server.until(lambda requests: len(requests) == 3)
    ends = [_at(request.json[0]["endsAt"]) for request in requests]
    assert ends == sorted(set(ends))
    assert len({request.json[0]["startsAt"] for request in requests}) == 1


async def test_without_verdicts_alerts_expire(tmp_path: Path) -> None:
    now = [NOW]
    async with sending("alertmanagers", 200, tmp_path, lambda: now[0], timing=resend_after()) as (server, notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        accept(notifier, "pay", verdict(incident("b")), NOW)
        await server.until(_any(lambda request: len(request.json) == 2))
        now[0] = NOW + timedelta(minutes=6)
        accept(notifier, "pay", verdict(incident("b"), at=now[0]), now[0])
        before = len(await server.until(_any(lambda request: len(request.json) == 1)))
        await server.until(lambda requests: len(requests) >= before + 2)
        assert {a["labels"]["mesh"] for r in server.requests[before:] for a in r.json} == {"pay"}
        # A receiver that recovers gets everything at once, unchanged.
        accept(notifier, "shop", verdict(incident("a"), at=now[0]), now[0])
        requests = await server.until(_any(lambda r: r in server.requests[before:] and len(r.json) == 2))
    names = {str(a["labels"]) for r in requests for a in r.json if a["labels"]["mesh"] == "shop"}
    assert len(names) == 1


async def test_a_mesh_with_long_intervals_keeps_its_alerts_until_three_are_missing(tmp_path: Path) -> None:
    now = [NOW]
    async with sending("alertmanagers", 200, tmp_path, lambda: now[0], timing=resend_after()) as (server, notifier, _):
        accept(notifier, "slow", verdict(incident("a")), NOW, interval_seconds=600)
        accept(notifier, "shop", verdict(incident("b")), NOW)
        await server.until(_any(lambda request: len(request.json) == 2))
        now[0] = NOW + timedelta(minutes=20)
        accept(notifier, "pay", verdict(incident("c"), at=now[0]), now[0])
        await server.until(_any(lambda r: {a["labels"]["mesh"] for a in r.json} == {"slow", "pay"}))
        now[0] = NOW + timedelta(minutes=31)
        accept(notifier, "pay", verdict(incident("c"), at=now[0]), now[0])
        await server.until(_any(lambda r: {a["labels"]["mesh"] for a in r.json} == {"pay"}))


async def test_an_end_is_posted_until_the_clocks_cannot_disagree(tmp_path: Path) -> None:
    now = [NOW]
    async with sending("alertmanagers", 200, tmp_path, lambda: now[0], timing=resend_after()) as (server, notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await server.until(lambda requests: len(requests) == 1)
        accept(notifier, "shop", verdict(), NOW)
        await server.until(lambda requests: sum(_severities(r) == [("minor", True)] for r in requests) >= 3)
        now[0] = NOW + timedelta(minutes=2)  # the end is posted no more often than necessary
        await eventually(lambda: saved(tmp_path).ended == () and not firing(saved(tmp_path)))
        count = len(server.requests)
    assert len(server.requests) == count


def _are_at_least(count: int, requests: Sequence[Request]) -> bool:
    return len(requests) >= count


async def test_one_hanging_replica_does_not_delay_the_others(tmp_path: Path) -> None:
    async with start_endpoints("hang", 200, "trickle", "half", "close", 503) as servers:
        good = servers[1]
        async with start_notifier(receivers(servers, drain_seconds=0.0), tmp_path) as (notifier, instruments):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            await good.until(lambda requests: len(requests) >= 1)
            for server in servers:  # all of them are retried
                await server.until(partial(_are_at_least, 1 if server is good else 2))
            for reason in ("late", "broken", "overloaded"):
                await until_counted(1, instruments, FAILED, reason=reason)
            await eventually(lambda: notifier.count_waiting()["alertmanager"] == 5)


@pytest.mark.parametrize("trouble", [503, 500, 429, "half", "close", "hang"])
async def test_a_replica_that_recovers_gets_the_current_alerts(trouble: int | str, tmp_path: Path) -> None:
    now: list[int | str] = [trouble]
    async with sending("alertmanagers", lambda _: now[0], tmp_path, deadline_seconds=0.5) as (server, notifier, _):
        accept(notifier, "shop", verdict(incident("a"), incident("b", "pay/bank")), NOW)
        await server.until(lambda requests: len(requests) >= 2)
        accept(notifier, "shop", verdict(incident("a", severity="critical")), NOW)
        now[0] = 200
        good = await server.until(_any(lambda request: len(request.json) == 3))
        await eventually(lambda: notifier.count_waiting() == {"alertmanager": 0, "webhook": 0})
    states = {(a["labels"]["incident"], a["labels"]["severity"]): _at(a["endsAt"]) <= NOW for a in good[-1].json}
    assert states == {("a", "minor"): True, ("a", "critical"): False, ("b", "minor"): True}


async def test_a_replica_that_was_down_from_the_beginning_is_notified_when_it_starts(tmp_path: Path) -> None:
    async with start_endpoints(200) as (server,):
        await server.stop()
        async with start_notifier(receivers([server], deadline_seconds=PATIENT), tmp_path) as (notifier, instruments):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            await eventually(
                lambda: metric_value(instruments, FAILED, receiver="alertmanager", reason="unreachable") >= 3
            )
            await server.start()
            (request,) = await server.until(lambda requests: len(requests) == 1)
    assert _severities(request) == [("minor", False)]


async def test_one_refused_alert_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def behaviour(request: Request) -> int:
        return 400 if any(alert["labels"]["incident"] == "b" for alert in request.json) else 200

    async with sending("alertmanagers", behaviour, tmp_path, timing=resend_after()) as (server, notifier, instruments):
        accept(notifier, "shop", verdict(*(incident(name, f"shop/{name}") for name in "abc")), NOW)
        await server.until(lambda requests: sum(len(r.json) == 2 for r in requests) >= 2)
        assert metric_value(instruments, DROPPED, receiver="alertmanager", reason="refused") == 1
        assert notifier.count_waiting()["alertmanager"] == 0
    posts = [{alert["labels"]["incident"] for alert in request.json} for request in server.requests]
    assert posts[0] == {"a", "b", "c"}
    assert posts[1:4] == [{"a"}, {"b"}, {"c"}]  # to find which one
    assert posts[4:6] == [{"a", "c"}] * 2  # it is left out until it changes
    assert "skipped until it changes" in caplog.text


async def test_an_alert_that_fails_with_500_is_skipped_if_others_are_taken(tmp_path: Path) -> None:
    def behaviour(request: Request) -> int:
        return 500 if any(alert["labels"]["incident"] == "b" for alert in request.json) else 200

    async with sending("alertmanagers", behaviour, tmp_path) as (server, notifier, instruments):
        accept(notifier, "shop", verdict(incident("a"), incident("b", "pay/bank"), incident("c", "pay/card")), NOW)
        await until_counted(1, instruments, DROPPED, receiver="alertmanager", reason="set_aside")
        await eventually(lambda: notifier.count_waiting()["alertmanager"] == 0)
    assert metric_value(instruments, "tagae_notifications_sent_total", receiver="alertmanager") == 2
    assert len(server.requests) == 5, "all together, then each by itself, and the bad one again"


async def test_an_alertmanager_that_fails_loses_no_alert(tmp_path: Path) -> None:
    requests: list[Request] = []

    def behaviour(request: Request) -> int:
        requests.append(request)
        return 500 if len(requests) <= 20 else 200

    async with sending("alertmanagers", behaviour, tmp_path) as (_, notifier, instruments):
        named = [incident(f"i{i}", f"shop/s{i}") for i in range(12)]
        accept(notifier, "shop", verdict(*named), NOW)
        await until_counted(12, instruments, "tagae_notifications_sent_total", receiver="alertmanager")
    assert metric_value(instruments, DROPPED) == 0


@pytest.mark.parametrize(("status", "reason"), [(404, "refused"), (301, "refused"), (401, "forbidden")])
async def test_a_refused_alert_is_not_retried_unchanged(status: int, reason: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {"backoff": Backoff(0.01, 3600.0), "drain_seconds": 0.0}
    async with sending("alertmanagers", status, tmp_path, **more) as (server, notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await server.until(lambda requests: len(requests) == 1)
        accept(notifier, "shop", verdict(incident("a", severity="major")), NOW)
        await eventually(lambda: metric_value(instruments, FAILED, receiver="alertmanager", reason=reason) > 0)
        await eventually(lambda: notifier.count_waiting()["alertmanager"] == 2)
        assert len(server.requests) == 1


async def test_retry_after_is_respected(tmp_path: Path) -> None:
    assert Backoff(1.0, 60.0).seconds(1, retry_after_seconds=30.0) == 30.0
    assert Backoff(1.0, 60.0).seconds(1, retry_after_seconds=9999.0) == 60.0
    for failures, longest in ((1, 1.0), (2, 2.0), (5, 16.0), (7, 60.0), (5000, 60.0)):
        assert longest / 2 <= Backoff(1.0, 60.0).seconds(failures) <= longest
    async with sending(
        "alertmanagers", (429, {"retry-after": "3600"}), tmp_path, backoff=Backoff(0.01, 3600.0), drain_seconds=0.0
    ) as (server, notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: metric_value(instruments, FAILED, receiver="alertmanager", reason="overloaded") > 0)
        assert len(server.requests) == 1


def test_batches_keep_an_incident_together() -> None:
    alerts = [_alert(incident=str(i // 2), severity=str(i % 2)) for i in range(10)]
    batches = list(split_batches(alerts[::2] + alerts[1::2], limit=5))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    for batch in batches:
        assert sorted(alert.labels["incident"] for alert in batch)[::2] == sorted({a.labels["incident"] for a in batch})


def _alert(**labels: str) -> Alert:
    return Alert({"mesh": "shop", **labels}, {}, NOW)


def test_the_posting_interval_allows_for_lost_posts() -> None:
    assert PostTiming().ahead >= 3 * PostTiming().resend


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on PATH to make a certificate with")
async def test_a_private_certificate_authority_is_trusted_if_configured(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    server = StandIn(tls=ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
    assert server.tls is not None
    server.tls.load_cert_chain(certificate, key)
    await server.start()
    url = f"https://127.0.0.1:{server.port}/api/v2/alerts"
    to = replace(receivers(deadline_seconds=PATIENT), alertmanagers=(Endpoint(url, ca_file=certificate), Endpoint(url)))
    async with start_notifier(replace(to, drain_seconds=0.0), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await server.until(lambda requests: len(requests) == 1)
        await eventually(lambda: metric_value(instruments, FAILED, receiver="alertmanager", reason="unreachable") > 0)
    await server.stop()
    assert len(server.requests) == 1
