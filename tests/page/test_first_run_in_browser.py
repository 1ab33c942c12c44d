"""The first minutes with TAGAE in a real browser: it starts, has no mesh, learns one. Nothing is blank, raw, or red
without need."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from tests.live.programs import free_ports, needs
from tests.live.test_doctor_report import MESHES
from tests.live.test_surveyed_series import prometheus_of
from tests.page.browsing import IN_BROWSER, REFUSED, Tab, tab
from tests.page.serving import push_all, serve
from tests.serve_app.running import failing, record_simulation, start_command
from tests.timing import PATIENCE_SECONDS

pytestmark = IN_BROWSER

DEAD = "http://127.0.0.1:9"  # the port of the discard protocol
LOOKS = [(1440, "light"), (390, "dark")]
QUICK = record_simulation(MeshSpec(services=30, seed=3, interval_seconds=3.0), 4)  # late after nine seconds
SLOW = record_simulation(MeshSpec(services=30, seed=3, interval_seconds=60.0), 12)
README = {  # of README's curl; long past
    "observed_at": "2026-03-01T03:12:00Z",
    "services": [
        {
            "namespace": "shop",
            "name": "web",
            "metrics": {"request_rate": 120, "error_rate": 0.001, "p99_latency": 0.21},
        },
        {"namespace": "shop", "name": "cart", "metrics": {"request_rate": 40, "p99_latency": 0.08}},
    ],
    "calls": [{"source": "shop/web", "destination": "shop/cart", "requests_per_second": 40, "p99_latency": 0.09}],
}
BRIEF = MeshSpec(services=30, seed=3, interval_seconds=3.0)
FAULT = Fault("error_burst", failing(BRIEF), 40, 46, 0.9)  # over before the recording ends
STATES = """
window.states = [];
new MutationObserver(() => {
  const head = document.getElementById("headline")?.textContent, state = document.getElementById("verdict")?.className;
  const now = `${state}: ${head}`;
  if (head && now !== window.states.at(-1)) window.states.push(now);
}).observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
"""  # records each headline that the page has, with its state


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("state")) as url:
        yield url


@pytest.fixture
def base(service: str) -> str:
    """A service without a mesh."""
    for one in httpx.get(f"{service}/v1/meshes").raise_for_status().json():
        httpx.delete(f"{service}/v1/meshes/{one['mesh']}").raise_for_status()
    return service


@pytest.fixture
def one(browser: Any, base: str) -> Iterator[Tab]:
    with tab(browser, base) as opened:
        opened.page.add_init_script(STATES)
        yield opened
        opened.assert_clean(REFUSED)


def states(one: Tab) -> list[str]:
    found: list[str] = one.page.evaluate("() => window.states")
    return found


def colour(one: Tab, selector: str, name: str) -> str:
    found: str = one.page.evaluate(f"() => getComputedStyle(document.querySelector('{selector}')).{name}")
    return found


@contextmanager
def starting_service(store: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Run a service, and yield its URL while its replicas are still starting. They wait for the controller of Serve,
    which is suspended; resume it."""
    (port,) = free_ports(1)
    command = ["serve", "--port", str(port), "--set", f"store.path={store}"]
    with start_command(command, r"starting the replicas") as (process, _):
        controller = find_controller(process)
        controller.suspend()
        yield f"http://127.0.0.1:{port}", controller


def find_controller(service: psutil.Process) -> psutil.Process:
    """Return the process of Serve's controller."""
    for one in service.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ends now
            if "ServeController" in " ".join(one.cmdline()):
                return one
    pytest.fail("Serve has no controller")


def test_a_page_that_is_opened_during_the_start_waits_and_opens_by_itself(browser: Any, tmp_path: Path) -> None:
    from playwright.sync_api import Error

    kinds: list[tuple[int, str]] = []
    with starting_service(tmp_path) as (base, controller), tab(browser, base) as opened:
        opened.page.on(
            "response",
            lambda answer: (
                kinds.append((answer.status, answer.headers.get("content-type", "")))
                if answer.request.is_navigation_request()
                else None
            ),
        )
        ends = time.monotonic() + PATIENCE_SECONDS
        while not kinds and time.monotonic() < ends:
            with suppress(Error):  # nothing listens yet
                opened.page.goto(f"{base}/#view=meshes&mesh=shop")
        assert opened.page.inner_text("#headline") == "TAGAE is starting"
        opened.assert_accessible()
        opened.until(lambda: opened.text("#story").count("Waiting for"), "the time that it waits")
        controller.resume()
        opened.page.wait_for_selector("#open-history", timeout=1000 * PATIENCE_SECONDS)
        assert opened.page.url == f"{base}/#view=meshes&mesh=shop", "the view of the address is kept"
        assert {media_type for _, media_type in kinds} == {"text/html; charset=utf-8"}
        assert [status for status, _ in kinds] == [503, 200]
        opened.assert_clean(REFUSED)


def test_without_a_mesh_three_ways_to_connect_one_are_shown(one: Tab, base: str) -> None:
    page = one.page
    page.goto(base)
    page.wait_for_selector("#start:visible")
    assert one.text("#headline") == "No mesh yet"
    for hidden in ("#mesh-graph", "#time", "#side", "#detector"):
        assert not page.is_visible(hidden), "no empty frame"
    assert page.locator("#ways summary").all_inner_texts() == ["Prometheus", "Push", "Demo"]
    assert "tagae doctor --prometheus" in one.text("#ways")
    page.fill("#ways input[name=prometheus]", DEAD)
    page.click("#ways button:text-is('Connect')")
    one.until(lambda: DEAD in one.text("#ways form [role=status]"), "why it is not connected")
    assert httpx.get(f"{base}/v1/meshes").json() == []
    pushed, demo = f"{base}/v1/meshes/shop/snapshots", f"tagae score out/try --url {base} --mesh try"
    for name, command in (("Push", pushed), ("Demo", demo)):
        page.locator(f"#ways summary:text-is('{name}')").press("Enter")
        assert command in one.text("#ways [open]")
    checked = one.text("#start-check")
    assert checked.startswith("No snapshot has arrived yet. Checked at ")
    one.until(lambda: one.text("#start-check") != checked, "it checks again")


@needs("prometheus", "promtool")
def test_a_prometheus_is_connected_without_a_restart(one: Tab, base: str, tmp_path: Path) -> None:
    push_all(base, "first", QUICK)
    with prometheus_of(tmp_path, *MESHES["istio"]) as prometheus:
        one.open("/#mesh=first")
        one.page.click("#connect")
        one.page.fill("#ways input[name=prometheus]", prometheus.url)
        one.page.fill("#ways input[name=mesh]", "second")
        one.assert_accessible()
        one.page.press("#ways input[name=mesh]", "Enter")
        one.until(lambda: "Connected: 4 services, 3 calls." in one.text("#ways form [role=status]"), "what it shows")
        one.page.click("#connect")
        one.until(lambda: not one.page.is_visible("#start"), "the form is closed")
        one.page.goto(f"{base}/#mesh=second")
        one.until(lambda: one.text("#headline").startswith("Learning this mesh"), "the mesh appears")


def test_the_command_to_push_runs_and_the_page_learns_the_mesh(one: Tab, base: str) -> None:
    one.page.goto(base)
    one.page.click("#ways summary:text-is('Push')")
    one.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    one.page.click("#ways [open] button:text-is('Copy')")
    one.until(lambda: one.page.locator("#ways button:text-is('Copied')").count(), "it is copied")
    command = one.page.evaluate("() => navigator.clipboard.readText()")
    assert command == one.text("#ways [open] code")
    once = command.removeprefix("while ").removesuffix("; do sleep 15; done")
    done = subprocess.run(["bash", "-c", once], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    assert '"status":"warming_up"' in done.stdout, done.stdout + done.stderr
    one.page.wait_for_selector("#verdict.learning", timeout=1000 * PATIENCE_SECONDS)
    assert one.text("#headline") == "Learning this mesh: 1 of 10 snapshots received"
    assert not one.page.is_visible("#start")


@pytest.mark.parametrize("count", [1, 4])
def test_the_warm_up_is_progress_and_no_outage(one: Tab, base: str, count: int) -> None:
    for minute in range(count):
        document = {**README, "observed_at": f"2026-03-01T03:{12 + minute}:00Z"}
        httpx.post(f"{base}/v1/meshes/shop/snapshots", json=document).raise_for_status()
    one.open("/#mesh=shop")
    assert one.page.get_attribute("#verdict", "class") == "learning"
    assert one.text("#headline") == f"Learning this mesh: {count} of 10 snapshots received"
    assert one.page.get_attribute("#state-icon", "alt") == "Learning"
    assert float(one.page.evaluate("() => document.getElementById('progress').value")) == count / 10
    assert "The first verdict comes with snapshot 10." in one.text("#story")
    assert ("Push one every 15 s." in one.text("#story")) == (count == 1)
    assert one.page.title() == "… learning · shop · TAGAE"
    assert "unusual" not in one.text("#side").lower()
    assert "0.50" not in one.text("#side")
    assert one.text("#pulse").startswith("learning")
    amber = one.page.evaluate("() => getComputedStyle(document.documentElement).getPropertyValue('--warn')")
    assert colour(one, "#headline", "color") != amber
    assert not any(state.startswith(("unknown", "incident")) for state in states(one))


def test_a_push_that_pauses_while_the_mesh_is_learned_is_asked_for_and_no_outage(one: Tab, base: str) -> None:
    push_all(base, "quick", QUICK)
    one.open("/#mesh=quick")
    one.until(lambda: "Push one every 3 s." in one.text("#story"), "it asks for the next one")
    assert one.page.get_attribute("#verdict", "class") == "learning"
    assert one.text("#headline") == "Learning this mesh: 4 of 10 snapshots received"
    assert not one.page.locator("main.stale").count()


def test_the_time_until_the_first_verdict_is_that_of_the_pushes(one: Tab, base: str) -> None:
    push_all(base, "paced", SLOW[:1])
    one.open("/#mesh=paced")
    pace = 1.0
    texts = []
    for snapshot in SLOW[1:5]:
        one.page.wait_for_timeout(1000 * pace)
        push_all(base, "paced", [snapshot])
    texts.append(one.until(lambda: "First verdict in" in one.text("#story") and one.text("#story"), "the time left"))
    push_all(base, "paced", SLOW[5:])
    one.until(lambda: one.page.locator("#verdict.calm").count(), "the mesh is known")
    assert not one.page.is_visible("#progress")
    assert not any(state.startswith(("unknown", "incident")) for state in states(one)), states(one)


def test_frames_stand_in_for_data_that_are_on_their_way(browser: Any, base: str) -> None:
    push_all(base, "shop", SLOW)
    held: list[Callable[[], None]] = []
    with tab(browser, base) as opened:
        opened.page.route(re.compile("/verdict"), lambda route: held.append(route.continue_))
        opened.page.goto(f"{base}/#mesh=shop")
        opened.until(lambda: len(held) > 1, "requests for the verdict and for its stream")
        for frame in ("#mesh-graph", "#time"):
            colour = "() => getComputedStyle(document.querySelector('{}')).backgroundColor"
            assert opened.page.evaluate(colour.format(frame)) != "rgba(0, 0, 0, 0)"
            assert not opened.page.is_visible(f"{frame} h2")
        opened.assert_accessible()
        for resume in held:
            resume()
        opened.page.wait_for_selector("#verdict.calm", timeout=1000 * PATIENCE_SECONDS)
        assert opened.page.is_visible("#mesh-graph h2")


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_first_state_is_accessible(browser: Any, base: str, width: int, scheme: str) -> None:
    with tab(browser, base, viewport={"width": width, "height": 844}, color_scheme=scheme) as opened:
        opened.page.goto(base)
        opened.page.wait_for_selector("#start:visible")
        for way in range(3):
            opened.page.click(f"#ways summary >> nth={way}")
            opened.assert_accessible()
        push_all(base, "shop", SLOW[:4])
        opened.page.wait_for_selector("#verdict.learning", timeout=1000 * PATIENCE_SECONDS)
        opened.assert_accessible()
        opened.assert_clean(REFUSED)


def test_one_press_goes_back_to_the_incident_of_a_recording_that_is_over(one: Tab, base: str) -> None:
    simulator = Simulator(BRIEF, snapshots=130)
    simulator.schedule(FAULT)
    last = push_all(base, "over", simulator.snapshots())
    assert not last["incidents"]
    one.open("/#mesh=over")
    one.until(lambda: one.text("#headline").startswith("No data since "), "the page says that data stopped")
    one.until(lambda: f"Last incident: {FAULT.service}, " in one.text("#notes"), "a link to the incident")
    one.page.keyboard.press("[")
    one.until(lambda: one.text("#headline").startswith("At ") and FAULT.service in one.text("#headline"), "it is shown")
    assert "incident=" in one.page.url
    one.page.keyboard.press("[")
    one.until(lambda: one.text("#answer") == "There is no earlier incident in the timeline.", "why nothing happened")
    one.page.keyboard.press("Escape")
    one.until(lambda: one.text("#headline").startswith("No data since "), "back to now")
    one.page.click(f"#notes a:has-text('Last incident: {FAULT.service}')")
    one.until(lambda: one.text("#headline").startswith("At "), "the link leads there, too")


def test_a_request_runs_on_the_page_of_the_api(one: Tab, base: str) -> None:
    push_all(base, "quick", QUICK)
    page = one.page
    page.goto(f"{base}/docs")
    verdict = page.locator("#operations-Meshes-verdict")
    verdict.wait_for()
    verdict.click()
    verdict.get_by_role("button", name="Try it out").click()
    verdict.get_by_placeholder("mesh").fill("quick")
    verdict.get_by_role("button", name="Execute").click()
    verdict.get_by_text('"warming_up"').first.wait_for()
    assert f"{base}/v1/meshes/quick/verdict" in verdict.inner_text()
    mute = page.locator("#operations-Feedback_and_mutes-add_mute")
    mute.click()
    assert not mute.locator(".try-out").count(), "only requests that change nothing"
    assert not page.evaluate("() => document.documentElement.scrollWidth > innerWidth")


def test_the_page_links_to_the_reference(one: Tab, base: str) -> None:
    one.page.goto(base)
    one.page.click("#docs")
    one.page.get_by_text("/v1/meshes/{mesh}/snapshots").wait_for()
    assert one.page.url.startswith(f"{base}/docs")
