"""The history of incidents on the page: a calendar, lists, the moment of an incident; and what was seen before."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.meshes import ALERTED, FAILING, SNAPSHOTS
from tests.page.serving import push_all, serve
from tests.timing import PATIENCE_SECONDS

pytestmark = IN_BROWSER

OVER = 90  # snapshots, after which the incident of the errors is over
DAYS = 8  # from the first to the second time that the service fails


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a mesh whose service failed eight days ago, and fails now."""
    settings = {"model.window_size": ALERTED + 1}  # so that only the archive has the older incident
    with serve(tmp_path_factory.mktemp("history"), settings) as url:
        push_all(url, "shop", SNAPSHOTS[:OVER])
        moved = [replace(one, observed_at=one.observed_at + timedelta(days=DAYS)) for one in SNAPSHOTS]
        push_all(url, "shop", moved[: ALERTED + 1])
        yield url


@pytest.fixture(scope="module")
def ids(base: str) -> list[str]:
    """The alerts about the failing service, the older one first."""
    since = {"since": "2025-01-01T00:00:00Z", "service": FAILING}
    found = httpx.get(f"{base}/v1/meshes/shop/incidents", params=since, timeout=PATIENCE_SECONDS).json()["incidents"]
    chosen = [one["id"] for one in reversed(found) if one["severity"] != "notice"]
    assert len(chosen) == 2
    return chosen


def is_at(one: Tab, incident: str) -> bool:
    """Whether the page shows a past moment with the card of this incident."""
    return "at=" in one.page.url and f"incident={incident}" in one.page.url and FAILING in one.text("#cards")


def test_a_new_incident_shows_what_was_seen_before(one: Tab, ids: list[str]) -> None:
    one.open("/#mesh=shop")
    link = one.page.locator(".card .seen a").first
    link.wait_for(timeout=1000 * PATIENCE_SECONDS)
    assert one.text(".card .seen").startswith("Seen before: once, on ")
    link.click()
    one.until(lambda: is_at(one, ids[0]), "the moment of its highest score")
    one.until(lambda: "archive, " in one.text("#time .stale-label"), "it is of the archive")
    assert "Confirm incident" in one.text("#cards")


def test_a_panel_leads_to_earlier_incidents(one: Tab, ids: list[str]) -> None:
    one.open(f"/#mesh=shop&service={FAILING}")
    link = one.page.locator(f"#panel [data-key='incident {ids[0]}']")
    link.wait_for(timeout=1000 * PATIENCE_SECONDS)
    assert "open" in one.text(f"#panel [data-key='incident {ids[1]}']")
    link.click()
    one.until(lambda: is_at(one, ids[0]), "the moment of its highest score")


def test_the_calendar_and_the_lists_lead_to_an_incident(one: Tab, ids: list[str]) -> None:
    one.open("/#mesh=shop")
    one.page.keyboard.press("h")
    one.page.wait_for_selector("#history .archived li")
    assert not one.page.is_visible("#mesh-graph")
    days = one.page.locator("#history .calendar td a")
    assert days.count() >= 2
    everything = one.page.locator("#history .archived li").count()
    days.first.click()
    one.until(lambda: one.page.locator("#history .archived li").count() < everything, "only one day is listed")
    assert "history=20" in one.page.url
    one.page.locator("#history section[aria-label='By kind'] button", has_text="Failing").click()
    card = one.page.locator("#history .archived li", has_text=FAILING).first
    assert "reported after" in card.inner_text()
    card.locator("h4 a").click()
    one.until(lambda: is_at(one, ids[0]), "the moment of its highest score")
    assert one.page.is_visible("#mesh-graph")
    one.until(lambda: one.text("#next-step").startswith("What to do: "), "what to do")
    one.page.go_back()
    one.page.wait_for_selector("#history .calendar")
    one.page.keyboard.press("Escape")
    one.page.wait_for_selector("#history", state="hidden")
    assert one.page.is_visible("#mesh-graph")


def test_an_archived_incident_has_a_report(one: Tab, base: str, ids: list[str]) -> None:
    one.page.goto(f"{base}/#mesh=shop&history={ids[0][:4]}-{ids[0][4:6]}-{ids[0][6:8]}")
    link = one.page.locator("#history .archived a", has_text="Report").first
    link.wait_for(timeout=1000 * PATIENCE_SECONDS)
    reports = [link.get_attribute("href") for link in one.page.locator("#history .archived a", has_text="Report").all()]
    (report,) = (link for link in reports if link and ids[0] in link)
    answer = httpx.get(report, timeout=PATIENCE_SECONDS)
    assert (answer.status_code, ids[0] in answer.text) == (200, True)


def test_an_archived_incident_gets_feedback(one: Tab, base: str, ids: list[str]) -> None:
    def read_feedback() -> Any:
        return httpx.get(f"{base}/v1/meshes/shop/incidents/{ids[0]}", timeout=PATIENCE_SECONDS).json()["feedback"]

    one.page.goto(f"{base}/#mesh=shop&peak={ids[0]}")
    one.until(lambda: is_at(one, ids[0]), "the moment of its highest score")
    one.page.click(f"[data-key='yes {ids[0]}']")  # until the moment is loaded, the card is of the one that is open now
    one.page.select_option("#decision select", FAILING)
    one.page.locator("#decision textarea").fill("its disk was full")
    one.page.locator("#decision-send").click()
    one.until(lambda: f"Confirmed: {FAILING}." in one.text("#cards"), "it is confirmed")
    assert "Note: its disk was full" in one.text("#cards")
    assert (read_feedback()["was_incident"], read_feedback()["culprit"]) == (True, FAILING)
    assert one.page.get_by_role("button", name="Confirm incident").count() == 0, "feedback is given once"
    one.page.keyboard.press("h")
    one.until(lambda: "Confirmed" in one.text("#history .archived"), "the list has it")
    one.page.keyboard.press("h")
    one.page.get_by_role("button", name="Undo").click()
    one.page.get_by_role("button", name="False alarm").click()
    one.page.locator("#decision-send").click()
    one.until(lambda: "Marked as a false alarm" in one.text("#cards"), "it is denied")
    one.page.get_by_role("button", name="Undo").click()
    one.page.get_by_role("button", name="Confirm incident").wait_for()
    assert read_feedback() is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_accessible(browser: Any, base: str, ids: list[str], scheme: str, width: int) -> None:
    with tab(browser, base, color_scheme=scheme, viewport={"width": width, "height": 844}) as opened:
        for view, shown in (("history=now", "#history .archived li"), (f"peak={ids[0]}", "#cards .card")):
            opened.page.goto("about:blank")
            opened.page.goto(f"{base}/#mesh=shop&{view}")
            opened.page.wait_for_selector(shown, timeout=1000 * PATIENCE_SECONDS)
            opened.assert_accessible()
