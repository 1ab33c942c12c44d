"""The state of a mesh on the page: words, colour, icon, title and favicon; never calm without data."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.web.history import instant
from tests.page.browsing import IN_BROWSER, REFUSED, Tab, tab
from tests.page.meshes import ALERTED, BEFORE, FAILING, NOTICED, RECOVERING, SILENT, SNAPSHOTS
from tests.page.serving import push_all, serve
from tests.serve_app.running import record_simulation
from tests.timing import PATIENCE_SECONDS

pytestmark = IN_BROWSER

DEAD = "http://127.0.0.1:9"  # nothing listens on this port
SETTINGS = {
    "meshes.unreachable.prometheus": DEAD,
    "meshes.nothing.prometheus": DEAD,
    "collector.interval_seconds": 1,
    "collector.deadline_seconds": 1,
}
QUICK = MeshSpec(services=30, seed=3, interval_seconds=3.0)  # data is late after nine seconds
WARM_UP = 12  # snapshots before a mesh is scored
STATES: dict[str, tuple[int, str, str, str]] = {  # by mesh: snapshots, state, headline, title
    "calm": (BEFORE + 1, "calm", "No incident", "✓ no incident · calm · TAGAE"),
    "learning": (3, "learning", "Learning this mesh: 3 of 10 snapshots received", "… learning · learning · TAGAE"),
    "alerted": (ALERTED + 1, "incident", FAILING, f"● incident: {FAILING} · alerted · TAGAE"),
    "recovering": (
        RECOVERING + 1,
        "recovering",
        f"{FAILING} is recovering",
        f"↑ recovering: {FAILING} · recovering · TAGAE",
    ),
    "partial": (
        SILENT + 1,
        "unknown",
        "No telemetry from 6 of 40 services, status unknown",
        "? unknown: telemetry missing · partial · TAGAE",
    ),
}
WORDS = {
    "calm": "No incident",
    "incident": "Incident",
    "recovering": "Recovering",
    "learning": "Learning",
    "unknown": "Unknown",
}
IGNORED = REFUSED


def assert_state(one: Tab, state: str, headline: str, title: str) -> None:
    """Check that the banner, its icon, the title and the favicon show one state."""
    one.until(lambda: one.page.title() == title, f"the title {title!r}; it is {one.page.title()!r}")
    assert classes(one)[0] == state
    assert headline in one.text("#headline")
    assert one.page.get_attribute("#state-icon", "alt").startswith(WORDS[state])
    assert one.page.get_attribute("#icon", "href") == one.page.get_attribute("#state-icon", "src")
    assert one.page.evaluate("() => document.getElementById('state-icon').naturalWidth") > 0, "the icon is drawn"


def classes(one: Tab) -> list[str]:
    found: str = one.page.get_attribute("#verdict", "class")
    return found.split()


def is_stale(one: Tab) -> bool:
    """Return whether the graph and the timeline are dim, with a label."""
    labels = [one.page.locator(".stale-label").nth(i) for i in range(2)]
    dim = [
        one.page.evaluate(f"() => getComputedStyle(document.querySelector('{at}')).opacity")
        for at in ("#canvas", "#plot")
    ]
    labelled = ["last known state, " in label.inner_text() for label in labels]
    assert len({*labelled, *(float(one) < 1 for one in dim)}) == 1, (labelled, dim)
    return labelled[0]


@contextmanager
def pushing(base: str, mesh: str, spec: MeshSpec) -> Iterator[Callable[[], None]]:
    """Run a program that pushes snapshots until it is stopped."""
    stopped = threading.Event()

    def push() -> None:
        for snapshot in Simulator(spec, snapshots=10_000).snapshots():
            push_all(base, mesh, [snapshot])
            if stopped.wait(0.2):
                return

    thread = threading.Thread(target=push)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join()

    try:
        yield stop
    finally:
        stop()


@pytest.mark.parametrize("mesh", STATES)
def test_every_state_has_its_words_colour_icon_and_title(one: Tab, base: str, mesh: str) -> None:
    count, state, headline, title = STATES[mesh]
    push_all(base, mesh, SNAPSHOTS[:count])
    one.open(f"/#mesh={mesh}")
    assert_state(one, state, headline, title)
    assert not is_stale(one)
    assert ("Critical" in one.text("#chips")) == (state in ("incident", "recovering"))


def test_states_look_different(one: Tab, base: str) -> None:
    looks: dict[str, set[str]] = {"backgroundColor": set(), "borderTopColor": set(), "src": set()}
    for mesh, (count, *_) in STATES.items():
        if mesh == "learning":
            continue
        push_all(base, f"{mesh}-look", SNAPSHOTS[:count])
        one.page.goto("about:blank")
        one.open(f"/#mesh={mesh}-look")
        one.until(lambda: one.page.is_visible("#state-icon"), "its state is known")
        for name in ("backgroundColor", "borderTopColor"):
            looks[name].add(one.page.evaluate(f"() => getComputedStyle(document.getElementById('verdict')).{name}"))
        looks["src"].add(one.page.get_attribute("#state-icon", "src"))
    assert {name: len(found) for name, found in looks.items()} == dict.fromkeys(looks, 4)


def test_data_that_stops_while_the_page_is_open_makes_the_state_unknown(one: Tab, base: str) -> None:
    with pushing(base, "stopping", QUICK) as stop:
        one.until(lambda: opened_calm(one, "stopping"), "it is calm")
        one.until(lambda: int(one.page.get_attribute("#scrub", "max")) > WARM_UP, "there is a calm past")
        stop()
    one.until(lambda: one.text("#headline").startswith("No data since "), "the page says that data stopped")
    assert_state(one, "unknown", ", status unknown", "? unknown: no data · stopping · TAGAE")
    assert is_stale(one)
    assert "the program that pushes the snapshots" in one.text("#story")
    assert "last known: No incident" in one.text("#notes")
    assert "No incident" not in one.text("#cards")
    one.page.keyboard.press("ArrowLeft")
    one.until(lambda: one.text("#headline").startswith("At "), "a past moment")
    one.until(lambda: one.text("#headline").endswith("UTC: No incident"), "the age of a past moment does not matter")
    assert classes(one)[0] == "calm"
    assert not is_stale(one)
    assert one.page.title() == "? unknown: no data · stopping · TAGAE", "the tab shows the state now"
    one.page.keyboard.press("Escape")
    one.until(lambda: one.text("#headline").startswith("No data since "), "back to now")


def test_a_past_moment_says_what_is_wrong_now(one: Tab, base: str) -> None:
    push_all(base, "later", SNAPSHOTS[: ALERTED + 1])
    one.open(f"/#mesh=later&at={instant(SNAPSHOTS[BEFORE].observed_at)}")
    one.until(lambda: one.text("#headline").endswith("UTC: No incident"), "a past moment without an incident")
    assert one.text("#notes .now").startswith(f"Now: {FAILING} ")


def test_without_an_incident_the_banner_counts_unusual_services(one: Tab, base: str) -> None:
    push_all(base, "noticed", SNAPSHOTS[: NOTICED + 1])
    nodes = httpx.get(f"{base}/v1/meshes/noticed/map", timeout=PATIENCE_SECONDS).json()["nodes"]
    total, unusual = sum(nodes["services"]), sum(nodes["unusual"])
    assert unusual > 0
    one.open("/#mesh=noticed")
    counted = f"{total - unusual} of {total} services within normal range, {unusual} unusual."
    one.until(lambda: one.text("#story") == counted, counted)


def opened_calm(one: Tab, mesh: str) -> bool:
    if f"mesh={mesh}" not in one.page.url:
        one.page.goto(f"{one.base}/#mesh={mesh}")
    return "calm" in (one.page.get_attribute("#verdict", "class") or "")


def test_a_fresh_page_knows_that_data_stopped_also_after_a_restart(browser: Any, tmp_path: Path) -> None:
    calm, failing = (record_simulation(QUICK, count, fault_from=begin) for count, begin in ((14, None), (30, 16)))
    with serve(tmp_path, SETTINGS) as url:
        push_all(url, "quiet", calm)
        assert push_all(url, "broken", failing)["status"] == "anomalous"
        with tab(browser, url) as opened:
            wait_for_silence(opened, "quiet")
    with serve(tmp_path, SETTINGS) as url, tab(browser, url) as opened:
        states = watch_states(opened, "quiet")
        assert_state(opened, "unknown", "No data since ", "? unknown: no data · quiet · TAGAE")
        assert "calm" not in states(), "not even briefly"
        assert is_stale(opened)
        wait_for_silence(opened, "broken")
        culprit = httpx.get(f"{url}/v1/meshes/broken/verdict").json()["incidents"][0]["title"]
        assert_state(
            opened,
            "unknown",
            "No data since ",
            f"? last known incident: {culprit} · broken · TAGAE",
        )
        assert opened.text("#headline").endswith(f"The incident at {culprit} was open then.")
        assert opened.text("#story").startswith("Status unknown; the incident is kept. ")
        assert "last_incident" in classes(opened)
        assert is_stale(opened)


def test_a_mesh_is_not_calm_before_its_interval_is_known(one: Tab, base: str) -> None:
    """The timeline may come after the age of the verdict. 20 s are late for 5 s between snapshots, but not for 15 s."""
    one.open("/")
    names = one.page.evaluate(
        """async () => {
            const path = document.querySelector("script[src*='/main.js']").src.replace("main.js", "state.js"),
                { stateOf } = await import(path),
                verdict = { incidents: [], muted: [], status: "normal", coverage: 1, threshold: null },
                data = { received: Date.now() - 20000, source: null, lost: false, problem: null },
                at = (seconds) => new Date(1000 * seconds).toISOString(),
                times = (gap) => ({ observed_at: [0, gap, 2 * gap].map(at) });
            return [null, times(5), times(15)].map((timeline) => stateOf(verdict, { ...data, timeline }).name);
        }"""
    )
    assert names == ["", "unknown", "calm"]


def wait_for_silence(one: Tab, mesh: str) -> None:
    """Load the page again and again until it says from the start that data stopped."""

    def is_silent() -> bool:
        one.page.goto("about:blank")
        one.open(f"/#mesh={mesh}")
        one.until(lambda: one.page.is_visible("#state-icon"), "its state is known")
        return "no data" in one.text("#headline").lower()

    one.until(is_silent, "data stopped")


def watch_states(one: Tab, mesh: str) -> Callable[[], list[str]]:
    """Open a mesh, and record each state that the banner has from the first on."""
    one.page.add_init_script(
        "window.states = [];"
        "new MutationObserver(() => {"
        "  const now = document.getElementById('verdict')?.className;"
        "  if (now && now !== window.states.at(-1)) window.states.push(now);"
        "}).observe(document, {subtree: true, childList: true, attributes: true});"
    )
    one.open(f"/#mesh={mesh}")
    return lambda: one.page.evaluate("() => window.states")


def test_a_failing_source_makes_the_state_unknown(one: Tab, base: str) -> None:
    push_all(base, "unreachable", SNAPSHOTS[: BEFORE + 1])
    states = watch_states(one, "unreachable")
    assert_state(
        one, "unknown", "Telemetry source failing, status unknown", "? unknown: source failing · unreachable · TAGAE"
    )
    assert "127.0.0.1:9" in one.text("#story")
    assert "tagae doctor" in one.text("#story")
    assert "last known: No incident" in one.text("#notes")
    assert not any("calm" in state for state in states())
    push_all(base, "unreachable", SNAPSHOTS[BEFORE + 1 : ALERTED + 1])
    kept = f"Telemetry source failing. The incident at {FAILING} was open at "
    one.until(lambda: one.text("#headline").startswith(kept), "the incident")
    assert one.text("#story").startswith("Status unknown; the incident is kept. ")
    assert_state(one, "unknown", "", f"? last known incident: {FAILING} · unreachable · TAGAE")


def test_a_mesh_that_was_never_collected_is_unknown(one: Tab, base: str) -> None:
    one.page.goto(f"{base}/#mesh=nothing")
    assert_state(one, "unknown", "No data collected yet", "? unknown: source failing · nothing · TAGAE")
    assert "127.0.0.1:9" in one.text("#story")


def test_services_without_telemetry_are_hollow(one: Tab, base: str) -> None:
    push_all(base, "hollow", SNAPSHOTS[: SILENT + 1])
    one.open("/#mesh=hollow&view=all")
    one.until(lambda: "no telemetry from 6" in (one.page.get_attribute("#canvas", "aria-label") or ""), "the graph")
    assert "unknown" in one.text("#legend")


def test_controls_that_do_nothing_say_why(one: Tab, base: str) -> None:
    (incident, *_) = push_all(base, "asked", SNAPSHOTS[: ALERTED + 1])["incidents"]
    assert 1 < len(incident["suspects"]) < 9
    one.open("/#mesh=asked")
    one.until(lambda: incident["suspects"][0]["service"] in one.text("#headline"), "the mesh is shown")
    one.page.fill("#find", "shop/nowhere")
    one.page.press("#find", "Enter")
    one.until(lambda: one.text("#answer") == "There is no service named shop/nowhere here.", "why nothing happened")
    one.page.evaluate("() => document.activeElement.blur()")
    one.page.keyboard.press("9")
    one.until(lambda: one.text("#answer") == "There is no suspect 9.", "why nothing happened")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_accessible(browser: Any, base: str, scheme: str, width: int) -> None:
    for mesh, (count, *_) in STATES.items():
        push_all(base, f"{mesh}-{scheme}-{width}", SNAPSHOTS[:count])
    names = [*(f"{mesh}-{scheme}-{width}" for mesh in STATES), "nothing", "unreachable"]
    with tab(browser, base, color_scheme=scheme, viewport={"width": width, "height": 844}) as opened:
        for name in names:
            opened.page.goto("about:blank")
            opened.page.goto(f"{base}/#mesh={name}")
            opened.page.wait_for_selector("#state-icon:visible", timeout=1000 * PATIENCE_SECONDS)
            opened.assert_accessible()
