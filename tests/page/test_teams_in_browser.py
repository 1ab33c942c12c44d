"""Teams on the page: who owns a suspect, filters, and the menu of saved views."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.meshes import INCIDENT
from tests.page.serving import push_all, serve
from tests.serve_app.running import record_simulation

pytestmark = IN_BROWSER

OWNERS = '{"*/*" = {team = "checkout", contact = "#checkout"}}'
CALM = record_simulation(MeshSpec(services=30, seed=1), 14)
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a mesh that has an incident and owners, and with a calm one."""
    with serve(tmp_path_factory.mktemp("state"), {"meshes.shop.owners": OWNERS}) as url:
        push_all(url, "shop", INCIDENT)
        push_all(url, "calm", CALM)
        yield url


@pytest.fixture(autouse=True)
def delete_views(base: str) -> Iterator[None]:
    yield
    for view in httpx.get(f"{base}/v1/views").json()["views"]:
        httpx.delete(f"{base}/v1/views/{view['id']}").raise_for_status()


def test_an_incident_and_a_service_name_their_team(one: Tab, base: str) -> None:
    one.open("/#mesh=shop")
    (incident,) = httpx.get(f"{base}/v1/meshes/shop/incidents").json()["incidents"]
    assert incident["team"] == "checkout"
    one.until(lambda: one.page.locator("#cards .owner").count(), "the team of the incident")
    assert one.page.locator("#cards .owner").all_inner_texts() == ["Team: checkout (#checkout)"], (
        "once, not per suspect"
    )
    one.page.keyboard.press("1")
    one.until(lambda: one.page.locator("#panel .owner").count(), "the team of the service")
    assert one.text("#panel .owner") == "Team: checkout (#checkout)"
    one.assert_accessible()


def test_the_overview_and_the_history_are_filtered_by_team(one: Tab) -> None:
    page = one.page
    page.goto(f"{one.base}/#view=meshes")
    rows = page.locator("#overview-rows tr")
    one.until(lambda: rows.count() == 2, "both meshes are listed")
    assert page.locator("#overview-rows td.teams").all_inner_texts() == ["checkout", "–"]
    page.select_option("#overview-team", "checkout")
    one.until(lambda: rows.count() == 1, "the mesh with an incident of the team")
    assert "team=checkout" in page.url
    assert "of team checkout" in one.text("#overview-title")
    one.assert_accessible()

    page.goto(f"{one.base}/#mesh=shop&history=now")
    chosen = page.get_by_role("region", name="By team").get_by_role("button", name="checkout")
    chosen.click()
    one.until(lambda: "team=checkout" in page.url, "the filter is in the address")
    assert page.locator("#history .archived > li").count() == 1
    page.goto(f"{one.base}/#mesh=shop&history=now&team=other")
    one.until(lambda: "No incident was archived" in one.text("#history"), "no incident of another team")


def test_a_view_is_saved_opened_renamed_and_deleted_by_keyboard(browser: Any, base: str) -> None:
    with tab(browser, base) as opened, tab(browser, base) as other:
        page, menu = opened.page, opened.page.locator("#views summary")
        opened.open("/#mesh=calm&view=all&labels=calls")
        menu.press("Enter")
        opened.until(lambda: page.locator("#no-views").is_visible(), "there is none yet")
        page.get_by_role("button", name="Save this view").press("Enter")
        page.fill("#decision-note", "Calm <img src=x onerror=alert(1)>")
        page.get_by_role("button", name="Save", exact=True).press("Enter")
        opened.until(lambda: page.locator("#view-list a").count(), "it is in the list")
        assert opened.text("#view-list a") == "Calm <img src=x onerror=alert(1)>"
        opened.assert_accessible()

        other.open("/#mesh=shop")
        other.page.locator("#views summary").press("Enter")
        other.until(lambda: other.page.locator("#view-list a").count(), "others have it, too")
        other.page.locator("#view-list a").press("Enter")
        other.until(lambda: other.page.input_value("#mesh") == "calm", "the view opens")
        assert other.page.url.endswith("#mesh=calm&view=all&labels=calls")
        assert not other.page.locator("#view-list").is_visible(), "the menu closes"
        other.assert_clean()

        page.get_by_role("button", name="Rename Calm").press("Enter")
        page.fill("#decision-note", "Calm mesh")
        page.get_by_role("button", name="Rename", exact=True).last.press("Enter")
        opened.until(lambda: opened.text("#view-list a") == "Calm mesh", "its new name")
        page.keyboard.press("Escape")
        assert not page.locator("#view-list").is_visible()
        assert "view=all" in page.url, "only the menu closes"
        menu.press("Enter")
        page.get_by_role("button", name="Delete Calm mesh").press("Enter")
        opened.until(lambda: page.locator("#no-views").is_visible(), "it is gone")
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
        opened.assert_clean()


def test_a_view_of_all_meshes_belongs_to_none(one: Tab, base: str) -> None:
    one.page.goto(f"{base}/#view=meshes&team=checkout")
    one.until(lambda: one.page.locator("#overview-rows tr").count(), "the overview")
    one.page.click("#views summary")
    one.page.click("#save-view")
    one.page.fill("#decision-note", "Ours")
    one.page.click("#decision-send")
    one.until(lambda: one.page.locator("#view-list a").count(), "it is in the list")
    (view,) = httpx.get(f"{base}/v1/views").json()["views"]
    assert (view["mesh"], view["address"]) == (None, "view=meshes&team=checkout")
    one.page.mouse.click(1200, 800)
    assert not one.page.locator("#view-list").is_visible(), "a click elsewhere closes the menu"


def test_the_menu_fits_a_phone(browser: Any, base: str) -> None:
    httpx.post(f"{base}/v1/views", json={"name": "Checkout " * 8, "address": "mesh=shop"}).raise_for_status()
    with tab(browser, base, **PHONE) as opened:
        opened.open("/#mesh=shop")
        opened.page.click("#menu")
        opened.page.click("#views summary")
        opened.until(lambda: opened.page.locator("#view-list a").count(), "the list")
        box = opened.page.locator("#views > div").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        opened.assert_accessible()
        opened.assert_clean()
