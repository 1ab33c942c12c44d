"""Incidents in a channel of Slack: one message each, with a thread and a picture, whatever is lost on the way."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from serve_app.alerts.receivers.slack_app import KIND
from serve_app.errors import UnknownIncident
from serve_app.settings import Settings
from tests.serve_app.alerts.alerting import (
    NOW,
    accept,
    eventually,
    incident,
    metric_value,
    start_notifier,
    verdict,
)
from tests.serve_app.alerts.stand_ins import LOST, StandInSlack, serve

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 90 60"><rect width="90" height="60"/></svg>'
PNG = b"\x89PNG"


@pytest.fixture
def slack() -> Iterator[StandInSlack]:
    with serve(StandInSlack()) as server:
        yield server


def title(message: dict[str, Any]) -> str:
    text: str = message["blocks"][0]["text"]["text"]
    return text


async def test_an_incident_is_one_message_with_a_thread(slack: StandInSlack, tmp_path: Path) -> None:
    async with start_notifier(slack.to(tmp_path), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: len(slack.messages) == 1)
        assert title(slack.messages[0]) == "Minor incident in shop: shop/cart"
        accept(notifier, "shop", verdict(incident("a", severity="major")), NOW)
        accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
        await eventually(lambda: metric_value(instruments, "tagae_notifications_sent_total", receiver=KIND) == 3)
    (message,) = slack.roots()
    assert title(message) == "Resolved: major incident in shop: shop/cart"
    assert "incident a" in message["blocks"][-1]["elements"][0]["text"]
    assert "https://tagae.example/#mesh=shop&amp;incident=a" in message["blocks"][-1]["elements"][0]["text"]
    assert [reply["text"] for reply in slack.replies(message["ts"])] == [
        "Now major, was minor.",
        "Resolved at 2026-03-01 03:17 UTC.",
    ]
    assert slack.refusals == []


async def test_a_new_process_finds_the_message_again(slack: StandInSlack, tmp_path: Path) -> None:
    """Also among the messages of a busy channel, and a message that was posted just before the process died."""
    slack.faults = [LOST]
    async with start_notifier(slack.to(tmp_path, drain_seconds=0.0), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: len(slack.messages) == 1)
    slack.messages += [{"ts": f"{1_772_340_000 + i}.000000", "text": "hello"} for i in range(450)]
    async with start_notifier(slack.to(tmp_path), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
    (message,) = (item for item in slack.roots() if item["text"] != "hello")
    assert title(message) == "Resolved: minor incident in shop: shop/cart"


async def test_a_message_that_a_person_deleted_is_posted_again(slack: StandInSlack, tmp_path: Path) -> None:
    async with start_notifier(slack.to(tmp_path), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: len(slack.messages) == 1)
        slack.messages.clear()
        accept(notifier, "shop", verdict(incident("a", severity="critical")), NOW)
        await eventually(lambda: len(slack.messages) == 1)
    assert title(slack.messages[0]) == "Now a critical incident in shop, was minor: shop/cart"


async def test_without_permission_to_read_messages_come_anyway(
    slack: StandInSlack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slack.may_read = False
    async with start_notifier(slack.to(tmp_path), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
    (message,) = slack.roots()
    assert title(message) == "Resolved: minor incident in shop: shop/cart"
    assert "may not read the channel" in caplog.text


async def test_the_picture_is_in_the_thread(slack: StandInSlack, tmp_path: Path) -> None:
    now = datetime.now(UTC)  # a picture is for a new event
    drawn: list[tuple[str, str]] = []

    def draw(mesh: str, incident: str) -> str:
        drawn.append((mesh, incident))
        return SVG

    async with start_notifier(slack.to(tmp_path), tmp_path, lambda: now, draw=draw) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a"), at=now), now)
        accept(notifier, "shop", verdict(incident("a"), at=now), now)
        await eventually(lambda: any("thread_ts" in file for file in slack.files.values()))
    assert drawn == [("shop", "a")], "once"
    (message,), (file,) = slack.roots(), slack.files.values()
    assert (file["thread_ts"], file["filename"], file["title"]) == (message["ts"], "a.png", "Incident a")
    assert file["content"].startswith(PNG)


@pytest.mark.parametrize(
    "svg", [None, "no picture at all", "<svg", "<svg xmlns='http://www.w3.org/2000/svg'>" + " " * (5 << 20)]
)
async def test_a_picture_that_cannot_be_drawn_stops_no_message(
    svg: str | None, slack: StandInSlack, tmp_path: Path
) -> None:
    now = datetime.now(UTC)

    def draw(mesh: str, incident: str) -> str:
        if svg is None:
            raise UnknownIncident("gone")
        return svg

    async with start_notifier(slack.to(tmp_path), tmp_path, lambda: now, draw=draw) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a"), at=now), now)
        accept(notifier, "shop", verdict(at=now), now)
    assert [title(root) for root in slack.roots()] == ["Resolved: minor incident in shop: shop/cart"]
    assert slack.files == {}


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"channel": "#alerts"}, "channel: String should match pattern"), ({}, "channel: Field required")],
)
def test_wrong_options_are_refused(options: dict[str, Any], problem: str) -> None:
    options_given = {"kind": KIND, "options": {"bearer_token_file": "/token", **options}}
    with pytest.raises(ValueError, match=problem):
        Settings.model_validate({"notify": {"receivers": [options_given]}})
