"""The page for a person on call: the demo in a real browser."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.page.browsing import (
    IN_BROWSER,
    Tab,
    launch_browser,
    show,
    start_demo,
    start_event,
    tab,
)
from tests.timing import PATIENCE_SECONDS

pytestmark = IN_BROWSER

WITHIN_SNAPSHOTS = 3  # from the fault on; so many confirm an alert
OPEN_INCIDENT = "#verdict:is(.incident, .last_incident)"  # the demo is paused, so its data may have stopped
LEAST_RED = 300  # pixels of a ring and an arrow


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with start_demo("--speed", "30") as url:
        yield url


@pytest.fixture(scope="module")
def demo_page(browser: Any, base: str) -> None:
    """Wait until the demo's mesh is warmed up."""
    with tab(browser, base) as opened:
        opened.open("/demo/#mesh=demo")
        opened.until(lambda: not show(base)["warming_up"], "the mesh is known", 180)


@pytest.fixture(scope="module")
def shown_incident(browser: Any, base: str, demo_page: None) -> dict[str, Any]:
    """An incident that a button started: the fault, the first verdict with it, and the text of the page then."""
    with tab(browser, base) as opened:
        opened.open("/demo/#mesh=demo")
        opened.until(lambda: "calm" in (opened.page.get_attribute("#verdict", "class") or ""), "all is quiet")
        quiet = opened.red()
        start_event(opened, "error burst")
        deed = opened.until(
            lambda: next(
                (d for d in show(base)["deeds"] if d["is_fault"] and d["key"] == "error_burst" and d["at"]), None
            ),
            "the fault begins",
        )
        opened.page.wait_for_selector("#verdict.incident", timeout=1000 * PATIENCE_SECONDS)
        opened.until(lambda: show(base)["controls"]["paused"], "the demo pauses at its first incident")
        opened.until(lambda: "at=" in opened.page.url, "the page stays at that moment")
        opened.until(lambda: "Paused at the first incident" in opened.text("#demo"), "the panel says why")
        opened.until(lambda: deed["service"] in opened.text("#headline"), "the headline names the culprit", 10)
        texts = {name: opened.text(f"#{name}") for name in ("headline", "chips", "cards")}
        opened.until(lambda: opened.red() > quiet + LEAST_RED, "the graph shows the way it spread", 10)
        assert "likely origin " + deed["service"] in opened.page.get_attribute("#canvas", "aria-label")
        assert opened.complaints == []
    verdicts = httpx.get(f"{base}/v1/meshes/demo/verdicts?limit=1000").json()["verdicts"]
    first = next(v for v in verdicts if any(deed["service"] in i["affected"] for i in v["incidents"]))
    return {"deed": deed, "first": first, "texts": texts, "verdicts": verdicts}


def test_the_page_shows_the_incident_and_its_culprit_in_time(shown_incident: dict[str, Any]) -> None:
    deed, first = shown_incident["deed"], shown_incident["first"]
    began = next(v for v in shown_incident["verdicts"] if v["observed_at"][:19] == deed["at"][:19])
    assert first["sequence"] - began["sequence"] + 1 <= WITHIN_SNAPSHOTS
    assert first["incidents"][0]["suspects"][0]["service"] == deed["service"]
    assert deed["service"] in shown_incident["texts"]["headline"]
    assert "usually" in shown_incident["texts"]["headline"]
    assert "since " in shown_incident["texts"]["chips"]
    assert deed["service"] in shown_incident["texts"]["cards"]


def test_the_past_shows_the_quiet_before_and_a_link_shows_it_again(one: Tab, shown_incident: dict[str, Any]) -> None:
    one.open("/#mesh=demo")
    one.page.wait_for_selector(OPEN_INCIDENT)
    times = [v["observed_at"] for v in shown_incident["verdicts"]]
    back = times.index(shown_incident["first"]["observed_at"]) - 6
    for _ in range(len(times) - 1 - back):
        one.page.keyboard.press("ArrowLeft")
    then = f"At {times[back][11:19]} UTC: No incident"
    one.until(lambda: one.text("#headline") == then, "the verdict of then")
    one.until(lambda: one.red() < LEAST_RED, "the graph of then")
    link = one.page.url
    with tab(one.page.context.browser, one.base) as other:
        other.page.goto(link)
        other.until(lambda: times[back][11:19] in other.text("#headline"), "the same moment")
    one.page.keyboard.press("Escape")
    one.page.wait_for_selector(OPEN_INCIDENT)
    assert "at=" not in one.page.url


def test_the_slider_scrubs(one: Tab, shown_incident: dict[str, Any]) -> None:
    one.open("/#mesh=demo")
    one.until(lambda: int(one.page.get_attribute("#scrub", "max") or 0) > 20, "a timeline")
    one.page.focus("#scrub")
    one.page.keyboard.press("Home")
    first = one.until(lambda: "showing" in one.text("#moment") and one.text("#moment"), "the first snapshot")
    assert shown_incident["verdicts"][0]["observed_at"][11:19] in first
    one.page.click("#live")
    one.until(lambda: "showing" not in one.text("#moment"), "now")


def test_feedback_is_stored_and_removed(one: Tab, shown_incident: dict[str, Any]) -> None:
    incident = shown_incident["first"]["incidents"][0]["id"]
    feedback = f"{one.base}/v1/meshes/demo/feedback"
    one.open("/#mesh=demo")
    one.page.click(f"[data-key='select {incident} {shown_incident['deed']['service']}']")
    one.page.get_by_role("button", name="Confirm incident").click()
    one.page.click("#decision-send")
    one.until(lambda: "Confirmed:" in one.text("#cards"), "it is confirmed")
    (kept,) = httpx.get(feedback).json()["feedback"]
    assert (kept["incident"], kept["culprit"]) == (incident, shown_incident["deed"]["service"])
    one.page.reload()
    one.page.click("button:text-is('Undo')")
    one.until(lambda: "False alarm" in one.text("#cards"), "it is taken back")
    assert httpx.get(feedback).json()["feedback"] == []


def test_two_periods_are_compared(one: Tab, shown_incident: dict[str, Any]) -> None:
    one.open("/#mesh=demo")
    one.page.wait_for_selector(OPEN_INCIDENT)  # keys do nothing before
    one.page.keyboard.press("c")
    one.until(lambda: "error rate" in one.text("#comparison"), "what differs")
    first = one.page.inner_text("#comparison tbody tr:first-child")
    assert "error rate" in first
    assert "▲" in first


def test_a_click_opens_the_report(one: Tab, shown_incident: dict[str, Any]) -> None:
    one.open("/#mesh=demo")
    one.open_menu()
    with one.page.context.expect_page() as opened:
        one.page.click("a:text-is('Report')")
    report = opened.value
    report.wait_for_load_state()
    assert shown_incident["deed"]["service"] in report.inner_text("h1")


def test_a_deploy_raises_no_alert(one: Tab, base: str, shown_incident: dict[str, Any]) -> None:
    one.open("/demo/#mesh=demo")
    pages = sum("alert within" in deed["outcome"] for deed in show(base)["deeds"])
    one.page.click("#demo button:text-is('Resume')")
    one.until(lambda: "at=" not in one.page.url, "the page is live again")
    one.page.wait_for_selector("#verdict.calm", timeout=1000 * PATIENCE_SECONDS)
    start_event(one, "deploy")
    outcome = one.until(
        lambda: next(
            (d["outcome"] for d in show(base)["deeds"][::-1] if d["key"] == "deploy" and not d["under_way"]), None
        ),
        "the deploy is over",
    )
    assert outcome == "no alert"
    assert sum("alert within" in deed["outcome"] for deed in show(base)["deeds"]) == pages
    one.page.click("#planned summary")
    one.until(lambda: "deploy of" in one.text("#changes"), "the timeline tells the deploy")
    one.page.click("#demo button:text-is('Pause')")


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1280, 720)])
def test_the_panel_leaves_the_graph_above_the_fold(browser: Any, base: str, width: int, height: int) -> None:
    with tab(browser, base, viewport={"width": width, "height": height}) as opened:
        opened.open("/demo/#mesh=demo")
        opened.until(lambda: opened.page.locator("#demo .event option").count(), "the panel is filled")
        top, bottom = opened.page.evaluate(
            "() => { const {top, bottom} = document.getElementById('stage').getBoundingClientRect();"
            " return [top, bottom]; }"
        )
        whole = bottom - top  # a graph of few services is low
        assert min(bottom, height) - top >= min(300, whole), (top, bottom)


def test_everything_can_be_reached_by_keys(one: Tab, shown_incident: dict[str, Any]) -> None:
    one.open("/#mesh=demo")
    one.page.keyboard.press("?")
    assert one.page.is_visible("#keys")
    one.page.keyboard.press("Escape")
    assert not one.page.is_visible("#keys")
    one.page.keyboard.press("w")
    one.until(lambda: one.page.get_attribute("#all", "aria-pressed") == "true", "the whole mesh")
    one.page.keyboard.press("/")
    one.page.keyboard.type(shown_incident["deed"]["service"])
    one.page.keyboard.press("Enter")
    one.until(
        lambda: (
            f"{shown_incident['deed']['service']} is selected"
            in (one.page.get_attribute("#canvas", "aria-label") or "")
        ),
        "it is found",
    )
    seen = set()
    for _ in range(120):  # more than there are controls
        one.page.keyboard.press("Tab")
        seen.add(one.page.evaluate("() => document.activeElement.id || document.activeElement.tagName"))
    assert {"mesh", "theme", "help", "near", "all", "find", "compare", "scrub"} <= seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_accessible(browser: Any, base: str, shown_incident: dict[str, Any], scheme: str, width: int) -> None:
    with tab(browser, base, color_scheme=scheme, viewport={"width": width, "height": 844}) as opened:
        opened.open("/demo/#mesh=demo")
        opened.until(lambda: opened.text("#moment"), "the timeline")
        opened.page.keyboard.press("c")
        opened.page.wait_for_selector("#comparison h3")
        opened.assert_accessible()
        assert opened.complaints == []


def test_the_graph_is_drawn_without_webgl(browser: Any, base: str, shown_incident: dict[str, Any]) -> None:
    with launch_browser(browser.browser_type, "--disable-3d-apis") as blind, tab(blind, base) as opened:
        opened.open("/#mesh=demo")
        opened.page.wait_for_selector(
            "#canvas[aria-label*=' and ']"
        )  # around the suspects, or the whole mesh if it is calm
        assert opened.page.locator("#canvas .service").first.is_visible()
        assert opened.text("#incidents")
