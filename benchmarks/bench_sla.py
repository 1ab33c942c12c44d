"""The effect of each mitigation on the service level under overload, as the service itself reports it at /v1/sla.

    python -m benchmarks.bench_sla [--services 60] [--clients 48] [--seconds 15] [--rounds 3] [--only NAME ...]
        [--json FILE]

Each client pushes snapshots of its own mesh in a closed loop, and waits after a 429 as long as the answer says. Every
mitigation is measured without it and with it, in turn, each time with a new service. Its line has the ratios of with to
without: the median over the rounds, and their range. Below 1 is faster for times. The service counts each push.
Asserted: it counts as many served pushes as the clients got verdicts.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

import httpx
from starlette.middleware import Middleware

from benchmarks.bench_overload import Body, Connection
from serve_app.app import start, stop
from serve_app.deployments.gate import gate
from serve_app.deployments.gate.admission import Admission, RequestKind
from serve_app.deployments.gate.waiting_room import WaitingRoom
from serve_app.deployments.sla.counts import REPORT_SECONDS
from serve_app.runtime import environment
from serve_app.settings import Settings

CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
REPORT_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Mitigation:
    """A measure that can be switched.

    Attributes:
        without, with_: settings without and with it.
        admits_all: whether the gate admits every request without it.
    """

    without: dict[str, Any]
    with_: dict[str, Any]
    admits_all: bool = False


IN_REPLICAS = {"scorer.place": "replicas"}
MITIGATIONS = {
    "admission": Mitigation({}, {}, admits_all=True),
    "place": Mitigation(IN_REPLICAS, {"scorer.place": "session"}),
    "session replicas": Mitigation({"serve.session_replicas": 1}, {"serve.session_replicas": 2}),
    "scoring replicas": Mitigation(
        {**IN_REPLICAS, "scorer.num_replicas": 1}, {**IN_REPLICAS, "scorer.num_replicas": 2}
    ),
    "batch size": Mitigation({**IN_REPLICAS, "scorer.max_batch_size": 1}, {**IN_REPLICAS, "scorer.max_batch_size": 8}),
    "latency target": Mitigation(
        {**IN_REPLICAS, "scorer.latency_target_ms": 1000.0}, {**IN_REPLICAS, "scorer.latency_target_ms": 35.0}
    ),
}


class AdmitsAll(Admission):
    """No load shedding."""

    def has_room(self, kind: RequestKind, mesh: str, now: float) -> bool:
        return True


class OpenGate(gate.Gate):
    """The gate without load shedding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._admission = AdmitsAll(self._front.deadline_seconds)
        self._room = WaitingRoom(self._admission)


def open_middlewares() -> list[Middleware]:
    """Return the middleware of the service with an open gate, for Serve."""
    return [
        Middleware(OpenGate, *one.args, **one.kwargs) if cast(object, one.cls) is gate.Gate else one
        for one in gate.middlewares()
    ]


async def push(connection: Connection, mesh: str, body: Body, ends: float) -> int:
    """Push until the end, and return the number of verdicts."""
    verdicts = 0
    while time.monotonic() < ends:
        status, wait = await connection.request(body.head(mesh), body.at(verdicts))
        assert status in (200, 429, 503, 504), status
        verdicts += status == 200
        await asyncio.sleep(min(wait, max(0.0, ends - time.monotonic())))
    connection.close()
    return verdicts


async def load(url: str, clients: int, body: Body, seconds: float) -> int:
    """Run all clients, and return the number of verdicts."""
    host, port = url.removeprefix("http://").split(":")
    ends = time.monotonic() + seconds
    return sum(await asyncio.gather(*(push(Connection(host, int(port)), f"m{i}", body, ends) for i in range(clients))))


def report_of(url: str, verdicts: int) -> dict[str, Any]:
    """Return the service level, once it has all verdicts. A 504 may hide one that was made."""
    until = time.monotonic() + REPORT_PATIENCE_SECONDS
    while True:
        level: dict[str, Any] = httpx.get(f"{url}/v1/sla", timeout=60).raise_for_status().json()
        if level["pushes"].get("served", 0) == verdicts:
            return level
        assert time.monotonic() < until, (verdicts, level["pushes"])
        time.sleep(REPORT_SECONDS / 5)


def measure(changed: dict[str, Any], *, admits_all: bool, clients: int, body: Body, seconds: float) -> dict[str, float]:
    """Run a new service under load, and return what it reports."""
    groups: dict[str, dict[str, Any]] = {
        "serve": {"port": 0},
        "scorer": {"device": "cpu", "place": "session"},
    }
    for name, value in changed.items():
        group, field = name.split(".")
        groups[group][field] = value
    shipped = environment.RAY_ENVIRONMENT[CALLBACK]
    environment.RAY_ENVIRONMENT[CALLBACK] = f"{__spec__.name}.open_middlewares" if admits_all else shipped
    try:
        with tempfile.TemporaryDirectory() as folder:
            url = start(Settings(store={"path": folder}, **groups))  # type: ignore[arg-type]
            try:
                level = report_of(url, asyncio.run(load(url, clients, body, seconds)))
            finally:
                stop()
    finally:
        environment.RAY_ENVIRONMENT[CALLBACK] = shipped
    current = {one["name"]: one["current"] for one in level["objectives"]}
    pushes = level["pushes"]
    return {
        "verdicts_per_second": pushes.get("served", 0) / seconds,
        "p95_seconds": current["p95"],
        "p99_seconds": current["p99"],
        "failed": pushes.get("failed", 0),
        "shed": pushes.get("shed", 0),
    }


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure."""
    return {name: median(one[name] for one in rounds) for name in rounds[0]}


def compare(name: str, rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return the line of one mitigation."""
    without, with_ = medians(rounds["without"]), medians(rounds["with"])
    ratios = {
        figure: [b[figure] / a[figure] for a, b in zip(rounds["without"], rounds["with"], strict=True)]
        for figure in ("verdicts_per_second", "p95_seconds", "p99_seconds")
    }
    return {
        "bench": "sla",
        "mitigation": name,
        "rounds": len(rounds["with"]),
        "without": {figure: round(value, 4) for figure, value in without.items()},
        "with": {figure: round(value, 4) for figure, value in with_.items()},
        "ratios": {figure: round(median(values), 2) for figure, values in ratios.items()},
        "ratio_ranges": {figure: [round(min(v), 2), round(max(v), 2)] for figure, v in ratios.items()},
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=60)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=MITIGATIONS, default=list(MITIGATIONS))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    body, lines = Body.of(chosen.services, "json"), []
    for name in chosen.only:
        one = MITIGATIONS[name]
        rounds: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
        for _ in range(chosen.rounds):
            for case, settings in (("without", one.without), ("with", one.with_)):
                admits_all = one.admits_all and case == "without"
                figures = measure(
                    settings, admits_all=admits_all, clients=chosen.clients, body=body, seconds=chosen.seconds
                )
                rounds[case].append(figures)
                print(name, case, {key: round(value, 3) for key, value in figures.items()}, flush=True)
        lines.append({"services": chosen.services, "clients": chosen.clients, **compare(name, rounds)})
        print(json.dumps(lines[-1]), flush=True)
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
