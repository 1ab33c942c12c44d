"""The graph of a larger mesh: layers around an incident, folded namespaces, filters, names that do not overlap."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.web.history import instant
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.serve_app.running import record_simulation
from tests.timing import PATIENCE_SECONDS

pytestmark = IN_BROWSER

SNAPSHOTS = record_simulation(MeshSpec(services=260, seed=2), 30, fault_from=24)
MODULE = "import(document.querySelector(`link[href$='/{}']`).href)"
LAYERS = (
    """async ([map, centre, root, stage]) => {
    const { layers } = await """
    + MODULE.format("layers.js")
    + """;
    const { at, rest } = layers(map, new Set(centre), root ?? undefined, stage);
    return { at: Object.fromEntries(at), rest };
}"""
)
STAGE = {"width": 900, "height": 460}
PUSHED = {"shop": SNAPSHOTS}


@pytest.fixture
def one(browser: Any, base: str) -> Iterator[Tab]:
    with tab(browser, base) as opened:
        opened.open("/#mesh=shop")
        opened.until(lambda: "of 260" in opened.text("#graph-title"), "the graph")
        yield opened
        opened.assert_clean()


def label(one: Tab) -> str:
    """What a screen reader says of the graph."""
    return one.page.get_attribute("#canvas", "aria-label") or ""


def a_map(names: list[str], calls: list[tuple[int, int]]) -> dict[str, Any]:
    return {
        "nodes": {"name": names, "services": [1] * len(names), "deviation": [0.0] * len(names)},
        "edges": {
            "source": [a for a, _ in calls],
            "destination": [b for _, b in calls],
            "requests_per_second": [1.0] * len(calls),
        },
    }


def test_callers_are_left_and_callees_right(one: Tab) -> None:
    calls = [(0, 1), (1, 2), (2, 3), (3, 4), (5, 2), (2, 6)]
    found = one.page.evaluate(LAYERS, [a_map(list("abcdefg"), calls), [1, 2, 3], 2, STAGE])
    x = {int(i): place["x"] for i, place in found["at"].items()}
    assert x[0] < x[1] < x[2] < x[3] < x[4]
    assert x[5] == x[1]
    assert x[6] == x[3]
    assert found["rest"] == []
    for place in found["at"].values():
        assert 0 <= place["x"] <= STAGE["width"]
        assert 0 <= place["y"] <= STAGE["height"]


@pytest.mark.parametrize("width", [360, 900, 1800])
def test_layers_never_overlap_and_say_what_has_no_room(one: Tab, width: int) -> None:
    count = 150
    calls = [(i, 0) for i in range(1, count)]
    stage = {"width": width, "height": 460}
    found = one.page.evaluate(LAYERS, [a_map([f"s{i}" for i in range(count)], calls), [0], 0, stage])
    places = [(place["x"], place["y"]) for place in found["at"].values()]
    assert len(set(places)) == len(places)
    for i, (x, y) in enumerate(places):
        for a, b in places[:i]:
            assert abs(x - a) >= 60 or abs(y - b) >= 12, "names of one column have room"
        assert 0 <= x <= width
        assert 0 <= y <= stage["height"]
    hidden = sum(int(one["text"].split()[0]) for one in found["rest"])
    assert hidden == count - len(places)


def test_normal_neighbours_of_an_incident_do_not_fill_the_graph(one: Tab) -> None:
    """The hub has thirty callers: one is unusual, and one has a part in the incident."""
    drawn = a_map(["hub", *(f"c{i}" for i in range(30))], [(i, 0) for i in range(1, 31)])
    drawn["nodes"]["deviation"][30] = 5.0
    found = one.page.evaluate(LAYERS, [drawn, [0, 29], 0, {"width": 900, "height": 2000}])
    assert {"29", "30"} <= set(found["at"])
    assert len(found["at"]) == 1 + 2 + 3
    assert [one["text"] for one in found["rest"]] == ["25 more, normal"]


def test_an_origin_that_is_unknown_and_calls_in_circles_have_layers(one: Tab) -> None:
    calls = [(0, 1), (1, 0), (1, 1)]
    found = one.page.evaluate(LAYERS, [a_map(["a", "b", "c"], calls), [0, 2], None, STAGE])
    assert set(found["at"]) == {"0", "1", "2"}


def test_names_and_labels_of_a_mesh_never_overlap(one: Tab) -> None:
    """A namespace that is small enough to show its calls."""
    sizes = Counter(name.split("/")[0] for name in SNAPSHOTS[-1].node_ids)
    space = max((name for name, size in sizes.items() if size <= 60), key=lambda name: sizes[name])
    one.page.goto(f"{one.base}/#mesh=shop&space={space}&labels=calls")
    one.page.wait_for_selector("#canvas .whole .rate")
    boxes = one.page.evaluate(
        """() => [...document.querySelectorAll(".whole .service text:not(.step), .whole .rate rect")].map((one) => {
            const { left, top, right, bottom } = one.getBoundingClientRect();
            return [left, top, right, bottom];
        })"""
    )
    assert len(boxes) > 5
    stage = one.page.locator("#stage").bounding_box()
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert left >= stage["x"]
        assert right <= stage["x"] + stage["width"]
        for a, b, c, d in boxes[:i]:
            assert right <= a + 1 or left >= c - 1 or bottom <= b + 1 or top >= d - 1


def test_labels_of_all_calls_are_in_the_link(one: Tab) -> None:
    """Without them, only calls of the likely origin have labels."""
    calls = "[...document.querySelectorAll('.near .rate')].map((one) => one.dataset.ends.split(' '))"
    root = "document.querySelector('.near .first').dataset.node"
    few = one.until(lambda: one.page.evaluate(calls), "calls of the origin have labels")
    assert all(one.page.evaluate(root) in ends for ends in few)
    for text in one.page.locator(".near .rate text").all_text_contents():
        assert re.fullmatch(r"[0-9.,]+/s|[0-9.]+% (failed|✗)", text), text
    one.page.check("#labels")
    one.until(lambda: "labels=calls" in one.page.url and len(one.page.evaluate(calls)) > len(few), "all have labels")
    one.page.reload()
    one.until(lambda: one.page.is_checked("#labels"), "the link brings them back")
    one.until(lambda: len(one.page.evaluate(calls)) > len(few), "the link brings them back")
    one.page.uncheck("#labels")
    one.until(lambda: "labels" not in one.page.url, "the link has none")


def test_search_finds_and_unfolds_every_service(one: Tab) -> None:
    one.page.goto(f"{one.base}/#mesh=shop&view=all")
    one.until(lambda: "services" in one.text("#graph-title"), "the graph")
    drawn = httpx.get(f"{one.base}/v1/meshes/shop/map", timeout=PATIENCE_SECONDS).json()["nodes"]["name"]
    hidden = next(name for name in SNAPSHOTS[-1].node_ids if name not in drawn)
    namespace = hidden.split("/")[0]
    one.page.fill("#find", hidden[2:-1])
    suggested = "[...document.querySelectorAll('#services option')].map((one) => one.value)"
    one.until(lambda: hidden in one.page.evaluate(suggested), "it is suggested by a part of its name")
    one.page.fill("#find", hidden)
    one.page.press("#find", "Enter")
    one.until(lambda: one.text("#panel-title") == hidden, "its panel")
    assert f"expand={namespace}" in one.page.url
    one.until(lambda: f"{hidden} is selected" in label(one), "the graph has it")
    one.page.goto(f"{one.base}/#mesh=shop&view=all")
    one.page.fill("#find", hidden.partition("/")[2].upper())
    one.page.press("#find", "Enter")
    one.until(lambda: one.text("#panel-title") == hidden, "its name without the namespace is enough")
    one.page.fill("#find", f"{hidden}-none")
    one.page.press("#find", "Enter")
    one.until(lambda: f"There is no service named {hidden}-none here." in one.text("#answer"), "it says so")


def test_the_incident_stays_in_view_while_namespaces_are_folded(one: Tab) -> None:
    one.open(f"/#mesh=shop&at={instant(SNAPSHOTS[-1].observed_at)}")  # data of now would be late on a slow machine
    assert "260" in one.text("#graph-title")
    assert "likely origin" in label(one)
    one.until(lambda: one.red() > 20, "origin and spread are drawn")
    one.page.click("#all")
    one.until(lambda: "nodes in view" not in label(one), "the whole mesh")
    assert one.page.locator("#canvas .whole .folded").count() > 0, "namespaces are nodes"
    stage, legend = (one.page.locator(at).bounding_box() for at in ("#stage", "#legend"))
    assert legend["y"] >= stage["y"] + stage["height"], "the legend covers nothing"


def test_a_namespace_is_in_the_link_and_shows_a_part(one: Tab) -> None:
    space = one.page.locator("#space option").nth(1).get_attribute("value")
    one.page.select_option("#space", space)
    one.until(lambda: f"space={space}" in one.page.url, "the link has the namespace")
    one.until(lambda: "nodes in view" in label(one), "a part is drawn")
    inside = {name for name in SNAPSHOTS[-1].node_ids if name.startswith(f"{space}/")}
    one.until(lambda: f"{len(inside)} of " in label(one), "all services of the namespace, one by one")
    one.page.select_option("#space", "")
    one.until(lambda: one.page.locator("#canvas .whole .folded").count(), "all namespaces")


def test_a_mesh_with_its_calls_is_moved_zoomed_and_walked(one: Tab) -> None:
    """A namespace that is small enough to show its calls."""
    sizes = Counter(name.split("/")[0] for name in SNAPSHOTS[-1].node_ids)
    space = next(name for name, size in sizes.items() if 5 <= size <= 50)
    one.page.goto(f"{one.base}/#mesh=shop&space={space}")
    one.page.wait_for_selector("#canvas .whole")
    picture = "document.querySelector('#canvas .whole .calls').innerHTML"
    stage = one.page.locator("#stage").bounding_box()
    x, y = stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2
    one.page.mouse.move(x, y)
    before = one.page.evaluate(picture)
    one.page.mouse.wheel(0, -300)
    zoomed = one.until(lambda: (now := one.page.evaluate(picture)) != before and now, "it is zoomed")
    one.page.mouse.down()
    one.page.mouse.move(x + 60, y + 40, steps=4)
    one.page.mouse.up()
    one.until(lambda: one.page.evaluate(picture) != zoomed, "it is moved")
    assert not one.page.is_visible("#panel"), "what is dragged is not selected"
    one.page.focus("#labels")
    for _ in range(2):  # past the search field
        one.page.keyboard.press("Tab")
    at = "document.activeElement.dataset.key ?? ''"
    first = one.until(lambda: one.page.evaluate(at), "the keyboard is at a service")
    assert first.startswith("service ")
    for key in ("ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"):
        one.page.keyboard.press(key)
    one.page.keyboard.press("ArrowLeft")
    assert one.page.evaluate(at).startswith("service ")


@pytest.mark.parametrize("width", [1440, 390])
def test_it_is_accessible(browser: Any, base: str, width: int) -> None:
    with tab(browser, base, viewport={"width": width, "height": 844}) as opened:
        opened.open("/#mesh=shop&view=all")
        opened.until(lambda: "services" in opened.text("#graph-title"), "the graph")
        opened.assert_accessible()
