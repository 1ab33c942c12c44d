"""What events say in words, when a cause changes, and which incident another one continues."""

from dataclasses import replace
from datetime import timedelta

import pytest

from model.verdict import Verdict
from serve_app.alerts.alert import IncidentEvent, MeshAlerts
from serve_app.alerts.event_text import event_title, news
from serve_app.alerts.receivers.grafana import annotation
from serve_app.alerts.receivers.slack import slack_message
from serve_app.alerts.transitions import resolve_all
from tests.serve_app.alerts.alerting import NOW, PLACE, incident, kinds, play, verdict

STEP = timedelta(seconds=15)


def follow(*verdicts: Verdict, step: timedelta = STEP) -> tuple[list[IncidentEvent], MeshAlerts]:
    """Return the events of verdicts that arrive one after the other, and the alerts after them."""
    changes = play(*verdicts, step=step)
    return [event for change in changes for event in change.events], changes[-1].alerts


def test_another_cause_is_an_event_once_it_has_led_for_a_minute() -> None:
    first, other = verdict(incident("a", "shop/cart", "shop/db")), verdict(incident("a", "shop/db", "shop/cart"))
    events, _ = follow(first, *[other] * 12)
    assert kinds(events) == ["opened", "cause_changed"]
    changed = events[1].document
    assert changed["at"] == (NOW + 5 * STEP).isoformat()
    assert (changed["previous_cause"], changed["sequence"]) == ("shop/cart", 2)
    assert news(changed) == "The first suspect is now shop/db, was shop/cart."
    assert event_title(changed) == "Minor incident in shop has another cause: shop/db"


def test_suspects_that_take_turns_are_no_news() -> None:
    first, other = verdict(incident("a", "shop/cart", "shop/db")), verdict(incident("a", "shop/db", "shop/cart"))
    events, _ = follow(*[first, other] * 40)
    assert kinds(events) == ["opened"]


def test_a_rise_in_severity_tells_another_cause_too() -> None:
    events, _ = follow(verdict(incident("a", "shop/cart")), verdict(incident("a", "shop/db", severity="major")))
    assert news(events[1].document) == "Now major, was minor. The first suspect is now shop/db, was shop/cart."


def test_an_incident_says_which_one_it_continues() -> None:
    again = replace(incident("b", "shop/cart"), since=NOW + timedelta(minutes=3))
    verdicts = (verdict(incident("a", "shop/cart")), verdict(), verdict(again), verdict(again))
    events, alerts = follow(*verdicts, step=timedelta(minutes=2))
    assert kinds(events) == ["opened", "resolved", "opened"]
    assert events[2].document["continues"] == "a"
    assert news(events[2].document) == "It continues incident a."
    assert "continues" not in events[0].document
    assert alerts.open[0].alert.annotations["continues"] == "a"
    assert "incident b, which continues a" in annotation(events[2].document)["text"]
    assert "incident b, which continues a" in slack_message(events[2].document)["blocks"][-1]["elements"][0]["text"]


@pytest.mark.parametrize(
    ("service", "step"), [("shop/db", timedelta(minutes=2)), ("shop/cart", timedelta(hours=1))], ids=["other", "late"]
)
def test_another_fault_continues_nothing(service: str, step: timedelta) -> None:
    again = replace(incident("b", service), since=NOW + step)
    events, _ = follow(verdict(incident("a", "shop/cart")), verdict(), verdict(again), step=step)
    assert "continues" not in events[-1].document


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("over", "Resolved at 2026-03-01 03:14 UTC."),
        ("unseen", "Closed, outcome unknown: no data received since, until 2026-03-01 03:14 UTC."),
        ("mesh_deleted", "Ended at 2026-03-01 03:14 UTC: its mesh was deleted."),
        ("mesh_silent", "Closed, outcome unknown: its mesh had no verdict for a day, until 2026-03-01 03:14 UTC."),
    ],
)
def test_an_end_says_how(reason: str, text: str) -> None:
    _, alerts = follow(verdict(incident("a")))
    (event,) = resolve_all(alerts, "shop", NOW, PLACE, reason).events
    assert news(event.document) == text


def test_the_first_suspect_of_an_incident_that_had_none_is_no_change_of_cause() -> None:
    nowhere = replace(incident("a"), suspects=(), affected=())
    events, alerts = follow(verdict(nowhere), *[verdict(incident("a", "shop/db"))] * 12)
    assert kinds(events) == ["opened"]
    assert alerts.open[0].cause == "shop/db"
