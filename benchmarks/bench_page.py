"""Speed of the page in a real Chromium, and the cost of ten open pages for the service.

    python -m benchmarks.bench_page [--measures view payload] [--views 7] [--pushes 200] [--json FILE]

Prints JSON lines. ``view``: seconds from opening the address to the verdict and to the whole mesh, with an empty cache;
for 500 services as ``graph_s``, for 3,000 and 10,000 in rows of their own. ``interaction``: frames per second while the
largest mesh whose calls are drawn is dragged and zoomed, and while the pointer moves over the areas of 10,000 services,
without a GPU. ``payload``: compressed bytes of the page and all its files. ``cost``: CPU of all
processes of the service for ten pages, as a share of one core at a snapshot every 15 s: the difference between pushes
with and without pages, and the cost of waiting pages. ``push``: p50 and p99 of a push with ten open pages divided by
the values without, in alternating blocks.

In the last two, clients replace the ten pages. They send the same requests at the same times without the work of a
browser. Correctness first: the page shows the verdict of the service, and each client sees each verdict once.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from serve_app.api.codec import ARROW, encode_snapshot
from serve_app.app import start, stop
from serve_app.settings import Settings
from tests.page.browsing import JUDGED, Tab, chromium, describe_missing, tab

MEASURES = ("view", "payload", "cost", "interaction")  # cost measures pushes, too
MESH, PAGES, INTERVAL = "bench", 10, 15.0
KNOWN = 30  # snapshots before the measurement
BLOCK, PAUSE = 20, 0.5  # pushes of a block, and s between two pushes, so that pages finish one before the next
DRAWN = "#canvas[aria-label*=' and ']"
LARGE = (3_000, 10_000)  # services of further first views
MOST_DRAWN, AREAS = 200, 10_000  # services: of the largest mesh whose calls are drawn; of the mesh as areas
MOVES = 3.0  # s of dragging

CLIENT = """
import asyncio, json, sys
import httpx

base, count = sys.argv[1], int(sys.argv[2])

async def page(http):
    seen = []
    last = None
    async with http.stream("GET", f"{base}/verdicts/stream", timeout=None) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("id: "):
                at = line[4:]
                assert at not in seen, at
                seen.append(at)
                await asyncio.gather(
                    http.get(f"{base}/timeline", params={"since": last} if last else None),
                    http.get(f"{base}/map"),
                )
                last = at
                print(at, flush=True)

async def main():
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(headers={"accept-encoding": "gzip"}, limits=limits) as http:
        await asyncio.gather(*(page(http) for _ in range(count)))

asyncio.run(main())
"""


def snapshots(services: int) -> Iterator[MeshSnapshot]:
    """Simulate a mesh without faults, endlessly."""
    return Simulator(MeshSpec(services=services, seed=1)).snapshots()


@contextmanager
def service() -> Iterator[str]:
    """Run the service on loopback and yield its URL."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            serve={"port": 0, "deadline_seconds": 60},
            store={"path": Path(folder)},
            limits={"max_ahead_seconds": float("inf")},
        )
        url = start(settings)
        try:
            yield url
        finally:
            stop()


class Pusher:
    """Pushes one snapshot after another and returns the duration of each push in ms."""

    def __init__(self, url: str, services: int) -> None:
        self.http = httpx.Client(base_url=url, timeout=60)
        self.snapshots = snapshots(services)
        self.pushed = 0

    def __call__(self) -> float:
        body = encode_snapshot(next(self.snapshots), ARROW)
        began = time.perf_counter()
        answer = self.http.post(f"/v1/meshes/{MESH}/snapshots", content=body, headers={"content-type": ARROW})
        took = 1000 * (time.perf_counter() - began)
        self.pushed += 1
        assert answer.raise_for_status().json()["sequence"] == self.pushed
        return took


def push_known(url: str, services: int) -> Pusher:
    """Push the snapshots before the measurement."""
    push = Pusher(url, services)
    for _ in range(KNOWN):
        push()
    return push


def renew(url: str, services: int) -> None:
    """Replace the mesh by one of another size."""
    httpx.delete(f"{url}/v1/meshes/{MESH}", timeout=60).raise_for_status()
    push_known(url, services)


def view(browser: Any, url: str, views: int) -> dict[str, Any]:
    """Measure the first view of the whole mesh."""
    verdicts, graphs = [], []
    for _ in range(views):
        with tab(browser, url) as one:
            began = time.perf_counter()
            one.page.goto(f"{url}/#mesh={MESH}&view=all")
            one.page.wait_for_selector(JUDGED)
            verdicts.append(time.perf_counter() - began)
            one.page.wait_for_selector(DRAWN)
            graphs.append(time.perf_counter() - began)
            assert one.complaints == []
    return {"verdict_s": middle(verdicts), "graph_s": middle(graphs), "slowest_graph_s": round(max(graphs), 3)}


def payload(browser: Any, url: str) -> dict[str, Any]:
    """Measure the compressed size of the page and its files."""
    with tab(browser, url) as one:
        sizes: dict[str, int] = {}
        one.page.on("requestfinished", lambda asked: sizes.setdefault(asked.url, asked.sizes()["responseBodySize"]))
        one.open(f"/#mesh={MESH}")
        files = {name: size for name, size in sizes.items() if "/v1/" not in name and "/healthz" not in name}
    return {"files": len(files), "kilobytes": round(sum(files.values()) / 1000, 1)}


def interaction(browser: Any, url: str, *moves: Any) -> list[float]:
    """Measure frames per second during each of the moves over the whole mesh."""
    with tab(browser, url) as one:
        one.open(f"/#mesh={MESH}&view=all")
        one.page.wait_for_selector(DRAWN)
        one.page.wait_for_timeout(1500)
        one.page.evaluate(
            """() => {
                window.drawn = [];
                const tick = (at) => { window.drawn.push(at); requestAnimationFrame(tick); };
                requestAnimationFrame(tick);
            }"""
        )
        rates = [frames_per_second(one, move) for move in moves]
        assert one.complaints == []
    return rates


def frames_per_second(one: Tab, move: Any) -> float:
    """Call ``move`` repeatedly and return the frames per second."""
    box = one.page.locator("#stage").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    one.page.mouse.move(x, y)
    before, began, i = one.page.evaluate("() => window.drawn.length"), time.perf_counter(), 0
    while time.perf_counter() - began < MOVES:
        move(one, x, y, i)
        i += 1
    frames = one.page.evaluate("() => window.drawn.length") - before
    rate = frames / (time.perf_counter() - began)
    one.page.mouse.up()
    return round(float(rate), 1)


def drag(one: Tab, x: float, y: float, i: int) -> None:
    if i == 0:
        one.page.mouse.down()
    one.page.mouse.move(x + 4 * (i % 60 - 30), y + 2 * (i % 50 - 25))
    time.sleep(0.008)


def point(one: Tab, x: float, y: float, i: int) -> None:
    one.page.mouse.move(x + 5 * (i % 120 - 60), y + 3 * (i % 90 - 45))
    time.sleep(0.008)


def zoom(one: Tab, x: float, y: float, i: int) -> None:
    one.page.mouse.wheel(0, -100 if i // 15 % 2 else 100)
    time.sleep(0.05)


@contextmanager
def pages(url: str) -> Iterator[subprocess.Popen[str]]:
    """Run ten clients and wait until each has received a verdict."""
    command = [sys.executable, "-c", CLIENT, f"{url}/v1/meshes/{MESH}", str(PAGES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as clients:
        assert clients.stdout is not None
        for _ in range(PAGES):
            assert clients.stdout.readline()
        try:
            yield clients
        finally:
            clients.kill()


def seconds() -> float:
    """Return the CPU seconds of all child processes without the clients."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            if CLIENT not in child.cmdline():
                times = child.cpu_times()
                total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def block(push: Pusher) -> tuple[list[float], float]:
    """Return durations of pushes in ms, and the CPU seconds of the service meanwhile."""
    before, took = seconds(), []
    for _ in range(BLOCK):
        took.append(push())
        time.sleep(PAUSE)
    return took, seconds() - before


def idle() -> float:
    """Return the share of a core that the service uses without pushes."""
    before = seconds()
    time.sleep(INTERVAL)
    return (seconds() - before) / INTERVAL


def cost(url: str, push: Pusher, pushes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure the cost of ten pages for the service and for pushes."""
    alone, beside, spent_alone, spent_beside = [], [], [], []
    for _ in range(-(-pushes // BLOCK)):
        took, spent = block(push)
        alone += took
        spent_alone.append(spent / BLOCK)
        with pages(url):
            took, spent = block(push)
        beside += took
        spent_beside.append(spent / BLOCK)
    a, b = statistics.median(spent_alone), statistics.median(spent_beside)
    waiting = idle()
    with pages(url):
        waiting = idle() - waiting
    costs = {"pages": PAGES, "cpu_ms_a_snapshot": round(1000 * (b - a), 1), "waiting": round(waiting, 4)}
    costs["of_a_core"] = round((b - a) / INTERVAL + max(waiting, 0.0), 4)
    costs["pushes_themselves_cpu_ms"] = round(1000 * a, 1)
    p = {name: (quantile(alone, q), quantile(beside, q)) for name, q in (("p50", 0.5), ("p99", 0.99))}
    ratios = {f"{name}_ratio": round(with_ / without, 3) for name, (without, with_) in p.items()}
    return costs, {"pushes": len(alone), **{f"{n}_ms": [round(v, 1) for v in both] for n, both in p.items()}, **ratios}


def middle(values: list[float]) -> float:
    return round(statistics.median(values), 3)


def quantile(values: list[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, round(q * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measures", nargs="+", choices=MEASURES, default=MEASURES)
    parser.add_argument("--views", type=int, default=7)
    parser.add_argument("--pushes", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if absent := describe_missing():
        sys.exit(absent)
    about = {"cores": os.cpu_count(), "machine": platform.machine(), "load": round(os.getloadavg()[0], 2)}
    found: list[dict[str, Any]] = []
    with service() as url, chromium() as browser:
        push = push_known(url, 500)
        if "view" in arguments.measures:
            found.append({"measure": "view", "services": 500, **view(browser, url, arguments.views)})
        if "payload" in arguments.measures:
            found.append({"measure": "payload", **payload(browser, url)})
        if "cost" in arguments.measures:
            costs, pushed = cost(url, push, arguments.pushes)
            found += [{"measure": "cost", "services": 500, **costs}, {"measure": "push", "services": 500, **pushed}]
        for services in LARGE if "view" in arguments.measures else ():
            renew(url, services)
            found.append({"measure": "view", "services": services, **view(browser, url, arguments.views)})
        if "interaction" in arguments.measures:
            renew(url, MOST_DRAWN)
            dragged, zoomed = interaction(browser, url, drag, zoom)
            renew(url, AREAS)
            (pointed,) = interaction(browser, url, point)
            rates = {"drag_fps": dragged, "zoom_fps": zoomed, "areas": AREAS, "point_fps": pointed}
            found.append({"measure": "interaction", "services": MOST_DRAWN, **rates})
    lines = [json.dumps({**row, **about}) for row in found]
    print("\n".join(lines))
    if arguments.json:
        arguments.json.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
