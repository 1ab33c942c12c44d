"""The demo without keys: its story, its judgement, its plain lines, its way through the pipeline, and all of it."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from serve_app.api.client import Client
from serve_app.demo.keys import Controls
from serve_app.demo.lines import line, print_news
from serve_app.demo.show import WARM_UP, Show, opening, play, scored
from serve_app.demo.story import (
    END,
    FAULT,
    TOLD,
    Chapter,
    FaultFinding,
    ShownIncident,
    about,
    begins,
    chapters,
    found,
    judge,
    paged,
)
from serve_app.simulator.events.faults import Fault
from serve_app.simulator.events.operations import BenignChange
from serve_app.simulator.mesh.parameters import build_mesh
from serve_app.simulator.mesh.topology import MeshSpec
from serve_app.simulator.simulator import Simulator
from tests.serve_app.shows import incident, scene, transport, verdict

INTERVAL = 15.0
SPEC = MeshSpec(services=30, calls_per_service=3, seed=4)
CHAPTER = Chapter(
    0,
    70,
    (BenignChange("deploy", "a/web", 72), BenignChange("scale_out", "a/cart", 80)),
    Fault("error_burst", "a/db", 92, 112),
    134,
)


def page(name: str, index: int, *suspects: str, score: float = 8.0) -> ShownIncident:
    return ShownIncident(name, index, score, suspects)


# story


def test_chapters_are_the_same_for_the_same_seed() -> None:
    mesh = build_mesh(SPEC)
    told = list(islice(chapters(mesh, 3), 2 * len(TOLD)))
    assert told == list(islice(chapters(mesh, 3), 2 * len(TOLD)))
    assert told != list(islice(chapters(mesh, 4), 2 * len(TOLD)))
    for half in (told[: len(TOLD)], told[len(TOLD) :]):
        assert {chapter.fault.kind for chapter in half} == set(TOLD)
    for chapter in told:
        assert chapter.start < chapter.changes[0].at <= chapter.changes[-1].at < chapter.fault.start
        assert chapter.fault.end < chapter.end
        assert len({deed.service for deed in chapter.deeds}) == len(chapter.deeds)
        assert chapter.fault.service in mesh.topology.node_ids


def test_a_chapter_moves_as_a_whole() -> None:
    moved = CHAPTER.moved(100, since=95)
    assert (moved.since, moved.start, moved.end) == (95, 100, 164)
    assert [begins(deed) for deed in moved.deeds] == [102, 110, 122]
    assert moved.fault.end == 142
    assert moved.moved(70, since=0) == CHAPTER


def test_pages_are_counted_once_and_remembered_at_their_strongest() -> None:
    pages = paged((), 5, verdict(5, "anomalous", 6.0, incident("x", 6.0, "a/web")))
    pages = paged(
        pages, 6, verdict(6, "anomalous", 9.0, incident("x", 9.0, "a/db", "a/web"), incident("y", 5.0, "b/q"))
    )
    pages = paged(pages, 7, verdict(7, "anomalous", 7.0, incident("x", 7.0, "a/cart")))
    pages = paged(pages, 8, verdict(8))
    assert pages == (page("x", 5, "a/db", "a/web", score=9.0), page("y", 6, "b/q", score=5.0))


@pytest.mark.parametrize(
    ("pages", "passed", "words"),
    [
        ([page("x", 93, "a/db")], True, "paged within 30 s, culprit named as suspect 1"),
        ([page("x", 92, "a/web", "a/cart", "a/db")], True, "suspect 3"),
        ([page("x", 120, "a/db")], True, "suspect 1"),
        ([], False, "was not found"),
        ([page("x", 93, "a/web", "a/cart", "a/q", "a/db")], False, "but suspects are a/web, a/cart, a/q"),
        ([page("x", 91, "a/db")], False, "paged without a fault"),
        ([page("x", 121, "a/db")], False, "paged without a fault"),
        ([page("w", 73, "a/web"), page("x", 93, "a/db")], False, "paged without a fault: a/web in snapshot 73"),
        ([page("x", 93, "a/db"), page("y", 95, "b/q")], False, "a second page"),
        ([page("x", 93)], False, "suspects are nobody"),
    ],
)
def test_judgement(pages: list[ShownIncident], passed: bool, words: str) -> None:
    judgement = judge(CHAPTER, pages, INTERVAL)
    assert judgement.passed == passed
    assert words in judgement.reason


def test_which_fault_a_page_is_about() -> None:
    early, late = Fault("error_burst", "a/db", 92, 112), Fault("latency_injection", "b/q", 100, 120)
    faults = (early, late)
    assert about(page("x", 91, "a/db"), faults, INTERVAL) is None
    assert about(page("x", 95, "b/q"), faults, INTERVAL) == early
    assert about(page("x", 104, "a/db"), faults, INTERVAL) == early
    assert about(page("x", 104, "c/s"), faults, INTERVAL) == late
    assert about(page("x", 125, "a/db"), faults, INTERVAL) == late
    assert about(page("x", 129, "a/db"), faults, INTERVAL) is None


def test_what_is_found_of_a_fault() -> None:
    late = FaultFinding(Fault("latency_injection", "b/q", 100, 120))
    open_before = verdict(99, "anomalous", 9.0, incident("x", 9.0, "b/q"))
    assert found(late, 99, open_before, INTERVAL) == late
    assert found(late, 100, verdict(100), INTERVAL) == late
    fourth = verdict(101, "anomalous", 9.0, incident("x", 9.0, "a/1", "a/2", "a/3", "b/q"))
    assert found(late, 101, fourth, INTERVAL) == late
    second = verdict(102, "anomalous", 9.0, incident("x", 9.0, "a/1"), incident("y", 6.0, "a/2", "b/q"))
    named = found(late, 102, second, INTERVAL)
    assert (named.named, named.rank) == (102, 2)
    better = found(named, 105, verdict(105, "anomalous", 9.0, incident("y", 9.0, "b/q")), INTERVAL)
    assert (better.named, better.rank) == (102, 1)
    assert found(better, 106, second, INTERVAL) == better
    assert found(late, 129, second, INTERVAL) == late


# plain lines, the way through the pipeline, and all of it


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(force_terminal=False)
    before = Show("A mesh", INTERVAL, (), deeds=(Fault("error_burst", "a/[db]", 3, 9),))
    for shown in (
        scene(1),
        scene(2),
        scene(3),
        scene(4, "anomalous", 8.0, incident("x1", 8.0, "a/[db]")),
    ):
        show = scored(before, shown)
        print_news(console, before, show)
        print_news(console, show, show)
        before = show
    assert capsys.readouterr().out.splitlines() == [
        "00:00:15  snapshot 1: normal, score 1.0, threshold 4.0, verdict in 3 ms",
        "00:00:45  error burst at a/[db]: somebody should be paged",
        "00:01:00  PAGE: suspects a/[db]; incident x1",
        "00:01:00  snapshot 4: anomalous, score 8.0, threshold 4.0, verdict in 3 ms  suspects a/[db]",
    ]
    assert line(scene(0)).startswith("00:00:00  snapshot 0: normal")


def test_the_story_is_told_and_judged() -> None:
    simulator = Simulator(MeshSpec(services=30, seed=1))
    with Client("http://service", transport=transport()) as client:
        first = opening(simulator, 1, Controls(speed=0.0), keys=False)
        show = next(show for show in play(client, simulator, first, 1, lambda _: "") if show.judgement)
    assert [scene.verdict.sequence for scene in show.scenes] == list(range(1, WARM_UP + END + 1))
    first, second, fault = show.deeds
    assert begins(fault) == WARM_UP + FAULT
    assert begins(first) < begins(second) < begins(fault)
    marks = {event.mark: event.scene.index for event in show.events if event.mark}
    assert marks == {show.mark(deed): begins(deed) for deed in show.deeds}
    assert show.judgement is not None
    assert show.judgement.reason in show.events[-1].text
    assert show.judgement.passed, show.judgement.reason


@pytest.mark.ray
@pytest.mark.slow
def test_demo_once(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("tagae")), "demo", "--once", "--picture", "demo.svg"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Serve is ready at http://127.0.0.1:" in done.stdout
    assert "culprit named as suspect" in done.stdout
    assert "verdicts made by MetaModel: 134" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["demo.svg"]
    assert "ANOMALOUS" in (tmp_path / "demo.svg").read_text(encoding="utf-8")
