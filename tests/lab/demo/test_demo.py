"""The demo without controls: auto-play, evaluation, progress lines, the pipeline, and a whole run."""

import re
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from lab.demo.controls import PAUSE, Controls
from lab.demo.lines import describe, print_progress
from lab.demo.outcomes import conclude
from lab.demo.play import play
from lab.demo.state import PAUSED, WARM_UP, DemoState, add_verdict, begin, press
from lab.demo.story import END, FAULT, STORY_FAULTS, Chapter, chapter_of, start_of
from lab.evaluation.measures.located import AlertRecord
from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import BenignChange
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.api.client import Client
from tests.lab.demo.shows import START, incident, scored_snapshot, transport
from tests.timing import TIME_FACTOR

INTERVAL = 15.0
SPEC = MeshSpec(services=30, calls_per_service=3, seed=4)
CHAPTER = Chapter(
    (BenignChange("deploy", "a/web", 72), BenignChange("scale_out", "a/cart", 80)),
    Fault("error_burst", "a/db", 92, 112),
    134,
)


def alert(name: str, index: int, *suspects: str) -> AlertRecord:
    """Return an alert that begins with a snapshot."""
    return AlertRecord(name, START + timedelta(seconds=INTERVAL * index), suspects, frozenset(suspects))


# story


def test_a_story_has_changes_and_then_a_fault_and_is_the_same_for_the_same_seed() -> None:
    mesh = build_mesh(SPEC)
    chapter = chapter_of(mesh, 3, WARM_UP)
    assert chapter == chapter_of(mesh, 3, WARM_UP) != chapter_of(mesh, 4, WARM_UP)
    assert chapter.fault.kind == STORY_FAULTS[0]
    assert (
        WARM_UP
        < chapter.changes[0].at
        <= chapter.changes[-1].at
        < chapter.fault.start
        < chapter.fault.end
        < chapter.end
    )
    services = {chapter.fault.service, *(change.service for change in chapter.changes)}
    assert len(services) == 1 + len(chapter.changes)
    assert chapter.fault.service in mesh.topology.node_ids


def test_alerts_are_counted_once_and_kept_as_the_page_shows_them_last() -> None:
    state = DemoState("A mesh", INTERVAL, ())
    for words in (
        scored_snapshot(5, "anomalous", 6.0, incident("x", 6.0, "a/web")),
        scored_snapshot(6, "anomalous", 9.0, incident("x", 9.0, "a/db", "a/web"), incident("y", 5.0, "b/q")),
        scored_snapshot(7, "anomalous", 7.0, incident("x", 7.0, "a/cart")),
        scored_snapshot(8),
    ):
        state = add_verdict(state, words)
    pages = state.run([]).pages
    assert [(page.id, page.begin, page.suspects) for page in pages] == [
        ("x", scored_snapshot(5).verdict.observed_at, ("a/cart",)),
        ("y", scored_snapshot(6).verdict.observed_at, ("b/q",)),
    ]


def test_the_demo_pauses_once_at_its_first_incident() -> None:
    anomalous = scored_snapshot(5, "anomalous", 9.0, incident("x", 9.0, "a/db"))
    state = add_verdict(DemoState("A mesh", INTERVAL, (), Controls(pauses=True)), anomalous)
    assert (state.controls.paused, state.notice) == (True, PAUSED)
    assert ("paused", PAUSED) in state.news
    after = press(state, PAUSE)
    later = add_verdict(after, scored_snapshot(6, "anomalous", 9.0, incident("y", 9.0, "a/web")))
    assert not later.controls.paused
    assert not add_verdict(DemoState("A mesh", INTERVAL, ()), anomalous).controls.paused


@pytest.mark.parametrize(
    ("alerts", "passed", "words"),
    [
        ([alert("x", 93, "a/db")], True, "alert within 30 s, culprit is suspect 1"),
        ([alert("x", 92, "a/web", "a/cart", "a/db")], True, "suspect 3"),
        ([alert("x", 120, "a/db")], True, "suspect 1"),
        ([], False, "no alert"),
        ([alert("x", 93, "a/web", "a/cart", "a/q", "a/db")], False, "but the suspects are a/web, a/cart, a/q"),
        ([alert("x", 90, "a/db")], False, "false alert"),
        ([alert("x", 121, "a/db")], False, "false alert"),
        ([alert("w", 73, "a/web"), alert("x", 93, "a/db")], False, "false alert, the suspects are a/web"),
        ([alert("x", 93, "a/db"), alert("y", 95, "b/q")], False, "false alert, the suspects are b/q"),
        (
            [alert("x", 93, "a/db"), alert("y", 95, "b/q", "a/db")],
            True,
            "alert within 30 s, culprit is suspect 1; 1 further alert on the same fault",
        ),
        ([alert("x", 93)], False, "suspects are none"),
    ],
)
def test_the_judgement_on_a_chapter(alerts: list[AlertRecord], passed: bool, words: str) -> None:
    records = {record.id: record for record in alerts}
    state = DemoState("A mesh", INTERVAL, (), chapter=CHAPTER, snapshots=(scored_snapshot(133),), alerts=records)
    result = conclude(state)
    assert result.passed == passed
    label, text = result.news[-1]
    assert words in text
    assert label == ("PASS" if passed else "FAIL")
    earlier = replace(state, snapshots=(scored_snapshot(132),))
    assert conclude(earlier) == earlier


# plain lines, the pipeline, and a whole run


def test_progress_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(force_terminal=False)
    before = DemoState("A mesh", INTERVAL, (), events=(Fault("error_burst", "a/[db]", 3, 9),))
    for words in (
        scored_snapshot(1),
        scored_snapshot(2),
        scored_snapshot(3),
        scored_snapshot(4, "anomalous", 8.0, incident("x1", 8.0, "a/[db]")),
        scored_snapshot(9),
    ):
        state = conclude(add_verdict(before, words))
        print_progress(console, before, state)
        print_progress(console, state, state)
        before = state
    assert capsys.readouterr().out.splitlines() == [
        "00:00:15  normal      snapshot 1: score 1.0, verdict in 3 ms",
        "00:00:45  fault       error burst at a/[db]: must raise an alert",
        "00:01:00  ALERT       major incident, suspects a/[db]. a/[db] is failing: 31% of its requests, "
        "usually 0.3%. 1 service affected.",
        "00:01:00  anomalous   snapshot 4: score 8.0, verdict in 3 ms, suspects a/[db]",
        "00:02:15  ended       error burst at a/[db]: alert within 30 s, culprit is suspect 1",
        "00:02:15  normal      snapshot 9: score 1.0, verdict in 3 ms",
    ]
    assert describe(scored_snapshot(0)).startswith("snapshot 0: score 1.0")


def test_a_notice_is_a_line_and_no_alert(capsys: pytest.CaptureFixture[str]) -> None:
    before = DemoState("A mesh", INTERVAL, ())
    state = add_verdict(before, scored_snapshot(1, "normal", 1.0, incident("n", 8.0, "a/db", severity="notice")))
    print_progress(Console(force_terminal=False), before, state)
    assert not state.alerts
    assert [*state.notices] == ["n"]
    assert capsys.readouterr().out.splitlines() == [
        "00:00:15  notice      a/db is failing: 31% of its requests, usually 0.3%. 1 service affected.",
        "00:00:15  normal      snapshot 1: score 1.0, verdict in 3 ms",
    ]


def test_the_story_is_played_and_judged() -> None:
    simulator = Simulator(MeshSpec(services=30, seed=1))
    with Client("http://service", transport=transport()) as client:
        first = begin(simulator, 1, Controls(speed=0.0))
        state = next(state for state in play(client, simulator, first, lambda _: "") if state.passed is not None)
    assert [snapshot.verdict.sequence for snapshot in state.snapshots] == list(range(1, WARM_UP + END + 1))
    starts_of = [start_of(event) for event in state.events]
    assert starts_of[2] == WARM_UP + FAULT
    assert starts_of == sorted(set(starts_of))
    assert len(starts_of) == 3
    assert state.news[-1][0] == "PASS", state.news


@pytest.mark.ray
@pytest.mark.slow
def test_demo_once(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("tagae")), "demo", "--once"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170 * TIME_FACTOR)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^Page until .*: http://127\.0\.0\.1:\d+/#mesh=demo$", result.stdout, re.MULTILINE), result.stdout
    assert re.search(r"^ +\d+ s starting Ray$", result.stdout, re.MULTILINE), result.stdout
    assert "TAGAE is ready at http://127.0.0.1:" in result.stdout
    assert re.search(r"PASS .*culprit is suspect [123]", result.stdout)
    assert not list(tmp_path.iterdir())
