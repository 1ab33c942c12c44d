"""Would caches save work? Passes over the changed part of a mesh only, and embeddings of hubs from earlier snapshots.

    python -m benchmarks.bench_caches [--json FILE] [--snapshots 6]

Changed part: a service or call keeps its inputs until one of them is further than a tolerance from the inputs that it
was last computed with (asinh of sigmas, so 0.2 is a fifth of a sigma near 0). Whatever reads a changed row, within two
calls, is computed again; all other outputs come from earlier snapshots. ``cached_ms`` includes the search for changed
rows. The error is in the expected deviations, in sigmas: it is added to the score of a service.

Hubs: the 1% of the services with most calls. The second layer reads their embeddings of an earlier snapshot.
``cached_ms`` is a pass in which hubs read no neighbours at all, the most that a cache could save. The error is in the
root-cause logits of the other services.

The sources: calm simulated meshes of 2,000 and 10,000 services; where they are at hand, the simulator of other hands
and recorded normal traffic. Times are CPU times of one thread, medians of runs in turns. Prints one JSON line for each
source, cache and tolerance or age; takes about two minutes.
"""

import argparse
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.bench_missing import OTHER_OPTIONS, OTHER_SEED
from benchmarks.generalization.generators import OTHER_SIMULATOR, other_recording
from lab.comparison.plan import SHARED
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.features import Array
from model.network.autoencoder import Autoencoder
from model.scoring.score import PartitionTask, batch_tasks, score
from model.snapshot import BoolArray, MeshSnapshot
from partitioning.halo import closure
from serve_app.pipeline import Mesh, Options, prepare
from serve_app.recordings.reader import RecordingReader

SIZES = ((2_000, 20_000), (10_000, 100_000))  # services and calls
RECORDINGS = ("petshop/low_traffic-normal", "sockshop-nirc/normal")
SETTLE = 20  # snapshots before the first one that is measured
TOLERANCES = (0.0, 0.05, 0.2, 0.5)
AGES = (1, 4)  # snapshots
HUBS = 0.01  # share of the services
HOPS = 2

P = ParamSpec("P")
T = TypeVar("T")


def sources(snapshots: int) -> Iterator[tuple[str, Iterable[MeshSnapshot]]]:
    """Yield a name and the snapshots of each source."""
    for services, calls in SIZES:
        spec = MeshSpec(services=services, calls_per_service=calls / services, seed=1)
        yield f"simulator, {services} services", Simulator(spec, snapshots=snapshots).snapshots()
    if OTHER_SIMULATOR.is_file():
        path = other_recording(OTHER_SEED, OTHER_OPTIONS, Path("out/missing"))
        for name, folder in (("other simulator", path), *((name, SHARED / name) for name in RECORDINGS)):
            yield name, islice(RecordingReader(folder).snapshots(), snapshots)


def tasks_of(snapshots: Iterable[MeshSnapshot]) -> Iterator[PartitionTask]:
    """Yield the inputs of the network for each snapshot after the first ones."""
    checkpoint, mesh = load(), Mesh()
    for index, snapshot in enumerate(snapshots):
        prepared = prepare(checkpoint, mesh, snapshot, Options(max_services=snapshot.num_nodes))
        mesh = prepared.mesh
        if index >= SETTLE:
            yield prepared.whole


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """What a snapshot changes.

    Attributes:
        task: of the whole mesh, with the inputs that each row was last computed with.
        services, calls: ``[N]``, ``[E]``, rows whose inputs changed.
        computed: ``[N]``, services whose outputs change.
    """

    task: PartitionTask
    services: BoolArray
    calls: BoolArray
    computed: BoolArray

    def as_part(self) -> PartitionTask:
        """Return the task of the services and calls whose outputs change, with all that they read."""
        task, owned = self.task, self.calls | self.computed[self.task.edge_index].any(axis=0)
        index = task.edge_index.astype(np.int64)
        read, edges = closure(self.computed, index, task.attended_callers, task.attended_callees, HOPS)
        read[index[:, owned]] = True
        core = np.flatnonzero(self.computed)
        rows = np.concatenate([core, np.flatnonzero(read & ~self.computed)])
        calls = np.concatenate([np.flatnonzero(owned), np.flatnonzero(edges & ~owned)])
        place = np.zeros(len(task.nodes), np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)
        return PartitionTask(
            task.nodes[rows],
            task.edges[calls],
            place[index[:, calls]],
            task.attended_callers[calls],
            task.attended_callees[calls],
            len(core),
            int(owned.sum()),
            np.arange(len(core)),
        )


def changed_part(before: PartitionTask | None, now: PartitionTask, tolerance: float) -> ChangedPart:
    """Compare a snapshot with what was computed before; all of it is new if the mesh has other services or calls."""
    if before is None or not np.array_equal(before.edge_index, now.edge_index) or len(before.nodes) != len(now.nodes):
        services, calls = np.ones(len(now.nodes), bool), np.ones(len(now.edges), bool)
        return ChangedPart(now, services, calls, services)
    services, calls = (
        _find_changes(before.nodes, now.nodes, tolerance),
        _find_changes(before.edges, now.edges, tolerance),
    )
    nodes = np.where(services[:, None], now.nodes, before.nodes)
    edges = np.where(calls[:, None], now.edges, before.edges)
    computed = services
    for _ in range(HOPS):
        computed = computed | _listeners(now, computed, calls)
    return ChangedPart(replace(now, nodes=nodes, edges=edges), services, calls, computed)


def _find_changes(before: Array, now: Array, tolerance: float) -> BoolArray:
    changed: BoolArray = (np.abs(now - before) > tolerance).any(axis=1)
    return changed


def _listeners(task: PartitionTask, services: BoolArray, calls: BoolArray) -> BoolArray:
    """Return the services ``[N]`` that attend to one of these services, or over one of these calls."""
    source, destination = task.edge_index
    listening = np.zeros(len(task.nodes), bool)
    listening[destination[task.attended_callers & (services[source] | calls)]] = True
    listening[source[task.attended_callees & (services[destination] | calls)]] = True
    return listening


def score_changes(
    network: Autoencoder, before: PartitionTask | None, now: PartitionTask, tolerance: float
) -> ChangedPart:
    """Find the changed part, and score it."""
    part = changed_part(before, now, tolerance)
    if part.computed.any():
        score(network, [part.as_part()])
    return part


def measure_changes(network: Autoencoder, tasks: Sequence[PartitionTask], tolerance: float) -> dict[str, Any]:
    """Return shares, times and errors of passes over the changed part."""
    shares, full_seconds, cached_seconds, errors = [], [], [], []
    before: PartitionTask | None = None
    for task in tasks:
        seconds, (whole,) = time_call(score, network, [task])
        seconds_in_part, part = time_call(score_changes, network, before, task, tolerance)
        if before is not None:
            full_seconds.append(seconds)
            cached_seconds.append(seconds_in_part)
            shares.append([part.services.mean(), part.calls.mean() if len(part.calls) else 0, part.computed.mean()])
            (kept,) = score(network, [part.task])
            errors.append(np.abs(kept.node_expected - whole.node_expected).ravel())
        before = part.task
    changed, calls, computed = np.mean(shares, axis=0)
    return {
        "tolerance": tolerance,
        "changed_services": round(float(changed), 4),
        "changed_calls": round(float(calls), 4),
        "computed_services": round(float(computed), 4),
        **_times(full_seconds, cached_seconds),
        **_errors(np.concatenate(errors)),
    }


def hubs_of(task: PartitionTask) -> NDArray[np.int64]:
    """Return the rows of the services with most calls."""
    degree = np.bincount(task.edge_index.ravel(), minlength=len(task.nodes))
    return np.argsort(-degree, kind="stable")[: max(1, round(HUBS * len(task.nodes)))]


def without_reading(task: PartitionTask, hubs: NDArray[np.int64]) -> PartitionTask:
    """Return the task in which these services attend to no neighbours."""
    is_hub = np.zeros(len(task.nodes), bool)
    is_hub[hubs] = True
    source, destination = task.edge_index
    return replace(
        task,
        attended_callers=task.attended_callers & ~is_hub[destination],
        attended_callees=task.attended_callees & ~is_hub[source],
    )


def measure_hubs(network: Autoencoder, tasks: Sequence[PartitionTask], age: int) -> dict[str, Any]:
    """Return the share of reads that are of hubs, times, and errors with embeddings of hubs that are so old."""
    full_seconds: list[float] = []
    cached_seconds: list[float] = []
    reads, errors = [], []
    recent = deque[tuple[PartitionTask, torch.Tensor]](maxlen=age)
    for index, task in enumerate(tasks):
        hubs = hubs_of(task)
        is_hub = np.zeros(len(task.nodes), bool)
        is_hub[hubs] = True
        pair = [(full_seconds, task), (cached_seconds, without_reading(task, hubs))]
        for seconds, timed_task in pair[:: 1 if index % 2 else -1]:  # the second of two may find its memory warm
            seconds.append(time_call(score, network, [timed_task])[0])
        source, destination = task.edge_index
        of_hubs = (is_hub[source] & task.attended_callers).sum() + (is_hub[destination] & task.attended_callees).sum()
        reads.append(of_hubs / max(task.neighbours, 1))
        first = first_layer(network, task)
        if len(recent) == age and np.array_equal(recent[0][0].edge_index, task.edge_index):
            stale = first.clone()
            stale[hubs] = recent[0][1][hubs]
            logits, wanted = (find_root_causes(network, task, rows) for rows in (stale, first))
            errors.append(np.abs(logits - wanted)[~is_hub])
        recent.append((task, first))
    return {
        "age": age,
        "hubs": len(hubs_of(tasks[-1])),
        "reads_of_hubs": round(float(np.mean(reads)), 4),
        **_times(full_seconds, cached_seconds),
        **_errors(np.concatenate(errors) if errors else np.zeros(0)),
    }


def first_layer(network: Autoencoder, task: PartitionTask) -> torch.Tensor:
    """Return the embeddings of the first layer, ``[N, hidden]``."""
    graph = batch_tasks([task], torch.device("cpu"))
    with torch.inference_mode():
        rows: torch.Tensor = network.first(graph.nodes, network.trajectory(graph.edges), graph.callers, graph.callees)[
            0
        ]
    return rows


def find_root_causes(network: Autoencoder, task: PartitionTask, rows: torch.Tensor) -> Array:
    """Return the root-cause logits ``[N]`` from embeddings of the first layer."""
    graph = batch_tasks([task], torch.device("cpu"))
    with torch.inference_mode():
        z = network.second(rows, network.trajectory(graph.edges), graph.callers, graph.callees)[0]
        logits: Array = network.blame(z).squeeze(1).numpy()
    return logits


def time_call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[float, T]:
    """Return the CPU time of a call, s, and its result."""
    begin = time.process_time()
    result = function(*args, **kwargs)
    return time.process_time() - begin, result


def _times(full: Sequence[float], cached: Sequence[float]) -> dict[str, float]:
    milliseconds = {"pass_ms": 1000 * float(np.median(full)), "cached_ms": 1000 * float(np.median(cached))}
    return {name: round(value, 2) for name, value in milliseconds.items()}


def _errors(errors: NDArray[np.floating]) -> dict[str, float | None]:
    if not len(errors):
        return {"error_p99": None, "error_max": None}
    return {"error_p99": round(float(np.quantile(errors, 0.99)), 4), "error_max": round(float(errors.max()), 4)}


def measure(source: str, snapshots: Iterable[MeshSnapshot]) -> Iterator[dict[str, Any]]:
    """Yield the lines of one source."""
    network, tasks = cast(Autoencoder, load().network), list(tasks_of(snapshots))
    base = {"benchmark": "caches", "source": source, "services": len(tasks[-1].nodes), "calls": len(tasks[-1].edges)}
    for tolerance in TOLERANCES:
        yield base | {"cache": "changed part"} | measure_changes(network, tasks, tolerance)
    for age in AGES:
        yield base | {"cache": "hubs"} | measure_hubs(network, tasks, age)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=6, help="that are measured, of each source")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for source, snapshots in sources(SETTLE + arguments.snapshots):
        for line in measure(source, snapshots):
            lines.append(json.dumps(line))
            print(lines[-1], flush=True)
    if arguments.json:
        arguments.json.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
