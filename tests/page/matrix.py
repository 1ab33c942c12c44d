"""Pictures of every state of the page, at three widths, in light and dark mode, to look for what reads badly.

    python -m tests.page.matrix FOLDER [VIEW ...] [--looks LOOK ...]

Runs a service, pushes simulated meshes with a fault of each kind, and takes full-page pictures: ``VIEW-LOOK.png``. A
look is a width and a colour scheme, such as ``390-dark``. The meshes end now, as live ones do.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from lab.simulator.events.faults import FaultKind
from lab.simulator.mesh.topology import MeshSpec
from model.snapshot import MeshSnapshot
from tests.page.browsing import Tab, chromium, describe_missing, tab
from tests.page.meshes import NOTICED
from tests.page.meshes import SNAPSHOTS as LEAKING
from tests.page.scenes import FAULT_FROM, INTERVAL, SCENES, two_faults
from tests.page.serving import push_all, serve
from tests.serve_app.running import record_simulation
from tests.timing import PATIENCE_SECONDS

HEIGHTS = {"1440": 900, "1280": 720, "390": 844}  # by width, both in pixels
LOOKS = [f"{width}-{scheme}" for width in HEIGHTS for scheme in ("light", "dark")]
FRESH_SECONDS = 100  # after which a mesh is pushed again, because its state is only live for a while
READY = """() => document.querySelector("#canvas[aria-label*=' and '], #overview-rows tr")
    || document.querySelector("#history:not([hidden]) .archived")
    || /^(Learning|No mesh)/.test(document.getElementById("headline").textContent)"""
SETTLED_MS = 1500  # time until nothing moves
LATE_MS = 12_000  # time until the data of a mesh with a snapshot every 3 s is late
DEAD = "http://127.0.0.1:9"  # nothing listens on this port
PAST: dict[int, tuple[FaultKind, str]] = {  # faults of the history, by days before now; all in one mesh
    12: ("latency_injection", "games-01/orders-db-1"),
    9: ("error_burst", SCENES["failing"].service),
    8: ("disappearance", "games-01/currency-1"),
    3: ("error_burst", SCENES["failing"].service),
    1: ("cpu_saturation", "games-01/ledger-db-1"),
}
SETTINGS = {
    "links.dashboard": "https://grafana.example/d/mesh?var-service={service}",
    "links.logs": "https://logs.example/search?q={service}",
    "meshes.unreachable.prometheus": DEAD,
    "collector.interval_seconds": 1,
    "collector.deadline_seconds": 1,
}
Prepare = Callable[[str], Any]
Act = Callable[[Tab], Any]


@dataclass(frozen=True)
class View:
    """What is in a picture.

    Attributes:
        prepare: pushes the meshes; it gets the URL of the service.
        address: of the page, or a path without the page.
        act: what happens on the page before the picture.
    """

    prepare: Prepare
    address: str
    act: Act = lambda one: None


def pushes(mesh: str, recording: Callable[[], Sequence[MeshSnapshot]]) -> Prepare:
    """Push a recording so that it ends now."""

    def push(base: str) -> None:
        httpx.delete(f"{base}/v1/meshes/{mesh}", timeout=PATIENCE_SECONDS)
        push_all(base, mesh, shift_to_now(recording()))

    return push


def shift_to_now(snapshots: Sequence[MeshSnapshot], days: int = 0) -> list[MeshSnapshot]:
    """Return the snapshots at other times: the last one is of some days ago."""
    shift = datetime.now(UTC).replace(microsecond=0) - timedelta(days=days) - snapshots[-1].observed_at
    return [replace(one, observed_at=one.observed_at + shift) for one in snapshots]


def simulate(services: int, *, fails: bool = False, interval: float = INTERVAL) -> list[MeshSnapshot]:
    spec = MeshSpec(services=services, seed=3, interval_seconds=interval)
    if not fails:
        return record_simulation(spec, FAULT_FROM)
    return record_simulation(spec, FAULT_FROM + 5, fault_from=FAULT_FROM)


def push_history(base: str) -> None:
    """Push incidents of several days to one mesh. One of them happens twice, and now once more."""
    httpx.delete(f"{base}/v1/meshes/past", timeout=PATIENCE_SECONDS)
    now = SCENES["failing"]
    for days, (fault, service) in PAST.items():
        before = replace(now, fault=fault, service=service, lasts=12, ends_after=5)
        push_all(base, "past", shift_to_now(before.snapshots(), days))
    push_all(base, "past", shift_to_now(now.snapshots()))


def push_several(base: str) -> None:
    for mesh in ("slow", "recovering", "silent"):
        pushes(mesh, SCENES[mesh].snapshots)(base)
    pushes("calm", lambda: simulate(60))(base)
    pushes("learning", lambda: simulate(30)[:5])(base)
    pushes("leaking", lambda: LEAKING[: NOTICED + 1])(base)


def mute_and_push(base: str) -> None:
    """Mute the service that fails, before it fails."""
    snapshots = shift_to_now(SCENES["failing"].snapshots())
    httpx.delete(f"{base}/v1/meshes/muted", timeout=PATIENCE_SECONDS)
    push_all(base, "muted", snapshots[:FAULT_FROM])
    end = (snapshots[-1].observed_at + timedelta(hours=4)).isoformat()
    httpx.post(f"{base}/v1/meshes/muted/mutes", json={"reason": "database upgrade", "end": end}).raise_for_status()
    push_all(base, "muted", snapshots[FAULT_FROM:])


def wait(milliseconds: int) -> Act:
    return lambda one: one.page.wait_for_timeout(milliseconds)


def keys(*pressed: str) -> Act:
    def act(one: Tab) -> None:
        for key in pressed:
            one.page.keyboard.press(key)
            one.page.wait_for_timeout(SETTLED_MS)

    return act


def open_archived(one: Tab) -> None:
    one.page.locator("#history .archived a").first.click()
    one.page.wait_for_selector(".card.whole", timeout=1000 * PATIENCE_SECONDS)


def open_past_incident(one: Tab) -> None:
    """Go to the oldest incident that the timeline lists: a moment of the archive."""
    one.page.locator("#past button").last.click()
    one.page.wait_for_selector("#panel:not([hidden]), #mesh-graph .stale-label:not(:empty)")


def compare_deploy(one: Tab) -> None:
    one.page.locator("#changes button").first.click()
    one.page.wait_for_selector("#comparison .sentence", timeout=1000 * PATIENCE_SECONDS)


def press_button(words: str) -> Act:
    return lambda one: one.page.click(f"text={words}")


def open_call(one: Tab) -> None:
    """Open the panel of the calls from the first caller of the first suspect."""
    keys("1")(one)
    one.page.locator("#panel tbody button").first.click()


def views() -> dict[str, View]:
    """Return all views, by name."""
    failing = pushes("failing", SCENES["failing"].snapshots)
    calm = pushes("calm", lambda: simulate(60))
    stopped = pushes("stopped", lambda: simulate(30, interval=3.0))
    stopped_incident = pushes("halted", lambda: simulate(30, fails=True, interval=3.0))
    found = {
        "calm": View(calm, "/#mesh=calm"),
        "calm-all": View(calm, "/#mesh=calm&view=all"),
        "learning": View(pushes("learning", lambda: simulate(30)[:5]), "/#mesh=learning"),
        "stopped-while-open": View(stopped, "/#mesh=stopped", wait(LATE_MS)),
        "stopped-fresh": View(lambda base: None, "/#mesh=stopped"),
        "stopped-incident": View(stopped_incident, "/#mesh=halted", wait(LATE_MS)),
        "source-failing": View(pushes("unreachable", lambda: simulate(60)), "/#mesh=unreachable"),
        "notice": View(pushes("leaking", lambda: LEAKING[: NOTICED + 1]), "/#mesh=leaking"),
        "partial": View(pushes("partial", lambda: LEAKING), "/#mesh=partial"),
        "muted": View(mute_and_push, "/#mesh=muted"),
        **{name: View(pushes(name, scene.snapshots), f"/#mesh={name}") for name, scene in SCENES.items()},
        "two-incidents": View(pushes("two", two_faults), "/#mesh=two"),
        "table": View(failing, "/#mesh=failing", press_button("Show as table")),
        "panel-service": View(failing, "/#mesh=failing", keys("1")),
        "panel-call": View(failing, "/#mesh=failing", open_call),
        "past-moment": View(failing, "/#mesh=failing", keys("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft")),
        "whole-mesh": View(failing, "/#mesh=failing&view=all"),
        "comparison": View(failing, "/#mesh=failing", keys("c")),
        "shortcuts": View(failing, "/#mesh=failing", keys("?")),
        "confirm": View(failing, "/#mesh=failing", lambda one: one.page.click("text=Confirm incident")),
        "report": View(failing, "/v1/meshes/failing/report"),
        "seen-before": View(push_history, "/#mesh=past"),
        "range-month": View(lambda base: None, "/#mesh=past&range=30d"),
        "archived-moment": View(lambda base: None, "/#mesh=past&range=30d", open_past_incident),
        "before-after": View(pushes("slow", SCENES["slow"].snapshots), "/#mesh=slow", compare_deploy),
        "history": View(lambda base: None, "/#mesh=past", keys("h")),
        "archived": View(lambda base: None, "/#mesh=past&history=now", open_archived),
        "overview": View(push_several, "/#view=meshes"),
        "api": View(pushes("calm", lambda: simulate(60)), "/docs"),
        "no-such-mesh": View(lambda base: None, "/#mesh=nowhere"),
    }
    for services in (500, 3000):
        calm = pushes(f"calm-{services}", partial(simulate, services))
        found[f"calm-{services}"] = View(calm, f"/#mesh=calm-{services}")
        found[f"calm-{services}-all"] = View(calm, f"/#mesh=calm-{services}&view=all")
        fails = pushes(f"failing-{services}", partial(simulate, services, fails=True))
        found[f"failing-{services}"] = View(fails, f"/#mesh=failing-{services}")
        found[f"failing-{services}-all"] = View(fails, f"/#mesh=failing-{services}&view=all")
    return found


def take(browser: Any, base: str, name: str, view: View, looks: Sequence[str], folder: Path) -> None:
    """Take the pictures of one view."""
    pushed_at = -math.inf
    for look in looks:
        if time.monotonic() - pushed_at > FRESH_SECONDS:
            view.prepare(base)
            pushed_at = time.monotonic()
        width, scheme = look.split("-")
        size = {"width": int(width), "height": HEIGHTS[width]}
        with tab(browser, base, viewport=size, color_scheme=scheme) as one:
            one.page.goto(base + view.address)
            if "/#" in view.address:
                one.page.wait_for_function(READY)
            one.page.wait_for_timeout(SETTLED_MS)
            view.act(one)
            one.page.wait_for_timeout(SETTLED_MS)
            one.page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
            for complaint in one.complaints:
                print(f"{name} {look}: {complaint}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("views", nargs="*", metavar="VIEW", help="all, if none is given")
    parser.add_argument("--looks", nargs="+", choices=LOOKS, default=LOOKS, metavar="LOOK", help=", ".join(LOOKS))
    arguments = parser.parse_args()
    if absent := describe_missing():
        sys.exit(absent)
    known = views()
    if unknown := set(arguments.views) - known.keys():
        parser.error(f"expected views out of {', '.join(known)}; got {', '.join(sorted(unknown))}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as store, serve(Path(store), SETTINGS) as base, chromium() as browser:
        for name in arguments.views or known:
            print(name, flush=True)
            take(browser, base, name, known[name], arguments.looks, arguments.folder)


if __name__ == "__main__":
    main()
