"""Incidents as annotations in Grafana: each once, from its start to its end, whatever is lost on the way."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from serve_app.alerts.alert import MeshAlerts
from serve_app.alerts.delivery import receivers as configured
from serve_app.alerts.receivers.grafana import KIND, annotation, incident_tag
from serve_app.settings import Settings
from tests.serve_app.alerts.alerting import (
    NOW,
    PLACE,
    accept,
    eventually,
    incident,
    metric_value,
    receivers,
    start_notifier,
    transition,
    verdict,
)
from tests.serve_app.alerts.stand_ins import JsonHandler, serve

TOKEN = "glsa_t0ken"
LOST = "the annotation is stored, and the response is lost"


@dataclass
class StandInGrafana:
    """The annotations of a Grafana, over HTTP. ``faults`` are used up, one for each request that writes: a status that
    is answered without storing, or ``LOST``."""

    url: str = ""
    faults: list[int | str] = field(default_factory=list)
    annotations: dict[int, dict[str, Any]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    garbage: bool = False

    def handler(self) -> type[BaseHTTPRequestHandler]:
        grafana = self

        class Handler(JsonHandler):
            def do_GET(self) -> None:
                if self._may():
                    tags = parse_qs(urlsplit(self.path).query)["tags"]
                    found = [one for one in grafana.annotations.values() if set(tags) <= set(one["tags"])]
                    self.answer(200, {} if grafana.garbage else found)

            def do_POST(self) -> None:
                if self._may():
                    number = len(grafana.annotations) + 1
                    self._write(number, {"id": number})

            def do_PATCH(self) -> None:
                if self._may():
                    number = int(self.path.rsplit("/", 1)[1])
                    self._write(number, grafana.annotations[number])

            def _write(self, number: int, before: dict[str, Any]) -> None:
                body = json.loads(self.body())
                fault = grafana.faults.pop(0) if grafana.faults else 0
                grafana.writes.append(self.command)
                if isinstance(fault, int) and fault:
                    self.answer(fault, {"message": "no"})
                    return
                grafana.annotations[number] = before | body
                if fault == LOST:
                    self.close_connection = True
                    return
                self.answer(200, {"id": number})

            def _may(self) -> bool:
                if self.headers["authorization"] == f"Bearer {TOKEN}":
                    return True
                self.answer(401, {"message": "Unauthorized"})
                return False

        return Handler


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "grafana.token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def grafana() -> Iterator[StandInGrafana]:
    stand_in = StandInGrafana()
    with serve(stand_in):
        yield stand_in


def to(grafana: StandInGrafana, token: Path, **more: Any) -> Any:
    receiver = {"kind": "grafana", "options": {"url": f"{grafana.url}/", "bearer_token_file": str(token)}}
    settings = Settings.model_validate({"notify": {"receivers": [receiver]}})
    return receivers(events=configured(settings).events, **more)


def is_over(grafana: StandInGrafana) -> Callable[[], bool]:
    return lambda: all("timeEnd" in one for one in grafana.annotations.values()) and bool(grafana.annotations)


async def test_an_incident_is_one_annotation_from_its_start_to_its_end(
    grafana: StandInGrafana, token: Path, tmp_path: Path
) -> None:
    async with start_notifier(to(grafana, token), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: len(grafana.annotations) == 1)
        (opened,) = (dict(one) for one in grafana.annotations.values())
        accept(notifier, "shop", verdict(incident("a", severity="major")), NOW)
        accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
        await eventually(is_over(grafana))
        await eventually(lambda: metric_value(instruments, "tagae_notices_sent_total", receiver=KIND) == 3)
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


async def test_nothing_is_lost_or_written_twice(grafana: StandInGrafana, token: Path, tmp_path: Path) -> None:
    grafana.faults = [500, LOST, 503, LOST]
    async with start_notifier(to(grafana, token), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
        await eventually(lambda: is_over(grafana)() and notifier.count_waiting()[KIND] == 0)
    assert len(grafana.annotations) == 1, "a lost response does not make a second annotation"
    assert grafana.faults == []


async def test_what_waits_survives_a_restart(grafana: StandInGrafana, token: Path, tmp_path: Path) -> None:
    grafana.faults = [503] * 1000
    async with start_notifier(to(grafana, token, drain_seconds=0.0), tmp_path) as (notifier, _):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(lambda: bool(grafana.writes))
    assert grafana.annotations == {}
    grafana.faults = []
    async with start_notifier(to(grafana, token), tmp_path) as (notifier, _):
        await eventually(lambda: len(grafana.annotations) == 1)
        accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
        await eventually(is_over(grafana))
    assert len(grafana.annotations) == 1


async def test_a_wrong_token_is_retried_and_counted(grafana: StandInGrafana, token: Path, tmp_path: Path) -> None:
    token.write_text("another")
    async with start_notifier(to(grafana, token, drain_seconds=0.0), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(
            lambda: metric_value(instruments, "tagae_notices_failed_total", receiver=KIND, reason="forbidden") >= 1
        )
        token.write_text(TOKEN)  # it is read again
        await eventually(lambda: len(grafana.annotations) == 1)


async def test_an_answer_that_is_no_list_counts_as_a_failure(
    grafana: StandInGrafana, token: Path, tmp_path: Path
) -> None:
    grafana.garbage = True
    async with start_notifier(to(grafana, token, drain_seconds=0.0), tmp_path) as (notifier, instruments):
        accept(notifier, "shop", verdict(incident("a")), NOW)
        await eventually(
            lambda: metric_value(instruments, "tagae_notices_failed_total", receiver=KIND, reason="broken") >= 1
        )
        assert grafana.annotations == {}
        grafana.garbage = False
        await eventually(lambda: len(grafana.annotations) == 1)


def test_texts_are_escaped_and_tags_fit() -> None:
    name = "n" * 250 + "/<b>"
    (event,) = transition(MeshAlerts(), "shop", verdict(incident("a", name)), NOW, PLACE).events
    found = annotation(event.document)
    assert "<b>" not in found["text"]
    assert len(json.dumps(found["tags"])) <= 500
    again = {**event.document, "opened_at": "2026-04-01T00:00:00+00:00"}
    assert incident_tag(event.document) != incident_tag(again), "an incident that comes back has another annotation"
