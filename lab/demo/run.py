"""The whole system on one machine: a simulated mesh, sent over HTTP to a service that the demo starts.

The terminal shows progress lines. The service's page shows the mesh and has a panel with the controls.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

from rich.console import Console

from lab.demo.controls import Controls
from lab.demo.document import encode, keys
from lab.demo.lines import print_progress
from lab.demo.play import play
from lab.demo.state import MESH, DemoState, begin
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.api.client import Client
from serve_app.settings import Settings, load

if TYPE_CHECKING:
    from lab.demo.remote_control import Line

__all__ = ["demonstrate"]

# On a slow or busy machine the demo is slow, but works.
DEADLINE_SECONDS = 30.0
PATIENCE_SECONDS = 10 * DEADLINE_SECONDS

Wait = Callable[[str], AbstractContextManager[None]]


def demonstrate(
    console: Console,
    wait: Wait,
    *,
    services: int,
    seed: int,
    once: bool,
    speed: float,
    token: str | None = None,
) -> bool:
    """Start the service, play the demo, stop the service, and return whether the detector passed the story.

    Args:
        wait: shows the activity during a ``with`` block.
        once: end after the first fault, without controls on the page; otherwise run until SIGINT or SIGTERM.
        speed: relative to real time after the warm-up; 0: as fast as possible.
        token: for the service, if the settings have a tokens file.
    """
    from lab.demo.remote_control import Line, remote_control
    from serve_app.app import start, stop  # imports Ray
    from serve_app.runtime.lifetime import Lifetime

    with wait("Simulating a mesh"):
        simulator = Simulator(MeshSpec(services=services, seed=seed))
        state = begin(simulator, seed, Controls(speed=speed, pauses=not once))
    console.print(f"Simulated mesh: {state.title}", soft_wrap=True)
    began = time.perf_counter()
    with TemporaryDirectory(prefix="tagae-demo-") as folder:
        settings = _settings(Path(folder))
        beside = {} if once else remote_control(keys(state), settings)
        steps = partial(_print_step, console, began)
        lifetime = Lifetime(partial(start, settings, beside, steps), stop, [Path(folder)], exit_status=int(once))
        with wait("Starting TAGAE on Ray Serve"):
            url = lifetime.start()
        passed, status = False, 1
        try:
            console.print(f"TAGAE is ready at {url} after {time.perf_counter() - began:.0f} s", soft_wrap=True)
            line = None if once else Line()
            if line:
                console.print(f"\n  {url}/demo/#mesh={MESH}", style="bold", markup=False, soft_wrap=True)
                console.print(
                    "  Open this page in a browser. Its panel starts faults and changes. Stop the demo with Ctrl-C.\n",
                    soft_wrap=True,
                )
            else:
                console.print(f"Page until the end of the first fault: {url}/#mesh={MESH}", soft_wrap=True)
            with Client(
                url, timeout_seconds=2 * DEADLINE_SECONDS, patience_seconds=PATIENCE_SECONDS, token=token
            ) as client:
                states = play(client, simulator, state, line.read if line else _wait)
                passed = _follow(console, state, _publish(states, line), once, lifetime.ended)
            status = int(once and not passed)
        finally:
            with wait("Stopping Ray Serve"):
                lifetime.stop(status)
        return passed


def _print_step(console: Console, began: float, words: str) -> None:
    console.print(f"{time.perf_counter() - began:4.0f} s {words}", style="dim", markup=False, soft_wrap=True)


def _publish(states: Iterator[DemoState], line: "Line | None") -> Iterator[DemoState]:
    """Send states to the page, as often as it can accept one, and pass them on."""
    for state in states:
        if line and line.is_free:
            line.send(encode(state))
        yield state


def _settings(folder: Path) -> Settings:
    """Return settings for loopback, a free port and a temporary store."""
    # One mesh needs one session and one ingress; fewer processes start sooner on two cores.
    serve = {
        "host": "127.0.0.1",
        "port": 0,
        "deadline_seconds": DEADLINE_SECONDS,
        "session_replicas": 1,
        "ingress_replicas": 1,
    }
    serve |= {"certificate_file": None, "key_file": None}  # they are for the real service's name
    return load(overrides={"serve": serve, "store": {"path": folder}})


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _follow(console: Console, state: DemoState, states: Iterator[DemoState], once: bool, end: Event) -> bool:
    """Print the progress until ``end``; with ``once``, until the story has ended. Return whether it passed."""
    for newer in states:
        print_progress(console, state, newer)
        state = newer
        if end.is_set() or (once and state.passed is not None):
            break
    return bool(state.passed)
