"""The demo on the page: its document, its buttons, and a whole run on a real Ray Serve."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lab.demo.controls import PAUSE, Controls, build_menu
from lab.demo.document import encode, keys
from lab.demo.outcomes import outcome, tally
from lab.demo.remote_control import MAX_KEYS, WaitingKeys
from lab.demo.state import CHANGE_SNAPSHOTS, KEPT, WARM_UP, DemoState, add_verdict, press
from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import BenignChange
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from serve_app.errors import InvalidDocument, Overloaded
from tests.lab.demo.shows import incident, scored_snapshot
from tests.serve_app.running import eventually, problem
from tests.timing import PATIENCE_SECONDS

SPEC = MeshSpec(services=60, seed=0)
MENU = build_menu(build_mesh(SPEC), 0)
DEPLOY, BURST = BenignChange("deploy", "a/web", 80), Fault("error_burst", "a/db", 100, 120)


def decode_state(state: DemoState) -> dict[str, Any]:
    """Return the document that the page reads."""
    document: dict[str, Any] = json.loads(encode(state))
    return document


def known_state(**values: Any) -> DemoState:
    """Return a mesh that is warmed up."""
    return replace(DemoState("60 services", 15.0, MENU, snapshots=(scored_snapshot(WARM_UP),)), **values)


# the document


def test_the_document_has_the_menu_and_the_progress_of_learning() -> None:
    early = decode_state(known_state(snapshots=(scored_snapshot(40),)))
    assert (early["warming_up"], early["snapshots"], early["warm_up_snapshots"]) == (True, 41, WARM_UP)
    late = decode_state(known_state(controls=Controls(speed=0.0, paused=True)))
    assert late["warming_up"] is False
    assert late["controls"] == {
        "speed": 0.0,
        "paused": True,
    }
    assert [(row["key"], row["is_fault"]) for row in late["menu"]] == [
        (option.kind, option.is_fault) for option in MENU
    ]
    assert all(row["meaning"] and row["service"] for row in late["menu"])


@pytest.mark.parametrize(
    ("index", "pages", "change", "fault"),
    [
        (79, [], ("begins now", None), ("not detected yet", None)),
        (85, [], ("no alert", True), ("not detected yet", None)),
        (85, [82], ("FALSE ALERT", False), ("not detected yet", None)),
        (105, [80 + CHANGE_SNAPSHOTS + 1], ("no alert", True), ("alert within 30 s, culprit is suspect 1", True)),
        (121, [], ("no alert", True), ("missed", False)),
    ],
)
def test_outcomes(
    index: int, pages: list[int], change: tuple[str, bool | None], fault: tuple[str, bool | None]
) -> None:
    show = known_state(events=(DEPLOY, BURST), snapshots=(scored_snapshot(78),))
    for at in range(79, index + 1):
        incidents = [incident("x", 9.0, "a/db")] if at in pages else []
        show = add_verdict(
            show, scored_snapshot(at, "anomalous" if incidents else "normal", 9.0 if incidents else 1.0, *incidents)
        )
    assert [(result.text, result.right) for result in (outcome(show, DEPLOY), outcome(show, BURST))] == [change, fault]


def test_an_event_keeps_its_time_after_its_snapshot_is_no_longer_kept() -> None:
    state = press(known_state(), "deploy")
    (document,) = decode_state(state)["deeds"]
    assert document["at"] is None
    start = state.next_index
    state = add_verdict(state, scored_snapshot(start))
    (document,) = decode_state(state)["deeds"]
    state = add_verdict(state, scored_snapshot(start + KEPT))
    for index in range(start + KEPT + 1, start + 2 * KEPT):
        state = add_verdict(state, scored_snapshot(index))
    assert all(snapshot.index != start for snapshot in state.snapshots)
    (document,) = decode_state(state)["deeds"]
    assert document["at"] == document["at"] == scored_snapshot(start).verdict.observed_at.isoformat()


def test_the_tally_counts_faults_that_have_ended() -> None:
    state = known_state(events=(BURST,), snapshots=(scored_snapshot(78),))
    assert tally(state) == "0 faults: 0 diagnosed, 0 missed; 0 false alerts"
    state = add_verdict(state, scored_snapshot(90, "anomalous", 9.0, incident("x", 9.0, "a/web")))
    state = add_verdict(state, scored_snapshot(102, "anomalous", 9.0, incident("y", 9.0, "a/db")))
    assert tally(add_verdict(state, scored_snapshot(121))) == "1 fault: 1 diagnosed, 0 missed; 1 false alert"


def test_a_notice_of_a_fault_is_right_and_one_without_a_fault_is_no_false_alert() -> None:
    state = known_state(events=(DEPLOY, BURST), snapshots=(scored_snapshot(78),))
    state = add_verdict(state, scored_snapshot(81, "normal", 1.0, incident("m", 8.0, "a/web", severity="notice")))
    state = add_verdict(state, scored_snapshot(101, "normal", 1.0, incident("n", 8.0, "a/db", severity="notice")))
    state = add_verdict(state, scored_snapshot(121))
    assert (outcome(state, DEPLOY).text, outcome(state, DEPLOY).right) == ("no alert", True)
    assert (outcome(state, BURST).text, outcome(state, BURST).right) == ("notice within 30 s, no alert", True)
    assert tally(state) == "1 fault: 0 diagnosed, 1 noticed, 0 missed; 0 false alerts"


def test_an_alert_that_names_others_is_not_right() -> None:
    show = known_state(events=(BURST,), snapshots=(scored_snapshot(100),))
    suspects = ("a/web", "a/cart", "a/q", "a/db")
    show = add_verdict(show, scored_snapshot(101, "anomalous", 9.0, incident("x", 9.0, *suspects)))
    assert outcome(show, BURST).text == "alert, but the suspects are a/web, a/cart, a/q"
    assert outcome(show, BURST).right is False


# keys


def test_every_button_has_a_key() -> None:
    assert sorted(keys(known_state())) == sorted([*(option.kind for option in MENU), PAUSE])


async def test_keys_wait_in_order_up_to_a_limit() -> None:
    waiting_keys = WaitingKeys("le")
    assert await waiting_keys.take(0.0) == []
    for key in "lel":
        waiting_keys.press(key)
    assert await waiting_keys.take(0.0) == ["l", "e", "l"]
    for _ in range(MAX_KEYS):
        waiting_keys.press("l")
    with pytest.raises(Overloaded, match=f"at most {MAX_KEYS}"):
        waiting_keys.press("e")
    assert await waiting_keys.take(0.0) == ["l"] * MAX_KEYS
    waiting = asyncio.create_task(waiting_keys.take(30.0))
    await asyncio.sleep(0)
    waiting_keys.press("e")
    assert await asyncio.wait_for(waiting, PATIENCE_SECONDS) == ["e"]


@pytest.mark.parametrize("key", ["q", "?", "le", "", None, 7, ["l"]])
def test_an_unknown_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidDocument, match="expected one of 'e' 'l', got"):
        WaitingKeys("le").press(key)


# a whole run


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(480)
def test_a_fault_by_a_button_is_found_and_raises_an_alert(tmp_path: Path) -> None:
    """The whole demo runs without a terminal. After an interrupt no process is left."""
    command = [str(Path(sys.executable).with_name("tagae")), "demo", "--speed", "30"]
    errors = tmp_path / "stderr"
    with (
        errors.open("w") as log,
        subprocess.Popen(
            command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        processes = [psutil.Process(process.pid)]
        try:
            assert process.stdout is not None
            page = next(
                match[1] for line in process.stdout if (match := re.search(r"(http://\S+)/demo/#mesh=demo", line))
            )
            processes += processes[0].children(recursive=True)
            with httpx.Client(base_url=page, timeout=PATIENCE_SECONDS) as http:
                _check_access(http)
                _check_fault(http)
            process.send_signal(signal.SIGINT)
            output = process.stdout.read()
            assert process.wait(timeout=PATIENCE_SECONDS) == 0, output + errors.read_text()[-4000:]
            _, alive = psutil.wait_procs(processes, timeout=PATIENCE_SECONDS)
            assert not alive
        finally:
            for member in processes:
                with suppress(psutil.NoSuchProcess):
                    member.kill()


@pytest.mark.ray
@pytest.mark.timeout(480)
def test_an_interrupt_during_the_start_ends_it_and_leaves_no_process(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("tagae")), "demo"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "RAY_TMPDIR": "/tmp"}  # its sockets need a short path
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        processes = [psutil.Process(process.pid)]
        try:
            assert process.stdout is not None
            assert "Simulated mesh" in process.stdout.readline()
            assert eventually(
                lambda: any(member.name() == "raylet" for member in processes[0].children(recursive=True))
            )
            processes += processes[0].children(recursive=True)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, errors
            _, alive = psutil.wait_procs(processes, timeout=PATIENCE_SECONDS)
            assert not alive
            assert not list(tmp_path.iterdir())
        finally:
            for member in processes:
                with suppress(psutil.NoSuchProcess):
                    member.kill()


def _check_access(http: httpx.Client) -> None:
    """Check that only the demo's page has the panel, and that only known keys from there are accepted."""
    page = http.get("/demo/")
    assert '<script type="module" src="/demo/controls.js"></script>' in page.text
    assert "script-src 'self';" in page.headers["content-security-policy"]
    assert "/demo/controls" not in http.get("/").text
    for file, media_type in (("controls.js", "text/javascript"), ("controls.css", "text/css")):
        assert http.get(f"/demo/{file}").headers["content-type"].startswith(media_type)
    problem(http.post("/demo/keys", json={"key": "q"}), 422, "invalid-document", "/key")
    problem(http.post("/demo/keys", json=["l"]), 422, "invalid-document", "/key")
    problem(http.post("/demo/keys", content=b'{"key": "e"}'), 415, "unsupported-media-type")
    problem(http.post("/demo/keys", json={"key": "e" * 2000}), 413, "document-too-large")


def _check_fault(http: httpx.Client) -> None:
    """Press the button of a fault: the page shows it, an alert is raised, and the culprit is named."""

    def until(condition: Callable[[dict[str, Any]], bool], seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            answer = http.get("/demo/show")
            if answer.status_code == 200 and condition(answer.json()):
                return dict(answer.json())
            time.sleep(0.05)  # as the page does, but without waiting
        raise AssertionError(answer.text)

    until(lambda show: not show["warming_up"])
    assert http.post("/demo/keys", json={"key": "error_burst"}).status_code == 202
    until(lambda show: any(event["key"] == "error_burst" for event in show["deeds"]))
    shown_state = until(lambda show: any(event["key"] == "error_burst" and event["right"] for event in show["deeds"]))
    (burst,) = [event for event in shown_state["deeds"] if event["key"] == "error_burst"]
    assert burst["outcome"].startswith("alert within ")
    verdict = http.get("/v1/meshes/demo/verdict").json()
    assert verdict["status"] == "anomalous"
    suspects = {suspect["service"] for incident in verdict["incidents"] for suspect in incident["suspects"][:3]}
    assert burst["service"] in suspects
