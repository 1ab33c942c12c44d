"""Incidents in Opsgenie: one alert each, with a note for each change, whatever is lost on the way."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.alerts.alert import MeshAlerts
from serve_app.alerts.delivery import receivers as configured
from serve_app.alerts.links import Links
from serve_app.alerts.opsgenie import KIND, note, opsgenie_alert
from serve_app.alerts.transitions import resolve_all, transition
from serve_app.settings import Settings
from serve_app.settings.receivers import OpsgenieSettings
from tests.serve_app.alerts.alerting import (
    NOW,
    eventually,
    incident,
    metric_value,
    notice,
    receivers,
    start_notifier,
    verdict,
)
from tests.serve_app.alerts.stand_ins import API_KEY, LOST, StandInOpsgenie, problems_of_request, serve

ALIAS = "eu-1/shop/a"
RAISED = "2. Now major, was minor."


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "opsgenie.key"
    path.write_text(f"{API_KEY}\n")
    return path


@pytest.fixture
def opsgenie() -> Iterator[StandInOpsgenie]:
    stand_in = StandInOpsgenie()
    with serve(stand_in):
        yield stand_in


def to(opsgenie: StandInOpsgenie, key_file: Path, options: dict[str, Any] | None = None, **more: Any) -> Any:
    chosen = {"url": f"{opsgenie.url}/", "api_key_file": str(key_file), **(options or {})}
    settings = Settings.model_validate({"notify": {"receivers": [{"kind": KIND, "options": chosen}]}})
    return receivers(events=configured(settings).events, **more)


async def test_an_incident_is_one_alert_from_its_start_to_its_end(
    opsgenie: StandInOpsgenie, key_file: Path, tmp_path: Path
) -> None:
    responders = [{"type": "team", "name": "checkout"}, {"type": "user", "name": "ann@shop.example"}]
    async with start_notifier(to(opsgenie, key_file, {"responders": responders}), tmp_path) as (notifier, instruments):
        notifier.accept_verdict("shop", verdict(incident("a")), NOW)
        notifier.accept_verdict("shop", verdict(incident("a", "shop/db", severity="major")), NOW)
        await eventually(lambda: metric_value(instruments, "tagae_notices_sent_total", receiver=KIND) == 2)
        (alert,) = (dict(one) for one in opsgenie.alerts)
        notifier.accept_verdict("shop", verdict(), NOW + timedelta(minutes=3))
        await eventually(lambda: metric_value(instruments, "tagae_notices_sent_total", receiver=KIND) == 3)
    assert (alert["alias"], alert["priority"], alert["status"]) == (ALIAS, "P2", "open")
    assert "shop/db is slow" in alert["message"]
    assert "Open the incident: https://tagae.example/#mesh=shop&incident=a" in alert["description"]
    assert alert["responders"] == [
        {"type": "team", "name": "checkout"},
        {"type": "user", "username": "ann@shop.example"},
    ]
    assert (alert["details"]["incident"], alert["details"]["mesh"]) == ("a", "shop")
    (ended,) = opsgenie.alerts
    assert (ended["status"], ended["count"]) == ("closed", 1)
    raised, resolved = ended["notes"]
    assert raised.startswith(f"{RAISED} The first suspect is now shop/db, was shop/cart.")
    assert resolved.startswith("3. Resolved at 2026-03-01 03:17 UTC.")


async def test_nothing_is_lost_or_doubled(opsgenie: StandInOpsgenie, key_file: Path, tmp_path: Path) -> None:
    opsgenie.faults = [500, LOST, 429, 0, LOST, 0, 0, 0, 0, LOST, 503, LOST]
    async with start_notifier(to(opsgenie, key_file), tmp_path) as (notifier, _):
        notifier.accept_verdict("shop", verdict(incident("a")), NOW)
        notifier.accept_verdict("shop", verdict(incident("a", severity="major")), NOW)
        notifier.accept_verdict("shop", verdict(), NOW + timedelta(minutes=3))
        await eventually(lambda: notifier.count_waiting()[KIND] == 0)
    (alert,) = opsgenie.alerts
    assert alert["status"] == "closed"
    assert len([text for text in alert["notes"] if text.startswith(RAISED)]) == 1
    assert opsgenie.faults == []


async def test_what_waits_survives_a_restart(opsgenie: StandInOpsgenie, key_file: Path, tmp_path: Path) -> None:
    opsgenie.faults = [503] * 1000
    async with start_notifier(to(opsgenie, key_file, drain_seconds=0.0), tmp_path) as (notifier, _):
        notifier.accept_verdict("shop", verdict(incident("a")), NOW)
        await eventually(lambda: len(opsgenie.faults) < 1000)
    opsgenie.faults = []
    async with start_notifier(to(opsgenie, key_file), tmp_path) as (notifier, _):
        await eventually(lambda: notifier.count_waiting()[KIND] == 0)
    assert [(one["alias"], one["count"]) for one in opsgenie.alerts] == [(ALIAS, 1)]


async def test_an_alert_that_a_person_closed_opens_again_when_it_becomes_worse(
    opsgenie: StandInOpsgenie, key_file: Path, tmp_path: Path
) -> None:
    async with start_notifier(to(opsgenie, key_file), tmp_path) as (notifier, _):
        notifier.accept_verdict("shop", verdict(incident("a")), NOW)
        await eventually(lambda: len(opsgenie.alerts) == 1)
        opsgenie.alerts[0]["status"] = "closed"
        notifier.accept_verdict("shop", verdict(incident("a", severity="critical")), NOW)
        await eventually(lambda: len(opsgenie.alerts) == 2)
    assert [(one["priority"], one["status"]) for one in opsgenie.alerts] == [("P3", "closed"), ("P1", "open")]


async def test_a_wrong_key_is_retried_and_not_logged(
    opsgenie: StandInOpsgenie, key_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key_file.write_text("another-s3cret")
    async with start_notifier(to(opsgenie, key_file, drain_seconds=0.0), tmp_path) as (notifier, instruments):
        notifier.accept_verdict("shop", verdict(incident("a")), NOW)
        await eventually(
            lambda: metric_value(instruments, "tagae_notices_failed_total", receiver=KIND, reason="forbidden") >= 1
        )
        key_file.write_text(API_KEY)  # it is read again
        await eventually(lambda: len(opsgenie.alerts) == 1)
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(("notices", "priorities"), [(True, ["P5"]), (False, [])])
async def test_notices_are_a_setting(
    notices: bool, priorities: list[str], opsgenie: StandInOpsgenie, key_file: Path, tmp_path: Path
) -> None:
    async with start_notifier(to(opsgenie, key_file, {"notices": notices}), tmp_path) as (notifier, _):
        notifier.accept_verdict("shop", verdict(notice(), incident("a", "bank/ledger")), NOW)
        await eventually(lambda: notifier.count_waiting()[KIND] == 0)
    assert sorted(one["priority"] for one in opsgenie.alerts) == ["P3", *priorities]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "api_key_file: Field required"),
        ({"responders": [{"type": "team"}]}, "expected id or name, got neither"),
        ({"responders": [{"type": "team", "id": "1", "name": "x"}]}, "expected id or name, got both"),
        ({"url": "ftp://x"}, "expected http"),
        ({"bearer_token_file": "/token"}, "expected api_key_file alone"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], problem: str) -> None:
    given = {"kind": KIND, "options": {**({"api_key_file": "/key"} if options else {}), **options}}
    with pytest.raises(ValueError, match=problem):
        Settings.model_validate({"notify": {"receivers": [given]}})


@settings(deadline=None)  # a busy machine is no failure
@given(
    cluster=st.text(min_size=1, max_size=256),
    name=st.text(min_size=1, max_size=253),
    affected=st.integers(1, 400),
    tags=st.lists(st.text(max_size=80), max_size=15),
)
def test_every_request_has_the_format_of_the_interface(cluster: str, name: str, affected: int, tags: list[str]) -> None:
    services = [f"shop/{name.replace('/', '-')}-{i}" for i in range(affected)]
    links = Links(cluster, "https://tagae.example")
    opened = transition(MeshAlerts(), "shop", verdict(incident("a", *services)), NOW, links)
    settings = OpsgenieSettings(api_key_file=Path("/key"), tags=tuple(tags))
    for event in (*opened.events, *resolve_all(opened.alerts, "shop", NOW, links, "unseen").events):
        assert problems_of_request("POST", "", opsgenie_alert(event.document, settings)) == []
        assert problems_of_request("POST", "notes", {"note": note(event.document), "source": "tagae"}) == []
