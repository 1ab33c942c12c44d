"""Measures verdicts per second and a verdict's CPU time, by cores, sessions, services and clients.

    python -m benchmarks.bench_configurations [--services 60 500] [--clients 1 8] [--seconds 8] [--json FILE]

Each configuration is a new ``tagae serve`` on the first cores of this machine, with JSON clients on the same cores.
Prints JSON lines, then the table of docs/results.md for this machine. Its last column compares a verdict's CPU time
with the recorded one. Other programs on the machine lower the rate, but hardly change the CPU time.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.bench_overload import Body, load
from benchmarks.bench_start import OURS, ROOT, cpu_seconds, free_port, run, wait_until_ready
from benchmarks.figures import configurations
from benchmarks.rows import Row, command_line, emit, read

CONFIGURATIONS = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4))  # cores, and sessions
RECORDED = Path(__file__).parent / "results" / "configurations.jsonl"
KEY = ("cores", "sessions", "services", "clients")


def measure(services: Sequence[int], clients: Sequence[int], settle: float, seconds: float) -> Iterator[Row]:
    """Yield a row for each configuration that this machine has the cores for."""
    cpus = sorted(os.sched_getaffinity(0))
    try:
        for (cores, sessions), size in product(CONFIGURATIONS, services):
            if cores > len(cpus):
                continue
            os.sched_setaffinity(0, cpus[:cores])
            os.environ["TAGAE_SERVE__SESSION_REPLICAS"] = str(sessions)
            port, body = free_port(), Body.of(size, "json")
            with tempfile.TemporaryDirectory() as folder, run(OURS, ROOT, port, folder) as process:
                url = f"http://127.0.0.1:{port}"
                wait_until_ready(f"{url}/readyz", process)
                for count in clients:
                    before = cpu_seconds(process)
                    figures = asyncio.run(load(url, count, body, f"c{count}", settle, seconds))
                    cpu, durations = cpu_seconds(process) - before, figures.accepted
                    yield {
                        **dict(zip(KEY, (cores, sessions, size, count), strict=True)),
                        "per_second": round(len(durations) / seconds, 1),
                        "p50_ms": round(1e3 * float(np.percentile(durations, 50)), 1),
                        "p99_ms": round(1e3 * float(np.percentile(durations, 99)), 1),
                        "cpu_ms": round(1e3 * cpu / len(durations) * seconds / (settle + seconds), 1),
                    }
    finally:
        os.sched_setaffinity(0, cpus)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--services", type=int, nargs="+", default=[60, 500])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--settle", type=float, default=4)
    arguments = parser.parse_args()
    ours = {tuple(row[name] for name in KEY): row["cpu_ms"] for row in read(RECORDED)}
    rows = emit(measure(arguments.services, arguments.clients, arguments.settle, arguments.seconds), arguments.json)
    print(f"\n{configurations([row | {'ours': ours.get(tuple(row[name] for name in KEY))} for row in rows])}")


if __name__ == "__main__":
    main()
