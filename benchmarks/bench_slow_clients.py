"""Do pushes and health routes still work beside slow clients, open streams and idle connections?

    python -m benchmarks.bench_slow_clients [--slow 950] [--streams 200] [--idle 64] [--seconds 30] [--json FILE]

A client pushes snapshots of 60 services at a steady pace, in alternating rounds alone and beside other connections:
bodies of 100,000 bytes that are sent at one byte per second and reopened when they are closed, streams of verdicts of
the same mesh, and idle connections. These are in a process of their own, so that they do not delay the client that
measures. Two probers request ``/healthz`` and ``/readyz`` every second.

Asserted: every push is answered with 200, every health route with 200.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.bench_overload import Body, Connection
from serve_app.app import start, stop
from serve_app.settings import Settings

MESH = "steady"
SETTLE_SECONDS = 3.0  # for all connections to open
OVERLAP_SECONDS = 2.0  # after a round, so that its last pushes are not beside 1,200 connections that all close at once


async def slow_body(host: str, port: int, seen: Counter[str]) -> None:
    """Repeatedly send a body that never ends. As on real networks, clients are not in step."""
    await asyncio.sleep(random.random())
    head = f"POST /v1/meshes/{MESH}/snapshots HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000\r\n\r\n".encode()
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            seen["slow bodies begun"] += 1
            try:
                writer.write(head)
                while not reader.at_eof() and not writer.is_closing():
                    writer.write(b" ")
                    await writer.drain()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(1.0):  # wait_for can lose a cancellation
                            if await reader.read(4096):
                                seen["slow bodies answered"] += 1
            finally:
                writer.close()
        await asyncio.sleep(0.2)


async def stream(host: str, port: int, seen: Counter[str]) -> None:
    """Read a stream of verdicts, like a page."""
    head = f"GET /v1/meshes/{MESH}/verdicts/stream HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(head)
                status = (await reader.readline()).split()
                seen[f"streams answered {status[1].decode() if len(status) > 1 else 'nothing'}"] += 1
                while chunk := await reader.read(65536):
                    seen["verdicts on streams"] += chunk.count(b"event: verdict")
            finally:
                writer.close()
        await asyncio.sleep(2.0)


async def idle(host: str, port: int) -> None:
    """Hold a connection without sending anything."""
    _, writer = await asyncio.open_connection(host, port)
    try:
        await asyncio.sleep(3600)
    finally:
        writer.close()


async def steady(host: str, port: int, body: Body, sequence: int, pace: float, seconds: float) -> list[float]:
    """Push at a steady pace and return the durations in s."""
    taken: list[float] = []
    connection, ends = Connection(host, port), time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.monotonic()
        status, _ = await connection.request(body.head(MESH), body.at(sequence + len(taken)))
        assert status == 200, status
        taken.append(time.monotonic() - began)
        await asyncio.sleep(max(0.0, 1 / pace - taken[-1]))
    connection.close()
    return taken


async def health(host: str, port: int, path: str, seconds: float) -> list[float]:
    """Request a health route, each time on a new connection, and return the durations in s."""
    taken, ends = [], time.monotonic() + seconds
    while time.monotonic() < ends:
        connection, began = Connection(host, port), time.monotonic()
        status, _ = await connection.request(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n".encode())
        assert status == 200, (path, status)
        taken.append(time.monotonic() - began)
        connection.close()
        await asyncio.sleep(max(0.0, 1.0 - taken[-1]))
    return taken


def hold_connections(host: str, port: int, slow: int, streams: int, idles: int, seconds: float) -> Counter[str]:
    """Hold all the other connections for a few seconds, and return what was seen on them."""
    seen: Counter[str] = Counter()

    async def hold() -> None:
        tasks = [asyncio.create_task(slow_body(host, port, seen)) for _ in range(slow)]
        tasks += [asyncio.create_task(stream(host, port, seen)) for _ in range(streams)]
        tasks += [asyncio.create_task(idle(host, port)) for _ in range(idles)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(hold())
    return seen


async def compare(url: str, body: Body, process: ProcessPoolExecutor, chosen: argparse.Namespace) -> dict[str, object]:
    """Alternate rounds without and with the other connections."""
    host, _, port_text = url.removeprefix("http://").partition(":")
    port, sequence = int(port_text), 0
    pushes: dict[str, list[float]] = {"alone": [], "beside": []}
    probes: dict[str, list[float]] = {"/healthz": [], "/readyz": []}
    seen: Counter[str] = Counter()
    sequence += len(await steady(host, port, body, sequence, chosen.pace, 5))
    for _ in range(chosen.rounds):
        for round_name in pushes:
            is_beside = round_name == "beside"
            if is_beside:
                seconds = SETTLE_SECONDS + chosen.seconds + OVERLAP_SECONDS
                hold = partial(hold_connections, host, port, chosen.slow, chosen.streams, chosen.idle, seconds)
                others = asyncio.get_running_loop().run_in_executor(process, hold)
                await asyncio.sleep(SETTLE_SECONDS)
            taken, *probed = await asyncio.gather(
                steady(host, port, body, sequence, chosen.pace, chosen.seconds),
                *(health(host, port, path, chosen.seconds) for path in probes if is_beside),
            )
            sequence += len(taken)
            pushes[round_name] += taken
            for path, one in zip(probes, probed, strict=False):
                probes[path] += one
            if is_beside:
                seen += await others
            await asyncio.sleep(1)
    p99 = {name: float(np.percentile(taken, 99)) for name, taken in pushes.items()}
    return {
        "bench": "slow-clients",
        "slow": chosen.slow,
        "streams": chosen.streams,
        "idle": chosen.idle,
        "pushes": {name: len(taken) for name, taken in pushes.items()},
        "push_p50_seconds": {name: round(float(np.percentile(taken, 50)), 4) for name, taken in pushes.items()},
        "push_p99_seconds": {name: round(value, 4) for name, value in p99.items()},
        "push_p99_ratio": round(p99["beside"] / p99["alone"], 2),
        "health_longest_seconds": {path: round(max(taken), 3) for path, taken in probes.items()},
        "seen": dict(seen),
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", type=int, default=950)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--idle", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30, help="duration of a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pace", type=float, default=5.0, help="pushes per second")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    body = Body.of(60, "json")
    with tempfile.TemporaryDirectory() as folder:
        url = start(Settings(serve={"port": 0}, store={"path": folder}, scorer={"device": "cpu"}))
        try:
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                process.submit(int).result()  # its imports take seconds
                line = asyncio.run(compare(url, body, process, chosen))
        finally:
            stop()
    print(json.dumps(line, indent=1))
    if chosen.json:
        chosen.json.write_text(json.dumps(line) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
