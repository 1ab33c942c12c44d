"""Teams on the page: who owns a suspect, and filters."""

from collections.abc import Iterator

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from tests.page.browsing import IN_BROWSER, Tab
from tests.page.meshes import INCIDENT
from tests.page.serving import push_all, serve
from tests.serve_app.running import record_simulation

pytestmark = IN_BROWSER

OWNERS = '{"*/*" = {team = "checkout", contact = "#checkout"}}'
CALM = record_simulation(MeshSpec(services=30, seed=1), 14)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a mesh that has an incident and owners, and with a calm one."""
    with serve(tmp_path_factory.mktemp("state"), {"meshes.shop.owners": OWNERS}) as url:
        push_all(url, "shop", INCIDENT)
        push_all(url, "calm", CALM)
        yield url


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
