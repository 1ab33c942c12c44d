"""Which halo: one round with an exact two-hop halo, or two rounds that exchange embeddings after the first layer?

    python benchmarks/bench_partitioning.py [--sizes 6000 20000 100000] [--json results.jsonl]

Meshes come from the project's simulator: 150 services a namespace on average, at least one namespace above the limit,
four calls a service, and shared services that every namespace calls.
The two-hop halo is shown uncapped and with a neighbourhood cap K: a service hears only the K callers and the K callees
with the most traffic. Bytes are those sent to and from the scorers for one snapshot. Times are medians of ``--repeat``
plans from scratch, one thread.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partitioning import PartitionPlan, closure, plan
from serve_app.sources.topology import MeshSpec, generate_topology

LIMIT = 2000
PER_NAMESPACE = 150
SKEWS = {6_000: 1.3, 20_000: 1.0, 100_000: 0.9}  # Zipf exponents that put 1, 1 and 5 namespaces above the limit
NODE_BYTES = 7 * 4 + 7 + 70  # metrics, mask, recurrent state
EDGE_BYTES = 16 + 4 * 4 + 4 + 70  # ends, metrics, mask, recurrent state
EMBEDDING_BYTES = 128 * 4  # first layer, float32


@dataclass(frozen=True, slots=True)
class Mesh:
    """Arguments of ``plan`` but the masks."""

    namespaces: NDArray[np.int64]
    edge_index: NDArray[np.int64]
    edge_weight: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    services: int
    calls: int
    halo: str
    cap: int | None
    rounds: int
    parts: int
    replication: float
    largest_replication: float
    calls_computed: float
    megabytes: float
    plan_ms: float
    traffic_cut: float
    balance: float


def make_mesh(services: int, seed: int) -> Mesh:
    """A simulated mesh; the traffic is what reaches each call from equal gateways."""
    spec = MeshSpec(
        services=services, namespaces=services // PER_NAMESPACE, namespace_skew=SKEWS.get(services), seed=seed
    )
    topology = generate_topology(spec, spec.stream(0))
    rate = np.where(topology.layer == 0, 100.0, 0.0)
    weight = np.zeros(len(topology.source))
    for calls in topology.call_slices:  # calls go to deeper layers only: one sweep settles all rates
        weight[calls] = rate[topology.source[calls]] * topology.calls_per_request[calls]
        rate += np.bincount(topology.destination[calls], weight[calls], minlength=services)
    return Mesh(topology.namespace, np.stack([topology.source, topology.destination]), weight)


def strongest(groups: NDArray[np.int64], weight: NDArray[np.float64], cap: int | None) -> NDArray[np.bool_]:
    """The ``cap`` heaviest calls of each group, ties by position; all of them without a cap."""
    if cap is None:
        return np.ones(len(groups), dtype=np.bool_)
    order = np.lexsort((-weight, groups))
    ordered = groups[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    kept = np.zeros(len(order), dtype=np.bool_)
    kept[order[rank < cap]] = True
    return kept


def measure(mesh: Mesh, cap: int | None, repeat: int) -> Iterator[Row]:
    """The one-round row and the two-round row of one cap."""
    callers = strongest(mesh.edge_index[1], mesh.edge_weight, cap)
    callees = strongest(mesh.edge_index[0], mesh.edge_weight, cap)
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        made = plan(mesh.namespaces, mesh.edge_index, mesh.edge_weight, callers, callees, limit=LIMIT)
        times.append((time.perf_counter() - begin) * 1e3)
    check(mesh, made)
    halos = [len(part.halo) for part in made.parts]
    edges = [len(part.edges) for part in made.parts]
    sent = (len(mesh.namespaces) + sum(halos)) * NODE_BYTES + sum(edges) * EDGE_BYTES
    yield _row(mesh, made, "2 hops", cap, 1, halos, edges, sent, statistics.median(times))
    yield _two_rounds(mesh, made, callers, callees, cap, statistics.median(times))


def _two_rounds(
    mesh: Mesh,
    made: PartitionPlan,
    callers: NDArray[np.bool_],
    callees: NDArray[np.bool_],
    cap: int | None,
    plan_ms: float,
) -> Row:
    """Same cut, halo of one hop. A scorer keeps nothing between the rounds, so the inputs go twice."""
    halos, edges = [], []
    boundary = np.zeros(len(mesh.namespaces), dtype=np.bool_)
    for part in made.parts:
        core = np.zeros(len(mesh.namespaces), dtype=np.bool_)
        core[part.core] = True
        nodes, attended = closure(core, mesh.edge_index, callers, callees, hops=1)
        nodes[mesh.edge_index[0, part.owned_edges]] = True
        attended[part.owned_edges] = True
        boundary |= nodes & ~core
        halos.append(int(nodes.sum()) - len(part.core))
        edges.append(int(attended.sum()))
    inputs = (len(mesh.namespaces) + sum(halos)) * NODE_BYTES + sum(edges) * EDGE_BYTES
    exchanged = (int(boundary.sum()) + sum(halos)) * EMBEDDING_BYTES
    return _row(mesh, made, "1 hop", cap, 2, halos, edges, 2 * inputs + exchanged, plan_ms)


def check(mesh: Mesh, made: PartitionPlan) -> None:
    """Correct before fast: each service and each call once, no part above the limit."""
    cores = np.sort(np.concatenate([part.core for part in made.parts]))
    owned = np.sort(np.concatenate([part.owned_edges for part in made.parts]))
    if not (
        np.array_equal(cores, np.arange(len(mesh.namespaces)))
        and np.array_equal(owned, np.arange(mesh.edge_index.shape[1]))
        and max(len(part.core) for part in made.parts) <= LIMIT
    ):
        raise RuntimeError("the plan is not valid: run the tests of partitioning first")


def _row(
    mesh: Mesh,
    made: PartitionPlan,
    halo: str,
    cap: int | None,
    rounds: int,
    halos: list[int],
    edges: list[int],
    sent: int,
    plan_ms: float,
) -> Row:
    cores = [len(part.core) for part in made.parts]
    return Row(
        services=len(mesh.namespaces),
        calls=mesh.edge_index.shape[1],
        halo=halo,
        cap=cap,
        rounds=rounds,
        parts=len(made.parts),
        replication=1 + sum(halos) / sum(cores),
        largest_replication=max(1 + h / c for h, c in zip(halos, cores, strict=True)),
        calls_computed=sum(edges) / mesh.edge_index.shape[1],
        megabytes=sent / 1e6,
        plan_ms=plan_ms,
        traffic_cut=made.quality.traffic_cut,
        balance=made.quality.balance,
    )


def main() -> None:
    """Print the table, and JSON lines to a file if asked."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--sizes", type=int, nargs="+", default=[6000, 20000, 100000])
    arguments.add_argument("--caps", type=int, nargs="+", default=[0, 64, 32, 16, 8, 4], help="0: no cap")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--json", type=Path)
    chosen = arguments.parse_args()
    rows = []
    print("services   calls  parts  halo    cap rounds  repl. (worst)  calls x     MB  plan ms   cut  balance")
    for services in chosen.sizes:
        mesh = make_mesh(services, chosen.seed)
        for cap in chosen.caps:
            for row in measure(mesh, cap or None, chosen.repeat):
                rows.append(row)
                print(
                    f"{row.services:8d} {row.calls:7d} {row.parts:6d}  {row.halo:6s} {row.cap or '-':>4}"
                    f" {row.rounds:6d}  {row.replication:5.2f} ({row.largest_replication:5.2f})"
                    f" {row.calls_computed:8.2f} {row.megabytes:6.1f} {row.plan_ms:8.1f} {row.traffic_cut:5.3f} {row.balance:8.2f}",
                    flush=True,
                )
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))


if __name__ == "__main__":
    main()
