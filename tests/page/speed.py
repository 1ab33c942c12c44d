"""How long people wait for the page of a large mesh, in a real Chromium beside the service.

    python -m tests.page.speed [--services 3000] [--views 7]

A mesh with some incidents and an hour of history is pushed to a service. In new tabs, with an empty cache, it measures
the first view, the panel of the first suspect, another incident, and an hour of history. It prints the median and the
longest time of each, and our goal for two quiet cores. A view that never comes ends the measurement.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich.progress import track

from lab.simulator.events.faults import Fault, candidates
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from tests.page.browsing import Tab, chromium, describe_missing, tab
from tests.page.serving import push_all, serve
from tests.timing import PATIENCE_SECONDS

MESH, HOUR, FAULT_LASTS = "shop", 240, 10  # snapshots
FAULTS = 12  # some of which harm enough users for an alert
GOALS = {"first view": 2.0, "panel of a suspect": 0.5, "another incident": 0.5, "an hour of history": 1.0}  # s


def main(services: int, views: int) -> None:
    times: dict[str, list[float]] = {what: [] for what in GOALS}
    with TemporaryDirectory() as store, serve(Path(store)) as base, chromium() as browser:
        snapshots = track(record(services), f"pushing {services:,} services", HOUR + FAULT_LASTS)
        verdict = push_all(base, MESH, snapshots)
        alerts = [one for one in verdict["incidents"] if one["severity"] != "notice"]
        assert len(alerts) >= 2, f"expected two incidents, got {len(alerts)}"
        for _ in range(views):
            with tab(browser, base) as one:
                for what, seconds in look(one):
                    times[what].append(seconds)
                one.assert_clean()
    for what, found in times.items():
        print(f"{what:20} {median(found):5.2f} s, longest {max(found):5.2f} s, goal {GOALS[what]:.1f} s")


def record(services: int) -> Iterator[MeshSnapshot]:
    """An hour without faults, and then services all over the mesh fail."""
    simulator = Simulator(MeshSpec(services=services, seed=1), snapshots=HOUR + FAULT_LASTS)
    able = candidates(simulator.mesh, "error_burst")
    for row in able[:: max(1, len(able) // FAULTS)]:
        simulator.schedule(Fault("error_burst", simulator.node_ids[row], HOUR, HOUR + FAULT_LASTS, 0.9))
    return simulator.snapshots()


def look(one: Tab) -> Iterator[tuple[str, float]]:
    """Go through the page, and yield what was waited for, with its seconds."""
    with watch() as seconds:
        one.open(f"/#mesh={MESH}")
        one.page.wait_for_selector("#verdict.incident")
    yield "first view", seconds()
    with watch() as seconds:
        one.page.locator("#cards [data-key^='select ']").first.click()
        one.page.wait_for_selector("#panel .chart")
    yield "panel of a suspect", seconds()
    one.page.click("#panel-close")
    before = one.text("#headline")
    with watch() as seconds:
        one.page.locator("[data-key^='other ']").first.click()
        await_page(one, "before => document.querySelector('#headline').innerText !== before", before)
    yield "another incident", seconds()
    with watch() as seconds:
        one.page.click("[data-key='range 1h']")
        one.page.wait_for_selector("#time[aria-busy=true]")
        one.page.wait_for_selector("#time[aria-busy=false]")
    yield "an hour of history", seconds()


def await_page(one: Tab, condition: str, argument: Any) -> None:
    one.page.wait_for_function(condition, arg=argument, timeout=1000 * PATIENCE_SECONDS)


@contextmanager
def watch() -> Iterator[Callable[[], float]]:
    """A stop watch, which a block starts and stops."""
    began, ended = time.perf_counter(), 0.0
    yield lambda: ended - began
    ended = time.perf_counter()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=3000)
    parser.add_argument("--views", type=int, default=7)
    if missing := describe_missing():
        sys.exit(missing)
    main(**vars(parser.parse_args()))
