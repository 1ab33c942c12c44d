"""The graph around the suspects: nothing overlaps or is clipped, no call crosses a service, the keyboard walks it."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.scenes import SCENES

pytestmark = IN_BROWSER

INCIDENTS = ("slow", "failing", "gone", "flood", "crowd")
PUSHED = {name: SCENES[name].snapshots() for name in INCIDENTS}
SIZES = {"laptop": {"width": 1280, "height": 720}, "phone": {"width": 390, "height": 844}}
PIXEL = 0.5  # tolerance of rounding
# Boxes are left, top, right, bottom; points lie on the drawn line of a call.
DRAWN = """() => {
    const corner = document.querySelector(".near").getBoundingClientRect();
    const box = (element) => {
        const { left, top, right, bottom } = element.getBoundingClientRect();
        return [left - corner.left, top - corner.top, right - corner.left, bottom - corner.top];
    };
    const all = (selector) => [...document.querySelectorAll(`.near ${selector}`)];
    const stage = document.getElementById("stage").getBoundingClientRect();
    return {
        stage: [stage.width, stage.height],
        services: all(".service").map((one) => ({
            node: one.dataset.node,
            name: one.querySelector("title").textContent,
            plate: box(one.querySelector("rect")),
            text: box(one.querySelector("text")),
        })),
        rates: all(".rate").map((one) => ({
            plate: box(one.querySelector("rect")),
            texts: [...one.querySelectorAll("text")].map(box),
        })),
        rest: all(".rest").map(box),
        calls: all(".call").map((one) => {
            const line = one.querySelector(".line"), length = line.getTotalLength();
            const points = Array.from({ length: Math.ceil(length / 2) + 1 }, (_, k) => {
                const { x, y } = line.getPointAtLength(Math.min(length, 2 * k));
                return [x, y];
            });
            return { ends: one.dataset.ends.split(" "), points };
        }),
    };
}"""
NAMES = "(all) => all.map((one) => one.dataset.key.replace('service ', ''))"
NEAR = """async ([names, calls, stage]) => {
    const module = (name) => import(document.querySelector(`link[href$='/${name}']`).href);
    const files = ["graph.js", "picture.js", "scene.js", "whole.js"];
    const [{ arrangeLayers }, { pictureView }, { sceneOf }, { arrangeAll, cameraOf }] =
        await Promise.all(files.map(module));
    const column = (value) => names.map(() => value), edge = (value) => calls.map(() => value);
    const nodes = {
        name: names, services: column(1), unusual: column(0), x: names.map((_, i) => i), y: column(0),
        deviation: column(0), requests_per_second: column(1), suspicion: column(null), incident: column(null),
        gone: column(false), silent: column(false),
    };
    const edges = {
        source: calls.map(([a]) => a), destination: calls.map(([, b]) => b),
        requests_per_second: edge(3), error_rate: edge(0.5), deviation: edge(0),
    };
    const size = { services: names.length, calls: calls.length };
    const map = { status: "normal", ...size, collapsed: [], nodes, edges };
    const place = document.createElement("div"), on = { select() {}, open() {} };
    document.getElementById("stage").replaceChildren(place);
    const service = names[0] ?? null, none = { incident: null, source: null, space: null, unusual: false };
    const given = { map, service, near: true, labels: true, ...none };
    const picture = pictureView(place, on), all = sceneOf({ ...given, near: false });
    const whole = arrangeAll(all, stage, cameraOf(place, () => {}).view());
    picture.draw(all, whole);
    if (names.length) picture.draw(sceneOf(given), arrangeLayers(sceneOf(given), stage));
    return { whole: whole.at.size };
}"""


def is_apart(a: list[float], b: list[float]) -> bool:
    return a[2] <= b[0] + PIXEL or a[0] >= b[2] - PIXEL or a[3] <= b[1] + PIXEL or a[1] >= b[3] - PIXEL


def is_inside(inner: list[float], outer: list[float]) -> bool:
    return all(inner[i] >= outer[i] - PIXEL for i in (0, 1)) and all(inner[i] <= outer[i] + PIXEL for i in (2, 3))


def assert_readable(drawn: dict[str, Any]) -> None:
    """Check that nothing overlaps or is clipped, and that no call crosses a service that it does not end at."""
    services = drawn["services"]
    plates = [one["plate"] for one in (*services, *drawn["rates"])] + drawn["rest"]
    stage = [0, 0, *drawn["stage"]]
    for i, plate in enumerate(plates):
        assert is_inside(plate, stage), (plate, stage)
        for other in plates[:i]:
            assert is_apart(plate, other), (plate, other)
    for one in services:
        assert is_inside(one["text"], one["plate"]), one
    for rate in drawn["rates"]:
        assert all(is_inside(text, rate["plate"]) for text in rate["texts"]), rate
    for call in drawn["calls"]:
        for x, y in call["points"]:
            assert 0 <= x <= stage[2], call["ends"]
            assert 0 <= y <= stage[3], call["ends"]
            for one in services:
                left, top, right, bottom = one["plate"]
                crosses = left + 1 < x < right - 1 and top + 1 < y < bottom - 1
                assert one["node"] in call["ends"] or not crosses, (call["ends"], one["name"])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("incident", INCIDENTS)
def test_nothing_overlaps_and_no_call_crosses_a_service(browser: Any, base: str, incident: str, size: str) -> None:
    with tab(browser, base, viewport=SIZES[size]) as one:
        one.open(f"/#mesh={incident}")
        one.page.wait_for_selector(".near .first")
        drawn = one.page.evaluate(DRAWN)
        assert len(drawn["services"]) >= 5
        assert len(drawn["calls"]) >= len(drawn["services"]) - 1
        assert_readable(drawn)
        one.page.evaluate("location.hash += '&labels=calls'")
        one.until(lambda: one.page.is_checked("#labels"), "all calls have labels")
        labelled = one.page.evaluate(DRAWN)
        assert_readable(labelled)
        assert len(labelled["rates"]) >= len(drawn["rates"])
        one.assert_clean()


def test_affected_services_of_a_namespace_are_one_plate_in_a_crowd(browser: Any, base: str) -> None:
    incident = httpx.get(f"{base}/v1/meshes/crowd/verdict").json()["incidents"][0]
    with tab(browser, base) as one:
        one.open("/#mesh=crowd")
        one.page.wait_for_selector(".near .first")
        affected = set(incident["affected"])
        alone = set(one.page.eval_on_selector_all(".near .service:not(.folded)", NAMES))
        folded = [
            label.split(" in ") for label in one.page.locator(".near .folded text:not(.step)").all_text_contents()
        ]
        assert SCENES["crowd"].service in alone
        assert len(affected & alone) < len(affected) / 2
        assert sum(int(count) for count, _ in folded) == len(affected - alone)
        _, space = folded[0]
        one.page.locator(".near .folded").first.click()
        one.until(lambda: f"space={space}" in one.page.url, "the services of the namespace")
        one.page.wait_for_selector(".whole .service")
        one.assert_clean()


@pytest.mark.parametrize("size", SIZES)
def test_the_graph_is_as_high_as_its_content(browser: Any, base: str, size: str) -> None:
    """The first suspects of the two have not the same number of neighbours."""
    heights = {}
    for incident in ("gone", "flood"):
        with tab(browser, base, viewport=SIZES[size]) as one:
            one.open(f"/#mesh={incident}")
            one.page.wait_for_selector(".near .first")
            drawn = one.page.evaluate(DRAWN)
            heights[incident] = drawn["stage"][1]
            lowest = max(box[3] for box in (*(service["plate"] for service in drawn["services"]), *drawn["rest"]))
            assert heights[incident] - lowest < 40, "no room is left below"
    assert heights["gone"] != heights["flood"]
    assert max(heights.values()) < 0.62 * SIZES[size]["height"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("names", [
    ["a/one"],
    ["a/one", "a/two"],
    ["a/" + "x" * 120, "a/" + "y" * 120, "b/" + "long-name-" * 12],
    ["a/~05E9~~05DC~~05D5~~05DD~", "a/~0645~~0631~~062D~~0628~~0627~", "b/middle"],
])  # fmt: skip
def test_odd_meshes_are_readable(browser: Any, base: str, names: list[str], size: str) -> None:
    stage = {"width": SIZES[size]["width"] - 30, "height": 400}
    calls = [(0, i) for i in range(1, len(names))] + [(len(names) - 1, 0)]
    with tab(browser, base, viewport=SIZES[size]) as one:
        one.open("/#mesh=slow")
        assert one.page.evaluate(NEAR, [names, calls, stage]) == {"whole": len(names)}
        drawn = one.page.evaluate(DRAWN)
        assert len(drawn["services"]) == len(names)
        assert_readable(drawn | {"stage": [stage["width"], stage["height"]]})
        one.assert_clean()


def test_only_names_that_two_namespaces_share_have_theirs(one: Tab) -> None:
    one.open("/#mesh=slow")
    stage = {"width": 900, "height": 400}
    one.page.evaluate(NEAR, [["a/web", "a/cart", "b/cart", "b/far", "a/far"], [(0, 1), (0, 2), (2, 3), (3, 4)], stage])
    names = one.page.locator(".near .service text:not(.step)").all_text_contents()
    assert sorted(names) == ["a/cart", "b/cart", "web"], "what is not shown needs no other name"


def test_a_large_incident_after_a_small_one_has_its_own_height(one: Tab) -> None:
    one.open("/#mesh=flood")
    one.page.wait_for_selector(".near .first")
    wanted = one.page.evaluate(DRAWN)["stage"]
    one.open("/#mesh=gone")
    one.page.wait_for_selector(".near .gone.first")
    one.page.evaluate("location.hash = '#mesh=flood'")
    one.until(lambda: one.page.evaluate(DRAWN)["stage"] == wanted, "the same height as at first")


def test_an_empty_mesh_is_drawn(one: Tab) -> None:
    one.open("/#mesh=slow")
    assert one.page.evaluate(NEAR, [[], [], {"width": 800, "height": 400}]) == {"whole": 0}


def test_the_calls_of_a_service_stand_out_under_the_pointer(one: Tab) -> None:
    one.open("/#mesh=failing")
    root = one.page.locator(".near .first").get_attribute("data-node")
    faint = one.page.locator(".near .call.normal").first
    opacity = "(one) => Number(getComputedStyle(one).opacity)"
    assert faint.evaluate(opacity) < 0.5
    one.page.hover(".near .first")
    own = one.page.locator(f".near .call.lit[data-ends~='{root}']")
    one.until(lambda: own.count() > 0, "its calls stand out")
    assert own.first.evaluate(opacity) == 1
    assert one.page.locator(".near .call:not(.lit)").first.evaluate(opacity) < 0.2
    one.page.mouse.move(0, 0)
    one.until(lambda: one.page.locator(".near .lit").count() == 0, "no call stands out")


def test_the_keyboard_walks_along_calls(one: Tab) -> None:
    one.open("/#mesh=failing")
    at = one.page.url
    said = lambda: one.page.evaluate("document.activeElement.ariaLabel ?? ''")  # noqa: E731
    column = lambda: one.page.locator(".near :focus rect").get_attribute("x")  # noqa: E731
    one.page.focus("#labels")
    for _ in range(2):  # past the search field
        one.page.keyboard.press("Tab")
    origin = one.page.locator(".near .first title").text_content()
    assert "likely origin" in origin
    assert said().startswith(origin)
    assert "caller" in said()
    one.page.keyboard.press("ArrowLeft")
    caller = said()
    assert not caller.startswith(origin)
    left = column()
    one.page.keyboard.press("ArrowDown")
    assert said() != caller
    assert column() == left, "the service below"
    assert one.page.url == at, "the keys do not move through time"
    assert one.page.locator(".near .call.lit").count() > 0, "its calls stand out"
    below = said().split(":")[0]
    one.page.keyboard.press("Enter")
    one.until(lambda: one.page.is_visible("#panel") and one.text("#panel-title") == below, "its panel")
    one.page.keyboard.press("Escape")
    one.until(lambda: not one.page.is_visible("#panel"), "the panel is closed")
    one.page.focus(".near .first")
    one.page.keyboard.press("ArrowRight")
    one.page.keyboard.press("Escape")
    assert one.page.locator(".near :focus").count() == 0, "Esc leaves the graph"
    one.page.keyboard.press("ArrowLeft")
    one.until(lambda: "at=" in one.page.url, "outside, the same keys move through time")


@pytest.mark.parametrize("size", SIZES)
def test_calls_that_are_the_origin_have_its_mark(browser: Any, base: str, size: str) -> None:
    """Not the service that they go to: it is normal by itself."""
    with tab(browser, base, viewport=SIZES[size]) as one:
        caller, service = look_at(one, base, lambda incident, caller: incident.update(caller=caller))
        one.page.wait_for_selector(".near .call.origin")
        assert one.page.locator(".near .first").count() == 0
        title = one.page.locator(".near .call.origin title").text_content()
        assert title.startswith(f"{caller} → {service}: ")
        assert title.endswith(", likely origin")
        assert one.page.locator(".near .rate.origin, .near .origin-mark").count() == 1
        state = one.page.locator(".near .root title").text_content()
        assert state == f"{service}: normal, the calls from {caller} are the likely origin"
        assert f"likely origin the calls {caller} → {service}" in one.page.get_attribute("#canvas", "aria-label")
        widths = [
            float(
                one.page.locator(f".near .call.{kind} .line").first.evaluate(
                    "(at) => parseFloat(getComputedStyle(at).strokeWidth)"
                )
            )
            for kind in ("origin", "normal")
        ]
        assert widths[0] >= 2 * widths[1]
        assert_readable(one.page.evaluate(DRAWN))
        one.assert_accessible()


def test_new_calls_have_a_look_of_their_own(one: Tab, base: str) -> None:
    def add_new_calls(incident: dict[str, Any], caller: str) -> None:
        reason = incident["suspects"][0]["reasons"][0]
        incident["suspects"][0]["reasons"].append({**reason, "metric": "new_calls", "source": caller})

    caller, service = look_at(one, base, add_new_calls)
    one.page.wait_for_selector(".near .call.new")
    assert one.page.locator(".near .call.new title").text_content().startswith(f"{caller} → {service}: ")
    style = "(at) => [getComputedStyle(at).strokeDasharray, getComputedStyle(at).stroke]"
    looks = {tuple(one.page.locator(f".near .call.{kind} .line").first.evaluate(style)) for kind in ("new", "normal")}
    assert len(looks) == 2
    legend = one.text("#legend")
    assert all(words in legend for words in ("likely origin", "spread", "in steps", "new calls", "unusual calls"))


def test_only_calls_that_matter_have_labels(one: Tab) -> None:
    one.open("/#mesh=flood")
    root = one.page.locator(".near .first").get_attribute("data-node")
    rates = one.page.locator(".near .rate")
    assert rates.count()
    assert all(root in one.split() for one in rates.evaluate_all("(all) => all.map((one) => one.dataset.ends)"))
    rate = lambda text: float(text.split("/s")[0].replace(",", ""))  # noqa: E731
    most = max(rate(text) for text in rates.all_text_contents() if "/s" in text)
    assert most > 0
    assert one.page.locator(".near .rate.normal").count() == 0, "only unusual calls"
    shown, total = one.text("#graph-title").removeprefix("Services: ").split(" of ")
    assert 0 < int(shown) < int(total)


def look_at(one: Tab, base: str, change: Callable[[dict[str, Any], str], None]) -> tuple[str, str]:
    """Open a failing mesh with a changed incident. Returns a caller of the first suspect, and the suspect."""
    verdict = httpx.get(f"{base}/v1/meshes/failing/verdict").raise_for_status().json()
    service, at = verdict["incidents"][0]["suspects"][0]["service"], verdict["observed_at"]
    query = {"service": service, "at": at}
    details = httpx.get(f"{base}/v1/meshes/failing/details", params=query).raise_for_status().json()
    caller: str = details["callers"][0]["service"]

    def answer(route: Any) -> None:
        document = route.fetch().json()
        change(document["incidents"][0], caller)
        route.fulfill(json=document)

    one.page.route("**/v1/meshes/failing/verdict?at=*", answer)
    one.open(f"/#mesh=failing&at={at}")
    return caller, service


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_it_is_accessible(browser: Any, base: str, size: str, scheme: str) -> None:
    with tab(browser, base, viewport=SIZES[size], color_scheme=scheme) as one:
        one.open("/#mesh=flood")
        one.page.wait_for_selector(".near .first")
        one.assert_accessible()
