"""The whole path on one machine: a simulated mesh, sent over HTTP to a service started for it; seen in the terminal and
on the page of the service."""

import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.live import Live

from serve_app.api.client import Client
from serve_app.demo.browser import opened
from serve_app.demo.document import document, pressable
from serve_app.demo.keys import Controls
from serve_app.demo.lines import print_news
from serve_app.demo.picture import save
from serve_app.demo.show import MESH, ReadKey, Show, opening, play
from serve_app.demo.story import Judgement
from serve_app.demo.terminal import Keyboard
from serve_app.demo.view import render
from serve_app.metrics import PARTS_SCORED, PREDICTIONS
from serve_app.settings import Settings, load
from serve_app.simulator.mesh.topology import MeshSpec
from serve_app.simulator.simulator import Simulator

if TYPE_CHECKING:
    from serve_app.deployments.remote_control import Line

__all__ = ["demonstrate"]

PATIENCE_SECONDS = 30.0


def demonstrate(
    console: Console,
    *,
    services: int,
    seed: int,
    once: bool,
    speed: float,
    picture: Path | None = None,
    browser: bool = False,
    token: str | None = None,
) -> Judgement | None:
    """Start the service, give the show on ``console``, stop the service.

    A terminal with colours gets a live picture, anything else the story in plain lines. Unless ``once`` there are keys:
    in a terminal with colours, and on the page.

    Args:
        console: where to show it.
        services: of the mesh.
        seed: of the mesh and of what happens to it.
        once: end after the first fault; else go on until ``q`` or KeyboardInterrupt.
        speed: how many times faster than real time, once the mesh is known; 0 is as fast as it goes.
        picture: file for an SVG of the last screen on which a fault of the story acts.
        browser: open the page, if somebody sits here before windows; never if ``once``.
        token: of the service, where the settings have a tokens file.

    Returns:
        On the last chapter of the story that came to its end; None if there was none.
    """
    from serve_app.app import start, stop  # brings Ray
    from serve_app.deployments.remote_control import Line, remote_control

    simulator = Simulator(MeshSpec(services=services, seed=seed))
    show = opening(simulator, seed, Controls(speed=speed))
    began = time.perf_counter()
    with TemporaryDirectory(prefix="tagae-demo-") as folder:
        with console.status("starting Ray Serve on loopback"):
            settings = _settings(Path(folder))
            url = start(settings, {} if once else remote_control(pressable(show.menu), settings))
        try:
            console.print(f"Serve is ready at {url} after {time.perf_counter() - began:.0f} s")
            line = None if once else Line()
            keys = _has_pictures(console) and sys.stdin.isatty() and not once
            show = replace(show, keys=keys, page="" if once else f"{url}/demo/#mesh={MESH}")
            _point_to(console, show.page, browser)
            with Client(url, timeout_seconds=2 * PATIENCE_SECONDS, token=token) as client:
                with Keyboard(sys.stdin.fileno()) if keys else nullcontext() as keyboard:
                    shows = play(client, simulator, show, seed, _reader(keyboard, line))
                    judgement = _shown(console, show, _told(shows, line), once, picture)
                _print_work(console, client.metrics())
                return judgement
        finally:
            with console.status("stopping Ray Serve"):
                stop()


def _point_to(console: Console, page: str, browser: bool) -> None:
    """Say where the page is, and open it."""
    if not page:
        return
    is_open = browser and console.is_terminal and opened(page)
    said = "is open in your browser" if is_open else "open it in a browser"
    console.print(f"\n  {page}  {said}: faults and changes at a click\n", style="bold", markup=False, soft_wrap=True)


def _reader(keyboard: Keyboard | None, line: "Line | None") -> ReadKey:
    """Keys of whoever presses one, at the terminal or on the page."""
    if keyboard and line:
        return lambda seconds: line.read(0.0) or keyboard.read(seconds)
    if line:
        return line.read
    return keyboard.read if keyboard else _wait


def _told(shows: Iterator[Show], line: "Line | None") -> Iterator[Show]:
    """The shows, told to the page as they come, as often as it can take them in."""
    for show in shows:
        if line and line.is_free:
            line.tell(document(show))
        yield show


def _settings(folder: Path) -> Settings:
    """Loopback, a free port, nothing left behind; a slow machine makes a slow demo, not a broken one."""
    # One mesh needs one session and one ingress, and each process less is seconds sooner on two cores.
    serve = {
        "host": "127.0.0.1",
        "port": 0,
        "deadline_seconds": PATIENCE_SECONDS,
        "session_replicas": 1,
        "ingress_replicas": 1,
    }
    serve |= {"certificate_file": None, "key_file": None}  # which are for the name of the real service
    return load(overrides={"serve": serve, "store": {"path": folder}})


def _has_pictures(console: Console) -> bool:
    return console.is_terminal and not console.no_color and not console.is_dumb_terminal


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _shown(console: Console, show: Show, shows: Iterator[Show], once: bool, picture: Path | None) -> Judgement | None:
    screen = Live(console=console, screen=True, auto_refresh=False) if _has_pictures(console) else None
    telling = show
    if not screen:
        console.print(f"A mesh of {show.title}", soft_wrap=True)
    with screen or nullcontext():
        size = console.size
        for newer in shows:
            if screen is None:
                print_news(console, show, newer)
            elif newer != show or console.size != size:
                size = console.size
                screen.update(render(newer, *size), refresh=True)
            show = newer
            if show.chapter and show.next_index == show.chapter.fault.end:
                telling = show
            if once and show.judgement:
                break
    if screen:
        console.print(render(show, *console.size))  # the other screen is gone, and its last picture with it
    if picture:
        save(telling, picture)
    return show.judgement


def _print_work(console: Console, metrics: str) -> None:
    """Who did how much, as the service itself counted it."""
    samples = [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]
    parts = {s.labels["scorer"]: s.value for s in samples if s.name == PARTS_SCORED.name}
    verdicts = sum(s.value for s in samples if s.name == PREDICTIONS.name)
    shares = ", ".join(f"{scorer} {count:.0f}" for scorer, count in sorted(parts.items()))
    console.print(
        f"parts scored by each Scorer replica: {shares}; verdicts made by MetaModel: {verdicts:.0f}", soft_wrap=True
    )
