"""Pictures of the page. ``python -m tests.page.pictures FOLDER`` runs a service, breaks a mesh, takes pictures."""

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.page.browsing import Tab, chromium, describe_missing, tab
from tests.page.scenes import SCENES
from tests.page.serving import push_all, serve

WIDE, LAPTOP, PHONE = {"width": 1280, "height": 840}, {"width": 1280, "height": 1060}, {"width": 390, "height": 844}
DENSITY = 1.5  # scale of pixels: sharp in a README, but still small
EARLIER = {"rerouted": 0, "retries": 6}  # scenes of the same mesh, by the day on which it is in them
SCENE, DAY = "slow", 9  # the one in view: a deploy makes a service slow
DRAWN_MS = 500  # time in which nothing moves any more
VIEWS: dict[str, tuple[str, dict[str, Any]]] = {
    "incident": ("", {"viewport": LAPTOP}),
    "overview": ("&view=all", {"viewport": WIDE}),
    "dark": ("", {"viewport": LAPTOP, "color_scheme": "dark"}),
    "phone": ("", {"viewport": PHONE, "device_scale_factor": 2}),
    "history": ("", {"viewport": WIDE}),
    "panel": (f"&service={SCENES[SCENE].service}", {"viewport": LAPTOP}),
    "timeline": ("", {"viewport": LAPTOP}),
}


def main(folder: Path) -> None:
    """Write a PNG of each view."""
    folder.mkdir(parents=True, exist_ok=True)
    days = {day: SCENES[name].snapshots() for name, day in {**EARLIER, SCENE: DAY}.items()}
    settings = {"model.window_size": len(days[DAY])}  # earlier days are only in the archive
    with TemporaryDirectory() as store, serve(Path(store), settings) as base, chromium() as browser:
        for day, snapshots in days.items():
            moved = timedelta(days=day)
            push_all(base, "shop", [replace(one, observed_at=one.observed_at + moved) for one in snapshots])
        for name, (view, options) in VIEWS.items():
            with tab(browser, base, **{"device_scale_factor": DENSITY, **options}) as one:
                one.open(f"/#mesh=shop{view}")
                picture = look(one, name)
                one.page.wait_for_timeout(DRAWN_MS)
                one.assert_clean()
                picture.screenshot(path=folder / f"{name}.png")
                print(name)


def look(one: Tab, name: str) -> Any:
    """Wait until a view is complete, and return what its picture shows. Fails if data stopped, on a slow machine."""
    one.page.wait_for_selector("#verdict.incident")
    if name == "history":
        one.page.keyboard.press("h")
        one.page.wait_for_selector("#history .archived li")
        return one.page
    one.page.wait_for_selector("#plot canvas")
    one.page.wait_for_selector("#panel .chart" if name == "panel" else "#cards .chart")
    if name != "timeline":
        return one.page
    one.page.click("#cards a:text-is('Before and after')")
    one.page.wait_for_selector("#comparison tbody")
    return one.page.locator("#time")


if __name__ == "__main__":
    if absent := describe_missing():
        sys.exit(absent)
    main(Path(sys.argv[1]))
