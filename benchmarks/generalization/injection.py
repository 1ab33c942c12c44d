"""Faults injected into recorded traffic, and carried along its call graph.

A fault changes the metrics of one service. Each caller suffers in the share of its requests that reach the culprit,
directly or through other services. The share of a caller is the sum over its calls of ``calls per request x share of
the callee``, at most 1, along the calls by which the fault reaches it first. There are no queues, retries and timeouts;
the simulators have them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from model.snapshot import NODE_METRICS, EdgeMetric, FloatArray, MeshSnapshot, NodeMetric
from serve_app.recordings.format import LabelledIncident

REACH = 4  # calls from the culprit to the last caller that suffers
TOUCHED = 0.02  # least share of a caller's requests that reach the culprit, for the caller to count as affected
LENGTH, PAUSE = (8, 24), (12, 24)  # snapshots of a fault, and between two faults
WARM_UP = 0.25  # share of the recording without faults at its start


class InjectedKind(StrEnum):
    """The change that a fault makes."""

    LATENCY = "latency"
    ERRORS = "errors"
    CPU = "cpu"
    MEMORY = "memory"


METRICS = {
    InjectedKind.LATENCY: "p50_latency",
    InjectedKind.ERRORS: "error_rate",
    InjectedKind.CPU: "cpu_utilization",
    InjectedKind.MEMORY: "memory_utilization",
}
# Smallest and largest size: added median latencies; share of failed requests; share of the idle resource that is taken.
SIZES = {
    InjectedKind.LATENCY: (1.0, 30.0),
    InjectedKind.ERRORS: (0.03, 0.6),
    InjectedKind.CPU: (0.4, 0.95),
    InjectedKind.MEMORY: (0.4, 0.95),
}
_SPREADING = (InjectedKind.LATENCY, InjectedKind.ERRORS)
_ERRORS, _P50, _P99 = NodeMetric.ERROR_RATE, NodeMetric.P50_LATENCY, NodeMetric.P99_LATENCY
_CALL_ERRORS, _CALL_P50, _CALL_P99 = EdgeMetric.ERROR_RATE, EdgeMetric.P50_LATENCY, EdgeMetric.P99_LATENCY


@dataclass(frozen=True, slots=True)
class Injection:
    """A fault in the snapshots ``[start, end)``.

    Attributes:
        start, end: indices of snapshots.
        service: node id of the culprit.
        kind: what changes.
        size: see ``SIZES``.
        affected: node ids of the services that suffer, the culprit first.
    """

    start: int
    end: int
    service: str
    kind: InjectedKind
    size: float
    affected: tuple[str, ...]

    def label(self, snapshots: Sequence[MeshSnapshot]) -> LabelledIncident:
        """Return the label of this fault in these snapshots."""
        namespace, name = self.service.split("/", 1)
        start, end = (snapshots[min(i, len(snapshots) - 1)].observed_at for i in (self.start, self.end))
        details = {
            "root_cause_namespace": namespace,
            "recovered": end,
            "candidates": [self.service],
            "affected": list(self.affected),
        }
        return LabelledIncident(start, end, self.kind, name, METRICS[self.kind], details)


def plan_injections(snapshots: Sequence[MeshSnapshot], seed: int) -> list[Injection]:
    """Draw faults after the first quarter of a recording, one after the other.

    A culprit has the metric that its fault changes; a culprit of latency or errors has traffic.

    Args:
        snapshots: of the recording.
        seed: another seed gives other faults.
    """
    rng = np.random.default_rng(seed)
    found: list[Injection] = []
    start = int(WARM_UP * len(snapshots))
    while True:
        start += int(rng.integers(*PAUSE))
        end = start + int(rng.integers(*LENGTH))
        if end >= len(snapshots):
            return found
        possible = list(_possible_culprits(snapshots[start]))
        if possible:
            row, kind = possible[rng.integers(len(possible))]
            low, high = np.log(SIZES[kind])
            share = _requests_that_reach(snapshots[start], row) if kind in _SPREADING else _only(snapshots[start], row)
            callers = [i for i in np.argsort(-share, kind="stable") if share[i] >= TOUCHED and i != row]
            culprit, *others = (snapshots[start].node_ids[i] for i in (row, *callers))
            size = float(np.exp(rng.uniform(low, high)))
            found.append(Injection(start, end, culprit, kind, size, (culprit, *others)))
        start = end


def inject(snapshots: Iterable[MeshSnapshot], injections: Sequence[Injection]) -> Iterator[MeshSnapshot]:
    """Yield the snapshots with the faults in them. A culprit that is absent from a snapshot does nothing to it."""
    for index, snapshot in enumerate(snapshots):
        for one in injections:
            if one.start <= index < one.end and one.service in snapshot.node_ids:
                snapshot = _with_fault(snapshot, snapshot.node_ids.index(one.service), one)
        yield snapshot


def _possible_culprits(snapshot: MeshSnapshot) -> Iterator[tuple[int, InjectedKind]]:
    requests = snapshot.edge_features[:, EdgeMetric.REQUESTS_PER_SECOND]
    busy = np.bincount(snapshot.edge_index[1], requests, minlength=snapshot.num_nodes) > 0
    for row in range(snapshot.num_nodes):
        for kind, metric in METRICS.items():
            if snapshot.node_observed[row, NODE_METRICS.index(metric)] and (busy[row] or kind not in _SPREADING):
                yield row, kind


def _with_fault(snapshot: MeshSnapshot, row: int, fault: Injection) -> MeshSnapshot:
    nodes, edges = snapshot.node_features.copy(), snapshot.edge_features.copy()
    if fault.kind not in _SPREADING:
        column = NODE_METRICS.index(METRICS[fault.kind])
        nodes[row, column] += fault.size * (1 - nodes[row, column])
    else:
        share, called = _requests_that_reach(snapshot, row), snapshot.edge_index[1]
        if fault.kind is InjectedKind.ERRORS:
            failed = (fault.size * share).clip(0, 1)
            _add_errors(nodes, _ERRORS, failed)
            _add_errors(edges, _CALL_ERRORS, failed[called])
        else:
            added = fault.size * nodes[row, _P50]
            for table, p50, p99, reach in ((nodes, _P50, _P99, share), (edges, _CALL_P50, _CALL_P99, share[called])):
                table[:, p50] += added * reach
                table[:, p99] += added * (reach >= TOUCHED)
    nodes[~snapshot.node_observed], edges[~snapshot.edge_observed] = 0, 0
    return replace(snapshot, node_features=nodes, edge_features=edges)


def _add_errors(table: FloatArray, column: int, failed: FloatArray) -> None:
    table[:, column] = 1 - (1 - table[:, column]) * (1 - failed)


def _only(snapshot: MeshSnapshot, row: int) -> FloatArray:
    share = np.zeros(snapshot.num_nodes, np.float32)
    share[row] = 1
    return share


def _requests_that_reach(snapshot: MeshSnapshot, culprit: int) -> FloatArray:
    """Return ``[N]``, the share of each service's requests that reach the culprit; see the formula above."""
    share, reached = _only(snapshot, culprit), np.zeros(snapshot.num_nodes, bool)
    source, target = snapshot.edge_index
    made = snapshot.edge_features[:, EdgeMetric.REQUESTS_PER_SECOND]
    answered = snapshot.node_features[:, NodeMetric.REQUEST_RATE]
    requests = np.where(answered > 0, answered, np.bincount(source, made, minlength=snapshot.num_nodes))
    per_request = (made / np.maximum(requests[source], 1e-9)).clip(0, 1)
    latest = reached.copy()
    latest[culprit] = True
    for _ in range(REACH):
        reached |= latest
        into = latest[target] & ~reached[source]
        if not into.any():
            break
        added = np.bincount(source[into], per_request[into] * share[target[into]], minlength=snapshot.num_nodes)
        share += added.clip(0, 1).astype(np.float32)
        latest = added > 0
    return share
