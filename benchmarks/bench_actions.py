"""The effect of `sla.act`, with which the service steers admission, here with `sla.least_admission = 0.25`.

    python -m benchmarks.bench_actions [--only NAME ...] [--calm 20] [--trouble 120] [--after 10] [--rounds 1]
        [--services 60] [--json FILE]

Each case has a calm time, a time of trouble, and a calm time again, without and with `sla.act` in turn, each with a new
service. Meshes push on their own schedule, whatever the service does. After a 429 they wait as long as the answer says
and send the snapshot again, unless the next one is due. The trouble:

* `slow store`: each write takes 0.4 s, and writes wait for each other.
* `slow disk`: each write takes 1.2 s, and they do not wait for each other. Fewer requests cannot help here.
* `slow scorer`: each pass of the network takes 0.5 s.
* `flood`: many more meshes, which all push in the same moment.

A line has, for the time of trouble: the share of the snapshots whose verdict came within the target of p95 after they
were due, the share that got one at all, and the seconds, in slots of 5 s, in which p95 of the answers missed its
target. Recovery is the time from the beginning of the trouble until p95 keeps its target for 10 s. Violations and steps
are those in `/v1/sla` and in the answers to its reader. Below, ``with`` and ``without`` are from the same run.
"""

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
from ray._private import ray_constants

from benchmarks.bench_overload import Body, Connection
from serve_app.app import start, stop
from serve_app.runtime import environment
from serve_app.settings import Settings

HOOK = ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR
CASE, SWITCH = "TAGAE_BENCH_CASE", "TAGAE_BENCH_SWITCH"  # environment of the replicas; the switch is a file
TARGET_SECONDS = 1.0  # of p95, the default
SLOT_SECONDS = 5.0
KEPT_SLOTS = 2  # after so many slots within the target, the service has recovered
WARM_UP = 12  # snapshots of each mesh


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of trouble.

    Attributes:
        meshes: that push all the time.
        period: between two snapshots of a mesh, s.
        flood: further meshes during the trouble, which push together.
    """

    meshes: int
    period: float
    flood: int = 0


CASES = {
    "slow store": Case(12, 3.0),
    "slow disk": Case(12, 3.0),
    "slow scorer": Case(12, 1.0),
    "flood": Case(8, 5.0, flood=48),
}


@dataclass(slots=True)
class Seen:
    """What the clients saw.

    Attributes:
        due: when snapshots were due, s of the monotonic clock.
        verdicts: when a snapshot was due, and when its verdict came.
        answers: when the verdict came, and the time of the request that got it.
        statuses: number of answers.
    """

    due: list[float] = field(default_factory=list)
    verdicts: list[tuple[float, float]] = field(default_factory=list)
    answers: list[tuple[float, float]] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)


def set_up() -> None:
    """Prepare a process of Ray, and slow it down while the switch exists. Ray calls this."""
    case, switch = os.environ[CASE], Path(os.environ[SWITCH])
    if case in ("slow store", "slow disk"):
        from serve_app.stores.sqlite_file import SqliteFile

        add = SqliteFile.add

        def slow_add(self: SqliteFile, change: Callable[[Any], Any]) -> Any:
            def slow_change(db: Any) -> Any:
                if switch.exists() and case == "slow store":
                    time.sleep(0.4)
                return change(db)

            if switch.exists() and case == "slow disk":
                time.sleep(1.2)
            return add(self, slow_change)

        SqliteFile.add = slow_add  # type: ignore[method-assign]
    if case == "slow scorer":
        from serve_app.deployments.scoring import in_session

        score_parts = in_session.score_parts

        def slow_score(*args: Any) -> Any:
            if switch.exists():
                time.sleep(0.5)
            return score_parts(*args)

        in_session.score_parts = slow_score  # type: ignore[assignment]


async def push_mesh(
    connection: Connection, mesh: str, body: Body, seen: Seen, *, first: float, period: float, ends: float, begin: int
) -> None:
    """Push the snapshots of a mesh on its schedule until the end."""
    due, sequence = first, begin
    while due < ends:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        seen.due.append(due)
        sequence += 1
        while time.monotonic() < due + period:
            asked = time.monotonic()
            status, wait = await connection.request(body.head(mesh), body.at(sequence))
            now = time.monotonic()
            seen.statuses[status] = seen.statuses.get(status, 0) + 1
            if status == 200:
                seen.verdicts.append((due, now))
                seen.answers.append((now, now - asked))
                break
            await asyncio.sleep(min(max(wait, 0.1), max(0.0, due + period - now)))
        # A snapshot whose answer came after the next was due makes the mesh skip those that were due meanwhile.
        missed = max(0, int((time.monotonic() - due) // period) - 1)
        seen.due += [due + (i + 1) * period for i in range(missed)]
        due += (missed + 1) * period
    connection.close()


async def watch(url: str, ends: float) -> list[dict[str, Any]]:
    """Read the service level every few seconds until the end; a reading that fails is left out."""
    levels: list[dict[str, Any]] = []
    async with httpx.AsyncClient(timeout=10) as client:
        while time.monotonic() < ends:
            await asyncio.sleep(SLOT_SECONDS / 2)
            try:
                levels.append((await client.get(f"{url}/v1/sla")).raise_for_status().json())
            except httpx.HTTPError:
                continue
    return levels


async def load(
    url: str, case: Case, body: Body, switch: Path, calm: float, trouble: float, after: float
) -> tuple[Seen, float, list[dict[str, Any]]]:
    """Run all clients. Returns what they saw, when the trouble began, and the service levels."""
    host, port = url.removeprefix("http://").split(":")

    async def warm_up(mesh: str) -> None:
        connection, sequence = Connection(host, int(port)), 0
        while sequence < WARM_UP:
            status, wait = await connection.request(body.head(mesh), body.at(sequence))
            sequence += status == 200
            await asyncio.sleep(wait)
        connection.close()

    usual, flood = [f"m{i}" for i in range(case.meshes)], [f"f{i}" for i in range(case.flood)]
    for mesh in usual + flood:
        await warm_up(mesh)
    rng, seen = random.Random(1), Seen()
    began = time.monotonic() + 1.0
    trouble_at, ends = began + calm, began + calm + trouble + after

    async def make_trouble() -> None:
        await asyncio.sleep(trouble_at - time.monotonic())
        switch.touch()
        await asyncio.sleep(trouble)
        switch.unlink()

    def pushes(mesh: str, first: float, until: float) -> Any:
        connection = Connection(host, int(port))
        return push_mesh(connection, mesh, body, seen, first=first, period=case.period, ends=until, begin=WARM_UP)

    levels, *_ = await asyncio.gather(
        watch(url, ends),
        make_trouble(),
        *(pushes(mesh, began + rng.uniform(0, case.period), ends) for mesh in usual),
        *(pushes(mesh, trouble_at, trouble_at + trouble) for mesh in flood),
    )
    return seen, trouble_at, levels


def slots_of(seen: Seen, begin: float, end: float) -> list[float | None]:
    """The 95th percentile of the times of answers, s, in each slot; None: no verdict."""
    edges = np.arange(begin, end, SLOT_SECONDS)
    found = [[seconds for at, seconds in seen.answers if edge <= at < edge + SLOT_SECONDS] for edge in edges]
    return [float(np.percentile(times, 95)) if times else None for times in found]


def recovery(p95: Sequence[float | None]) -> float:
    """Seconds until the target is kept for ``KEPT_SLOTS``; the whole time if it never is."""
    is_kept = [one is not None and one <= TARGET_SECONDS for one in p95]
    first = next((i for i in range(len(is_kept)) if all(is_kept[i : i + KEPT_SLOTS])), len(is_kept))
    return first * SLOT_SECONDS


def figures_of(seen: Seen, at: float, trouble: float, levels: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one run."""
    due = [one for one in seen.due if at <= one < at + trouble]
    verdicts = [(asked, made - asked) for asked, made in seen.verdicts if at <= asked < at + trouble]
    p95 = slots_of(seen, at, at + trouble)
    last = levels[-1]
    return {
        "due": len(due),
        "on_time": sum(seconds <= TARGET_SECONDS for _, seconds in verdicts) / len(due),
        "verdicts": len(verdicts) / len(due),
        "missed_seconds": SLOT_SECONDS * sum(one is None or one > TARGET_SECONDS for one in p95),
        "recovery_seconds": recovery(p95),
        "shed": seen.statuses.get(429, 0),
        "failed": sum(number for status, number in seen.statuses.items() if status >= 500),
        "p95_by_slot": [None if one is None else round(one, 2) for one in slots_of(seen, at - 20, at + trouble + 10)],
        "admission_by_slot": [level["actions"][0]["factor"] if level["actions"] else 1.0 for level in levels[::2]],
        "violations": [
            {key: one[key] for key in ("objective", "seconds", "worst", "cause")} for one in last["violations"]
        ],
    }


def measure(name: str, body: Body, calm: float, trouble: float, after: float, *, act: bool) -> dict[str, Any]:
    """Run a new service through the trouble, and return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        switch = Path(folder) / "trouble"
        environment.RAY_ENVIRONMENT |= {HOOK: f"{__spec__.name}.set_up", CASE: name, SWITCH: str(switch)}
        settings = Settings(
            serve={"port": 0},
            store={"path": folder},
            scorer={"device": "cpu", "place": "session"},
            sla={"act": act, "least_admission": 0.25, "window_seconds": 300},
        )
        url = start(settings)
        try:
            seen, at, levels = asyncio.run(load(url, CASES[name], body, switch, calm, trouble, after))
            return figures_of(seen, at, trouble, levels)
        finally:
            stop()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--services", type=int, default=60)
    parser.add_argument("--calm", type=float, default=20)
    parser.add_argument("--trouble", type=float, default=120)
    parser.add_argument("--after", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    body, lines = Body.of(chosen.services, "json"), []
    for name in chosen.only:
        rounds: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
        for _ in range(chosen.rounds):
            for act, case in ((False, "without"), (True, "with")):
                one = measure(name, body, chosen.calm, chosen.trouble, chosen.after, act=act)
                rounds[case].append(one)
                print(name, case, json.dumps(one), flush=True)
        numbers = ("due", "on_time", "verdicts", "missed_seconds", "recovery_seconds", "shed", "failed")
        lines.append(
            {
                "bench": "actions",
                "case": name,
                "services": chosen.services,
                "trouble_seconds": chosen.trouble,
                "rounds": chosen.rounds,
                **{
                    case: {
                        **{key: round(median(one[key] for one in ones), 3) for key in numbers},
                        "violations": ones[-1]["violations"],
                    }
                    for case, ones in rounds.items()
                },
            }
        )
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
