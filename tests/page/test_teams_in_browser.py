"""Teams on the page: who owns a suspect, and filters."""

import httpx

from lab.simulator.mesh.topology import MeshSpec
from tests.page.browsing import IN_BROWSER, Tab
from tests.page.meshes import INCIDENT
from tests.serve_app.running import record_simulation

pytestmark = IN_BROWSER

OWNERS = '{"*/*" = {team = "checkout", contact = "#checkout"}}'
CALM = record_simulation(MeshSpec(services=30, seed=1), 14)
SETTINGS = {"meshes.shop.owners": OWNERS}
PUSHED = {"shop": INCIDENT, "calm": CALM}


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
