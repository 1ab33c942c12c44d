"""The demo's state as JSON, for the page's panel."""

import json
from typing import Any

from lab.demo.controls import PAUSE, Option
from lab.demo.outcomes import outcome, tally
from lab.demo.state import WARM_UP, DemoState
from lab.demo.story import MeshEvent, event_text, start_of
from lab.simulator.events.faults import Fault
from serve_app.web.history import instant

MAX_EVENTS = 12  # the newest ones


def keys(state: DemoState) -> tuple[str, ...]:
    return (*(option.kind for option in state.menu), PAUSE)


def encode(state: DemoState) -> bytes:
    controls = state.controls
    events = sorted(state.events, key=start_of)[-MAX_EVENTS:]
    document = {
        "snapshots": state.next_index,
        "warming_up": state.next_index < WARM_UP,
        "warm_up_snapshots": WARM_UP,
        "menu": [_option(state, option) for option in state.menu],
        "controls": {"speed": controls.speed, "paused": controls.paused},
        "newest": instant(state.snapshots[-1].verdict.observed_at) if state.snapshots else None,
        "deeds": [_event(state, event) for event in events],
        "tally": tally(state),
        "notice": state.notice,
    }
    return json.dumps(document).encode()


def _option(state: DemoState, option: Option) -> dict[str, Any]:
    return {
        "key": option.kind,
        "words": option.words,
        "meaning": option.meaning,
        "is_fault": option.is_fault,
        "service": state.choose_service(option),
    }


def _event(state: DemoState, event: MeshEvent) -> dict[str, Any]:
    start, result = start_of(event), outcome(state, event)
    return {
        "key": event.kind,
        "text": event_text(event),
        "service": event.service,
        "is_fault": isinstance(event, Fault),
        "at": state.time_of(start).isoformat() if start < state.next_index else None,
        "under_way": state.is_under_way(event),
        "outcome": result.text,
        "right": result.right,
    }
