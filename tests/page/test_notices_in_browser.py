"""Notices on the page: a service runs out of memory while another one fails, and later telemetry is missing."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from serve_app.web.history import instant
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.meshes import ALERTED, BEFORE, FAILING, LEAKING, NOTICED, RECOVERING, SILENT, SNAPSHOTS

pytestmark = IN_BROWSER
PUSHED = {"shop": SNAPSHOTS}


@pytest.fixture
def look(browser: Any, base: str) -> Iterator[Callable[[int], Tab]]:
    """Open the page at a snapshot."""
    with tab(browser, base) as opened:

        def at(index: int) -> Tab:
            time = instant(SNAPSHOTS[index].observed_at)
            opened.open(f"/#mesh=shop&at={time}")
            opened.until(lambda: f"At {time[11:19]}" in opened.text("#headline"), "the verdict of then")
            opened.until(lambda: opened.text("#moment").startswith("showing"), "the timeline")
            return opened

        yield at
        opened.assert_clean()


def verdict(base: str, index: int) -> dict[str, Any]:
    time = instant(SNAPSHOTS[index].observed_at)
    answer: dict[str, Any] = httpx.get(f"{base}/v1/meshes/shop/verdict", params={"at": time}).json()
    return answer


def status(one: Tab) -> str:
    found: str = one.page.get_attribute("#verdict", "class")
    return found


def test_without_a_notice_there_is_no_list_of_notices(look: Callable[[int], Tab]) -> None:
    one = look(BEFORE)
    assert not one.page.is_visible("#notices")
    assert one.text("#headline").endswith("UTC: No incident")


def test_a_notice_is_no_incident(base: str, look: Callable[[int], Tab]) -> None:
    (notice,) = verdict(base, NOTICED)["incidents"]
    forecast = notice["suspects"][0]["reasons"][0]["text"]
    assert forecast.startswith(f"memory of {LEAKING} reaches its limit in ")
    one = look(NOTICED)
    assert one.text("#headline").endswith("UTC: No incident, 1 notice")
    assert status(one).split() == ["calm", "unusual"], "a resource that runs out is not green"
    assert notice["headline"].startswith(f"Memory of {LEAKING} reaches its limit in ")
    assert notice["headline"] in one.text("#notes")
    assert notice["headline"] not in one.text("#story")
    assert notice["headline"] in one.text("#notices")
    assert forecast in one.text("#notices")
    assert LEAKING not in one.text("#headline")
    assert not one.page.is_visible("#incidents")
    assert "likely origin" not in (one.page.get_attribute("#canvas", "aria-label") or "")
    assert "●" not in one.page.title()


def test_an_incident_comes_first(base: str, look: Callable[[int], Tab]) -> None:
    incident = verdict(base, ALERTED)["incidents"][0]
    one = look(ALERTED)
    cause = incident["headline"].removesuffix(f" {incident['impact']['text']}.").removesuffix(".")
    assert cause.startswith(f"{FAILING} is failing: ")
    assert one.text("#headline").endswith(f"UTC: {cause}")
    assert incident["impact"]["text"].split(",")[0] in one.text("#chips")
    assert status(one) == f"incident {incident['severity']}"
    assert "1 notice" in one.text("#chips")
    assert one.page.locator("#others a").count() == 0
    assert LEAKING not in one.text("#headline")
    assert LEAKING in one.text("#notices")
    assert FAILING in one.text("#past")
    assert LEAKING not in one.text("#past")
    assert LEAKING in one.text("#past-notices")


def test_a_recovering_incident_says_so(base: str, look: Callable[[int], Tab]) -> None:
    incident = verdict(base, RECOVERING)["incidents"][0]
    assert incident["recovering"]
    strongest = incident["suspects_at"][11:16]
    one = look(RECOVERING)
    assert f"{FAILING} is recovering; it was failing" in one.text("#headline")
    assert incident["impact"]["text"].split(",")[0] in one.text("#chips")
    assert status(one) == "recovering"
    text = f"Recovering: normal in the last snapshots; suspects at the peak, {strongest} UTC."
    assert text in one.text("#notes")
    assert text not in one.text("#cards"), "each fact once"


def test_missing_telemetry_is_not_shown_as_normal(look: Callable[[int], Tab]) -> None:
    one = look(SILENT)
    assert one.text("#headline").endswith("UTC: No telemetry from 6 of 40 services, status unknown")
    assert status(one) == "unknown"
    assert one.text("#story").startswith("Silent since 01:32 UTC: ")
    assert "Memory of" in one.text("#notes"), "the headline shows the notice"
    assert not one.page.is_visible("#incidents")


def test_a_link_to_a_notice_shows_it(base: str, look: Callable[[int], Tab]) -> None:
    (notice,) = verdict(base, NOTICED)["incidents"]
    one = look(NOTICED)
    one.page.click("#past-notices button")
    one.page.wait_for_selector(".card.notice.linked")
    assert f"incident={notice['id']}" in one.page.url
    assert "of this link" not in one.text("#notes")
    one.open(f"/#mesh=shop&at={instant(SNAPSHOTS[BEFORE].observed_at)}&incident={notice['id']}")
    one.until(lambda: "the notice of this link" in one.text("#notes"), "it is not open then")


def test_a_click_selects_the_service_of_a_notice(look: Callable[[int], Tab]) -> None:
    one = look(NOTICED)
    one.until(lambda: one.page.locator("#notices .chart").count() == 1, "its chart is loaded")
    one.page.click("#notices button.name")
    one.until(
        lambda: f"{LEAKING} is selected" in (one.page.get_attribute("#canvas", "aria-label") or ""), "it is selected"
    )
    one.until(lambda: one.page.locator("#panel .chart").count(), "the panel shows the rise")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_accessible(browser: Any, base: str, scheme: str, width: int) -> None:
    with tab(browser, base, color_scheme=scheme, viewport={"width": width, "height": 844}) as opened:
        opened.open("/#mesh=shop")
        opened.page.wait_for_selector(".card.notice")
        opened.page.wait_for_selector("#past-notices button")
        opened.assert_accessible()
