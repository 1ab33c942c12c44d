"""The report on a phone, on a large screen and on paper."""

from typing import Any

import pytest

from serve_app.web.report import report
from tests.page.browsing import IN_BROWSER, tab
from tests.page.meshes import ERRORS_FROM, ERRORS_TO, FAILING, SNAPSHOTS
from tests.serve_app.web.watching import Watched

pytestmark = IN_BROWSER

VIEWS: dict[str, dict[str, Any]] = {
    "phone": {"viewport": {"width": 390, "height": 844}},
    "dark phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
    "wide": {"viewport": {"width": 1440, "height": 900}},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report's file."""
    folder = tmp_path_factory.mktemp("report")
    watched = Watched(folder / "store")
    watched.see("shop", SNAPSHOTS[ERRORS_FROM - 25 : ERRORS_TO + 1])
    file = folder / "report.html"
    file.write_text(report("shop", watched.viewing.moments("shop")), encoding="utf-8")
    return file.as_uri()


@pytest.mark.parametrize("view", list(VIEWS))
def test_the_whole_time_of_the_incident_is_in_view(browser: Any, address: str, view: str) -> None:
    with tab(browser, address, **VIEWS[view]) as opened:
        page = opened.page
        page.goto(address)
        assert FAILING.split("/")[1] in page.inner_text("h1")
        shaded = page.locator("figure svg .incident:visible")
        assert shaded.count() == 1
        box = shaded.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= VIEWS[view]["viewport"]["width"]
        names = page.locator("svg .name.first:visible")
        assert names.count() == 1
        size = page.evaluate("e => e.getBoundingClientRect().height", names.element_handle())
        assert size >= 12, "a name that people can read without zooming"
        opened.assert_accessible()
        opened.assert_clean()


def test_paper_is_light_and_has_the_pictures(browser: Any, address: str) -> None:
    a4 = {"width": 718, "height": 1000}  # within its margins
    with tab(browser, address, color_scheme="dark", viewport=a4) as opened:
        page = opened.page
        page.goto(address)
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("figure svg:visible").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth") <= a4["width"]
