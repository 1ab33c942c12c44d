"""Incidents as annotations in Grafana: each once, from its start to its end, whatever is lost on the way."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from serve_app.alerts.alert import MeshAlerts
from serve_app.alerts.receivers.grafana import KIND, annotation, incident_tag
from tests.serve_app.alerts.alerting import (
    NOW,
    PLACE,
    accept,
    eventually,
    incident,
    metric_value,
    start_notifier,
    transition,
    verdict,
)
from tests.serve_app.alerts.stand_ins import StandInGrafana, serve


@pytest.fixture
def grafana() -> Iterator[StandInGrafana]:
    with serve(StandInGrafana()) as server:
        yield server


def is_over(grafana: StandInGrafana) -> Callable[[], bool]:
    annotations = grafana.annotations
    return lambda: bool(annotations) and all("timeEnd" in annotation for annotation in annotations.values())


async def test_an_incident_is_one_annotation_from_its_start_to_its_end(grafana: StandInGrafana, tmp_path: Path) -> None:
    async with start_notifier(grafana.to(tmp_path), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: len(grafana.annotations) == 1)
        (opened,) = (dict(item) for item in grafana.annotations.values())
        accept(notifier, "shop", verdict(incident("a", severity="major")), NOW)
        accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
        await eventually(is_over(grafana))
        await eventually(lambda: metric_value(instruments, "tagae_notifications_sent_total", receiver=KIND) == 3)
    assert "timeEnd" not in opened
    (ended,) = grafana.annotations.values()
    assert ended["time"] == opened["time"] == 1000 * (NOW - timedelta(seconds=120)).timestamp()
    assert ended["timeEnd"] == 1000 * (NOW + timedelta(minutes=3)).timestamp()
    assert {"tagae", "cluster:eu-1", "mesh:shop", "severity:major", "service:shop/cart"} <= set(ended["tags"])
    assert "shop/cart is slow" in ended["text"]
    assert (
        '<a href="https://tagae.example/#mesh=shop&amp;incident=a" target="_blank">Open the incident</a>'
        in ended["text"]
    )
    assert grafana.writes == ["POST", "PATCH", "PATCH"]


async def test_an_answer_that_is_no_list_counts_as_a_failure(grafana: StandInGrafana, tmp_path: Path) -> None:
    grafana.garbage = True
    async with start_notifier(grafana.to(tmp_path, drain_seconds=0.0), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(
            lambda: metric_value(instruments, "tagae_notifications_failed_total", receiver=KIND, reason="broken") >= 1
        )
        assert grafana.annotations == {}
        grafana.garbage = False
        await eventually(lambda: len(grafana.annotations) == 1)


def test_texts_are_escaped_and_tags_fit() -> None:
    name = "n" * 250 + "/<b>"
    (event,) = transition(MeshAlerts(), "shop", verdict(incident("a", name)), NOW, PLACE).events
    document = annotation(event.document)
    assert "<b>" not in document["text"]
    assert len(json.dumps(document["tags"])) <= 500
    again = {**event.document, "opened_at": "2026-04-01T00:00:00+00:00"}
    assert incident_tag(event.document) != incident_tag(again), "an incident that comes back has another annotation"
