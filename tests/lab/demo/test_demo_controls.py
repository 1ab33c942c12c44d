"""The buttons of the demo, and their effects on the mesh."""

from dataclasses import replace
from itertools import islice
from typing import get_args

import numpy as np
import pytest

from lab.demo.controls import PAUSE, Controls, Option, apply_key, build_menu
from lab.demo.state import WARM_UP, DemoState, advance_story, press
from lab.demo.story import chapter_of, start_of
from lab.simulator.events.faults import KINDS, Fault, candidates
from lab.simulator.events.operations import WIRING_KINDS, BenignChange, ChangeKind
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from tests.lab.demo.shows import scored_snapshot

SPEC = MeshSpec(services=60, seed=0)
MESH = build_mesh(SPEC)
MENU = build_menu(MESH, 3)


def past_warm_up(**values: object) -> DemoState:
    """Return a quiet mesh that is warmed up."""
    state = DemoState("30 services", 15.0, MENU, snapshots=(scored_snapshot(WARM_UP),))
    return replace(state, **values)  # type: ignore[arg-type]


# buttons


def test_every_kind_has_a_button() -> None:
    kinds = [option.kind for option in MENU]
    assert sorted(kinds) == sorted([*KINDS, *get_args(ChangeKind)])
    assert PAUSE not in kinds


def test_candidates_come_from_the_simulator() -> None:
    for option in MENU:
        assert len(set(option.services)) == len(option.services) > 0
        if option.is_fault:
            assert set(option.services) <= {MESH.topology.node_ids[i] for i in candidates(MESH, option.kind)}  # type: ignore[arg-type]
    assert build_menu(MESH, 3) == MENU != build_menu(MESH, 4)


def test_an_option_rotates_and_avoids_busy_services() -> None:
    option = Option("error_burst", ("a/x", "a/y", "a/z"))
    assert [option.choose_service(turn) for turn in range(4)] == ["a/x", "a/y", "a/z", "a/x"]
    assert option.choose_service(0, {"a/x", "a/y"}) == "a/z"
    assert option.choose_service(1, {"a/x", "a/y", "a/z"}) == "a/y"
    assert option.choose_service(1, {"a/x", "a/y", "a/z"}, used_up={"a/y"}) == "a/z"
    assert option.choose_service(1, used_up={"a/x", "a/y", "a/z"}) is None
    fault = option.start("a/x", 80)
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.service, fault.start) == ("error_burst", "a/x", 80)
    assert Option("deploy", ("a/x",)).start("a/x", 80) == BenignChange("deploy", "a/x", 80)


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("pause", {"paused": True}),
        ("latency_injection", {"turn": 1}),
        ("deploy", {"turn": 1}),
        ("unknown", {}),
    ],
)
def test_each_button_changes_what_its_label_names(key: str, changed: dict[str, object]) -> None:
    controls, option = apply_key(Controls(), key, MENU)
    assert controls == replace(Controls(), **changed)  # type: ignore[arg-type]
    assert (option is not None) == (key in ("latency_injection", "deploy"))
    if option:
        assert option.kind == key


# state


def test_a_button_ends_the_story_and_takes_effect_at_the_next_snapshot() -> None:
    chapter = chapter_of(MESH, 3, WARM_UP)
    state = past_warm_up(chapter=chapter)
    due = replace(state, snapshots=(scored_snapshot(chapter.changes[0].at - 1),))
    assert advance_story(due).events == chapter.changes[:1]
    after = press(state, "error_burst")
    assert after.chapter is None
    (fault,) = after.faults
    assert start_of(fault) == state.next_index
    assert fault.service in after.notice
    assert advance_story(after) == after
    twice = press(after, "error_burst")
    assert len({event.service for event in twice.events}) == 2


def test_no_event_begins_before_the_mesh_is_warmed_up() -> None:
    early = past_warm_up(snapshots=(scored_snapshot(5),))
    assert press(early, "error_burst").events == ()
    assert "Not yet" in press(early, "error_burst").notice


def test_the_mesh_accepts_any_sequence_of_buttons() -> None:
    """No service joins twice, and no event is at a retired service."""
    simulator, rng = Simulator(SPEC), np.random.default_rng(7)
    state = past_warm_up()
    for index in range(WARM_UP, WARM_UP + 80):
        before = state.events
        state = press(replace(state, snapshots=(scored_snapshot(index),)), MENU[int(rng.integers(len(MENU)))].kind)
        simulator.schedule(*state.events[len(before) :])
    assert len(state.events) > 40
    assert {event.kind for event in state.events} == {option.kind for option in MENU}
    last = {event.service: start_of(event) for event in state.events if event.kind in WIRING_KINDS}
    assert not [event for event in state.events if start_of(event) > last.get(event.service, start_of(event))]
    *_, snapshot = islice(simulator.snapshots(), WARM_UP + 90)
    assert not {event.service for event in state.events if event.kind == "deletion"} & set(snapshot.node_ids)


def test_no_service_is_left_when_all_have_joined() -> None:
    joins = next(option for option in MENU if option.kind == "new_service")
    state = past_warm_up()
    for _ in joins.services:
        state = press(state, joins.kind)
    assert {event.service for event in state.events} == set(joins.services)
    assert press(state, joins.kind).events == state.events
    assert "No service is left" in press(state, joins.kind).notice
