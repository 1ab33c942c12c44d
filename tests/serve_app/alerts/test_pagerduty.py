"""Incidents in PagerDuty: one alert each, from its start to its end, whatever is lost on the way."""

import logging
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
from serve_app.alerts.receivers.pagerduty import KIND, encode, pagerduty_event
from serve_app.settings import Settings
from tests.serve_app.alerts.alerting import (
    NOW,
    PLACE,
    accept,
    eventually,
    incident,
    metric_value,
    notice,
    receivers,
    start_notifier,
    transition,
    verdict,
)
from tests.serve_app.alerts.stand_ins import LOST, ROUTING_KEY, StandInPagerDuty, problems_of_event, serve

KEY = "eu-1/shop/a"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "pagerduty.key"
    path.write_text(f"{ROUTING_KEY}\n")
    return path


@pytest.fixture
def pagerduty() -> Iterator[StandInPagerDuty]:
    stand_in = StandInPagerDuty()
    with serve(stand_in):
        yield stand_in


def to(pagerduty: StandInPagerDuty, key_file: Path, *, notices: bool = True, **more: Any) -> Any:
    options = {"url": pagerduty.url, "routing_key_file": str(key_file)}
    receiver = {"kind": KIND, "notices": notices, "options": options}
    settings = Settings.model_validate({"notify": {"receivers": [receiver]}})
    return receivers(events=configured(settings).events, **more)


async def test_an_incident_is_one_alert_from_its_start_to_its_end(
    pagerduty: StandInPagerDuty, key_file: Path, tmp_path: Path
) -> None:
    async with start_notifier(to(pagerduty, key_file), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        accept(notifier, "shop", verdict(incident("a", severity="critical")), NOW)
        accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
        await eventually(lambda: metric_value(instruments, "tagae_notices_sent_total", receiver=KIND) == 3)
    opened, raised, resolved = pagerduty.events
    assert [one["event_action"] for one in pagerduty.events] == ["trigger", "trigger", "resolve"]
    assert {one["dedup_key"] for one in pagerduty.events} == {KEY}
    assert [one["payload"]["severity"] for one in pagerduty.events] == ["warning", "critical", "critical"]
    assert "shop/cart is slow" in opened["payload"]["summary"]
    assert (opened["payload"]["source"], opened["payload"]["component"]) == ("eu-1/shop", "shop/cart")
    assert (opened["payload"]["group"], opened["payload"]["class"]) == ("shop", "slow")
    assert opened["payload"]["custom_details"]["incident"] == "a"
    assert opened["payload"]["custom_details"]["what to do"].startswith("Look at shop/cart itself")
    assert "what to do" not in resolved["payload"]["custom_details"]
    assert {"href": "https://tagae.example/#mesh=shop&incident=a", "text": "Open the incident"} in opened["links"]
    assert opened["client_url"] == "https://tagae.example/#mesh=shop&incident=a"
    assert raised["payload"]["custom_details"]["news"] == "Now critical, was minor."
    assert resolved["payload"]["custom_details"]["news"] == "Resolved at 2026-03-01 03:17 UTC."
    assert pagerduty.alerts() == {KEY: ["trigger", "resolve"]}


async def test_an_incident_that_was_lost_from_sight_says_so(
    pagerduty: StandInPagerDuty, key_file: Path, tmp_path: Path
) -> None:
    async with start_notifier(to(pagerduty, key_file), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        lost = verdict()
        object.__setattr__(lost, "lost", ("a",))
        accept(notifier, "shop", lost, NOW + timedelta(minutes=40))
        await eventually(lambda: len(pagerduty.events) == 2)
    ended = pagerduty.events[-1]
    assert ended["event_action"] == "resolve"
    assert ended["payload"]["summary"].startswith("Closed, outcome unknown: minor incident in shop")
    assert "no data received" in ended["payload"]["custom_details"]["news"]


async def test_nothing_is_lost_or_doubled(pagerduty: StandInPagerDuty, key_file: Path, tmp_path: Path) -> None:
    pagerduty.faults = [500, LOST, 429, LOST, 503]
    async with start_notifier(to(pagerduty, key_file), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
        await eventually(lambda: notifier.count_waiting()[KIND] == 0)
    assert pagerduty.alerts() == {KEY: ["trigger", "resolve"]}
    assert pagerduty.faults == []


async def test_what_waits_survives_a_restart(pagerduty: StandInPagerDuty, key_file: Path, tmp_path: Path) -> None:
    pagerduty.faults = [503] * 1000
    async with start_notifier(to(pagerduty, key_file, drain_seconds=0.0), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: len(pagerduty.faults) < 1000)
    pagerduty.faults = [LOST]
    async with start_notifier(to(pagerduty, key_file), tmp_path) as (notifier, _):
        await eventually(lambda: notifier.count_waiting()[KIND] == 0)
    assert pagerduty.alerts() == {KEY: ["trigger"]}


async def test_a_refused_event_is_not_repeated(
    pagerduty: StandInPagerDuty, key_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pagerduty.faults = [400]
    async with start_notifier(to(pagerduty, key_file), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(
            lambda: metric_value(instruments, "tagae_notices_dropped_total", receiver=KIND, reason="refused") == 1
        )
    assert (pagerduty.events, pagerduty.faults) == ([], [])
    assert ROUTING_KEY not in caplog.text


async def test_a_key_of_another_length_is_not_sent(
    pagerduty: StandInPagerDuty, key_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key_file.write_text("s3cret-of-another-service")
    caplog.set_level(logging.WARNING)
    async with start_notifier(to(pagerduty, key_file), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: "expected a routing key of 32 characters" in caplog.text)
        assert pagerduty.refusals == []
        key_file.write_text(ROUTING_KEY)
        await eventually(lambda: len(pagerduty.events) == 1)
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(("notices", "severities"), [(True, ["info"]), (False, [])])
async def test_notices_are_a_setting(
    notices: bool, severities: list[str], pagerduty: StandInPagerDuty, key_file: Path, tmp_path: Path
) -> None:
    async with start_notifier(to(pagerduty, key_file, notices=notices), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(notice()), NOW)
        accept(notifier, "shop", verdict(notice(), incident("a", "bank/ledger")), NOW)
    sent = metric_value(instruments, "tagae_notices_sent_total", receiver=KIND)
    assert [one["payload"]["severity"] for one in pagerduty.events] == [*severities, "warning"]
    assert sent == len(severities) + 1


@settings(deadline=None)  # a busy machine is no failure
@given(
    cluster=st.text(min_size=1, max_size=256),
    name=st.text(min_size=1, max_size=253),
    affected=st.integers(1, 400),
)
def test_every_event_has_the_format_of_the_interface(cluster: str, name: str, affected: int) -> None:
    services = [f"shop/{name.replace('/', '-')}-{i}" for i in range(affected)]
    links = Links(cluster, "https://tagae.example")
    found = transition(MeshAlerts(), "shop", verdict(incident("a", *services)), NOW, links).events
    for event in found:
        content = encode(event.document, ROUTING_KEY)
        whole = {"routing_key": ROUTING_KEY, **pagerduty_event(event.document)}
        assert problems_of_event(whole, len(content)) == []


def test_keys_of_other_clusters_and_meshes_differ() -> None:
    def key(cluster: str, mesh: str) -> str:
        (event,) = transition(MeshAlerts(), mesh, verdict(incident("a")), NOW, Links(cluster)).events
        found: str = pagerduty_event(event.document)["dedup_key"]
        return found

    long = "c" * 256
    keys = [key("eu-1", "shop"), key("us-1", "shop"), key("eu-1", "bank"), key(long, "shop"), key(long[1:], "shop")]
    assert len(set(keys)) == len(keys)
    assert all(one.endswith("/a") for one in keys)
    assert key(PLACE.cluster, "shop") == KEY
