"""The pictures of the page: ``python -m tests.page.pictures FOLDER`` runs the demo, breaks a service and looks."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.page.browsing import Tab, chromium, describe_missing, show, start_demo, tab

DEMO = ("--services", "150", "--seed", "3", "--speed", "15")
WIDE, LAPTOP, PHONE = {"width": 1280, "height": 840}, {"width": 1280, "height": 1060}, {"width": 390, "height": 844}
DENSITY = 1.5  # of pixels: sharp where a README is read, and still small
FAULT, BEFORE, AFTER = "latency injection", 3, 5  # snapshots between a deploy and it, and into the incident
SEEN_MS, SETTLED_MS = 500, 1500  # after which a verdict shows, and nothing moves any more


def main(folder: Path) -> None:
    """Write ``overview``, ``incident``, ``timeline``, ``dark`` and ``phone``, all PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    with start_demo(*DEMO) as base, chromium() as browser:
        press_key(base, "story")  # auto-play off at once: on a slow machine it would have started an event
        with open_page(browser, base, "/demo/#mesh=demo") as one:
            one.until(lambda: not show(base)["warming_up"], "the mesh is known", 300)
            press(one, "Pause")  # from here on it takes as many snapshots on any machine
            press(one, "deploy")
            step(one, BEFORE)
            press(one, FAULT)
            step(one, 1)
            deed = next(d for d in show(base)["deeds"][::-1] if d["key"] == "latency_injection")
            while not one.page.locator("#verdict.incident").count():
                step(one, 1)
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
        with open_page(browser, base, "/#mesh=demo", viewport=LAPTOP) as one:
            one.page.keyboard.press("c")
            one.page.wait_for_selector("#comparison tbody")
            for _ in range(AFTER - 2):
                one.page.keyboard.press("ArrowLeft")
            one.page.wait_for_timeout(SETTLED_MS)
            one.page.locator("#time").screenshot(path=folder / "timeline.png")


@contextmanager
def open_page(browser: Any, base: str, path: str, **options: Any) -> Iterator[Tab]:
    """The page when all of it is there and still."""
    with tab(browser, base, **{"device_scale_factor": DENSITY, **options}) as one:
        one.open(path)
        if not path.startswith("/demo/"):  # where it was paused
            step(one, 1)
            one.until(lambda: "live" in one.text("#pulse"), "a verdict comes while it looks")
        one.page.wait_for_timeout(SETTLED_MS)
        yield one


def press(one: Tab, words: str) -> None:
    """A button of the demo's panel."""
    one.page.click(f"#demo button:text-is('{words}')")


def press_key(base: str, key: str) -> None:
    """Press a button of the demo by its key."""
    httpx.post(f"{base}/demo/keys", json={"key": key}).raise_for_status()


def step(one: Tab, snapshots: int) -> None:
    """So many more, one by one, each seen by the page."""
    for _ in range(snapshots):
        before = sequence(one.base)
        press_key(one.base, "step")
        one.until(partial(_has_passed, one.base, before), "a snapshot is judged")
        one.page.wait_for_timeout(SEEN_MS)


def _has_passed(base: str, before: int) -> bool:
    return sequence(base) > before


def sequence(base: str) -> int:
    """Of the newest verdict."""
    return int(httpx.get(f"{base}/v1/meshes/demo/verdict").raise_for_status().json()["sequence"])


if __name__ == "__main__":
    if absent := describe_missing():
        sys.exit(absent)
    main(Path(sys.argv[1]))
