"""The random walk of MicroRCA (Wu, Tordsson, Elmroth and Kao, NOMS 2020), with the alerts of N-sigma.

The walk is on the services that slow calls reach, with their callers and callees. It goes from a callee to its callers,
and starts again at services whose resources follow the latency of the calls into them. A slow call weighs 0.55, as in
the paper; another call weighs the correlation of its latency with the mean latency of the slow ones. A snapshot has no
hosts, so the walk has none. Connections take the place of network traffic. The paper finds slow calls with BIRCH; here
N-sigma finds them. Services that alarm without a slow call come last, ordered by score.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from lab.contenders import n_sigma
from lab.contenders.deviation import OF_CALLS, call_names
from lab.contenders.n_sigma import SIGMAS
from lab.contenders.paging import Floats, build_verdict, lasting_scores
from lab.contenders.past import Past
from model.snapshot import BoolArray, EdgeMetric, MeshSnapshot, NodeMetric
from model.verdict import Verdict

LABEL = "MicroRCA"
WINDOW = 40  # snapshots whose series are correlated
SLOW = 0.55  # weight of a slow call
DAMPING = 0.85
LEAST = 0.01  # of a weight
LEFT = 1e-6  # share of the score that is left to services outside the walk
SUMMARY = f"pages like N-sigma; ranked by a random walk from slow services, with correlations over {WINDOW} snapshots"
LATENCY = EdgeMetric.P50_LATENCY
LATENCIES = [OF_CALLS.index(name) for name in ("p50_latency", "p99_latency")]
RESOURCES = [NodeMetric.CPU_UTILIZATION, NodeMetric.MEMORY_UTILIZATION, NodeMetric.ACTIVE_CONNECTIONS]


@dataclass(frozen=True, slots=True)
class MicroRcaState:
    """State between two snapshots; ``latencies`` of calls and ``resources`` of services are the newest samples."""

    paging: n_sigma.NSigmaState
    latencies: Past
    resources: Past


def start(interval_seconds: float, warm_up: int) -> MicroRcaState:
    """Return the state before the first snapshot."""
    return MicroRcaState(n_sigma.start(interval_seconds, warm_up), Past(WINDOW), Past(WINDOW))


def advance(state: MicroRcaState, snapshot: MeshSnapshot) -> tuple[Verdict, MicroRcaState]:
    """Process one snapshot."""
    paging, names, calls = state.paging, snapshot.node_ids, call_names(snapshot)
    of_calls = np.where(snapshot.edge_observed, snapshot.edge_features.astype(np.float64), np.nan)[:, [LATENCY]]
    of_services = np.where(snapshot.node_observed, snapshot.node_features.astype(np.float64), np.nan)[:, RESOURCES]
    latencies, resources = state.latencies.with_frame(calls, of_calls), state.resources.with_frame(names, of_services)
    risen = n_sigma.scores(paging.mesh, snapshot)
    lasting = lasting_scores(paging.watch, snapshot, risen)
    ranking = LEFT * lasting
    if (lasting > SIGMAS).any():
        slow = paging.mesh.rises(snapshot)[1][:, LATENCIES].max(axis=1) > SIGMAS
        ranking += _walk(snapshot, slow, latencies, resources)
    verdict, watch = build_verdict(paging.watch, snapshot, risen, SIGMAS, ranking)
    return verdict, MicroRcaState(n_sigma.NSigmaState(watch, paging.mesh.with_snapshot(snapshot)), latencies, resources)


def _walk(snapshot: MeshSnapshot, slow: BoolArray, latencies: Past, resources: Past) -> Floats:
    """Return the share of the walk's time at each service, ``[N]``."""
    shares, calls = np.zeros(snapshot.num_nodes), snapshot.edge_index.T.tolist()
    reached = np.unique(snapshot.edge_index[1, slow])
    if not len(reached):
        return shares
    series = _series(latencies, call_names(snapshot))[:, 0]
    used = _series(resources, snapshot.node_ids)
    graph, restart = nx.DiGraph(), {}
    for service in reached.tolist():
        into = np.flatnonzero(snapshot.edge_index[1] == service)
        near = [*into.tolist(), *np.flatnonzero(snapshot.edge_index[0] == service).tolist()]
        delay = series[into[slow[into]]].mean(axis=0)
        weights = [SLOW if slow[call] else max(_correlation(delay, series[call]), LEAST) for call in near]
        # from callee to caller
        graph.add_weighted_edges_from(
            (calls[call][1], calls[call][0], w) for call, w in zip(near, weights, strict=True)
        )
        resource = max(LEAST, *(abs(_correlation(delay, one)) for one in used[service]))
        restart[service] = float(np.mean(weights)) * resource / len(near)
    found: dict[int, float] = nx.pagerank(graph, DAMPING, restart)
    shares[list(found)] = list(found.values())
    return shares


def _series(past: Past, names: Sequence[str]) -> Floats:
    """The samples of these rows, ``[N, M, T]``, NaN where not observed."""
    cube = past.cube().astype(np.float64)
    rows = past.look_up(np.arange(len(cube), dtype=np.float64)[:, None], tuple(names))[:, 0].astype(np.int64)
    return cube[rows]


def _correlation(one: Floats, other: Floats) -> float:
    """Pearson's correlation over the samples that both series have; 0 if one of them is constant."""
    both = np.isfinite(one) & np.isfinite(other)
    if both.sum() < 2:
        return 0.0
    x, y = one[both] - one[both].mean(), other[both] - other[both].mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else 0.0
