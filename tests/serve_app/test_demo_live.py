"""The demo with keys: what they do, and what is drawn at which size."""

import io
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from rich.console import Console

from serve_app.api.client import Client
from serve_app.demo.chart import BLOCKS, chart
from serve_app.demo.keys import CONTROLS, SPEEDS, Controls, Option, letters, menu, press
from serve_app.demo.picture import save
from serve_app.demo.show import WARM_UP, Show, opening, play, pressed, scored, told
from serve_app.demo.story import begins, chapters
from serve_app.demo.view import render
from serve_app.simulator.events.faults import KINDS, Fault, candidates
from serve_app.simulator.events.operations import WIRING_KINDS, BenignChange, ChangeKind
from serve_app.simulator.mesh.parameters import build_mesh
from serve_app.simulator.mesh.topology import MeshSpec
from serve_app.simulator.simulator import Simulator
from tests.serve_app.shows import incident, scene, transport

SPEC = MeshSpec(services=60, seed=0)
MESH = build_mesh(SPEC)
MENU = menu(MESH, 3)
SIZES = [(20, 5), (60, 18), (80, 24), (100, 30), (119, 40), (120, 40), (132, 24), (240, 60), (400, 100)]


def drawn(show: Show, width: int, height: int) -> list[str]:
    """The lines on the screen, as text; no colour, no blanks on the right."""
    console = Console(width=width, height=height, file=io.StringIO(), record=True)
    console.print(render(show, width, height))
    return [row.rstrip() for row in console.export_text().splitlines()]


def past_warm_up(**values: object) -> Show:
    """A quiet mesh, known by now."""
    show = Show("30 services", 15.0, MENU, keys=True, scenes=(scene(WARM_UP),))
    return replace(show, **values)  # type: ignore[arg-type]


# keys


def test_every_kind_has_a_key_of_its_own() -> None:
    assert {option.kind for option in MENU} == {*KINDS, *get_args(ChangeKind)}
    keys = [option.key for option in MENU]
    assert len({*keys, *CONTROLS}) == len(keys) + len(CONTROLS)
    assert all(option.key.islower() == option.is_fault for option in MENU)
    assert {option.key: option.kind for option in MENU if option.key in "ler"} == {
        "l": "latency_injection",
        "e": "error_burst",
        "r": "retry_storm",
    }


def test_letters_are_mnemonic_and_stay_when_kinds_are_added() -> None:
    assert letters(["deploy", "scale_out", "scale_in"]) == {"deploy": "d", "scale_out": "s", "scale_in": "i"}
    kinds = ["scale_out", "slow_leak", "sl", "ss", "zzz", "z"]
    assert list(letters(kinds, "z").values()) == ["s", "l", "a", "b", "c", "d"]
    assert list(letters(kinds, "z").items())[:3] == list(letters(kinds[:3], "z").items())


def test_places_are_those_of_the_simulator() -> None:
    for option in MENU:
        assert len(set(option.services)) == len(option.services) > 0
        if option.is_fault:
            assert set(option.services) <= {MESH.topology.node_ids[i] for i in candidates(MESH, option.kind)}  # type: ignore[arg-type]
    assert menu(MESH, 3) == MENU != menu(MESH, 4)


def test_an_option_goes_round_and_avoids_what_is_under_way() -> None:
    option = Option("e", "error_burst", ("a/x", "a/y", "a/z"))
    assert [option.service(turn) for turn in range(4)] == ["a/x", "a/y", "a/z", "a/x"]
    assert option.service(0, {"a/x", "a/y"}) == "a/z"
    assert option.service(1, {"a/x", "a/y", "a/z"}) == "a/y"
    assert option.service(1, {"a/x", "a/y", "a/z"}, spent={"a/y"}) == "a/z"
    assert option.service(1, spent={"a/x", "a/y", "a/z"}) is None
    fault = option.deed("a/x", 80)
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.service, fault.start) == ("error_burst", "a/x", 80)
    assert Option("D", "deploy", ("a/x",)).deed("a/x", 80) == BenignChange("deploy", "a/x", 80)


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("\t", {"turn": 1}),
        ("t", {"hidden": True}),
        ("a", {"story": False}),
        (" ", {"paused": True}),
        (".", {"paused": True, "step": True}),
        ("+", {"speed": 120.0}),
        ("=", {"speed": 120.0}),
        ("-", {"speed": 30.0}),
        ("?", {"help": True}),
        ("q", {"quit": True}),
        ("l", {"turn": 1, "story": False}),
        ("D", {"turn": 1, "story": False}),
        ("x", {"turn": 1, "story": False, "hidden": True}),
        ("z", {}),
        ("\x1b[A", {}),
        ("\x1b", {}),
    ],
)
def test_each_key_changes_what_it_says(key: str, changed: dict[str, object]) -> None:
    controls, option = press(Controls(), key, MENU)
    assert controls == replace(Controls(), **changed)  # type: ignore[arg-type]
    assert (option is not None) == (key in "xlD")
    if option and key != "x":
        assert option.key == key


def test_speeds_end_at_real_time_and_at_full_speed() -> None:
    fast = slow = Controls()
    for _ in range(len(SPEEDS) + 1):
        fast, _ = press(fast, "+", MENU)
        slow, _ = press(slow, "-", MENU)
    assert (fast.speed, slow.speed) == (0.0, 1.0)
    assert press(fast, "-", MENU)[0].speed == SPEEDS[-1]


def test_surprises_are_faults_of_all_kinds() -> None:
    kinds = {option.kind for turn in range(100) if (option := press(Controls(turn=turn), "x", MENU)[1])}
    assert kinds == set(KINDS)


# the show


def test_a_key_takes_over_from_the_story_and_begins_with_the_next_snapshot() -> None:
    plan = chapters(MESH, 3)
    show = told(past_warm_up(), plan)
    assert show.chapter is not None
    taken = pressed(show, "e")
    assert (taken.chapter, taken.controls.story) == (None, False)
    (fault,) = taken.faults
    assert begins(fault) == show.next_index
    assert fault.service in taken.notice
    assert told(taken, plan) == taken
    again = told(pressed(taken, "a"), plan)
    assert again.chapter is not None
    assert again.chapter.start == show.next_index
    twice = pressed(taken, "e")
    assert len({deed.service for deed in twice.deeds}) == 2


def test_nothing_begins_before_the_mesh_is_known() -> None:
    early = past_warm_up(scenes=(scene(5),))
    assert pressed(early, "e").deeds == ()
    assert "not yet" in pressed(early, "e").notice
    assert pressed(early, "e").controls.story


def test_the_mesh_bears_whatever_is_pressed() -> None:
    """Nobody joins twice, and nothing is done to who is gone."""
    simulator, rng = Simulator(SPEC), np.random.default_rng(7)
    show = past_warm_up()
    for index in range(WARM_UP, WARM_UP + 80):
        before = show.deeds
        show = pressed(replace(show, scenes=(scene(index),)), MENU[int(rng.integers(len(MENU)))].key)
        simulator.schedule(*show.deeds[len(before) :])
    assert len(show.deeds) > 40
    assert {deed.kind for deed in show.deeds} == {option.kind for option in MENU}
    gone = {deed.service: begins(deed) for deed in show.deeds if deed.kind in WIRING_KINDS}
    assert not [deed for deed in show.deeds if begins(deed) > gone.get(deed.service, begins(deed))]
    *_, last = islice(simulator.snapshots(), WARM_UP + 90)
    assert not {deed.service for deed in show.deeds if deed.kind == "deletion"} & set(last.node_ids)


def test_no_service_is_left_when_all_have_joined() -> None:
    joins = next(option for option in MENU if option.kind == "new_service")
    show = past_warm_up()
    for _ in joins.services:
        show = pressed(show, joins.key)
    assert {deed.service for deed in show.deeds} == set(joins.services)
    assert pressed(show, joins.key).deeds == show.deeds
    assert "no service is left" in pressed(show, joins.key).notice
    assert "none left" in "\n".join(drawn(replace(show, menu=(joins,)), 100, 30))
    told_after = told(replace(show, controls=replace(show.controls, story=True)), chapters(MESH, 3))
    assert told_after.chapter is not None
    assert not {deed.service for deed in told_after.chapter.deeds} & set(joins.services)


def test_a_surprise_tells_nothing_until_it_is_told() -> None:
    show = pressed(past_warm_up(), "x")
    (fault,) = show.faults
    show = scored(show, scene(WARM_UP + 1))
    for width, height in SIZES:
        shown = "\n".join(drawn(replace(show, menu=()), width, height))
        assert fault.service not in shown
        assert fault.kind.replace("_", " ") not in shown
    assert fault.service in "\n".join(drawn(pressed(show, "t"), 100, 30))


# pictures


@pytest.fixture(scope="module")
def faulty() -> Show:
    """A mesh with two faults, the second by key and still acting, scored by the pipeline."""
    simulator = Simulator(MeshSpec(services=60, seed=0))
    keys = {75: ["D"], 80: ["e"], 100: ["\t", "l"]}

    def read(_: float) -> str:
        waiting = keys.get(show.next_index)
        return waiting.pop(0) if waiting else ""

    with Client("http://service", transport=transport()) as client:
        show = first = opening(simulator, 0, Controls(speed=0.0), keys=True)
        for after in play(client, simulator, first, 0, read):
            show = after
            if show.next_index == 115:
                return show
    raise AssertionError("the show ended by itself")


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_fits(faulty: Show, width: int, height: int) -> None:
    for show in (
        faulty,
        pressed(faulty, "?"),
        pressed(faulty, "t"),
        pressed(faulty, " "),
        replace(faulty, keys=False),
        past_warm_up(),
        past_warm_up(scenes=()),
        past_warm_up(
            scenes=(scene(70, "anomalous", 900.0, *(incident(f"x{i}", 9.0, "a/" + 80 * "b") for i in "123")),)
        ),
    ):
        lines = drawn(show, width, height)
        assert len(lines) == height
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("width", "height"), [size for size in SIZES if size >= (60, 18)])
def test_what_is_wrong_and_where_is_on_every_screen(faulty: Show, width: int, height: int) -> None:
    lines = drawn(faulty, width, height)
    burst, injection = faulty.faults
    assert lines[1].startswith(f" ANOMALOUS  {injection.service}: ")
    text = "\n".join(lines)
    assert f" 1 {injection.service}" in text
    assert re.search(r"(latency|time) .*expected", text)
    assert "incident" in text
    assert f"l latency injection at {injection.service}" in text
    assert "culprit named first" in text
    assert "false pages 0" in text
    (axis,) = [line for line in lines if "└" in line]
    assert axis.endswith("l" + "═" * 14)
    if width >= 100:
        assert re.search(r"D─+e═{19}[l═]", axis) or burst.end > injection.start
        assert all(option.words in text for option in faulty.menu)


def test_an_incident_that_eases_off_points_to_its_worst_moment() -> None:
    worst, later = incident("x", 9.0, "a/db", "a/web"), incident("x", 2.0, "b/q")
    show = scored(past_warm_up(), scene(80, "anomalous", 9.0, worst))
    assert drawn(show, 80, 24)[1].startswith(" ANOMALOUS  a/db: error rate 31%")
    calm = scene(81, "anomalous", 2.0, later)
    calm = replace(calm, verdict=calm.verdict.model_copy(update={"probability": 0.01}))
    assert drawn(scored(show, calm), 80, 24)[1] == " ANOMALOUS  easing off; at its worst it was a/db"


def test_help_names_every_key(faulty: Show) -> None:
    text = "\n".join(drawn(pressed(faulty, "?"), 60, 18))
    for option in faulty.menu:
        assert f"{option.key} {option.words}" in text
    for name, words, _ in CONTROLS.values():
        assert f"{name} {words}" in text


def test_planned_changes_near_an_incident_are_told() -> None:
    words = "began 40 s after scale out of a/web"
    change = {"kind": "scale_out", "service": "a/web", "reason": "", "at": "2026-01-01T00:00:00Z", "text": words}
    near = incident("x", 9.0, "a/db").model_copy(update={"changes": [change]})
    show = past_warm_up(
        scenes=(scene(80, "anomalous", 9.0, type(near).model_validate(near.model_dump(warnings=False))),)
    )
    assert words in "\n".join(drawn(show, 80, 24))


def test_chart_shows_scores_against_the_threshold() -> None:
    scenes = (scene(0, "normal", 1.0), scene(1, "normal", 5.0), scene(2, "anomalous", 10.0))
    show = Show("a mesh", 15.0, MENU, scenes=scenes, deeds=(Fault("error_burst", "a/db", 2, 9),))
    lines = chart(show, width=13, height=6)
    *rows, axis = [line.plain for line in lines]
    assert len(rows) == 5
    bars = ["".join(row[8:][i] for row in rows) for i in range(5)]
    heights = [sum(BLOCKS.find(cell) > 0 for cell in bar) for bar in bars]
    assert heights[:2] == [0, 0]
    assert 0 < heights[2] < heights[3] < heights[4] == 5
    assert [row for row in rows if row.startswith("   4.0 ┤")] == [rows[2]]
    assert axis.endswith("──e")
    assert {"green", "yellow", "red"} <= {str(span.style) for line in lines for span in line.spans}
    unknown = replace(scenes[0], verdict=scenes[0].verdict.model_copy(update={"threshold": None}))
    assert not any("┈" in line.plain for line in chart(replace(show, scenes=(unknown,)), 30, 6))


def test_the_picture_is_small_and_needs_no_network(faulty: Show, tmp_path: Path) -> None:
    save(faulty, tmp_path / "demo.svg")
    text = (tmp_path / "demo.svg").read_text(encoding="utf-8")
    assert "ANOMALOUS" in text
    assert len(text) < 100_000
    assert set(re.findall(r"https?://[^\"<) ]+", text)) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}


# the terminal
