"""What telemetry makes of a mesh: services seen twice, load balancers among them, dependencies that only callers see.

The simulator measures every service where it runs. In real meshes much is measured from outside: a load balancer or a
function's front is a service of its own before the one that works; where trace headers are lost a service shows once as
itself and once as a nameless remote end; of databases, queues and clouds there is only what their callers saw, and a
caller in trouble sees them in trouble. Snapshots are rewritten accordingly; what really happens stays the same.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.simulator.events.faults import Fault
from serve_app.simulator.mesh.topology import Ints

Floats = NDArray[np.float64]
SYMPTOMS = slice(1, 4)  # errors, p50, p99: in the same places of services and calls
RESOURCES = slice(4, 7)
MOVED = 0.6  # of the calls into a service that is seen twice go to its second name
NOISE = 0.03  # relative, of what is measured a second time
CALLER_SEES = ("cpu_saturation", "latency_injection", "error_burst")  # in its dependencies, though it is the caller


@dataclass(frozen=True, slots=True)
class Instrumentation:
    """How a mesh is measured.

    Attributes:
        fronts: share of the called services that have a front before them.
        remotes: share of them that show a second time, under the name that some callers know.
        outside: share of the services without calls of their own that only their callers measure.
        seed: who it is.
    """

    fronts: float = 0.0
    remotes: float = 0.0
    outside: float = 0.0
    seed: int = 0

    def drawn(self, name: str, purpose: int) -> float:
        """A number in [0, 1) that belongs to a service, whoever else is there."""
        return _drawn(self.seed, name, purpose)


@cache
def _drawn(seed: int, name: str, purpose: int) -> float:
    return float(np.random.default_rng([seed, zlib.crc32(name.encode()), purpose]).random())


def shown(
    snapshots: Iterable[MeshSnapshot], how: Instrumentation, faults: Sequence[Fault] = ()
) -> Iterator[MeshSnapshot]:
    """The snapshots as that instrumentation shows them; ``faults`` by index of the snapshot, since callers in trouble
    see it in what they call."""
    rng = np.random.default_rng([how.seed, 1])
    for index, snapshot in enumerate(snapshots):
        active = [f for f in faults if f.start <= index < f.end and f.kind in CALLER_SEES]
        yield _shown(snapshot, how, active, rng)


def _shown(
    snapshot: MeshSnapshot, how: Instrumentation, active: Sequence[Fault], rng: np.random.Generator
) -> MeshSnapshot:
    nodes = np.where(snapshot.node_observed, snapshot.node_features, np.nan).astype(np.float64)
    edges = np.where(snapshot.edge_observed, snapshot.edge_features, np.nan).astype(np.float64)
    names, index = list(snapshot.node_ids), snapshot.edge_index.copy()
    outside = _outside(names, index, how)
    nodes[outside, RESOURCES] = np.nan
    for fault in active:
        _as_its_caller_sees(fault, names, index, edges, outside, how)
    nodes[outside, SYMPTOMS] = _of_calls(nodes, index, edges)[outside]
    nodes, edges, index = _with_remotes(names, nodes, edges, index, how)
    nodes, edges, index = _with_fronts(names, nodes, edges, index, how)
    added = slice(len(snapshot.node_ids), None)
    nodes[added, SYMPTOMS] *= np.exp(NOISE * rng.standard_normal(nodes[added, SYMPTOMS].shape))
    nodes[:, 1], edges[:, 1] = np.minimum(nodes[:, 1], 1.0), np.minimum(edges[:, 1], 1.0)
    for table in (nodes, edges):
        table[:, 3] = np.where(table[:, 3] < table[:, 2], table[:, 2], table[:, 3])
    return MeshSnapshot.create(
        node_ids=names,
        edge_index=index,
        node_features=nodes,
        edge_features=edges,
        observed_at=snapshot.observed_at,
        changes=snapshot.changes,
    )


def _outside(names: Sequence[str], index: Ints, how: Instrumentation) -> Ints:
    """Rows of the services that only their callers measure."""
    called = np.setdiff1d(index[1], index[0])
    return np.array([i for i in called.tolist() if how.drawn(names[i], 0) < how.outside], dtype=np.int64)


def _as_its_caller_sees(
    fault: Fault, names: Sequence[str], index: Ints, edges: Floats, outside: Ints, how: Instrumentation
) -> None:
    """The calls of a service in trouble to what only its callers measure; half of the faults show there at all."""
    if fault.service not in names or how.drawn(f"{fault.service}@{fault.start}", 1) < 0.5:
        return
    calls = np.flatnonzero((index[0] == names.index(fault.service)) & np.isin(index[1], outside))
    part = np.array([0.2 + 0.8 * how.drawn(f"{names[i]}@{fault.start}", 2) for i in index[1, calls].tolist()])
    if fault.kind == "error_burst":
        edges[calls, 1] += (1 - edges[calls, 1]) * fault.size * part
    else:
        edges[calls, 2:4] *= 1 + fault.size * part[:, None]


def _of_calls(nodes: Floats, index: Ints, edges: Floats) -> Floats:
    """``[N, 3]`` errors, p50 and p99 as the calls into each service show them, weighted by their traffic; its own where
    they show none."""
    seen = np.isfinite(edges[:, SYMPTOMS])
    weight = seen * edges[:, :1]
    sums, weights = np.zeros((2, len(nodes), 3))
    np.add.at(sums, index[1], np.where(seen, edges[:, SYMPTOMS], 0) * weight)
    np.add.at(weights, index[1], weight)
    return np.where(weights > 0, sums / np.maximum(weights, 1e-12), nodes[:, SYMPTOMS])


def _with_remotes(
    names: list[str], nodes: Floats, edges: Floats, index: Ints, how: Instrumentation
) -> tuple[Floats, Floats, Ints]:
    """Some services that call others show once more as the nameless end of some calls."""
    busy = np.intersect1d(index[0], index[1])
    for i in [i for i in busy.tolist() if how.drawn(names[i], 3) < how.remotes]:
        into = np.flatnonzero(index[1] == i)
        moved = [e for e in into.tolist() if how.drawn(f"{names[index[0, e]]}>{names[i]}", 4) < MOVED]
        if not moved:
            continue
        remote = len(names)
        names.append(f"{names[i]}.remote")
        split = edges[moved].copy()
        if len(moved) == len(into):  # half of each caller's calls keep their name
            split[:, 0] /= 2
            edges[moved, 0] /= 2
            index = np.concatenate([index, [index[0, moved], [remote] * len(moved)]], axis=1)
            edges = np.concatenate([edges, split])
        else:
            index[1, moved] = remote
        nodes = np.concatenate([nodes, _seen_at(nodes[i], split)])
    return nodes, edges, index


def _with_fronts(
    names: list[str], nodes: Floats, edges: Floats, index: Ints, how: Instrumentation
) -> tuple[Floats, Floats, Ints]:
    """Some services have a front, which hands on all that comes."""
    busy = np.intersect1d(index[0], index[1])
    for i in [i for i in busy.tolist() if how.drawn(names[i], 5) < how.fronts]:
        into = index[1] == i
        front = len(names)
        names.append(f"{names[i]}.front")
        handed_on = np.concatenate([[edges[into, 0].sum()], nodes[i, SYMPTOMS]])
        nodes = np.concatenate([nodes, _seen_at(nodes[i], edges[into])])
        index[1, into] = front
        index = np.concatenate([index, [[front], [i]]], axis=1)
        edges = np.concatenate([edges, handed_on[None, :]])
    return nodes, edges, index


def _seen_at(service: Floats, calls: Floats) -> Floats:
    """``[1, 7]`` what a service shows as the other end of these calls; latency and errors are its own where the calls
    do not show them."""
    row = np.full((1, len(NODE_METRICS)), np.nan)
    row[0, 0] = calls[:, 0].sum()
    whole = np.concatenate([service, np.full(len(EDGE_METRICS), np.nan)])[None, : len(NODE_METRICS)]
    row[0, SYMPTOMS] = _of_calls(whole, np.zeros((2, len(calls)), np.int64), calls)[0]
    return row
