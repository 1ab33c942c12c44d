"""Properties of alerts for random sequences of verdicts."""

from dataclasses import replace
from datetime import timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from model.verdict import Severity, Verdict
from serve_app.alerts.alert import Alert, AlertState, LabelSet, MeshAlerts
from serve_app.alerts.receivers.alertmanager import current_alerts, split_batches
from tests.serve_app.alerts.alerting import NOW, PLACE, firing, incident, transition, verdict
from tests.serve_app.alerts.stand_ins import problems_of_alert

HOUR = timedelta(hours=1)
SERVICES = [f"shop/s{i}" for i in range(6)]
INCIDENTS = st.builds(
    lambda name, services, severity, age: incident(name, *services, severity=severity, age=age),
    st.sampled_from("abcd"),
    st.lists(st.sampled_from(SERVICES), min_size=1, max_size=4, unique=True),
    st.sampled_from(list(Severity)),
    st.integers(-300, 3600),
)
VERDICTS = st.builds(
    lambda incidents, blind: verdict(
        *incidents,
        status={"warming_up": "warming_up", "partial": "partial"}.get(blind, "") if not incidents else "",
        coverage=0.5 if blind == "partial" else 1.0,
    ),
    st.lists(INCIDENTS, max_size=3, unique_by=lambda one: one.id),
    st.sampled_from(["", "", "warming_up", "partial"]),
)
STEPS = st.lists(st.tuples(VERDICTS, st.integers(-90, 600)), max_size=12)  # with seconds since the previous one


def _play(steps: list[tuple[Verdict, int]]) -> list[AlertState]:
    """Return the state of alerts after each verdict, and after a last complete one without incidents."""
    now, book, books = NOW, AlertState(), []
    for one, seconds in [*steps, (verdict(), 600)]:
        now += timedelta(seconds=seconds)
        seen = replace(one, observed_at=now)
        transitioned = transition(book.meshes.get("shop", MeshAlerts()), "shop", seen, now, PLACE)
        book = book.apply("shop", transitioned, {"hook": transitioned.events})
        books.append(book)
    return books


def _firing(book: AlertState) -> dict[LabelSet, Alert]:
    return {alert.label_set: alert for alert in firing(book)}


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_each_incident_has_at_most_one_firing_alert_and_none_is_also_ended(steps: list[tuple[Verdict, int]]) -> None:
    for book in _play(steps):
        fire = [alert.labels["incident"] for alert in firing(book)]
        assert len(fire) == len(set(fire))
        assert not _firing(book).keys() & {alert.label_set for alert in book.ended}
        names = [alert.label_set for alert in book.ended]
        assert len(names) == len(set(names))


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_an_alert_ends_in_the_batch_in_which_another_takes_its_place(steps: list[tuple[Verdict, int]]) -> None:
    before = AlertState()
    for book in _play(steps):
        for name in _firing(before).keys() - _firing(book).keys():
            (end,) = (alert for alert in book.ended if alert.label_set == name)
            assert end.ends_at is not None
            assert end.ends_at >= end.starts_at
            (batch,) = split_batches([*firing(book), *book.ended])
            assert end in batch
        before = book
    assert not _firing(before)


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_while_it_is_open_only_severity_changes_and_only_upwards(steps: list[tuple[Verdict, int]]) -> None:
    rank, before = list(Severity).index, AlertState()
    for book in _play(steps):
        known = {page.incident: page for mesh_alerts in before.meshes.values() for page in mesh_alerts.open}
        for page in (page for mesh_alerts in book.meshes.values() for page in mesh_alerts.open):
            was = known.get(page.incident)
            if was is None or was.opened_at != page.opened_at:
                continue
            assert {**was.alert.labels, "severity": ""} == {**page.alert.labels, "severity": ""}
            assert rank(page.severity) >= rank(was.severity)
            assert page.alert.starts_at == was.alert.starts_at
        before = book


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_every_incident_has_its_events_in_order(steps: list[tuple[Verdict, int]]) -> None:
    events = [event.document for event in _play(steps)[-1].events.get("hook", ())]
    assert len({event["id"] for event in events}) == len(events)
    for key in {(event["incident"]["id"], event["opened_at"]) for event in events}:
        own = [e for e in events if (e["incident"]["id"], e["opened_at"]) == key]
        assert [e["sequence"] for e in own] == list(range(1, len(own) + 1))
        assert own[0]["event"] == "opened"
        assert {e["event"] for e in own[1:-1]} <= {"severity_raised", "cause_changed"}
        assert own[-1]["event"] in ("merged", "resolved")


@settings(deadline=None, max_examples=30)
@given(STEPS)
def test_sent_alerts_are_valid_and_stored_state_is_loaded_unchanged(steps: list[tuple[Verdict, int]]) -> None:
    for book in _play(steps):
        assert [wrong for alert in current_alerts(book, NOW, HOUR) if (wrong := problems_of_alert(alert))] == []
        assert msgspec.json.decode(msgspec.json.encode(book), type=AlertState) == book
