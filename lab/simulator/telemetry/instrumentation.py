"""Rewrites snapshots as imperfect instrumentation shows them: duplicate services, front ends, unmeasured dependencies.

The simulator measures each service where it runs. In real meshes many services are measured from outside. A load
balancer or a function gateway appears as a service of its own in front of the real one. If trace headers are lost, a
service appears twice: as itself, and as an unnamed remote end. Databases, queues and cloud services are measured by
their callers only, and a caller with a fault also reports its dependencies as slow or failing. The simulated mesh
itself does not change.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import Ints
from model.snapshot import EDGE_METRICS, NODE_METRICS, EdgeMetric, MeshSnapshot, NodeMetric

Floats = NDArray[np.float64]
SYMPTOMS = slice(EdgeMetric.ERROR_RATE, EdgeMetric.P99_LATENCY + 1)  # the same columns for services and calls
RESOURCES = slice(NodeMetric.CPU_UTILIZATION, NodeMetric.ACTIVE_CONNECTIONS + 1)
ERRORS, P50, P99 = EdgeMetric.ERROR_RATE, EdgeMetric.P50_LATENCY, EdgeMetric.P99_LATENCY  # also columns of services
MOVED = 0.6  # share of calls into a duplicate service that use its second name
REMOTE, FRONT = ".remote", ".front"  # suffixes of duplicate services and front ends
NOISE = 0.03  # relative noise of values that are measured twice
# Faults of a caller that also show in its dependencies.
CALLER_SEES = ("cpu_saturation", "latency_injection", "error_burst")


@dataclass(frozen=True, slots=True)
class Instrumentation:
    """A mesh's instrumentation.

    Attributes:
        fronts: share of called services with a front end.
        remotes: share of called services that appear a second time, under another name.
        outside: share of services without calls of their own that only their callers measure.
        seed: chooses these services.
    """

    fronts: float = 0.0
    remotes: float = 0.0
    outside: float = 0.0
    seed: int = 0

    def draw(self, name: str, purpose: int) -> float:
        """Draw a number in [0, 1) for a service, independent of other services."""
        return _draw(self.seed, name, purpose)


@cache
def _draw(seed: int, name: str, purpose: int) -> float:
    return float(np.random.default_rng([seed, zlib.crc32(name.encode()), purpose]).random())


def measured_service(name: str) -> str:
    """Return the service that a name stands for: itself, or the service behind its front end or second name."""
    return name.removesuffix(FRONT).removesuffix(REMOTE)


def instrument(
    snapshots: Iterable[MeshSnapshot], how: Instrumentation, faults: Sequence[Fault] = ()
) -> Iterator[MeshSnapshot]:
    """Yield the snapshots as this instrumentation shows them. Some ``faults`` also show in the culprit's
    dependencies."""
    rng = np.random.default_rng([how.seed, 1])
    for index, snapshot in enumerate(snapshots):
        active = [f for f in faults if f.start <= index < f.end and f.kind in CALLER_SEES]
        yield _instrument(snapshot, how, active, rng)


def _instrument(
    snapshot: MeshSnapshot, how: Instrumentation, active: Sequence[Fault], rng: np.random.Generator
) -> MeshSnapshot:
    nodes = np.where(snapshot.node_observed, snapshot.node_features, np.nan).astype(np.float64)
    edges = np.where(snapshot.edge_observed, snapshot.edge_features, np.nan).astype(np.float64)
    names, index = list(snapshot.node_ids), snapshot.edge_index.copy()
    outside = _measured_by_callers(names, index, how)
    nodes[outside, RESOURCES] = np.nan
    for fault in active:
        _blame_dependencies(fault, names, index, edges, outside, how)
    nodes[outside, SYMPTOMS] = _symptoms_of_calls(nodes, index, edges)[outside]
    nodes, edges, index = _with_remotes(names, nodes, edges, index, how)
    nodes, edges, index = _with_fronts(names, nodes, edges, index, how)
    extra_rows = slice(len(snapshot.node_ids), None)
    nodes[extra_rows, SYMPTOMS] *= np.exp(NOISE * rng.standard_normal(nodes[extra_rows, SYMPTOMS].shape))
    for table in (nodes, edges):
        table[:, ERRORS] = np.minimum(table[:, ERRORS], 1.0)
        table[:, P99] = np.where(table[:, P99] < table[:, P50], table[:, P50], table[:, P99])
    return MeshSnapshot.create(
        node_ids=names,
        edge_index=index,
        node_features=nodes,
        edge_features=edges,
        observed_at=snapshot.observed_at,
        changes=snapshot.changes,
        signals=snapshot.signals,
    )


def _measured_by_callers(names: Sequence[str], index: Ints, how: Instrumentation) -> Ints:
    """Return the rows of services that only their callers measure."""
    leaves = np.setdiff1d(index[1], index[0])
    return np.array([i for i in leaves.tolist() if how.draw(names[i], 0) < how.outside], dtype=np.int64)


def _blame_dependencies(
    fault: Fault, names: Sequence[str], index: Ints, edges: Floats, outside: Ints, how: Instrumentation
) -> None:
    """Add the fault to the culprit's calls to services that only callers measure, for half of the faults."""
    if fault.service not in names or how.draw(f"{fault.service}@{fault.start}", 1) < 0.5:
        return
    calls = np.flatnonzero((index[0] == names.index(fault.service)) & np.isin(index[1], outside))
    part = np.array([0.2 + 0.8 * how.draw(f"{names[i]}@{fault.start}", 2) for i in index[1, calls].tolist()])
    if fault.kind == "error_burst":
        edges[calls, ERRORS] += (1 - edges[calls, ERRORS]) * fault.size * part
    else:
        edges[calls, P50 : P99 + 1] *= 1 + fault.size * part[:, None]


def _symptoms_of_calls(nodes: Floats, index: Ints, edges: Floats) -> Floats:
    """Return ``[N, 3]`` errors, p50 and p99 of the calls into each service, weighted by traffic, or its own values."""
    is_observed = np.isfinite(edges[:, SYMPTOMS])
    weight = is_observed * edges[:, EdgeMetric.REQUESTS_PER_SECOND, None]
    sums, weights = np.zeros((2, len(nodes), 3))
    np.add.at(sums, index[1], np.where(is_observed, edges[:, SYMPTOMS], 0) * weight)
    np.add.at(weights, index[1], weight)
    return np.where(weights > 0, sums / np.maximum(weights, 1e-12), nodes[:, SYMPTOMS])


def _with_remotes(
    names: list[str], nodes: Floats, edges: Floats, index: Ints, how: Instrumentation
) -> tuple[Floats, Floats, Ints]:
    """Duplicate some services that make calls, as the unnamed end of some calls."""
    busy = np.intersect1d(index[0], index[1])
    for i in [i for i in busy.tolist() if how.draw(names[i], 3) < how.remotes]:
        into = np.flatnonzero(index[1] == i)
        calls = [e for e in into.tolist() if how.draw(f"{names[index[0, e]]}>{names[i]}", 4) < MOVED]
        if not calls:
            continue
        remote = len(names)
        names.append(f"{names[i]}{REMOTE}")
        split = edges[calls].copy()
        if len(calls) == len(into):  # half of each caller's calls keep the original name
            split[:, EdgeMetric.REQUESTS_PER_SECOND] /= 2
            edges[calls, EdgeMetric.REQUESTS_PER_SECOND] /= 2
            index = np.concatenate([index, [index[0, calls], [remote] * len(calls)]], axis=1)
            edges = np.concatenate([edges, split])
        else:
            index[1, calls] = remote
        nodes = np.concatenate([nodes, _duplicate_row(nodes[i], split)])
    return nodes, edges, index


def _with_fronts(
    names: list[str], nodes: Floats, edges: Floats, index: Ints, how: Instrumentation
) -> tuple[Floats, Floats, Ints]:
    """Put a front end before some services, which forwards all requests."""
    busy = np.intersect1d(index[0], index[1])
    for i in [i for i in busy.tolist() if how.draw(names[i], 5) < how.fronts]:
        into = index[1] == i
        front = len(names)
        names.append(f"{names[i]}{FRONT}")
        front_call = np.concatenate([[edges[into, EdgeMetric.REQUESTS_PER_SECOND].sum()], nodes[i, SYMPTOMS]])
        nodes = np.concatenate([nodes, _duplicate_row(nodes[i], edges[into])])
        index[1, into] = front
        index = np.concatenate([index, [[front], [i]]], axis=1)
        edges = np.concatenate([edges, front_call[None, :]])
    return nodes, edges, index


def _duplicate_row(service: Floats, calls: Floats) -> Floats:
    """Return a service's metrics ``[1, 7]`` as these calls show them, or its own latency and errors."""
    row = np.full((1, len(NODE_METRICS)), np.nan)
    row[0, NodeMetric.REQUEST_RATE] = calls[:, EdgeMetric.REQUESTS_PER_SECOND].sum()
    whole = np.concatenate([service, np.full(len(EDGE_METRICS), np.nan)])[None, : len(NODE_METRICS)]
    row[0, SYMPTOMS] = _symptoms_of_calls(whole, np.zeros((2, len(calls)), np.int64), calls)[0]
    return row
