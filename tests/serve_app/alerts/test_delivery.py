"""Restarts of the process: stored state, repeated sends, and broken files or disks."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from serve_app.alerts import saved_state
from serve_app.alerts.delivery import FORGET_AFTER, AlertDelivery
from serve_app.alerts.delivery import receivers as configured
from serve_app.errors import BadSettings
from serve_app.exporter import PrometheusInstruments
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.opening import open_store
from serve_app.stores.row_store import Change
from serve_app.stores.sqlite.store import SqliteRows
from serve_app.stores.state_store import StateStore
from tests.serve_app.alerts.alerting import (
    NOW,
    PATIENT,
    WITHIN,
    Request,
    accept,
    eventually,
    firing,
    incident,
    metric_value,
    receivers,
    refuse,
    resend_after,
    run_notifier,
    saved,
    start_endpoints,
    start_notifier,
    stored_state,
    until_counted,
    verdict,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with closing(open_store(StoreSettings(path=tmp_path))) as opened:
        yield opened


async def test_nothing_is_lost_from_one_process_to_the_next(tmp_path: Path) -> None:
    """The first process is killed before delivery, the second gets a verdict without incidents, the third delivers."""
    to = receivers(drain_seconds=0.0)
    async with start_endpoints(503, 503) as (manager, hook):
        to = receivers([manager], [hook], drain_seconds=0.0)
        async with start_notifier(to, tmp_path) as (notifier, _):
            accept(notifier, "shop", verdict(incident("a"), incident("b", "pay/bank")), NOW)
            await hook.until(lambda requests: len(requests) >= 1)  # sent only after it was written
            first = saved(tmp_path)
        async with start_notifier(to, tmp_path) as (notifier, _):
            accept(notifier, "shop", verdict(incident("a", "new/name", severity="major")), NOW)
        assert len({alert.labels["incident"] for alert in firing(first)}) == 2
        manager.behaviour = hook.behaviour = lambda request: 200
        before = len(manager.requests), len(hook.requests)
        async with start_notifier(receivers([manager], [hook], deadline_seconds=PATIENT), tmp_path) as (notifier, _):
            await eventually(lambda: notifier.count_waiting() == {"alertmanager": 0, "webhook": 0})
        last, events = manager.requests[-1].json, [request.json for request in hook.requests[before[1] :]]
    assert sorted((a["labels"]["incident"], a["labels"]["severity"], a["labels"]["service"]) for a in last) == [
        ("a", "major", "cart"),  # has the labels of its first notification, from the killed process
        ("a", "minor", "cart"),
        ("b", "minor", "bank"),
    ]
    assert [(event["incident"]["id"], event["event"]) for event in events] == [
        ("a", "opened"),
        ("b", "opened"),
        ("b", "resolved"),
        ("a", "severity_raised"),
    ]
    assert events[0]["id"] == hook.requests[0].json["id"]


async def test_no_notification_before_the_state_is_written(tmp_path: Path) -> None:
    was_saved: list[bool] = []

    def behaviour(request: Request) -> int:
        (events,) = saved(tmp_path).events.values()
        was_saved.append(request.json["id"] in {event.id for event in events})
        return 200

    async with (
        start_endpoints(behaviour) as (hook,),
        start_notifier(receivers(webhooks=[hook], deadline_seconds=PATIENT), tmp_path) as (notifier, _),
    ):
        for severity in ("minor", "major", "critical"):
            accept(notifier, "shop", verdict(incident("a", severity=severity)), NOW)
            await asyncio.sleep(0)
        await hook.until(lambda requests: len(requests) == 3)
    assert was_saved == [True] * 3


async def test_closing_delivers_waiting_notifications(tmp_path: Path) -> None:
    async with start_endpoints(200, 200) as (manager, hook):
        async with start_notifier(receivers([manager], [hook], deadline_seconds=PATIENT), tmp_path) as (notifier, _):
            accept(notifier, "shop", verdict(incident("a")), NOW)
        assert len(hook.requests) == 1
        assert [alert["labels"]["incident"] for alert in manager.requests[-1].json] == ["a"]
        assert notifier.count_waiting() == {"alertmanager": 0, "webhook": 0}


async def test_closing_ends_without_an_answer(tmp_path: Path) -> None:
    async with start_endpoints("hang", "hang") as (manager, hook):
        to = receivers([manager], [hook], deadline_seconds=3600.0, drain_seconds=0.05)
        async with start_notifier(to, tmp_path) as (notifier, _):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            await hook.until(lambda requests: len(requests) == 1)
        assert notifier.count_waiting() == {"alertmanager": 1, "webhook": 1}
    assert sum(map(len, saved(tmp_path).events.values())) == 1


async def test_a_notifier_that_never_ran_keeps_its_verdicts(store: StateStore) -> None:
    notifier = AlertDelivery(receivers(), store, PrometheusInstruments(), lambda: NOW)
    accept(notifier, "shop", verdict(incident("a")), NOW)
    await notifier.close()
    await notifier.run()  # it is closed
    assert [alert.labels["incident"] for alert in firing(stored_state(store))] == ["a"]


async def test_a_mesh_that_is_deleted_or_silent_is_resolved(tmp_path: Path) -> None:
    now = [NOW]
    async with start_endpoints(200) as (hook,):
        to = receivers(webhooks=[hook], deadline_seconds=PATIENT, timing=resend_after())
        async with start_notifier(to, tmp_path, lambda: now[0]) as (notifier, _):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            accept(notifier, "pay", verdict(incident("b")), NOW)
            notifier.forget_mesh("shop", NOW)
            notifier.forget_mesh("never-seen", NOW)
            await hook.until(lambda requests: len(requests) == 3)
            assert [alert.labels["mesh"] for alert in firing(saved(tmp_path))] == ["pay"]
            now[0] = NOW + FORGET_AFTER + timedelta(seconds=1)
            requests = await hook.until(lambda requests: len(requests) == 4)
    assert [r.json.get("reason") for r in requests] == [None, None, "mesh_deleted", "mesh_silent"]


async def test_a_store_that_refuses_prevents_no_notification(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_endpoints(200) as (hook,):
        to = receivers(webhooks=[hook], deadline_seconds=PATIENT, timing=resend_after())
        async with run_notifier(to, store) as (notifier, instruments):
            monkeypatch.setattr(store.database, "write", refuse)
            accept(notifier, "shop", verdict(incident("a")), NOW)
            await hook.until(lambda requests: len(requests) == 1)
            assert (
                metric_value(instruments, "tagae_notifications_failed_total", receiver="state", reason="unwritable")
                >= 1
            )
            monkeypatch.undo()  # as soon as there is room again
            await eventually(lambda: bool(stored_state(store).meshes))
    assert "still sent" in caplog.text


class HeldRows(SqliteRows):
    """A database whose writes wait while ``holds`` is set."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.holds, self.is_waiting, self.may_continue = False, threading.Event(), threading.Event()

    def write(self, space: str, change: Change, *, max_meshes: int | None = None) -> bool:
        if self.holds:
            self.is_waiting.set()
            assert self.may_continue.wait(WITHIN)
        return super().write(space, change, max_meshes=max_meshes)


async def test_a_store_that_hangs_delays_no_notification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_state, "WRITE_TIMEOUT_SECONDS", 0.05)
    database = HeldRows(tmp_path)
    async with start_endpoints(200) as (hook,):
        to = receivers(webhooks=[hook], deadline_seconds=PATIENT, timing=resend_after())
        with closing(StateStore(database)) as store:
            async with run_notifier(to, store) as (notifier, instruments):
                database.holds = True
                accept(notifier, "shop", verdict(incident("a")), NOW)
                await hook.until(lambda requests: len(requests) == 1)
                assert metric_value(instruments, "tagae_notifications_failed_total", receiver="state") >= 1
                database.holds = False
                database.may_continue.set()
                await eventually(lambda: bool(stored_state(store).meshes))
    assert [alert.labels["incident"] for alert in firing(saved(tmp_path))] == ["a"]


async def test_a_delivery_that_is_cancelled_while_it_ends_closes_its_connections(tmp_path: Path) -> None:
    storage = HeldRows(tmp_path)
    async with start_endpoints(200, 200) as hooks:
        to, store = receivers(webhooks=hooks, deadline_seconds=PATIENT), StateStore(storage)
        sending = AlertDelivery(to, store, PrometheusInstruments(), lambda: NOW)
        running = asyncio.create_task(sending.run())
        accept(sending, "shop", verdict(incident("a")), NOW)
        for hook in hooks:
            await hook.until(lambda requests: len(requests) == 1)
        # Both answers are saved, so that the next write is the one at the end.
        await eventually(lambda: bool(stored_state(store).meshes) and not any(stored_state(store).events.values()))
        assert [hook.connections for hook in hooks] == [1, 1]
        storage.holds = True
        running.cancel()
        assert await asyncio.to_thread(storage.is_waiting.wait, WITHIN)
        running.cancel()
        await eventually(lambda: all(hook.connections == 0 for hook in hooks))
        storage.may_continue.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        await sending.close()  # a caller that waits for the end returns, too


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path, store: StateStore) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for name in ("ca.pem", "absent.pem"):
        hook = {"kind": "webhook", "options": {"url": "https://x", "ca_file": str(tmp_path / name)}}
        to = configured(Settings.model_validate({"notify": {"receivers": [hook]}}))
        with pytest.raises(BadSettings, match=f"ca_file.*{name}"):
            AlertDelivery(to, store, PrometheusInstruments())


async def test_the_number_of_waiting_notifications_is_a_gauge(tmp_path: Path) -> None:
    async with start_endpoints(503, 503) as (manager, hook):
        to = receivers([manager], [hook], drain_seconds=0.0, timing=resend_after())
        async with start_notifier(to, tmp_path) as (notifier, instruments):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            for receiver in ("alertmanager", "webhook"):
                await until_counted(1, instruments, "tagae_notifications_waiting", receiver=receiver)


async def test_a_gauge_that_does_not_change_is_set_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray drops a gauge that is not set again. A waiting notification would be visible too briefly for an alert."""
    monkeypatch.setattr("serve_app.alerts.delivery.MEASURE_SECONDS", 0.01)
    counts: list[float] = []
    monkeypatch.setattr(PrometheusInstruments, "set", lambda self, metric, value, **labels: counts.append(value))
    async with start_endpoints(503, 503) as (manager, hook), start_notifier(receivers([manager], [hook]), tmp_path):
        await eventually(lambda: len(counts) >= 10)
    assert set(counts) == {0}


async def test_secrets_are_sent_and_stay_out_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "serve_app")
    (tmp_path / "password").write_text("pässword\n")
    (tmp_path / "token").write_text("t0ken\n")
    async with start_endpoints(401, 403) as (basic, bearer):
        settings = Settings.model_validate(
            {
                "notify": {
                    "alertmanagers": [
                        {"url": f"{basic.url}/am/", "username": "tagae", "password_file": str(tmp_path / "password")},
                        {"url": bearer.url, "bearer_token_file": str(tmp_path / "token")},
                    ],
                }
            }
        )
        async with start_notifier(replace(configured(settings), drain_seconds=0), tmp_path) as (notifier, _):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            (request,) = await basic.until(lambda requests: len(requests) == 1)
            (other,) = await bearer.until(lambda requests: len(requests) == 1)
            await eventually(lambda: caplog.text.count("forbidden") == 2)
    assert request.path == "/am/api/v2/alerts"
    assert request.headers["authorization"] == "Basic dGFnYWU6cMOkc3N3b3Jk"
    assert other.headers["authorization"] == "Bearer t0ken"
    assert not [secret for secret in ("pässword", "t0ken", "dGFnYWU6") if secret in caplog.text]
