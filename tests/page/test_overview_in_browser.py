"""All meshes at a glance: what each line says, and that it opens its mesh."""

from typing import Any

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.meshes import INCIDENT
from tests.serve_app.running import record_simulation

pytestmark = IN_BROWSER

PUSHED = {  # by name: the snapshots that are pushed
    "new": record_simulation(MeshSpec(services=30, seed=1), 4),
    "shop": INCIDENT,
}


def row(opened: Tab, mesh: str) -> str:
    """The text of the line of a mesh."""
    text: str = opened.page.locator("#overview-rows tr", has_text=mesh).inner_text()
    return text


def test_each_line_has_the_state_of_its_mesh_and_opens_it(browser: Any, base: str) -> None:
    listed = {one["mesh"]: one for one in httpx.get(f"{base}/v1/meshes").json()}
    assert (listed["shop"]["incidents"], listed["new"]["incidents"]) == (1, 0)
    with tab(browser, base) as opened:
        page = opened.page
        opened.open("/#mesh=new")
        page.get_by_role("link", name="All meshes").click()
        opened.until(lambda: page.locator("#overview-rows tr").count() == len(PUSHED), "both meshes are listed")
        assert opened.text("#overview-title").startswith("2 meshes: ")
        assert "Learning: 4 of 10 snapshots" in row(opened, "new")
        assert "ncident" in row(opened, "shop")
        assert "40" in row(opened, "shop")
        assert "100%" in row(opened, "shop")
        alerts = "td[data-label='Alerts in 24 h']"
        opened.until(lambda: page.locator(f"#overview-rows {alerts}").all_inner_texts() == ["1", "0"], "the alerts")
        assert "about 1 a day" in row(opened, "shop"), "the budget"
        assert not page.locator("#verdict").is_visible()
        page.get_by_role("link", name="shop").press("Enter")
        opened.until(lambda: page.locator("#verdict:is(.incident, .last_incident)").count(), "the mesh opens")
        opened.until(lambda: "likely origin" in (page.get_attribute("#canvas", "aria-label") or ""), "its graph")
        assert page.input_value("#mesh") == "shop"
        page.go_back()
        opened.until(lambda: page.locator("#overview").is_visible(), "the overview is back")


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_it_is_accessible(browser: Any, base: str, width: int, scheme: str) -> None:
    with tab(browser, base, viewport={"width": width, "height": 844}, color_scheme=scheme) as opened:
        opened.page.goto(f"{base}/#view=meshes")
        opened.until(lambda: opened.page.locator("#overview-rows tr").count() == len(PUSHED), "both meshes are listed")
        opened.assert_accessible()
