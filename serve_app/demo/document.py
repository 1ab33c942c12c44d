"""The show as a document, for the panel of the page. What is hidden from those who play is not in it."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from serve_app.demo.keys import CONTROLS, Option
from serve_app.demo.outcomes import outcome, tally
from serve_app.demo.show import MESH, WARM_UP, Show
from serve_app.demo.story import begins, deed_text
from serve_app.simulator.events.faults import Fault

# The help is drawn in the terminal alone, and who started the demo ends it.
TERMINAL = {"?", "q"}
DEEDS, EVENTS = 12, 30  # newest ones that are told


def pressable(menu: Sequence[Option]) -> tuple[str, ...]:
    """The keys that mean something to who is not at the terminal."""
    return (*(option.key for option in menu), *(key for key in CONTROLS if key not in TERMINAL))


def document(show: Show) -> bytes:
    """The show, as JSON."""
    return json.dumps(_document(show)).encode()


def _document(show: Show) -> dict[str, Any]:
    controls = show.controls
    return {
        "mesh": MESH,
        "title": show.title,
        "snapshots": show.next_index,
        "interval_seconds": show.interval_seconds,
        "warming_up": show.next_index < WARM_UP,
        "warm_up_left": max(0, WARM_UP - show.next_index),
        "warm_up_snapshots": WARM_UP,
        "menu": [_option(show, option) for option in show.menu],
        "controls": {
            "speed": controls.speed,
            "paused": controls.paused,
            "story": controls.story,
            "hidden": controls.hidden,
        },
        "deeds": list(_deeds(show)),
        "events": _events(show),
        "tally": tally(show),
        "judgement": _judgement(show),
        "notice": show.notice,
    }


def _judgement(show: Show) -> dict[str, Any] | None:
    if show.judgement is None or show.controls.hidden:
        return None
    return {"passed": show.judgement.passed, "reason": show.judgement.reason}


def _option(show: Show, option: Option) -> dict[str, Any]:
    return {
        "key": option.key,
        "kind": option.kind,
        "words": option.words,
        "meaning": option.meaning,
        "is_fault": option.is_fault,
        "service": option.service(show.controls.turn, show.taken, show.spent),
    }


def _deeds(show: Show) -> Iterator[dict[str, Any]]:
    """What was done to the mesh and what came of it, the newest last."""
    visible = [deed for deed in show.deeds if not (show.controls.hidden and isinstance(deed, Fault))]
    for deed in sorted(visible, key=begins)[-DEEDS:]:
        came = outcome(show, deed)
        yield {
            "key": show.mark(deed),
            "text": deed_text(deed),
            "service": deed.service,
            "is_fault": isinstance(deed, Fault),
            "begins": begins(deed),
            "ends": deed.end if isinstance(deed, Fault) else None,
            "at": _time(show, begins(deed)),
            "under_way": show.is_under_way(deed),
            "outcome": came.text,
            "right": came.right,
        }


def _time(show: Show, index: int) -> str | None:
    """Of a snapshot, if it came and is still kept."""
    return next((scene.verdict.observed_at.isoformat() for scene in show.scenes if scene.index == index), None)


def _events(show: Show) -> list[dict[str, Any]]:
    told = [event for event in show.events if not (event.secret and show.controls.hidden)]
    return [
        {"at": event.scene.verdict.observed_at.isoformat(), "mark": event.mark, "text": event.text}
        for event in told[-EVENTS:]
    ]
