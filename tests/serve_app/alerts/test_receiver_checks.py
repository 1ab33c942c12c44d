"""Receivers that take nothing are known before an incident, and a test alert arrives."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from serve_app.alerts.receiver_status import ReceiverStatus, read_statuses
from serve_app.alerts.receiver_trials import TEST_TEXT, ReceiverAdmin, check_receivers, send_test_alert
from serve_app.doctor.connections import check_receivers as findings
from serve_app.errors import UnknownReceiver
from serve_app.runtime import supervisor
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.opening import open_store
from tests.http_server import QuietHandler
from tests.serve_app.alerts.alerting import eventually, metric_value, receivers, start_endpoints, start_notifier
from tests.serve_app.alerts.stand_ins import (
    Answering,
    OtherSide,
    StandInGrafana,
    StandInPagerDuty,
    StandInSlack,
    serve,
)
from tests.timing import PATIENCE_SECONDS

DEAD = "http://127.0.0.1:9"  # the port of the discard protocol


def notifying(url: str, folder: Path) -> Settings:
    """Return settings with one receiver of each kind at an address."""
    chosen = [stand_in(url).chosen(folder) for stand_in in (Answering, StandInGrafana, StandInPagerDuty, StandInSlack)]
    return Settings.model_validate({"notify": {"alertmanagers": [{"url": url}], "receivers": chosen}})


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[Answering]:
    with serve(Answering(status=request.param)) as server:
        yield server


def failures(statuses: tuple[ReceiverStatus, ...]) -> dict[str, str]:
    return {status.kind: status.failed for status in statuses}


ALL = ("alertmanager", "webhook", "grafana", "pagerduty", "slack")


@pytest.mark.parametrize(
    ("answering", "expected"),
    [
        (200, dict.fromkeys(ALL, "")),
        # Of a webhook and PagerDuty, only the connection is tried: a request would be an event.
        (401, dict.fromkeys(ALL, "forbidden") | {"webhook": "", "pagerduty": ""}),
        (500, dict.fromkeys(ALL, "failed") | {"webhook": "", "pagerduty": ""}),
    ],
    indirect=["answering"],
)
async def test_a_check_sends_nothing(answering: Answering, expected: dict[str, str], tmp_path: Path) -> None:
    assert failures(await check_receivers(notifying(answering.url, tmp_path))) == expected
    assert {path for path, _ in answering.requests} == {"/auth.test"}


async def test_a_dead_port_and_a_missing_secret_are_found(tmp_path: Path) -> None:
    settings = notifying(DEAD, tmp_path)
    assert failures(await check_receivers(settings)) == dict.fromkeys(ALL, "unreachable")
    StandInPagerDuty().secret_file(tmp_path).unlink()
    assert failures(await check_receivers(settings))["pagerduty"] == "secret"


def test_the_doctor_names_receivers_that_fail(tmp_path: Path) -> None:
    results = list(findings(notifying(DEAD, tmp_path)))
    assert [finding.subject for finding in results] == [f"receiver {kind}" for kind in ALL]
    assert {finding.outcome for finding in results} == {"problem"}
    assert all(f"{DEAD}" in finding.found for finding in results)
    assert list(findings(Settings())) == []


@pytest.mark.parametrize("answering", [200], indirect=True)
async def test_a_test_alert_goes_to_the_receivers_that_are_asked_for(answering: Answering, tmp_path: Path) -> None:
    settings = notifying(answering.url, tmp_path)
    (only,) = await send_test_alert(settings, "webhook")
    assert (only.kind, only.failed) == ("webhook", "")
    ((path, event),) = answering.requests
    assert (path, event["event"], event["summary"], event["mesh"]) == ("/", "opened", TEST_TEXT, "test")
    answering.requests.clear()
    assert set(failures(await send_test_alert(settings))) == set(ALL)
    (alert,) = next(body for path, body in answering.requests if path == "/api/v2/alerts")
    assert alert["annotations"]["summary"] == TEST_TEXT
    assert alert["endsAt"] > alert["startsAt"]
    with pytest.raises(UnknownReceiver, match="expected the kind or address"):
        await send_test_alert(settings, "email")


async def test_a_receiver_that_fails_is_known_without_an_incident(tmp_path: Path) -> None:
    settings = Settings.model_validate({"notify": {"alertmanagers": [{"url": DEAD}]}})
    async with start_endpoints(200) as (server,):
        to = receivers([server])
        await server.stop()
        async with start_notifier(to, tmp_path) as (_, instruments):
            await eventually(lambda: metric_value(instruments, "tagae_receiver_failing", receiver="alertmanager") == 1)
            with closing(open_store(StoreSettings(path=tmp_path))) as store:
                await eventually(lambda: bool(ReceiverAdmin(settings, store).problems()), within=PATIENCE_SECONDS)
                ((public, full),) = ReceiverAdmin(settings, store).problems()
                assert full.startswith(f"alertmanager {server.url} takes no notifications since ")
                assert server.url not in public
                assert public.endswith(": unreachable")
                assert ReceiverAdmin(Settings(), store).problems() == (), "no one is notified any more"


async def test_a_receiver_that_is_back_has_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.alerts.send_loop.CHECK_SECONDS", 0.05)
    async with start_endpoints(200) as (server,):
        await server.stop()
        async with start_notifier(receivers([server]), tmp_path) as (_, instruments):
            await eventually(lambda: metric_value(instruments, "tagae_receiver_failing", receiver="alertmanager") == 1)
            await server.start()
            await eventually(lambda: metric_value(instruments, "tagae_receiver_failing", receiver="alertmanager") == 0)
        with closing(open_store(StoreSettings(path=tmp_path))) as store:
            assert len(read_statuses(store)) == 1


@pytest.mark.timeout(PATIENCE_SECONDS)
def test_the_terminal_gets_changes() -> None:
    stop, given = threading.Event(), list[supervisor.News]()
    well = {"model": "a", "receivers": [], "replays": []}
    reading = {**well, "replays": [{"mesh": "shop", "share": 0.5}]}
    answers = [{}, {**well, "model": None}, *[{**well, "receivers": ["slack: no"]}] * 2, reading]

    class Service(OtherSide):
        def handler(self) -> type[QuietHandler]:
            class Handler(QuietHandler):
                def do_GET(self) -> None:
                    self.send(200, json.dumps(answers.pop(0) if answers else well).encode())

            return Handler

    def tell(news: supervisor.News) -> None:
        given.append(news)
        if len(given) == 3:
            stop.set()

    with serve(Service()) as service, pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "PROBE_PERIOD_SECONDS", 0.01)
        patch.setattr(supervisor, "PERIOD_SECONDS", 0.01)
        patch.setattr(
            supervisor, "_find_irreplaceable", lambda: dict.fromkeys(supervisor.IRREPLACEABLE, psutil.Process())
        )
        assert supervisor.watch(service.url, stop, tell) == ""
    assert given == [
        supervisor.News(receivers=("slack: no",)), supervisor.News(replays=(("shop", 0.5),)), supervisor.News(),
    ]  # fmt: skip


async def test_a_receiver_that_hangs_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.alerts.receiver_trials.TRIAL_SECONDS", 0.2)
    async with start_endpoints("hang") as (server,):
        hook = {"kind": "webhook", "options": {"url": f"{server.url}/hook"}}
        (status,) = await send_test_alert(Settings.model_validate({"notify": {"receivers": [hook]}}))
    assert (status.failed, status.detail) == ("late", "no complete response within 0.2 s")
