"""The state of the demo as JSON, for the panel of the page."""

import json
from typing import Any

from lab.demo.controls import CONTROLS, Option
from lab.demo.outcomes import outcome, tally
from lab.demo.state import MESH, WARM_UP, DemoState
from lab.demo.story import MeshEvent, event_text, start_of
from lab.simulator.events.faults import Fault

MOST_EVENTS, MOST_LOG = 12, 30  # the newest ones


def keys(state: DemoState) -> tuple[str, ...]:
    return (*(option.kind for option in state.menu), *CONTROLS)


def encode(state: DemoState) -> bytes:
    return json.dumps(_document(state)).encode()


def _document(state: DemoState) -> dict[str, Any]:
    controls = state.controls
    events = sorted(state.events, key=start_of)[-MOST_EVENTS:]
    return {
        "mesh": MESH,
        "title": state.title,
        "snapshots": state.next_index,
        "interval_seconds": state.interval_seconds,
        "warming_up": state.next_index < WARM_UP,
        "warm_up_left": max(0, WARM_UP - state.next_index),
        "warm_up_snapshots": WARM_UP,
        "menu": [_option(state, option) for option in state.menu],
        "controls": {
            "speed": controls.speed,
            "paused": controls.paused,
            "story": controls.story,
            "same": controls.same,
        },
        "last_service": state.last_service,
        "deeds": [_event(state, event) for event in events],
        "events": [
            {
                "at": entry.snapshot.verdict.observed_at.isoformat(),
                "mark": entry.event.kind if entry.event else "",
                "text": entry.text,
            }
            for entry in state.log[-MOST_LOG:]
        ],
        "tally": tally(state),
        "judgement": _judgement(state),
        "notice": state.notice,
    }


def _judgement(state: DemoState) -> dict[str, Any] | None:
    if state.judgement is None:
        return None
    return {"passed": state.judgement.passed, "reason": state.judgement.reason}


def _option(state: DemoState, option: Option) -> dict[str, Any]:
    return {
        "key": option.kind,
        "kind": option.kind,
        "words": option.words,
        "meaning": option.meaning,
        "is_fault": option.is_fault,
        "service": state.choose_service(option),
    }


def _event(state: DemoState, event: MeshEvent) -> dict[str, Any]:
    start, found = start_of(event), outcome(state, event)
    at = state.time_of(start) if start < state.next_index else None
    return {
        "key": event.kind,
        "text": event_text(event),
        "service": event.service,
        "is_fault": isinstance(event, Fault),
        "begins": start,
        "ends": event.end if isinstance(event, Fault) else None,
        "at": at.isoformat() if at else None,
        "under_way": state.is_under_way(event),
        "outcome": found.text,
        "right": found.right,
    }
