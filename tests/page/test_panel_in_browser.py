"""The panel of a service or of calls: how it opens, what it shows, and that it follows the moment and the address."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from serve_app.web.history import instant
from tests.page.browsing import IN_BROWSER, REFUSED, Tab, tab
from tests.page.meshes import ALERTED, BEFORE, FAILING, SILENT, SNAPSHOTS

pytestmark = IN_BROWSER

TITLE = "#panel-title"
LOGS = "https://logs.example/search?q={namespace}%20{service}"
STEP = 11  # pixels between two places of the graph that are tried
SETTINGS = {"links.logs": LOGS}
PUSHED = {"shop": SNAPSHOTS}
IGNORED = REFUSED


def time(index: int) -> str:
    return instant(SNAPSHOTS[index].observed_at)


def open_at(one: Tab, index: int, view: str = "") -> None:
    """Open the page at a snapshot."""
    one.open(f"/#mesh=shop&at={time(index)}{view}")
    one.until(lambda: f"At {time(index)[11:19]}" in one.text("#headline"), "the verdict of then")
    one.until(lambda: one.text("#moment").startswith("showing"), "the timeline")


def wait_for_panel(one: Tab, title: str, *texts: str) -> str:
    """Wait until a panel shows these texts; its whole text."""
    one.until(lambda: one.page.is_visible("#panel") and one.text(TITLE) == title, f"the panel {title}")
    one.until(lambda: all(text in one.text("#panel") for text in texts), f"{texts} in the panel")
    return one.text("#panel")


def details(base: str, index: int, service: str, source: str | None = None) -> dict[str, Any]:
    query = {"service": service, "at": time(index), **({"source": source} if source else {})}
    found: dict[str, Any] = httpx.get(f"{base}/v1/meshes/shop/details", params=query).raise_for_status().json()
    return found


def calm_service(base: str, index: int) -> str:
    """A service without an incident that calls others."""
    graph = httpx.get(f"{base}/v1/meshes/shop/graph", params={"at": time(index)}).json()
    callers = {call["source"] for call in graph["calls"]}
    names = [f"{s['namespace']}/{s['name']}" for s in graph["services"] if s["incident"] is None]
    return next(name for name in names if name in callers)


def click_in_graph(one: Tab, wanted: Callable[[str], bool]) -> str:
    """Click what is under the pointer in the graph, until the panel is of something wanted; its title."""
    box = one.page.locator("#canvas").bounding_box()
    for y in range(40, int(box["height"]) - 40, STEP):
        for x in range(10, int(box["width"]) - 10, STEP):
            one.page.mouse.move(box["x"] + x, box["y"] + y)
            at = [box["x"] + x, box["y"] + y]
            if one.page.evaluate("at => getComputedStyle(document.elementFromPoint(...at)).cursor", at) != "pointer":
                continue
            one.page.mouse.click(box["x"] + x, box["y"] + y)
            if one.page.is_visible("#panel") and wanted(one.text(TITLE)):
                title: str = one.text(TITLE)
                return title
    raise AssertionError("nothing wanted was found in the graph")


def test_a_click_in_the_graph_opens_a_service(one: Tab, base: str) -> None:
    open_at(one, BEFORE, "&view=all")
    verdict = httpx.get(f"{base}/v1/meshes/shop/verdict", params={"at": time(BEFORE)}).raise_for_status().json()
    usual = set(SNAPSHOTS[BEFORE].node_ids) - {suspect["service"] for suspect in verdict["suspects"]}  # charts unfolded
    name = click_in_graph(one, lambda title: title in usual)
    text = wait_for_panel(one, name, "p99 latency", "of them failed")
    assert "Anomaly score" in text
    assert "expected" in text
    assert one.page.evaluate("() => document.activeElement.id") == "panel-title"


def test_a_click_in_the_graph_opens_a_call(one: Tab, base: str) -> None:
    open_at(one, BEFORE, "&view=all")
    title = click_in_graph(one, lambda text: text.startswith("Calls"))
    source, service = title.removeprefix("Calls ").split(" → ")
    found = details(base, BEFORE, service, source)
    text = wait_for_panel(one, title, "error rate")
    assert f"{len(found['metrics'])}" == "4"
    assert "Callers" not in text
    one.page.click(f"[data-key='end {source}']")
    wait_for_panel(one, source, "p99 latency")


def test_the_panel_of_the_suspect_says_why(one: Tab, base: str) -> None:
    open_at(one, ALERTED)
    one.page.keyboard.press("1")
    found = details(base, ALERTED, FAILING)
    text = wait_for_panel(one, FAILING, "Suspect 1", "error rate")
    share = next(m for m in found["metrics"] if m["metric"] == "error_rate")["observed"][ALERTED]
    assert share > 0.02
    assert "% of them failed" in text
    assert "first suspect" in text
    namespace, name = FAILING.split("/")
    link = one.page.locator("#panel a:text-is('Logs')")
    assert link.get_attribute("href") == LOGS.replace("{namespace}", namespace).replace("{service}", name)
    assert link.get_attribute("rel") == "noopener noreferrer"
    assert f"{found['callers_total']} caller" in text
    row = one.text("#panel tbody tr >> nth=0")
    assert "% of " in row, "a percentage comes with its count"


def test_callers_and_callees_lead_to_their_calls(one: Tab, base: str) -> None:
    name = calm_service(base, BEFORE)
    open_at(one, BEFORE, f"&service={name}")
    wait_for_panel(one, name, "callee")
    callee = details(base, BEFORE, name)["callees"][0]["service"]
    one.page.click(f"[data-key='Callees {callee}']")
    wait_for_panel(one, f"Calls {name} → {callee}", "requests")
    address = one.page.url
    assert "source=" in address
    one.page.goto("about:blank")
    one.page.goto(address)
    wait_for_panel(one, f"Calls {name} → {callee}", "requests")


def test_search_finds_a_service_and_calls(one: Tab, base: str) -> None:
    name = calm_service(base, BEFORE)
    callee = details(base, BEFORE, name)["callees"][0]["service"]
    open_at(one, BEFORE)
    one.page.keyboard.press("/")
    one.page.keyboard.type(name)
    one.page.keyboard.press("Enter")
    wait_for_panel(one, name, "p99 latency")
    one.page.fill("#find", f"{name} -> {callee}")
    one.page.keyboard.press("Enter")
    wait_for_panel(one, f"Calls {name} → {callee}", "p99 latency")
    one.page.fill("#find", f"{callee} -> {callee}")
    one.page.keyboard.press("Enter")
    wait_for_panel(one, f"Calls {callee} → {callee}", "expected in one of the")


def test_keys_open_and_close_the_panel(one: Tab) -> None:
    open_at(one, ALERTED)
    one.page.keyboard.press("p")
    wait_for_panel(one, FAILING, "Suspect 1")
    one.page.click("#panel-close")
    one.until(lambda: not one.page.is_visible("#panel"), "the panel closes")
    one.page.evaluate("() => document.activeElement.blur()")
    one.page.keyboard.press("p")
    wait_for_panel(one, FAILING)
    one.page.keyboard.press("Escape")
    one.until(lambda: not one.page.is_visible("#panel"), "Esc closes it, too")


def test_a_chart_reads_out_a_snapshot_and_selects_it(one: Tab, base: str) -> None:
    open_at(one, ALERTED, f"&service={FAILING}")
    wait_for_panel(one, FAILING, "error rate")
    slider = one.page.locator("[data-key='chart error_rate']")
    assert time(ALERTED)[11:19] in slider.get_attribute("aria-valuetext")
    slider.focus()
    one.page.keyboard.press("ArrowLeft")
    one.page.keyboard.press("ArrowLeft")
    assert time(ALERTED - 2)[11:19] in slider.get_attribute("aria-valuetext")
    others = one.page.locator("#panel .charts .chart .reading").all_text_contents()  # folded ones, too
    assert all(time(ALERTED - 2)[11:19] in text for text in others), "all charts read out the same snapshot"
    assert f"At {time(ALERTED)[11:19]}" in one.text("#headline"), "the arrow keys of a chart do not change the moment"
    one.page.keyboard.press("Enter")
    one.until(lambda: f"At {time(ALERTED - 2)[11:19]}" in one.text("#headline"), "the moment changes")
    wait_for_panel(one, FAILING, f"At {time(ALERTED - 2)[11:19]}")


def test_the_panel_follows_the_moment(one: Tab) -> None:
    open_at(one, ALERTED, f"&service={FAILING}")
    wait_for_panel(one, FAILING, f"At {time(ALERTED)[11:19]}")
    one.page.evaluate("() => document.activeElement.blur()")
    one.page.keyboard.press("ArrowLeft")
    wait_for_panel(one, FAILING, f"At {time(ALERTED - 1)[11:19]}")
    one.page.click("#live")
    wait_for_panel(one, FAILING, f"Now, {time(len(SNAPSHOTS) - 1)[11:19]}")


def test_missing_telemetry_and_unknown_services_are_explained(one: Tab, base: str) -> None:
    silent = next(name for name in SNAPSHOTS[SILENT].node_ids if details(base, SILENT, name)["state"] == "silent")
    open_at(one, SILENT, f"&service={silent}")
    wait_for_panel(one, silent, "It has no telemetry of its own, so its state is unknown. Last measured at")
    open_at(one, 5, f"&service={silent}")
    wait_for_panel(one, silent, "TAGAE is still learning this mesh")
    open_at(one, SILENT, "&service=shop/no-such-service")
    wait_for_panel(one, "shop/no-such-service", "got none; take a name from the graph")


def test_unusual_metrics_are_open_and_the_usual_ones_fold(one: Tab, base: str) -> None:
    open_at(one, ALERTED, f"&service={FAILING}")
    wait_for_panel(one, FAILING, "as usual")
    found = {m["metric"]: m for m in details(base, ALERTED, FAILING)["metrics"]}
    is_open = lambda metric: one.page.is_visible(f"[data-key='chart {metric}']")  # noqa: E731
    assert is_open("error_rate")
    assert one.page.locator("#panel .charts .chart >> nth=0").inner_text().startswith("error rate"), (
        "the strongest reason"
    )
    assert one.page.locator(".usual-metrics summary").inner_text().endswith(" as usual")
    inside = [
        name
        for name, one in found.items()
        if one["observed"][ALERTED] is not None
        and one["low"][ALERTED] <= one["observed"][ALERTED] <= one["high"][ALERTED]
    ]
    folded = [name for name in inside if not is_open(name)]
    assert folded
    tops = one.page.evaluate(
        "() => ['.listed table', '.usual-metrics'].map((at) => document.querySelector(`#panel ${at}`).offsetTop)"
    )
    assert tops == sorted(tops), "callers are above the metrics as usual"
    one.page.click(".usual-metrics summary")
    one.until(lambda: is_open(folded[0]), "they unfold")
    one.page.keyboard.press("ArrowLeft")
    wait_for_panel(one, FAILING, f"At {time(ALERTED - 1)[11:19]}")
    assert one.page.locator(".usual-metrics details").get_attribute("open") is not None, "they stay unfolded"
    one.assert_accessible()


def test_a_calm_service_shows_all_its_metrics(one: Tab, base: str) -> None:
    name = calm_service(base, BEFORE)
    open_at(one, BEFORE, f"&service={name}")
    wait_for_panel(one, name, "p99 latency")
    charts = one.page.locator("#panel .chart")
    assert charts.count() >= 4
    assert all(chart.is_visible() for chart in charts.all())


@pytest.mark.parametrize("size", [(1440, 900), (1280, 720)])
def test_the_suspects_stay_in_view_above_an_open_panel(browser: Any, base: str, size: tuple[int, int]) -> None:
    with tab(browser, base, viewport={"width": size[0], "height": size[1]}) as one:
        open_at(one, ALERTED, f"&service={FAILING}")
        wait_for_panel(one, FAILING, "error rate")
        in_view = """() => ["incidents-title", "panel-title"].map((id) => {
            const { top, bottom } = document.getElementById(id).getBoundingClientRect();
            return top >= 0 && bottom <= innerHeight;
        })"""
        assert one.page.evaluate(in_view) == [True, True]
        one.page.evaluate("() => document.querySelector('#panel .listed:last-of-type').scrollIntoView()")
        assert one.page.evaluate(in_view)[0], "the suspects stay when the panel scrolls"
        reasons = one.page.locator("#panel-content > .why").all_inner_texts()
        assert reasons
        listed = one.text("#cards")
        assert not any(reason in listed for reason in reasons[1:]), "no reason is shown twice"
        assert one.complaints == []


def test_the_callee_of_calls_that_fail_is_normal_by_itself(one: Tab, base: str) -> None:
    caller = details(base, ALERTED, FAILING)["callers"][0]["service"]

    def answer(route: Any) -> None:
        verdict = route.fetch().json()
        incident = verdict["incidents"][0]
        incident["caller"] = caller
        reason = incident["suspects"][0]["reasons"][0]
        incident["suspects"][0]["reasons"] = [{**reason, "metric": "error_rate", "source": caller, "expected": 0.0004}]
        route.fulfill(json=verdict)

    one.page.route("**/v1/meshes/shop/verdict?at=*", answer)
    open_at(one, ALERTED, f"&service={FAILING}")
    text = wait_for_panel(one, FAILING, "Normal by itself;")
    assert f"Normal by itself; the calls from {caller} fail" in text
    assert "Anomaly score" not in text
    one.assert_accessible()
    one.page.click(f"#panel [data-key='calls from {caller}']")
    wait_for_panel(one, f"Calls {caller} → {FAILING}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_panels_can_be_read_by_all(browser: Any, base: str, scheme: str, width: int) -> None:
    caller = details(base, ALERTED, FAILING)["callers"][0]["service"]
    views = (f"&service={FAILING}", f"&service={calm_service(base, ALERTED)}", f"&service={FAILING}&source={caller}")
    with tab(browser, base, viewport={"width": width, "height": 844}, color_scheme=scheme) as opened:
        for view in views:
            open_at(opened, ALERTED, view)
            opened.until(lambda: opened.page.locator(".chart").count() > 0, "the charts")
            opened.assert_accessible()
        assert opened.complaints == []
