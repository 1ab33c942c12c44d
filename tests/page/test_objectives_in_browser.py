"""The card of an incident shows what it has used of the error budget of a front door, and so does its report."""

from typing import Any

import httpx
import pytest

from tests.page.browsing import IN_BROWSER, REFUSED, tab
from tests.page.meshes import ALERTED, FAILING, SNAPSHOTS

pytestmark = IN_BROWSER

OBJECTIVES = f'{{"{FAILING}" = {{availability = 0.999, latency_ms = 5000}}}}'
SETTINGS = {"meshes.shop.objectives": OBJECTIVES}
PUSHED = {"shop": SNAPSHOTS[: ALERTED + 1]}


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_card_tells_the_share_of_the_error_budget(browser: Any, base: str, width: int, height: int) -> None:
    budgets = httpx.get(f"{base}/v1/meshes/shop/incidents").json()["incidents"][0]["error_budgets"]
    assert budgets[0]["objective"] == "availability"
    with tab(browser, base) as one:
        one.page.set_viewport_size({"width": width, "height": height})
        one.open("/#mesh=shop")
        one.until(lambda: budgets[0]["text"] in one.text(".card .budget"), "the error budget in the card")
        assert one.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        one.assert_clean(REFUSED)


def test_a_report_tells_it_too(base: str) -> None:
    incident, *_ = httpx.get(f"{base}/v1/meshes/shop/incidents").json()["incidents"]  # a notice comes last
    text = incident["error_budgets"][0]["text"]
    assert f"of the 30-day error budget of {FAILING} so far (availability 99.9%)" in text
    for form in ("html", "markdown"):
        report = httpx.get(f"{base}/v1/meshes/shop/report", params={"format": form, "incident": incident["id"]}).text
        assert text in report.replace("\\", "")
