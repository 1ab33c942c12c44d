"""The report on a phone, on a large screen and on paper."""

from collections.abc import Iterator
from typing import Any

import pytest

from serve_app.web.report import report
from tests.page.browsing import chromium, describe_missing
from tests.page.meshes import ERRORS_FROM, ERRORS_TO, FAILING, SNAPSHOTS
from tests.serve_app.web.watching import Watched

pytestmark = [
    pytest.mark.page,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(describe_missing()), reason=describe_missing()),
]

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as one:
        yield one


@pytest.mark.parametrize("view", list(VIEWS))
def test_the_whole_time_of_the_incident_is_in_view(browser: Any, address: str, view: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(**VIEWS[view])
    page.goto(address)
    width = VIEWS[view]["viewport"]["width"]
    assert FAILING.split("/")[1] in page.inner_text("h1")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shaded = page.locator("figure svg .incident:visible")
    assert shaded.count() == 1
    box = shaded.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    names = page.locator("svg .name.first:visible")
    assert names.count() == 1
    size = page.evaluate("e => e.getBoundingClientRect().height", names.element_handle())
    assert size >= 12, "a name that people can read without zooming"
    found = Axe().run(page)
    assert found.violations_count == 0, (view, found.generate_report())
    page.close()


def test_paper_is_light_and_has_the_large_pictures(browser: Any, address: str) -> None:
    page = browser.new_page(color_scheme="dark", viewport={"width": 718, "height": 1000})  # A4 within its margins
    page.goto(address)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".large:visible").count() == 2
    assert page.locator(".small:visible").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    page.close()
