"""The demo: its story, its judgement and its pictures as functions, its stream through the pipeline, and all of it."""

import io
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from model.checkpoint import load
from serve_app.client import Client
from serve_app.codec import decode_snapshot_json, encode_verdict
from serve_app.demo import WARM_UP, stream
from serve_app.demo.story import END, FAULT, Chapter, Page, chapters, judge, paged
from serve_app.demo.view import BLOCKS, Event, Scene, chart, line, picture, view
from serve_app.pipeline import Mesh, advance, options
from serve_app.schemas import IncidentDocument, SuspectDocument, VerdictDocument
from serve_app.settings import Settings
from serve_app.sources.faults import KINDS, Fault
from serve_app.sources.mesh import build_mesh
from serve_app.sources.operations import Change
from serve_app.sources.simulator import Simulator
from serve_app.sources.topology import MeshSpec

START = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = MeshSpec(services=30, calls_per_service=3, seed=4)
CHAPTER = Chapter(
    70,
    Change("deploy", "a/web", 72),
    Change("scale_out", "a/cart", 80),
    Fault("error_burst", "a/db", 92, 112),
    134,
)


def page(incident: str, index: int, *suspects: str, score: float = 8.0) -> Page:
    return Page(incident, index, score, suspects)


def verdict(
    index: int = 0, status: str = "normal", score: float = 1.0, *incidents: IncidentDocument
) -> VerdictDocument:
    return VerdictDocument(
        observed_at=START + timedelta(seconds=15 * index),
        sequence=index + 1,
        status=status,
        mesh_score=score,
        threshold=4.0,
        probability=0.5,
        suspects=[],
        incidents=list(incidents),
        coverage=1.0,
        missing_parts=[],
        model="abc",
    )


def incident(name: str, score: float, *suspects: str) -> IncidentDocument:
    return IncidentDocument(
        id=name,
        since=START,
        severity="major",
        score=score,
        suspects=[SuspectDocument(service=s, score=0.5, reasons=[]) for s in suspects],
        affected=list(suspects),
        changes=[],
    )


# story


def test_chapters_follow_each_other_and_are_the_same_for_the_same_seed() -> None:
    mesh = build_mesh(SPEC)
    told = list(islice(chapters(mesh, 3, WARM_UP), 6))
    assert told == list(islice(chapters(mesh, 3, WARM_UP), 6))
    assert told != list(islice(chapters(mesh, 4, WARM_UP), 6))
    assert told[0].start == WARM_UP
    for before, after in pairwise(told):
        assert before.end < after.start
    for half in (told[:3], told[3:]):
        assert {chapter.fault.kind for chapter in half} == set(KINDS)
    for chapter in told:
        assert chapter.start < chapter.deploy.at < chapter.scale_out.at < chapter.fault.start
        assert chapter.fault.end < chapter.end
        assert len({chapter.deploy.service, chapter.scale_out.service, chapter.fault.service}) == 3
        assert chapter.fault.service in mesh.topology.node_ids


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
def test_judgement(pages: list[Page], passed: bool, words: str) -> None:
    judgement = judge(CHAPTER, pages, 15.0)
    assert judgement.passed == passed
    assert words in judgement.reason


# pictures


def test_chart_shows_scores_against_the_threshold() -> None:
    scenes = [
        Scene(0, verdict(0, "normal", 1.0), 3.0),
        Scene(1, verdict(1, "normal", 5.0), 3.0),
        Scene(2, verdict(2, "anomalous", 10.0), 3.0, (Event("F", "fault", "yellow"),)),
    ]
    text = chart(scenes, width=5, height=5)
    *rows, axis = text.plain.splitlines()
    assert len(rows) == 5
    bars = ["".join(row[7:][i] for row in rows) for i in range(5)]
    heights = [sum(BLOCKS.find(cell) > 0 for cell in bar) for bar in bars]
    assert heights[:2] == [0, 0]
    assert 0 < heights[2] < heights[3] < heights[4] == 5
    assert [row for row in rows if row.startswith("  4.0")] == [rows[2]]
    assert axis.endswith("──F")
    styles = {str(span.style) for span in text.spans}
    assert {"green", "yellow", "red"} <= styles


def test_chart_of_an_unknown_threshold() -> None:
    scene = Scene(0, verdict().model_copy(update={"threshold": None}), 3.0)
    assert "┤" not in chart([scene]).plain


def test_picture_names_suspects_and_what_was_done() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    scene = Scene(9, verdict(9, "anomalous", 9.0, incident("x1", 9.0, "a/db", "a/web")), 12.0)
    console.print(picture("A mesh", [scene], [("00:02:15", Event("F", "error_burst at a/db", "yellow"))]))
    shown = console.export_text()
    for words in (
        "A mesh",
        "ANOMALOUS",
        "major incident x1",
        "a/db",
        "a/web",
        "00:02:15",
        "error_burst at a/db",
        "12 ms",
    ):
        assert words in shown


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with view(Console(force_terminal=False), "A mesh") as shown:
        shown.show(Scene(1, verdict(1), 3.0))
        shown.show(Scene(2, verdict(2), 3.0))
        shown.show(Scene(3, verdict(3), 3.0, (Event("F", "error_burst at a/db [now]"),)))
        shown.show(Scene(4, verdict(4, "anomalous", 8.0, incident("x1", 8.0, "a/db")), 3.0))
    assert capsys.readouterr().out.splitlines() == [
        "A mesh",
        "00:00:15  snapshot 1: normal, score 1.0, threshold 4.0, verdict in 3 ms",
        "00:00:45  error_burst at a/db [now]",
        "00:01:00  snapshot 4: anomalous, score 8.0, threshold 4.0, verdict in 3 ms  suspects a/db",
    ]
    assert line(Scene(0, verdict(), 3.0)).startswith("00:00:00  snapshot 0: normal")


# the stream, and all of it


def pipeline_service() -> Callable[[httpx.Request], httpx.Response]:
    """The service's scoring route without Ray: codec and pipeline."""
    checkpoint, chosen, mesh = load(), options(Settings()), Mesh()

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal mesh
        verdict, mesh = advance(checkpoint, mesh, decode_snapshot_json(request.content), chosen)
        return httpx.Response(200, content=encode_verdict(verdict).model_dump_json())

    return answer


def test_stream_tells_the_story_and_judges_it() -> None:
    simulator = Simulator(MeshSpec(services=30, seed=1))
    with Client("http://service", transport=httpx.MockTransport(pipeline_service())) as client:
        scenes = []
        for scene, judgement in stream(client, simulator, seed=1, speed=0.0):
            scenes.append(scene)
            if judgement:
                break
    assert len(scenes) == WARM_UP + END
    assert [scene.verdict.sequence for scene in scenes] == list(range(1, len(scenes) + 1))
    marks = {event.mark: scene.index for scene in scenes for event in scene.events if event.mark}
    assert marks["F"] == WARM_UP + FAULT
    assert marks["D"] < marks["S"] < marks["F"] < marks["E"]
    assert judgement is not None
    assert judgement.reason in scenes[-1].events[-1].text
    assert judgement.passed, judgement.reason


@pytest.mark.ray
@pytest.mark.slow
def test_demo_once(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("tagae")), "demo", "--once"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Serve is ready at http://127.0.0.1:" in done.stdout
    assert "culprit named as suspect" in done.stdout
    assert "verdicts made by MetaModel: 134" in done.stdout
    assert not list(tmp_path.iterdir())
