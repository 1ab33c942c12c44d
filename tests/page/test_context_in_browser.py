"""What the card of a suspect shows beside its reasons: error lines, a failing trace, links, and silent tools."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from model.snapshot import MeshSnapshot, PlannedChange, Signal, SignalKind
from serve_app.web.history import instant
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.meshes import ALERTED, FAILING, SNAPSHOTS
from tests.page.serving import push_all, serve
from tests.serve_app.collect.tools.recorded import LINES, SEARCH, found, line, loki, serve_answers, tempo
from tests.timing import PATIENCE_SECONDS

pytestmark = IN_BROWSER

DEPLOYED = ALERTED - 38  # snapshots are a minute apart
NAMESPACE, NAME = FAILING.split("/")
MARKUP = "<img src=x onerror=\"document.title='injected'\"> failed"
SETTINGS = {
    "links.logs": "https://logs.example/{namespace}/{service}",
    "links.traces": "https://traces.example/{service}",
    "links.trace": "https://traces.example/trace/{trace}",
}


def deployed() -> MeshSnapshot:
    """The snapshot with a deploy of the service that fails later, and one restart."""
    change, restart = PlannedChange("deploy", FAILING, "v1.4.2"), Signal(SignalKind.RESTARTS, FAILING, 1.0)
    return replace(SNAPSHOTS[DEPLOYED], changes=(change,), signals=(restart,))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with three meshes in the same incident: with tools, with tools that hang, and without tools."""
    over = threading.Event()

    def hang(_: Any) -> None:
        over.wait(4 * PATIENCE_SECONDS)

    answers = {
        LINES: loki([line(0, "upstream 17 failed"), line(5, MARKUP), line(60, "upstream 4 failed")]),
        SEARCH: found(tempo(service__name=NAME, http__response__status_code=503)),
        f"/hangs{LINES}": hang,
        f"/hangs{SEARCH}": hang,
    }
    with serve_answers(answers) as (url, _):
        meshes = {
            "meshes.shop.logs.loki": url,
            "meshes.shop.traces.tempo": url,
            "meshes.slow.logs.loki": f"{url}/hangs",
            "meshes.slow.traces.tempo": f"{url}/hangs",
        }
        with serve(tmp_path_factory.mktemp("state"), {**SETTINGS, **meshes}) as service:
            for mesh in ("shop", "slow"):
                push_all(service, mesh, SNAPSHOTS[: ALERTED + 1])
            push_all(service, "plain", [*SNAPSHOTS[:DEPLOYED], deployed(), *SNAPSHOTS[DEPLOYED + 1 : ALERTED + 1]])
            yield service
        over.set()


def suspect(one: Tab, mesh: str, text: str) -> str:
    """Open a mesh, and wait for a text at its first suspect; all of its text."""
    one.open(f"/#mesh={mesh}")
    one.until(lambda: text in one.text("#cards .suspect >> nth=0"), f"{text!r} at the first suspect")
    return one.text("#cards .suspect >> nth=0")


def href(one: Tab, selector: str) -> Any:
    return one.page.get_attribute(selector, "href")


def test_the_first_suspect_has_its_error_lines_and_a_failing_trace(one: Tab) -> None:
    text = suspect(one, "shop", "Logs: newest error lines in Loki at 127.0.0.1")
    assert one.page.locator("#cards .log li").all_inner_texts() == [
        "2026-03-01 03:12 UTC upstream 17 failed ×2",
        f"2026-03-01 03:12 UTC {MARKUP}",
    ]
    assert one.page.locator("#cards .log img").count() == 0
    assert f"GET /checkout, 2.3 s, failed in {NAME}: 503" in text
    assert href(one, "[data-key='tool trace']") == "https://traces.example/trace/2f3e0cee77ae5dc9c17ade3689eb2e54"
    assert href(one, "[data-key='tool logs']") == f"https://logs.example/{NAMESPACE}/{NAME}"
    one.assert_accessible()


def test_the_sentence_on_what_to_do_leads_to_the_logs(one: Tab) -> None:
    suspect(one, "shop", "Logs")
    assert "its logs first" in one.text("#next-step")
    assert one.text("#next-step [data-key='tool step']") == "its logs first"
    assert href(one, "#next-step a") == f"https://logs.example/{NAMESPACE}/{NAME}"


def test_times_of_lines_follow_the_zone_of_the_page(browser: Any, base: str) -> None:
    with tab(browser, base, timezone_id="Asia/Kabul") as one:
        one.open("/#mesh=shop&tz=local")
        one.until(lambda: "×2" in one.text("#cards"), "the lines")
        assert one.text("#cards .log li >> nth=0") == "2026-03-01 07:42 UTC+4:30 upstream 17 failed ×2"
        one.assert_clean()


def test_a_tool_that_does_not_answer_leaves_the_card_whole(one: Tab) -> None:
    one.open("/#mesh=slow")
    one.until(lambda: "expected" in one.text("#cards .suspect >> nth=0"), "the reasons")
    assert one.page.is_visible("#cards .actions")
    assert "Also affected in " in one.text("#cards")
    text = suspect(one, "slow", "did not answer within 3 s")
    assert "Logs: Loki at 127.0.0.1" in text
    assert "Traces: Tempo at 127.0.0.1" in text
    assert href(one, "[data-key='tool logs']") == f"https://logs.example/{NAMESPACE}/{NAME}"
    assert one.page.locator("#cards .log").count() == 0


def test_without_tools_there_are_the_links(one: Tab) -> None:
    text = suspect(one, "plain", "Traces")
    assert "Last change: deploy (v1.4.2), 38 min ago" in text
    assert "1 container restarted; last at 00:40 UTC" in text
    assert href(one, "[data-key='tool traces']") == f"https://traces.example/{NAME}"
    assert "Loki" not in one.text("#cards")
    assert one.text("#next-step [data-key='tool step']") == "its logs first"


def test_the_panel_of_a_suspect_has_them_instead_of_the_card(one: Tab) -> None:
    suspect(one, "shop", "newest error lines")
    one.page.keyboard.press("1")
    one.until(lambda: f"failed in {NAME}: 503" in one.text("#panel"), "the trace in the panel")
    assert one.page.locator("#panel .log li").all_inner_texts()[0].endswith("upstream 17 failed ×2")
    assert one.page.locator("#cards .log").count() == 0
    assert href(one, "#panel [data-key='tool trace']").startswith("https://traces.example/trace/")
    one.page.keyboard.press("Escape")
    one.until(lambda: one.page.locator("#cards .log li").count() == 2, "the lines in the card again")


def test_events_of_a_suspect_come_before_all_others(one: Tab) -> None:
    def add_events(route: Any) -> None:
        verdict = route.fetch().json()
        event = {"kind": "BackOff", "object": "Pod x", "message": "", "first": "", "last": "", "count": 1}
        names = [*(f"{NAMESPACE}/other-{i}" for i in range(4)), FAILING]
        verdict["incidents"][0]["events"] = [{**event, "service": name, "text": f"BackOff of {name}"} for name in names]
        route.fulfill(json=verdict)

    one.page.route("**/v1/meshes/plain/verdict?at=*", add_events)
    one.open(f"/#mesh=plain&at={instant(SNAPSHOTS[ALERTED - 1].observed_at)}")
    one.until(lambda: "Kubernetes: " in one.text("#cards"), "the events")
    events = one.page.locator("#cards .why:has-text('Kubernetes: ')").all_inner_texts()
    assert events == [
        f"Kubernetes: BackOff of {name}" for name in (FAILING, f"{NAMESPACE}/other-0", f"{NAMESPACE}/other-1")
    ]
