"""The whole path in one terminal: a simulated mesh, sent over HTTP to a service started for it."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from serve_app.client import Client
from serve_app.demo.story import Chapter, Judgement, Page, chapters, judge, paged
from serve_app.demo.view import Event, Scene, view
from serve_app.metrics import PARTS_SCORED, VERDICTS
from serve_app.settings import Settings, load
from serve_app.sources.simulator import Simulator
from serve_app.sources.topology import MeshSpec

__all__ = ["demonstrate"]

MESH = "demo"
WARM_UP = 70  # quiet snapshots before the first chapter
PATIENCE_SECONDS = 30.0


def demonstrate(console: Console, *, services: int, seed: int, once: bool, speed: float) -> Judgement:
    """Start the service, show the story on ``console``, stop the service.

    Args:
        console: where to show it.
        services: of the mesh.
        seed: of the mesh and of what happens to it.
        once: end after the first fault; else go on until KeyboardInterrupt.
        speed: how many times faster than real time, once the mesh is known; 0 is as fast as it goes.

    Returns:
        On the last chapter that came to its end.
    """
    from serve_app.app import start, stop  # brings Ray

    simulator = Simulator(MeshSpec(services=services, seed=seed))
    began = time.perf_counter()
    with TemporaryDirectory(prefix="tagae-demo-") as folder:
        with console.status("starting Ray Serve on loopback"):
            url = start(_settings(Path(folder)))
        console.print(f"Serve is ready at {url} after {time.perf_counter() - began:.0f} s")
        try:
            with Client(url, timeout_seconds=2 * PATIENCE_SECONDS) as client:
                return _shown(console, client, simulator, seed, once, speed)
        finally:
            with console.status("stopping Ray Serve"):
                stop()


def _settings(folder: Path) -> Settings:
    """Loopback, a free port, nothing left behind; a slow machine makes a slow demo, not a broken one."""
    # One mesh needs one session, and each process less is seconds sooner on two cores.
    serve = {"host": "127.0.0.1", "port": 0, "deadline_seconds": PATIENCE_SECONDS, "session_replicas": 1}
    return load(overrides={"serve": serve, "store": {"path": folder}})


def _shown(console: Console, client: Client, simulator: Simulator, seed: int, once: bool, speed: float) -> Judgement:
    spec = simulator.spec
    namespaces = len({name.split("/")[0] for name in simulator.node_ids})
    title = (
        f"A mesh of {spec.services} services in {namespaces} namespaces, {simulator.calls.shape[1]} calls, a snapshot "
        f"every {spec.interval_seconds:.0f} s; seed {seed}"
    )
    judgement = Judgement(False, "stopped before the first fault was over")
    with view(console, title) as shown:
        for scene, reached in stream(client, simulator, seed, speed):
            shown.show(scene)
            judgement = reached or judgement
            if reached and once:
                break
    _work(console, client.metrics())
    return judgement


def _work(console: Console, metrics: str) -> None:
    """Who did how much, as the service itself counted it."""
    samples = [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]
    parts = {s.labels["scorer"]: s.value for s in samples if s.name == PARTS_SCORED.name}
    verdicts = sum(s.value for s in samples if s.name == VERDICTS.name)
    shares = ", ".join(f"{scorer} {count:.0f}" for scorer, count in sorted(parts.items()))
    console.print(
        f"parts scored by each Scorer replica: {shares}; verdicts made by MetaModel: {verdicts:.0f}", soft_wrap=True
    )


def stream(client: Client, simulator: Simulator, seed: int, speed: float) -> Iterator[tuple[Scene, Judgement | None]]:
    """The scenes of the story, scored by the service; with the last of a chapter comes the judgement on it."""
    interval = simulator.interval_seconds
    plan = chapters(simulator.mesh, seed, WARM_UP)
    chapter, begin, pages = next(plan), 0, tuple[Page, ...]()
    simulator.schedule(chapter.deploy, chapter.scale_out, chapter.fault)
    due = time.perf_counter()
    for index, snapshot in enumerate(simulator.snapshots()):
        due = max(time.perf_counter(), due + (interval / speed if speed and index > WARM_UP else 0.0))
        time.sleep(max(0.0, due - time.perf_counter()))
        posted = time.perf_counter()
        verdict = client.push(MESH, snapshot)
        milliseconds = 1000.0 * (time.perf_counter() - posted)
        before, pages = pages, paged(pages, index, verdict)
        events = [*_done(chapter, index), *_said(before, pages)]
        judgement = None
        if index == chapter.end - 1:
            judgement = judge(chapter, [page for page in pages if page.index >= begin], interval)
            events.append(_judged(judgement))
            chapter, begin = next(plan), chapter.end
            simulator.schedule(chapter.deploy, chapter.scale_out, chapter.fault)
        yield Scene(index, verdict, milliseconds, tuple(events)), judgement


def _done(chapter: Chapter, index: int) -> Iterator[Event]:
    """What is done to the mesh in this snapshot."""
    fault = chapter.fault
    if index == 0:
        yield Event("", f"{WARM_UP} quiet snapshots teach the detector this mesh", "cyan")
    if index == chapter.deploy.at:
        yield Event("D", f"rolling deploy of {chapter.deploy.service}: nobody should be paged", "cyan")
    if index == chapter.scale_out.at:
        yield Event("S", f"{chapter.scale_out.service} is scaled out: nobody should be paged", "cyan")
    if index == fault.start:
        yield Event("F", f"{fault.kind} at {fault.service}: somebody should be paged", "bold yellow")
    if index == fault.end:
        yield Event("E", f"{fault.kind} at {fault.service} ends", "yellow")


def _said(before: tuple[Page, ...], pages: tuple[Page, ...]) -> Iterator[Event]:
    """What the detector says for the first time."""
    for page in pages[len(before) :]:
        yield Event("P", f"PAGE {page.incident}: suspects {', '.join(page.suspects[:3])}", "bold red")


def _judged(judgement: Judgement) -> Event:
    return Event("", f"{'as it should' if judgement.passed else 'WRONG'}: {judgement.reason}", _style(judgement))


def _style(judgement: Judgement) -> str:
    return "bold green" if judgement.passed else "bold red"
