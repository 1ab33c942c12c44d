"""The demo's loop: send a snapshot, read a button, yield the next state."""

import time
from collections.abc import Callable, Iterator

from lab.demo.outcomes import conclude
from lab.demo.state import MESH, WARM_UP, DemoState, ScoredSnapshot, add_verdict, advance_story, press
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from serve_app.api.client import Client

TICK_SECONDS = 0.1  # longest wait for a button

ReadKey = Callable[[float], str]  # seconds to wait -> the key of a button, or ""


def play(client: Client, simulator: Simulator, state: DemoState, read: ReadKey) -> Iterator[DemoState]:
    """Yield the state after each button and each snapshot, scored by the service, without end.

    ``read`` waits; it is called between any two snapshots, and at least once in ``TICK_SECONDS``.
    """
    snapshots = simulator.snapshots()
    last_push = -float("inf")
    while True:
        before = state.events
        state = advance_story(state)
        wait = last_push + _seconds_between(state) - time.perf_counter()
        if key := read(max(0.0, min(wait, TICK_SECONDS))):
            state = press(state, key)
        simulator.schedule(*state.events[len(before) :])
        if not key and time.perf_counter() >= last_push + _seconds_between(state):
            last_push = time.perf_counter()
            state = _push(client, state, next(snapshots))
        yield state


def _seconds_between(state: DemoState) -> float:
    controls = state.controls
    if controls.paused:
        return float("inf")
    at_once = not controls.speed or state.next_index <= WARM_UP
    return 0.0 if at_once else state.interval_seconds / controls.speed


def _push(client: Client, state: DemoState, snapshot: MeshSnapshot) -> DemoState:
    began = time.perf_counter()
    verdict = client.push(MESH, snapshot)
    milliseconds = 1000.0 * (time.perf_counter() - began)
    return conclude(add_verdict(state, ScoredSnapshot(state.next_index, verdict, milliseconds)))
