"""An incident from alert to feedback with the keyboard alone: no click, and the focus is always visible."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from tests.page.browsing import IN_BROWSER, Tab, tab
from tests.page.meshes import ALERTED, FAILING, SNAPSHOTS
from tests.timing import PATIENCE_SECONDS

pytestmark = IN_BROWSER

MOST_TABS = 120  # presses of Tab from one control to the next
FOCUS = """() => {
    const active = document.activeElement, box = active.getBoundingClientRect(), style = getComputedStyle(active);
    return {
        name: (active.getAttribute("aria-label") || active.innerText || active.id || "").trim(),
        id: active.id,
        isSeen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight,
        isMarked: style.outlineStyle !== "none" || style.boxShadow !== "none",
    };
}"""
PUSHED = {"shop": SNAPSHOTS[: ALERTED + 1]}


@pytest.fixture
def one(browser: Any, base: str) -> Iterator[Tab]:
    with tab(browser, base, viewport={"width": 1280, "height": 720}) as opened:
        opened.open("/#mesh=shop")
        opened.until(lambda: opened.page.locator("#cards .suspect").count(), "the suspects")
        yield opened
        opened.assert_clean()


def focus(one: Tab) -> dict[str, Any]:
    found: dict[str, Any] = one.page.evaluate(FOCUS)
    return found


def tab_to(one: Tab, is_there: Callable[[dict[str, Any]], bool], what: str) -> None:
    """Press Tab until the focus is there. Each control on the way is in view and marked."""
    for _ in range(MOST_TABS):
        one.page.keyboard.press("Tab")
        found = focus(one)
        assert found["isSeen"], f"the focus left the screen at {found}"
        assert found["isMarked"], f"nothing marks the focus at {found}"
        if is_there(found):
            return
    raise AssertionError(f"Tab does not reach {what}")


def test_the_first_tab_skips_to_the_verdict(one: Tab) -> None:
    one.page.keyboard.press("Tab")
    assert focus(one)["name"] == "Skip to the verdict"
    one.page.keyboard.press("Enter")
    one.until(lambda: focus(one)["id"] == "verdict", "the verdict has the focus")


def test_an_incident_from_the_suspect_to_feedback(one: Tab, base: str) -> None:
    keyboard = one.page.keyboard
    keyboard.press("1")
    one.until(lambda: one.text("#panel-title") == FAILING, "the panel of the first suspect")
    one.until(lambda: focus(one)["id"] == "panel-title", "the panel has the focus")
    keyboard.press("Escape")
    one.until(lambda: not one.page.is_visible("#panel"), "the panel is closed")
    keyboard.press("[")
    one.until(lambda: "at=" in one.page.url, "the start of the incident")
    keyboard.press("ArrowLeft")
    one.until(lambda: "No incident" in one.text("#headline"), "the moment before it")
    keyboard.press("Escape")
    one.until(lambda: "at=" not in one.page.url, "back to now")

    tab_to(one, lambda found: found["name"] == "Confirm incident", "the confirmation")
    keyboard.press("Enter")
    one.until(lambda: one.page.is_visible("#decision"), "the question")
    tab_to(one, lambda found: found["id"] == "decision-note", "the note")
    keyboard.type("the new release")
    tab_to(one, lambda found: found["id"] == "decision-send", "the confirmation of the note")
    keyboard.press("Enter")
    one.until(lambda: "Confirmed" in one.text("#cards"), "it is confirmed")
    (given,) = httpx.get(f"{base}/v1/meshes/shop/feedback", timeout=PATIENCE_SECONDS).json()["feedback"]
    assert (given["was_incident"], given["note"]) == (True, "the new release")


def test_every_view_opens_and_closes_by_a_key(one: Tab) -> None:
    keyboard = one.page.keyboard
    for key, place in (("h", "#history"), ("c", "#comparison"), ("?", "#keys")):
        keyboard.press(key)
        one.until(partial(one.page.is_visible, place), f"{key} opens {place}")
        one.assert_accessible()
        keyboard.press("Escape" if key == "?" else key)
        one.until(partial(one.page.is_hidden, place), f"{key} closes {place}")
    keyboard.press("/")
    one.until(lambda: focus(one)["id"] == "find", "the search has the focus")
    keyboard.type(FAILING)
    keyboard.press("Enter")
    one.until(lambda: one.text("#panel-title") == FAILING, "the service is found")
