"""The page in unusual cases: tabs left open, old links, meshes that come and go, streams that are refused."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import httpx

from lab.simulator.mesh.topology import MeshSpec
from tests.page.browsing import IN_BROWSER, REFUSED, Tab, tab
from tests.page.serving import push_all
from tests.serve_app.running import record_simulation
from tests.timing import PATIENCE_SECONDS

pytestmark = IN_BROWSER

FAULT_FROM, WINDOW, STREAMS = 16, 20, 2
SNAPSHOTS = record_simulation(MeshSpec(services=40, seed=2), 50, fault_from=FAULT_FROM)
ANOMALOUS = FAULT_FROM + 6  # snapshots, of which the last ones have an incident
HIDE = "Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})"
SEE = "delete document.visibilityState"
CHANGED = "document.dispatchEvent(new Event('visibilitychange'))"
CLICK_AFTER_REDRAWS = """async ([module, count]) => {
  const { el, show } = await import(new URL(module, location)), place = document.createElement("div");
  let clicked = null;
  const draw = (i) => show(place, el("p", {}, el("button", { click: () => (clicked = i) }, "00:15 to now")));
  for (let i = 1; i <= count; i++) draw(i);
  place.querySelector("button").click();
  return clicked;
}"""
SETTINGS = {
    "model.window_size": WINDOW,
    "serve.max_streams": STREAMS,
    "serve.ingress_replicas": 1,  # the limit of streams is per replica
    "meshes.silent.prometheus": "http://127.0.0.1:9",  # nothing listens on this port
    "collector.interval_seconds": 1,
    "collector.deadline_seconds": 1,
}
IGNORED = REFUSED


def push(base: str, mesh: str, begin: int, end: int) -> dict[str, Any]:
    """Push snapshots of the recording, and return the last verdict."""
    return push_all(base, mesh, SNAPSHOTS[begin:end])


def test_a_tab_left_open_offers_only_stored_snapshots(one: Tab) -> None:
    push(one.base, "open", 0, ANOMALOUS)
    one.open("/#mesh=open")
    one.page.wait_for_selector("#past button")
    assert "connected" in one.text("#pulse"), "no verdict arrived while the page was open"
    last = push(one.base, "open", ANOMALOUS, ANOMALOUS + 4)
    one.until(lambda: "live" in one.text("#pulse"), "a verdict came")
    one.until(lambda: last["observed_at"][11:16] in one.text("#moment"), "the timeline continues")
    one.page.click("#past button")
    one.until(lambda: "incident=" in one.page.url, "the incident is looked at")
    assert "at=" not in one.page.url, "the incident is open now, but not when the button was drawn first"

    end = 49  # the first of a minute, so that its time on the timeline differs from the previous one
    last = push(one.base, "open", ANOMALOUS + 4, end)
    one.until(lambda: last["observed_at"][11:16] in one.text("#moment"), "the timeline continues")
    assert one.page.get_attribute("#scrub", "max") == str(WINDOW - 1)
    one.page.focus("#scrub")
    one.page.keyboard.press("Home")
    oldest = SNAPSHOTS[end - WINDOW].observed_at
    one.until(lambda: one.text("#headline").startswith(f"At {oldest:%H:%M:%S} UTC: "), "the oldest snapshot")
    one.page.click("#live")
    one.page.click("#compare")
    one.until(lambda: one.page.locator("#comparison table, #comparison p").count(), "two periods are compared")
    assert one.page.locator("#comparison .failed").count() == 0


def test_a_button_with_an_unchanged_text_acts_on_the_newest_data(one: Tab) -> None:
    """An open incident reads "to now" in every snapshot, but lasts until a later one each time."""
    push(one.base, "redrawn", 0, 11)
    one.open("/#mesh=redrawn")
    module = one.page.get_attribute("link[href$='/dom.js']", "href")
    assert one.page.evaluate(CLICK_AFTER_REDRAWS, [module, 3]) == 3


def test_a_mesh_shows_nothing_of_another(one: Tab) -> None:
    push(one.base, "bad", 0, ANOMALOUS)
    push_all(one.base, "young", SNAPSHOTS[:1], as_baseline=True)
    push(one.base, "brief", 0, 11)
    one.open("/#mesh=bad")
    one.page.wait_for_selector("#verdict.incident")
    one.page.select_option("#mesh", "young")
    one.until(lambda: one.text("#headline") == "Learning this mesh", "no snapshot was judged", 10)
    one.page.select_option("#mesh", "brief")
    one.until(lambda: one.text("#headline") == "No incident", "another mesh")
    httpx.delete(f"{one.base}/v1/meshes/brief").raise_for_status()
    one.until(lambda: one.text("#headline") == "No mesh named brief", "it is deleted")
    one.page.keyboard.press("w")
    one.page.wait_for_timeout(500)
    assert one.text("#headline") == "No mesh named brief"
    assert "live" not in one.text("#pulse")
    assert not one.page.is_visible("#stage")
    push(one.base, "brief", 0, 11)
    one.until(lambda: one.text("#headline") == "No incident", "it is there again")
    one.until(lambda: one.page.is_visible("#stage"), "all of it")


def test_a_mesh_that_cannot_be_collected_shows_why(one: Tab) -> None:
    one.page.goto(f"{one.base}/#mesh=silent")
    one.until(
        lambda: one.text("#headline") == "No data collected yet, status unknown", "its Prometheus does not answer", 60
    )
    assert "127.0.0.1" in one.text("#story")


def _has_note(one: Tab, text: str) -> bool:
    return text in one.text("#notes")


def test_links_to_deleted_snapshots_say_so(one: Tab) -> None:
    push(one.base, "linked", 0, 12)
    for moment in ("2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z)", "yesterday"):
        one.page.goto("about:blank")
        one.open(f"/#mesh=linked&at={moment}")
        one.until(partial(_has_note, one, f"{moment}, is no longer kept"), "the note is shown")
    one.page.goto("about:blank")
    one.open("/#mesh=linked&incident=20200101T000000Z-00000000")
    one.until(lambda: "This incident has expired" in one.text("#notes"), "it is said")
    one.page.goto("about:blank")
    one.page.goto(f"{one.base}/#mesh=linked&expand={'x' * 5000}")
    one.until(lambda: "query expand: " in one.text("#notes"), "why there is no graph")
    one.page.wait_for_timeout(3000)
    assert "query expand: " in one.text("#notes"), "the message stays"
    one.page.goto("about:blank")
    one.open("/#mesh=linked&first=x&second=y")
    one.until(lambda: "expected" in one.text("#comparison"), "what is wrong with the periods")


def test_a_page_without_a_stream_still_shows_verdicts(browser: Any, one: Tab) -> None:
    push(one.base, "full", 0, 11)
    with ExitStack() as others:
        for _ in range(STREAMS):
            others.enter_context(tab(browser, one.base)).open("/#mesh=full")
        one.open("/#mesh=full")
        assert one.text("#headline") == "No incident"
        push(one.base, "full", 11, ANOMALOUS)
        one.page.wait_for_selector("#verdict.incident", timeout=1000 * PATIENCE_SECONDS)
        assert any("429" in complaint for complaint in one.complaints)


def test_a_tab_that_becomes_visible_catches_up_at_once(one: Tab) -> None:
    push(one.base, "back", 0, ANOMALOUS)
    asked: list[str] = []
    one.open("/#mesh=back")
    one.open_menu()
    one.page.focus("a:text-is('Report')")
    one.page.evaluate(f"() => {{ {HIDE}; {CHANGED}; }}")
    last = push(one.base, "back", ANOMALOUS, ANOMALOUS + 15)
    one.page.on("request", lambda request: asked.append(request.url))
    one.page.evaluate(f"() => {{ {SEE}; {CHANGED}; }}")
    one.until(lambda: last["observed_at"][11:16] in one.text("#moment"), "the timeline is whole")
    one.until(lambda: one.page.get_attribute("#scrub", "max") == str(WINDOW - 1), "the timeline is whole")
    assert sum("/timeline" in url for url in asked) <= 3
    assert one.page.evaluate("() => document.activeElement.textContent") == "Report"
    drawn = one.page.locator("#canvas .service")
    one.until(lambda: drawn.count() > 0, "the graph is drawn")


def test_a_hidden_incident_is_not_shown_as_normal(one: Tab) -> None:
    push(one.base, "muted", 0, FAULT_FROM)
    mute = {"reason": "someone tries something", "end": "2026-01-01T08:00:00Z"}
    httpx.post(f"{one.base}/v1/meshes/muted/mutes", json=mute).raise_for_status()
    verdict = push(one.base, "muted", FAULT_FROM, ANOMALOUS)
    assert (verdict["status"], bool(verdict["muted"][0]["hides"])) == ("normal", True)
    one.page.goto(f"{one.base}/#mesh=muted")
    one.page.wait_for_selector("#verdict.unknown")
    assert one.text("#headline") == "No alerts, but muted services have an incident"
    assert verdict["muted"][0]["hides"][0] in one.text("#story")
    one.open_detector()
    one.until(lambda: "until 2026-01-01 08:00 UTC" in one.text("#facts"), "for how long")


def test_a_timeline_that_grew_is_equal_to_one_read_at_once(one: Tab) -> None:
    push(one.base, "grown", 0, len(SNAPSHOTS) - 1)
    calm = replace(SNAPSHOTS[FAULT_FROM - 1], observed_at=SNAPSHOTS[-1].observed_at)
    last = push_all(one.base, "grown", [calm])
    one.open("/#mesh=grown")
    path = f"{one.base}/v1/meshes/grown/timeline"
    whole = httpx.get(path).raise_for_status().json()
    (incident,) = whole["incidents"]
    assert incident["score"] > last["incidents"][0]["score"], "it was more severe before"
    first = httpx.get(path, params={"limit": WINDOW - 1}).raise_for_status().json()
    rest = httpx.get(path, params={"since": first["observed_at"][-1]}).raise_for_status().json()
    module = one.page.get_attribute("link[href$='/store.js']", "href")
    join = "async ([module, first, rest]) => (await import(new URL(module, location))).append(first, rest)"
    assert one.page.evaluate(join, [module, first, rest]) == whole
