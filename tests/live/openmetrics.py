"""Snapshots as the text that a real Prometheus reads as history: Istio's metrics, counted as sidecars count.

    write(snapshots, file, Export(interval_seconds=15))
    promtool tsdb create-blocks-from openmetrics --max-block-duration=24h FILE DATA_DIR

A snapshot's rates hold for the interval that ends with it. Its latencies become a log-normal distribution that has its
p50 and p99, cut into buckets. So a value that is read back is exact to a bucket's width. Unobserved values have no
samples.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, NodeMetric
from serve_app.collect.prometheus.workloads import Controllers
from tests.live.kubernetes_series import write_cluster
from tests.live.series import Export, Numbers, counter_values, write_series
from tests.serve_app.collect.prometheus.cluster import workload_of

Z99 = 2.3263478740408408  # of the standard normal distribution, 0.99
REQUESTS, DURATION = "istio_requests", "istio_request_duration_milliseconds"
RATE, ERRORS, P50, P99 = (EDGE_METRICS.index(m) for m in EDGE_METRICS)
IN_USE = NodeMetric.ACTIVE_CONNECTIONS


@dataclass(frozen=True, slots=True)
class Observed:
    """Values that one side reports in all snapshots: series by row, snapshots by column.

    NaN: not observed, or the series does not exist.

    Attributes:
        labels: of each row, as text without braces.
        rate, errors, p50, p99, in_use: ``[R, S]``; 1/s, 0..1, s, s, requests under way.
    """

    labels: list[str]
    rate: Numbers
    errors: Numbers
    p50: Numbers
    p99: Numbers
    in_use: Numbers


def write(
    snapshots: Sequence[MeshSnapshot],
    file: Path,
    export: Export | None = None,
    cluster: Sequence[Controllers] | None = None,
) -> int:
    """Write snapshots, oldest first and an interval apart, as OpenMetrics text.

    Args:
        snapshots: of the mesh.
        file: to write.
        export: options.
        cluster: the controllers at each snapshot. None: leave out everything that Kubernetes knows, also processors
            and memory.

    Returns:
        Number of samples.

    Raises:
        ValueError: there are none, or they are not an interval apart.
    """
    export = export or Export()
    times, samples = _instants(snapshots, export), 0
    sides = [services(snapshots), calls(snapshots)]
    with file.open("w", encoding="ascii") as out:
        for what, rates in (
            (f"{REQUESTS} counter", request_rates(sides)),
            (f"{DURATION} histogram", duration_rates(sides, export.bounds_ms)),
        ):
            out.write(f"# TYPE {what}\n")
            samples += sum(write_series(out, names, counter_values(rate, export), times) for names, rate in rates)
        if cluster is not None:
            samples += write_cluster(out, snapshots, cluster, times, export)
        out.write("# EOF\n")
    return samples


def _instants(snapshots: Sequence[MeshSnapshot], export: Export) -> list[str]:
    """Return the Unix seconds of reads of counters. The first read is an interval before the first snapshot."""
    if not snapshots:
        raise ValueError("expected at least one snapshot, got none")
    at = [snapshot.observed_at.timestamp() for snapshot in snapshots]
    for earlier, later in pairwise(at):
        if not math.isclose(later - earlier, export.interval_seconds, abs_tol=0.01):
            raise ValueError(f"expected snapshots {export.interval_seconds:g} s apart, got {later - earlier:g} s")
    count = len(at) * export.reads + 1
    return [f"{at[0] + (i / export.reads - 1) * export.interval_seconds:.3f}" for i in range(count)]


def services(snapshots: Sequence[MeshSnapshot]) -> Observed:
    """Metrics of each service's sidecar about incoming requests."""
    row_of: dict[str, int] = {}
    for snapshot in snapshots:
        for name in snapshot.node_ids:
            row_of.setdefault(name, len(row_of))
    values = np.full((len(row_of), len(snapshots), len(NODE_METRICS)), np.nan)
    for s, snapshot in enumerate(snapshots):
        rows = [row_of[name] for name in snapshot.node_ids]
        values[rows, s] = np.where(snapshot.node_observed, snapshot.node_features, np.nan)
    labels = [f'reporter="destination",{_workload(name)},{_callee(name)}' for name in row_of]
    return Observed(labels, *(values[:, :, column] for column in (RATE, ERRORS, P50, P99, IN_USE)))


def calls(snapshots: Sequence[MeshSnapshot]) -> Observed:
    """Metrics of each caller's sidecar about outgoing requests. A missing call was not made."""
    row_of: dict[tuple[str, str], int] = {}
    ends = []
    for snapshot in snapshots:
        names = snapshot.node_ids
        pairs = [(names[a], names[b]) for a, b in snapshot.edge_index.T.tolist()]
        ends.append([row_of.setdefault(pair, len(row_of)) for pair in pairs])
    values = np.full((len(row_of), len(snapshots), len(EDGE_METRICS)), np.nan)
    for s, (snapshot, rows) in enumerate(zip(snapshots, ends, strict=True)):
        values[rows, s] = np.where(snapshot.edge_observed, snapshot.edge_features, np.nan)
    labels = [f'reporter="source",{_caller(source)},{_callee(destination)}' for source, destination in row_of]
    rate, errors, p50, p99 = (values[:, :, column] for column in (RATE, ERRORS, P50, P99))
    return Observed(labels, rate, errors, p50, p99, np.full(values.shape[:2], np.nan))


def _caller(node_id: str) -> str:
    namespace, name = node_id.split("/", 1)
    return f'source_workload_namespace="{namespace}",source_canonical_service="{name}"'


def _workload(node_id: str) -> str:
    namespace, workload = workload_of(node_id)
    return f'destination_workload_namespace="{namespace}",destination_workload="{workload}"'


def _callee(node_id: str) -> str:
    namespace, name = node_id.split("/", 1)
    return f'destination_service_namespace="{namespace}",destination_service_name="{name}"'


Rates = Iterator[tuple[list[str], Numbers]]  # names of series, and how fast they grow in each snapshot, 1/s


def request_rates(sides: Iterable[Observed]) -> Rates:
    """Yield counters of requests that succeed and fail."""
    for side in sides:
        failed = side.rate * np.nan_to_num(side.errors)
        for code, rate in (("200", side.rate - failed), ("503", failed)):
            yield [f'{REQUESTS}_total{{{labels},response_code="{code}"}}' for labels in side.labels], rate


def duration_rates(sides: Iterable[Observed], bounds_ms: Iterable[float]) -> Rates:
    """Yield the counters of a histogram of durations."""
    bounds = [(f"{bound:g}", bound) for bound in bounds_ms] + [("+Inf", math.inf)]
    for side in sides:
        for text, bound in bounds:
            names = [f'{DURATION}_bucket{{{labels},le="{text}"}}' for labels in side.labels]
            yield names, side.rate * share_below(side, bound)
        yield [f"{DURATION}_count{{{labels}}}" for labels in side.labels], side.rate * share_below(side, math.inf)
        # By Little's law the sum grows as fast as requests are under way, whatever the distribution.
        yield [f"{DURATION}_sum{{{labels}}}" for labels in side.labels], side.in_use * 1000


def share_below(side: Observed, bound_ms: float) -> Numbers:
    """Return the share ``[R, S]`` of requests that took at most this long."""
    if math.isinf(bound_ms):
        return np.where(np.isnan(side.p50), np.nan, 1.0)
    median = np.log(np.maximum(side.p50, 1e-6))
    # Without a p99, use a usual spread. If p50 and p99 are equal, keep a small spread: buckets cannot show a step.
    sigma = np.nan_to_num((np.log(np.maximum(side.p99, 1e-6)) - median) / Z99, nan=0.5).clip(1e-3)
    return _normal((np.log(bound_ms / 1000) - median) / sigma)


def _normal(z: Numbers) -> Numbers:
    """Cumulative distribution function of the standard normal distribution, to 8e-8 (Abramowitz and Stegun 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    upper = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * series
    return np.where(z > 0, 1 - upper, upper)
