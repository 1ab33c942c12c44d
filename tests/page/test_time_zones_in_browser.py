"""The switch between UTC and the browser's zone: half-hour offsets, and a change to summer time within the timeline."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from serve_app.web.history import instant
from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.meshes import ALERTED, FAILING, SNAPSHOTS
from tests.timing import PATIENCE_SECONDS

pytestmark = IN_BROWSER

SUMMER = datetime(2026, 3, 29, 1, tzinfo=UTC)  # clocks in Berlin change from 02:00 to 03:00
CHANGED = 40  # snapshot at that time
MOVED = [replace(one, observed_at=SUMMER + (one.observed_at - SNAPSHOTS[CHANGED].observed_at)) for one in SNAPSHOTS]
PUSHED = {"shop": MOVED[: ALERTED + 1]}


def test_a_zone_with_half_an_hour_is_on_every_part_and_in_the_link(browser: Any, base: str) -> None:
    with tab(browser, base, timezone_id="Asia/Kabul") as one:
        one.open("/#mesh=shop")
        one.until(lambda: " UTC;" in one.text("#moment"), "UTC is the default")
        assert one.page.locator("#zone option").all_inner_texts() == ["UTC", "Asia/Kabul"]
        one.page.select_option("#zone", "local")
        newest = MOVED[ALERTED].observed_at
        one.until(lambda: "UTC+4:30" in one.text("#moment"), "the timeline has local times")
        assert "06:08 UTC+4:30" in one.text("#moment"), f"{newest} in Kabul"
        assert "tz=local" in one.page.url
        one.until(lambda: "UTC+4:30" in one.text("#chips"), "the banner")
        texts = one.text("main")
        assert " UTC " not in texts.replace("UTC+4:30", "").replace("(UTC)", "")
        one.page.keyboard.press("1")
        one.until(lambda: "UTC+4:30" in one.text("#panel"), "the panel")
        one.page.keyboard.press("h")
        one.until(lambda: "UTC+4:30" in one.text("#history"), "the history")
        one.page.keyboard.press("h")
        link = one.page.url
        with tab(browser, base, timezone_id="America/New_York") as other:
            other.open(link.removeprefix(base))
            other.until(lambda: "UTC-4" in other.text("#moment"), "the link keeps that times are local")
        one.open("/#mesh=shop")
        one.until(lambda: "UTC+4:30" in one.text("#moment"), "this browser remembers")
        one.page.select_option("#zone", "utc")
        one.until(lambda: " UTC;" in one.text("#moment"), "back to UTC")
        assert "tz=" not in one.page.url
        one.assert_accessible()
        one.assert_clean()


def test_summer_time_begins_within_the_timeline(browser: Any, base: str) -> None:
    with tab(browser, base, timezone_id="Europe/Berlin") as one:
        one.open("/#mesh=shop&tz=local")
        one.until(lambda: "01:20 UTC+1 to 03:38 UTC+2" in one.text("#moment"), "both zones are named")
        before, after = (instant(MOVED[i].observed_at) for i in (CHANGED - 1, CHANGED + 1))
        for at, shown in ((before, "01:59:00 UTC+1"), (after, "03:01:00 UTC+2")):
            one.page.evaluate("at => { location.hash = `mesh=shop&tz=local&at=${at}`; }", at)
            one.until(partial(contains, one, shown), f"{at} is {shown}")


def test_days_of_the_calendar_are_of_the_zone(browser: Any, base: str) -> None:
    """The incident began at 01:15 UTC on the 29th; in New York that was the 28th."""
    with tab(browser, base, timezone_id="America/New_York") as one:
        for zone, day in (("utc", "2026-03-29"), ("local", "2026-03-28")):
            one.page.goto("about:blank")
            one.page.goto(f"{base}/#mesh=shop&history={day}&tz={zone}")
            one.page.wait_for_selector("#history .archived li", timeout=1000 * PATIENCE_SECONDS)
            one.until(lambda: FAILING in one.text("#history .archived"), f"{day} in {zone}")


def contains(one: Tab, text: str) -> bool:
    return text in one.text("#headline")
