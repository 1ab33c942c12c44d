"""A large mesh as areas: its namespaces, the services of one, and the calls of a small one."""

from collections import Counter
from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.snapshot import namespace_of
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.serve_app.running import record_simulation

pytestmark = IN_BROWSER

SNAPSHOTS = record_simulation(MeshSpec(services=700, seed=2), 30, fault_from=24)
SIZES = Counter(namespace_of(name) for name in SNAPSHOTS[-1].node_ids)
LARGEST = SIZES.most_common(1)[0][0]
SMALL = next(name for name, size in SIZES.items() if 3 <= size <= 50)
SQUARIFY = """async ([weights, area]) =>
    (await import(document.querySelector("link[href$='/treemap.js']").href)).squarify(weights, area)"""
PUSHED = {"shop": SNAPSHOTS}


def areas(one: Tab) -> list[str]:
    """Return what a screen reader says of the areas."""
    found: list[str] = one.page.evaluate("[...document.querySelectorAll('.area')].map((one) => one.ariaLabel)")
    return found


def test_areas_fill_the_stage_by_their_weights(browser: Any, base: str) -> None:
    weights = [600, 600, 400, 300, 200, 200, 100, 3, 1]
    stage = {"x": 0, "y": 0, "width": 600, "height": 400}
    with tab(browser, base) as one:
        one.open("/#mesh=shop")
        found = one.page.evaluate(SQUARIFY, [weights, stage])
    whole = sum(weights)
    for weight, area in zip(weights, found, strict=True):
        assert area["width"] * area["height"] == pytest.approx(600 * 400 * weight / whole)
        assert -1e-6 <= area["x"] <= 600 - area["width"] + 1e-6
        assert -1e-6 <= area["y"] <= 400 - area["height"] + 1e-6
        if weight >= 100:  # the last and smallest ones take what is left
            assert max(area["width"], area["height"]) < 4 * min(area["width"], area["height"]), "nearly square"


def test_namespaces_lead_to_their_services_and_back(browser: Any, base: str) -> None:
    with tab(browser, base) as one:
        one.open("/#mesh=shop&view=all")
        one.until(lambda: len(areas(one)) == len(SIZES), "an area for each namespace")
        for name, size in SIZES.items():
            (said,) = (text for text in areas(one) if text.startswith(f"{name}, "))
            assert f"{size} service" in said
        assert any("likely origin" in said and "part of an incident" in said for said in areas(one))
        one.page.click(f"[data-key='area {LARGEST}']")
        one.until(lambda: f"space={LARGEST}" in one.page.url, "the link has the namespace")
        one.until(lambda: len(areas(one)) == SIZES[LARGEST], "an area for each of its services")
        service = areas(one)[0].split(",")[0]
        one.page.click(f"[data-key='area {service}']")
        one.until(lambda: one.page.is_visible("#panel") and one.text("#panel-title") == service, "its panel")
        one.page.click("#near")
        selected = one.page.locator(".near .selected title")
        one.until(lambda: selected.count() and service in selected.text_content(), "what is around it")
        one.page.go_back()
        one.until(lambda: one.page.is_visible("#crumbs"), "the namespace again")
        one.page.click("#crumbs a")
        one.until(lambda: len(areas(one)) == len(SIZES), "all namespaces")
        assert "space=" not in one.page.url
        one.assert_clean()


def test_a_link_leads_to_a_namespace_and_a_small_one_is_drawn_with_its_calls(browser: Any, base: str) -> None:
    with tab(browser, base) as one:
        one.open(f"/#mesh=shop&space={LARGEST}")
        one.until(lambda: len(areas(one)) == SIZES[LARGEST], "its services")
        assert one.text("#crumbs") == f"All namespaces › {LARGEST}"
        one.open(f"/#mesh=shop&space={SMALL}")
        one.until(lambda: f"{SIZES[SMALL]} of " in one.page.get_attribute("#canvas", "aria-label"), "its services")
        assert one.page.locator("#canvas .whole").count() == 1
        assert one.text("#crumbs") == f"All namespaces › {SMALL}"


def test_areas_do_not_overlap_and_are_walked_by_the_keyboard(browser: Any, base: str) -> None:
    with tab(browser, base, viewport={"width": 390, "height": 844}) as one:
        one.open("/#mesh=shop&view=all")
        one.until(lambda: len(areas(one)) == len(SIZES), "an area for each namespace")
        boxes = one.page.evaluate(
            "[...document.querySelectorAll('.area')].map((one) => one.getBoundingClientRect().toJSON())"
        )
        stage = one.page.locator("#stage").bounding_box()
        for i, a in enumerate(boxes):
            assert a["left"] >= stage["x"]
            assert a["right"] <= stage["x"] + stage["width"] + 0.5
            for b in boxes[:i]:
                apart = a["right"] <= b["left"] + 0.1 or a["left"] >= b["right"] - 0.1
                assert apart or a["bottom"] <= b["top"] + 0.1 or a["top"] >= b["bottom"] - 0.1
        focused = "document.activeElement.dataset.key ?? null"
        one.page.locator(".area").first.focus()
        first, url = one.page.evaluate(focused), one.page.url
        one.page.keyboard.press("ArrowDown")
        second = one.page.evaluate(focused)
        assert second != first
        assert second.startswith("area ")
        assert one.page.url == url, "the keys do not move through time"
        one.page.keyboard.press("Enter")
        one.until(lambda: f"space={second.removeprefix('area ')}" in one.page.url, "Enter opens it")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("space", ["", f"&space={LARGEST}", f"&space={SMALL}"])
def test_it_is_accessible(browser: Any, base: str, space: str, width: int, scheme: str) -> None:
    with tab(browser, base, viewport={"width": width, "height": 844}, color_scheme=scheme) as one:
        one.open(f"/#mesh=shop&view=all{space}")
        one.page.wait_for_selector("#canvas :is(.area, .whole)")
        one.assert_accessible()
