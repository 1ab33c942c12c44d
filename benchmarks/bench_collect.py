"""Time to collect one snapshot of a large mesh from a real Prometheus, which scrapes and evaluates rules meanwhile.

    python -m benchmarks.bench_collect [--services 2000] [--calls 12000] [--polls 8] [--json FILE]

The mesh is generated: requests by response code, nine buckets and ``+Inf`` of each service and call, cpu, memory,
kube-state-metrics. One process exports it. A Prometheus scrapes it every 15 s and evaluates the shipped recording
rules. This process collects. All share the same cores. There are three ways: ``rules`` is the default for a mesh of
this size, ``rules_gzip`` compresses the answers, ``buckets`` uses no rules.

Correctness first: services, calls, rates, errors, quantiles, cpu and memory of every snapshot equal the generated ones.
Quantiles are compared with quantiles that numpy interpolates from the generated buckets. For each way the results are
wall time of a poll and CPU time of this process during the poll (``time.process_time``: all threads, user and system),
as median, 10th and 90th percentile and maximum. If Prometheus reports that a scrape was lost or late, or that its rules
were behind, the poll is left out and counted in ``left_out``. Any other difference ends the benchmark. ``own_share`` is
the share of a core that a busy process gets before the benchmark starts. Below 0.9 other work disturbs the wall times.
Prints JSON lines.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import numpy as np

from model.snapshot import NODE_METRICS, MeshSnapshot
from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.dialects.istio import istio
from serve_app.collect.prometheus.query import QueryOptions
from serve_app.collect.prometheus.source import Poll, PrometheusSource
from serve_app.net.endpoint import Endpoint
from tests.live.exporter import PAGES, scrape_config, start_exporter
from tests.live.monitor import Monitor
from tests.live.openmetrics import calls, services, share_below
from tests.live.programs import find_program, missing_programs, own_share

RULES = Path(__file__).parents[1] / "deploy" / "prometheus" / "recording.rules.yaml"
BOUNDS_MS = (5, 10, 25, 50, 100, 250, 500, 1000, 2500)
INTERVAL = 15.0
PAUSE = 3.0  # s between two polls, so that nothing of the last one is cached
WITHIN = 60.0  # s; a slow poll is a result here, not a failure
LATE = 1.1  # intervals between two samples, above which Prometheus extrapolates no rate to the end of its window
Spent = tuple[float, float]  # s: wall, CPU of this process
WAYS = {"rules": (2000.0, False), "rules_gzip": (2000.0, True), "buckets": (float("inf"), False)}


def mesh(services: int, calls: int) -> MeshSnapshot:
    """LabelReader as in a cluster, calls in no order; a call in five fails now and then."""
    rng = np.random.default_rng(services)
    pairs = rng.choice(services * services, calls, replace=False)

    def random_metrics(rows: int, columns: int) -> np.ndarray:
        values = np.full((rows, columns), np.nan)
        values[:, 0] = np.exp(rng.normal(2.0, 1.2, rows))
        values[:, 1] = np.where(rng.random(rows) < 0.2, rng.uniform(0.001, 0.05, rows), 0.0)
        values[:, 2] = np.exp(rng.normal(np.log(0.02), 1.0, rows))
        values[:, 3] = values[:, 2] * rng.uniform(1.5, 8.0, rows)
        return values

    nodes, edges = random_metrics(services, len(NODE_METRICS)), random_metrics(calls, 4)
    nodes[:, 4:6] = rng.uniform(0.05, 0.95, (services, 2))
    nodes[:, 6] = nodes[:, 0] * nodes[:, 2]
    return MeshSnapshot.create(
        node_ids=[f"team-{i % 23}/service-{i:05}" for i in range(services)],
        edge_index=np.stack([pairs // services, pairs % services]),
        node_features=nodes,
        edge_features=edges,
        observed_at=datetime.now(UTC),
    )


class ExpectedSnapshot:
    """The expected snapshot of the generated mesh, for any order of services and calls."""

    def __init__(self, made: MeshSnapshot) -> None:
        self.made = made
        self._row = {name: i for i, name in enumerate(made.node_ids)}
        self._edge = {ends: i for i, ends in enumerate(map(tuple, made.edge_index.T.tolist()))}
        self.edges = made.edge_features.astype(np.float64)
        self.nodes = made.node_features.astype(np.float64)
        for table, side in ((self.nodes, services([made])), (self.edges, calls([made]))):
            counts = np.hstack([share_below(side, bound) for bound in BOUNDS_MS])
            for column, share in ((2, 0.5), (3, 0.99)):
                table[:, column] = [_quantile(row, share) for row in counts]
        rate, failing = self.edges[:, 0], self.edges[:, 0] * self.edges[:, 1]
        called, failed = (np.bincount(made.edge_index[1], one, made.num_nodes) for one in (rate, failing))
        of_callers = np.divide(failed, called, out=np.zeros_like(called), where=called > 0)
        self.nodes[:, 1] = np.maximum(self.nodes[:, 1], of_callers)  # the larger of both views

    def check(self, read: MeshSnapshot) -> None:
        """Fail if anything differs by more than rounding."""
        rows = np.array([self._row[name] for name in read.node_ids])
        assert sorted(rows) == list(range(self.made.num_nodes))
        ends = map(tuple, rows[read.edge_index].T.tolist())
        edges = np.array([self._edge[one] for one in ends])
        assert sorted(edges) == list(range(self.made.num_edges))
        assert read.node_observed.all()
        assert read.edge_observed.all()
        np.testing.assert_allclose(read.node_features, self.nodes[rows], rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(read.edge_features, self.edges[edges], rtol=2e-4, atol=1e-6)


def _quantile(shares: np.ndarray, wanted: float) -> float:
    """Interpolate the quantile of one row, in s: linear within a bucket, at most the highest bound."""
    return float(np.interp(wanted, [0.0, *shares], [0.0, *BOUNDS_MS])) / 1000


@contextmanager
def run_prometheus(made: MeshSnapshot, folder: Path) -> Iterator[str]:
    """Start a Prometheus, wait until it has scraped the mesh for longer than the rate window, and yield its URL."""
    exporter, address = start_exporter(made, BOUNDS_MS, folder)
    try:
        monitor = Monitor(folder, [scrape_config(address, INTERVAL)], rules=[RULES])
        try:
            monitor.wait()
            time.sleep(QueryOptions().window_seconds + 3 * INTERVAL)  # until rates and rules cover a whole window
            yield monitor.url
        finally:
            monitor.program.end()
    finally:
        exporter.end()


def times(url: str, expected: ExpectedSnapshot, polls: int) -> Iterator[dict[str, object]]:
    """Measure each way and yield its row."""
    for way, (recorded_from_calls, compressed) in WAYS.items():
        asking = QueryOptions(INTERVAL, within_seconds=WITHIN, recorded_from_calls=recorded_from_calls)
        with closing(PrometheusSource(Prometheus(Endpoint(url), compressed=compressed), istio(), asking)) as source:
            timed = _time_polls(url, source, way != "buckets", expected, polls)
        yield _row(way, expected.made, timed) | {"rules_seconds": _evaluation_seconds(url)}


@dataclass
class PollTimes:
    """Polls of one way.

    Attributes:
        taken: times of the polls, without the first, which reads every name.
        left_out: polls that were not counted, by what was late.
        poll: the last poll.
    """

    taken: list[Spent] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=lambda: {"scrapes": 0, "rules": 0})
    poll: Poll | None = None


def _time_polls(
    url: str, source: PrometheusSource, recorded: bool, expected: ExpectedSnapshot, polls: int
) -> PollTimes:
    timed = PollTimes()
    while len(timed.taken) <= polls:
        at = datetime.now(UTC) - timedelta(seconds=INTERVAL)
        began, used = time.perf_counter(), time.process_time()
        poll = source.poll(at)
        spent = time.perf_counter() - began, time.process_time() - used
        late = "scrapes" if is_late(scrapes(url, at), at.timestamp()) else ""
        if not late:
            assert poll.snapshot is not None, poll.why
            assert not poll.masked, poll.masked
            expected.check(poll.snapshot)
            late = "rules" if poll.recorded != recorded else ""
        if late:
            timed.left_out[late] += 1
            assert sum(timed.left_out.values()) < 2 * polls, f"left out {timed.left_out}: too busy a machine to measure"
        else:
            timed.taken.append(spent)
            timed.poll = poll
        time.sleep(PAUSE)
    timed.taken.pop(0)
    return timed


def scrapes(url: str, at: datetime) -> list[np.ndarray]:
    """Return the scrapes that a snapshot of this instant depends on, directly or through rules.

    Each page has an array ``[2, n]`` with the times of samples (Unix, s) and whether the scrape succeeded.
    """
    reach = round(QueryOptions().window_seconds + 2 * INTERVAL)
    up, took = (_ranges(url, f'{metric}{{job="mesh"}}[{reach}s]', at) for metric in ("up", "scrape_duration_seconds"))
    return [
        np.array([up[page][:, 0] + took[page][:, 1], up[page][:, 1]]) for page in up if len(up[page]) == len(took[page])
    ]


def is_late(pages: Sequence[np.ndarray], at: float) -> bool:
    """Whether a scrape was lost, or so late that rates do not cover their window."""
    if len(pages) < PAGES:
        return True
    began, longest = at - QueryOptions().window_seconds - 2 * INTERVAL, LATE * INTERVAL
    return any(
        not was_taken.all() or (np.diff([began, *times, max(at, times[-1])]) > longest).any()
        for times, was_taken in pages
    )


def _ranges(url: str, query: str, at: datetime) -> Mapping[str, np.ndarray]:
    """Query the samples of each page: time (Unix, s) and value, ``[n, 2]``."""
    asked = {"query": query, "time": f"{at.timestamp():.3f}"}
    answer = httpx.get(f"{url}/api/v1/query", params=asked, trust_env=False, timeout=30).raise_for_status()
    result = answer.json()["data"]["result"]
    return {series["metric"]["page"]: np.array(series["values"], np.float64) for series in result}


def _evaluation_seconds(url: str) -> float:
    """Return the duration of the latest evaluation of all recording rules."""
    groups = httpx.get(f"{url}/api/v1/rules", trust_env=False, timeout=30).json()["data"]["groups"]
    return round(float(sum(group["evaluationTime"] for group in groups)), 2)


def _row(way: str, made: MeshSnapshot, timed: PollTimes) -> dict[str, object]:
    row: dict[str, object] = {
        "benchmark": "collect",
        "way": way,
        "services": made.num_nodes,
        "calls": made.num_edges,
        "buckets": len(BOUNDS_MS) + 1,
        "polls": len(timed.taken),
        "left_out": timed.left_out,
    }
    for name, values in zip(("wall", "cpu"), np.array(timed.taken).T * 1e3, strict=True):
        for figure, value in zip(("p10", "p50", "p90"), np.percentile(values, (10, 50, 90)), strict=True):
            row[f"{name}_{figure}_ms"] = round(float(value), 1)
        row[f"{name}_max_ms"] = round(float(values.max()), 1)
    answers = timed.poll.answers.values() if timed.poll else ()
    row["samples"] = sum(len(answer.samples) for answer in answers)
    row["megabytes"] = round(sum(answer.size for answer in answers) / 1e6, 2)  # uncompressed
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=2000)
    parser.add_argument("--calls", type=int, default=12_000)
    parser.add_argument("--polls", type=int, default=8)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if absent := missing_programs("prometheus"):
        parser.error("; ".join(absent))
    made = mesh(arguments.services, arguments.calls)
    about = {
        "cores": os.cpu_count(),
        "prometheus": _version(),
        "msgspec": msgspec.__version__,
        "python": platform.python_version(),
        "own_share": round(own_share(), 2),
        "load_before": round(os.getloadavg()[0], 2),
    }
    with tempfile.TemporaryDirectory() as folder, run_prometheus(made, Path(folder)) as url:
        lines = []
        for row in times(url, ExpectedSnapshot(made), arguments.polls):
            lines.append(json.dumps(row | about))
            print(lines[-1], flush=True)
    if arguments.json:
        arguments.json.write_text("\n".join(lines) + "\n")


def _version() -> str:
    command = [find_program("prometheus") or "prometheus", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"version ([\w.]+)", said.stdout + said.stderr)
    return found[1] if found else "unknown"


if __name__ == "__main__":
    main()
