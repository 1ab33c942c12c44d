"""Incidents in PagerDuty: one alert each, from its start to its end, whatever is lost on the way."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from serve_app.alerts.alert import MeshAlerts
from serve_app.alerts.links import Links
from serve_app.alerts.receivers.pagerduty import KIND, pagerduty_events
from tests.serve_app.alerts.alerting import (
    HIDDEN,
    NOW,
    PLACE,
    accept,
    eventually,
    incident,
    metric_value,
    notice,
    start_notifier,
    transition,
    verdict,
)
from tests.serve_app.alerts.stand_ins import ROUTING_KEY, StandInPagerDuty, serve

KEY = "eu-1/shop/a"


@pytest.fixture
def pagerduty() -> Iterator[StandInPagerDuty]:
    with serve(StandInPagerDuty()) as server:
        yield server


async def test_an_incident_is_one_alert_from_its_start_to_its_end(pagerduty: StandInPagerDuty, tmp_path: Path) -> None:
    async with start_notifier(pagerduty.to(tmp_path), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        accept(notifier, "shop", verdict(incident("a", severity="critical")), NOW)
        accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
        await eventually(lambda: metric_value(instruments, "tagae_notifications_sent_total", receiver=KIND) == 3)
    opened, raised, resolved = pagerduty.events
    assert [event["event_action"] for event in pagerduty.events] == ["trigger", "trigger", "resolve"]
    assert {event["dedup_key"] for event in pagerduty.events} == {KEY}
    assert [event["payload"]["severity"] for event in pagerduty.events] == ["warning", "critical", "critical"]
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


async def test_a_key_of_another_length_is_not_sent(
    pagerduty: StandInPagerDuty, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pagerduty.secret_file(tmp_path).write_text("s3cret-of-another-service")
    caplog.set_level(logging.WARNING)
    async with start_notifier(pagerduty.to(tmp_path), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: "expected a routing key of 32 characters" in caplog.text)
        assert pagerduty.refusals == []
        pagerduty.secret_file(tmp_path).write_text(ROUTING_KEY)
        await eventually(lambda: len(pagerduty.events) == 1)
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(("notices", "severities"), [(True, ["info"]), (False, [])])
async def test_notices_are_a_setting(
    notices: bool, severities: list[str], pagerduty: StandInPagerDuty, tmp_path: Path
) -> None:
    async with start_notifier(pagerduty.to(tmp_path, notices=notices), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(notice()), NOW)
        accept(notifier, "shop", verdict(notice(), incident("a", "bank/ledger")), NOW)
    sent = metric_value(instruments, "tagae_notifications_sent_total", receiver=KIND)
    assert [event["payload"]["severity"] for event in pagerduty.events] == [*severities, "warning"]
    assert sent == len(severities) + 1


async def test_an_incident_that_outlasts_its_mute_calls_people_again(
    pagerduty: StandInPagerDuty, tmp_path: Path
) -> None:
    async with start_notifier(pagerduty.to(tmp_path), tmp_path) as (notifier, _):
        for step in (verdict(incident("a")), HIDDEN, verdict(incident("a"))):
            accept(notifier, "shop", step, NOW)
        await eventually(lambda: len(pagerduty.events) == 4)
    assert [event["event_action"] for event in pagerduty.events] == ["trigger", "acknowledge", "resolve", "trigger"]
    assert pagerduty.alerts() == {KEY: ["trigger", "resolve", "trigger"]}
    assert pagerduty.events[-1]["payload"]["summary"].startswith("No longer muted, still failing: minor incident")


def test_an_incident_that_was_lost_from_sight_says_so() -> None:
    opened = transition(MeshAlerts(), "shop", verdict(incident("a")), NOW, PLACE)
    gone = replace(verdict(), lost=("a",))
    (ended,) = transition(opened.alerts, "shop", gone, NOW + timedelta(minutes=40), PLACE).events
    (request,) = pagerduty_events(ended.document)
    assert request["event_action"] == "resolve"
    assert request["payload"]["summary"].startswith("Closed, outcome unknown: minor incident in shop")
    assert "no data received" in request["payload"]["custom_details"]["news"]


def test_keys_of_other_clusters_and_meshes_differ() -> None:
    def key(cluster: str, mesh: str) -> str:
        (event,) = transition(MeshAlerts(), mesh, verdict(incident("a")), NOW, Links(cluster)).events
        (request,) = pagerduty_events(event.document)
        return str(request["dedup_key"])

    long = "c" * 256
    keys = [key("eu-1", "shop"), key("us-1", "shop"), key("eu-1", "bank"), key(long, "shop"), key(long[1:], "shop")]
    assert len(set(keys)) == len(keys)
    assert all(name.endswith("/a") for name in keys)
    assert key(PLACE.cluster, "shop") == KEY
