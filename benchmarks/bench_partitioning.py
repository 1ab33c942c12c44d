"""Compares one round with an exact two-hop halo and two rounds that exchange embeddings after the first layer.

    python benchmarks/bench_partitioning.py [--sizes 6000 20000 100000] [--json results.jsonl]

Simulated meshes have 150 services per namespace on average, at least one namespace above the limit, four calls per
service, and shared services that every namespace calls. The two-hop halo is measured without and with caps on the
neighbours. K means that a service uses only the K callers and the K callees with the most traffic. K+1 is the shipped
rule: if there are more than K, at most one of them is from another namespace. Bytes are the inputs and the exchanged
embeddings of one snapshot, without results, which are the same in both. Times are medians of ``--repeat`` plans from
scratch; state the thread count with them.
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

from lab.simulator.mesh.topology import MeshSpec, generate_topology
from model.state.neighbours import sample_neighbours, strongest
from partitioning import PartitionPlan, closure, plan

Mask = NDArray[np.bool_]

LIMIT = 2000
PER_NAMESPACE = 150
SKEWS = {6_000: 1.3, 20_000: 1.0, 100_000: 0.9}  # Zipf exponents that put 1, 1 and 5 namespaces above the limit
NODE_BYTES = 7 * 4 + 7 + 70  # metrics, mask, recurrent state
EDGE_BYTES = 16 + 4 * 4 + 4 + 70  # ends, metrics, mask, recurrent state
EMBEDDING_BYTES = 128 * 4  # first layer, float32


@dataclass(frozen=True, slots=True)
class Mesh:
    """Arguments of ``plan`` without the masks."""

    namespaces: NDArray[np.int64]
    edge_index: NDArray[np.int64]
    edge_weight: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cap:
    """Most callers and callees that a service uses, and whether at most one of them is from another namespace."""

    most: int | None = None
    one_foreign: bool = False

    def __str__(self) -> str:
        if self.most is None:
            return "-"
        return f"{self.most}+1" if self.one_foreign else str(self.most)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table and of the JSON."""

    services: int
    calls: int
    parts: int
    halo: str
    cap: str
    rounds: int
    replication: float
    largest_part: int  # services, core and halo
    calls_computed: float  # by all parts, over the mesh's calls, in one round
    megabytes: float
    plan_ms: float
    traffic_cut: float
    balance: float


CAPS = (Cap(), Cap(64), Cap(32), Cap(16), Cap(6), Cap(32, True), Cap(16, True), Cap(8, True), Cap(6, True))


def make_mesh(services: int, seed: int) -> Mesh:
    """Simulate a mesh. Traffic starts with the same rate at all gateways."""
    spec = MeshSpec(
        services=services, namespaces=services // PER_NAMESPACE, namespace_skew=SKEWS.get(services), seed=seed
    )
    topology = generate_topology(spec, spec.stream(0))
    rate = np.where(topology.layer == 0, 100.0, 0.0)
    weight = np.zeros(len(topology.source))
    for calls in topology.call_slices:  # calls go to deeper layers only, so one pass is enough
        weight[calls] = rate[topology.source[calls]] * topology.calls_per_request[calls]
        rate += np.bincount(topology.destination[calls], weight[calls], minlength=services)
    return Mesh(topology.namespace, np.stack([topology.source, topology.destination]), weight)


def draw_neighbours(mesh: Mesh, cap: Cap) -> tuple[Mask, Mask]:
    """Return ``(attended_callers, attended_callees)`` under a cap."""
    everything = np.ones(mesh.edge_index.shape[1], dtype=np.bool_)
    if cap.most is None:
        return everything, everything
    source, destination = mesh.edge_index
    foreign = mesh.namespaces[source] != mesh.namespaces[destination]
    traffic = mesh.edge_weight.astype(np.float32)
    if cap.one_foreign:
        return sample_neighbours(traffic, destination, foreign, cap.most), sample_neighbours(
            traffic, source, foreign, cap.most
        )
    return strongest(traffic, destination, cap.most), strongest(traffic, source, cap.most)


def measure(mesh: Mesh, cap: Cap, repeat: int) -> Iterator[Row]:
    """Yield the rows with one and with two rounds for one cap."""
    callers, callees = draw_neighbours(mesh, cap)
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        made = plan(mesh.namespaces, mesh.edge_index, mesh.edge_weight, callers, callees, limit=LIMIT)
        times.append((time.perf_counter() - begin) * 1e3)
    check(mesh, made)
    plan_ms = statistics.median(times)
    nodes = [len(part.core) + len(part.halo) for part in made.parts]
    edges = [len(part.edges) for part in made.parts]
    yield _row(mesh, made, cap, 1, nodes, edges, sum(nodes) * NODE_BYTES + sum(edges) * EDGE_BYTES, plan_ms)
    nodes, edges, boundary = _one_hop(mesh, made, callers, callees)
    # A scorer keeps nothing between the rounds, so the inputs go twice; each boundary embedding comes back once.
    inputs = sum(nodes) * NODE_BYTES + sum(edges) * EDGE_BYTES
    exchanged = (boundary + sum(nodes) - len(mesh.namespaces)) * EMBEDDING_BYTES
    yield _row(mesh, made, cap, 2, nodes, edges, 2 * inputs + exchanged, plan_ms)


def _one_hop(mesh: Mesh, made: PartitionPlan, callers: Mask, callees: Mask) -> tuple[list[int], list[int], int]:
    """Return services and calls of each part with a halo of one hop, and the number of services in any halo."""
    nodes, edges = [], []
    boundary = np.zeros(len(mesh.namespaces), dtype=np.bool_)
    for part in made.parts:
        core = np.zeros(len(mesh.namespaces), dtype=np.bool_)
        core[part.core] = True
        seen, read = closure(core, mesh.edge_index, callers, callees, hops=1)
        seen[mesh.edge_index[1, part.owned_edges]] = True
        read[part.owned_edges] = True
        boundary |= seen & ~core
        nodes.append(int(seen.sum()))
        edges.append(int(read.sum()))
    return nodes, edges, int(boundary.sum())


def check(mesh: Mesh, made: PartitionPlan) -> None:
    """Check that each service and each call is in one part, and that no part is above the limit."""
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
    cap: Cap,
    rounds: int,
    nodes: list[int],
    edges: list[int],
    sent: int,
    plan_ms: float,
) -> Row:
    return Row(
        services=len(mesh.namespaces),
        calls=mesh.edge_index.shape[1],
        parts=len(made.parts),
        halo="2 hops" if rounds == 1 else "1 hop",
        cap=str(cap),
        rounds=rounds,
        replication=sum(nodes) / len(mesh.namespaces),
        largest_part=max(nodes),
        calls_computed=sum(edges) / mesh.edge_index.shape[1],
        megabytes=sent / 1e6,
        plan_ms=plan_ms,
        traffic_cut=made.quality.traffic_cut,
        balance=made.quality.balance,
    )


def main() -> None:
    """Print a JSON line for each halo and cap and, with ``--json``, write them to a file."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--sizes", type=int, nargs="+", default=[6_000, 20_000, 100_000])
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--json", type=Path, help="write JSON lines here")
    chosen = arguments.parse_args()
    rows = []
    for services in chosen.sizes:
        mesh = make_mesh(services, chosen.seed)
        for cap in CAPS:
            for row in measure(mesh, cap, chosen.repeat):
                rows.append(row)
                print(json.dumps(asdict(row)), flush=True)
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))


if __name__ == "__main__":
    main()
