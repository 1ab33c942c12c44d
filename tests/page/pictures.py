"""Pictures of the page. ``python -m tests.page.pictures FOLDER`` runs the demo, breaks a service, takes pictures."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.page.browsing import Tab, chromium, describe_missing, show, start_demo, start_event, tab

DEMO = ("--services", "150", "--seed", "3", "--speed", "5")  # slow, so that the fault lasts until the last picture
WIDE, LAPTOP, PHONE = {"width": 1280, "height": 840}, {"width": 1280, "height": 1060}, {"width": 390, "height": 844}
DENSITY = 1.5  # scale of pixels: sharp in a README, but still small
FAULT = "error burst"  # at a service whose callers suffer too, with this seed
BEFORE, AFTER = 3, 5  # snapshots from the deploy to the fault, and from the alert to the picture
MAX_SNAPSHOTS = 15  # until the alert; the fault ends soon after that
SEEN_MS, SETTLED_MS = 500, 1500  # time until a verdict is drawn and nothing moves


def main(folder: Path) -> None:
    """Write ``overview``, ``incident``, ``panel``, ``history``, ``timeline``, ``dark`` and ``phone``, all PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    with start_demo(*DEMO) as base, chromium() as browser:
        with open_page(browser, base, "/demo/#mesh=demo") as one:
            one.until(lambda: not show(base)["warming_up"], "the mesh is known", 300)
            press(one, "Pause")
            start_event(one, "deploy")
            step(one, BEFORE)
            start_event(one, FAULT)
            step(one, 1)
            deed = next(d for d in show(base)["deeds"][::-1] if d["key"] == FAULT.replace(" ", "_"))
            for _ in range(MAX_SNAPSHOTS):
                if one.page.locator("#verdict.incident").count():
                    break
                step(one, 1)
            else:
                sys.exit(
                    f"{deed['text']}: expected an alert within {MAX_SNAPSHOTS} snapshots, got none; take another FAULT"
                )
            step(one, AFTER)
            one.until(lambda: deed["service"] in one.text("#headline"), "the headline names it")
        views: dict[str, tuple[str, dict[str, Any]]] = {
            "incident": ("/#mesh=demo", {"viewport": LAPTOP}),
            "overview": ("/#mesh=demo&view=all", {"viewport": WIDE}),
            "dark": ("/#mesh=demo", {"viewport": LAPTOP, "color_scheme": "dark"}),
            "phone": ("/#mesh=demo", {"viewport": PHONE, "device_scale_factor": 2}),
        }
        for name, (path, options) in views.items():
            with open_page(browser, base, path, **options) as one:
                one.page.screenshot(path=folder / f"{name}.png")
        with open_page(browser, base, "/#mesh=demo", viewport=WIDE) as one:
            one.page.keyboard.press("h")
            one.page.wait_for_timeout(SETTLED_MS)
            one.page.screenshot(path=folder / "history.png")
        with open_page(browser, base, f"/#mesh=demo&service={deed['service']}", viewport=LAPTOP) as one:
            one.page.wait_for_selector("#panel:not([hidden])")
            one.page.wait_for_timeout(SETTLED_MS)
            one.page.screenshot(path=folder / "panel.png")
        with open_page(browser, base, "/#mesh=demo", viewport=LAPTOP) as one:
            one.page.keyboard.press("c")
            one.page.wait_for_selector("#comparison tbody")
            for _ in range(AFTER - 2):
                one.page.keyboard.press("ArrowLeft")
            one.page.wait_for_timeout(SETTLED_MS)
            one.page.locator("#time").screenshot(path=folder / "timeline.png")


@contextmanager
def open_page(browser: Any, base: str, path: str, **options: Any) -> Iterator[Tab]:
    """Wait until the page is complete and nothing moves, and return it."""
    with tab(browser, base, **{"device_scale_factor": DENSITY, **options}) as one:
        one.open(path)
        if not path.startswith("/demo/"):  # the time of the pause
            step(one, 1)
            one.until(lambda: "live" in one.text("#pulse"), "a verdict comes while it looks")
        one.page.wait_for_timeout(SETTLED_MS)
        yield one


def press(one: Tab, words: str) -> None:
    """Press a button of the demo's panel."""
    one.page.click(f"#demo button:text-is('{words}')")


def press_key(base: str, key: str) -> None:
    """Press the button of the demo with this key."""
    httpx.post(f"{base}/demo/keys", json={"key": key}).raise_for_status()


def step(one: Tab, snapshots: int) -> None:
    """Resume until this number of snapshots is judged, pause again, and wait until the page shows them."""
    wanted = show(one.base)["snapshots"] + snapshots
    press_key(one.base, "pause")
    one.until(lambda: show(one.base)["snapshots"] >= wanted, "the snapshots are judged")
    if not show(one.base)["controls"]["paused"]:  # at the first incident it pauses by itself
        press_key(one.base, "pause")
    one.page.wait_for_timeout(SEEN_MS)


if __name__ == "__main__":
    if absent := describe_missing():
        sys.exit(absent)
    main(Path(sys.argv[1]))
