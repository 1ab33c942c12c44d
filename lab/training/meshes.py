"""Simulated meshes of varied size, instrumentation and trouble, from which the shipped weights learn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from lab.simulator.events.faults import KINDS, Fault, FaultKind
from lab.simulator.events.operations import BenignChange
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from lab.simulator.simulator import Simulator
from lab.simulator.telemetry.instrumentation import Instrumentation, instrument, measured_service
from lab.simulator.telemetry.silence import PlannedSilence, Reach, plan_silences, silence
from lab.training.dataset import LabelledFault, TrainingRun
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot

FIRST_SEED = 10_000  # training meshes use seeds from here up; evaluation and tests use lower ones
INTERVALS = (15.0, 15.0, 15.0, 30.0, 60.0, 60.0, 300.0, 5.0)  # s, mostly the default
# Probability that a mesh lacks a metric: few real meshes have all of them.
NODE_METRIC_MISSING = {"error_rate": 0.15, "p50_latency": 0.1, "p99_latency": 0.15, "memory_utilization": 0.1}
EDGE_METRIC_MISSING = {"error_rate": 0.4, "p50_latency": 0.15, "p99_latency": 0.4}
SILENCES = (2.0, 12.0)  # bounds of their mean number in a run with silences
_SILENCE_STREAM = 11


@dataclass(frozen=True, slots=True)
class TrainingMeshes:
    """Number and length of the simulated meshes.

    Attributes:
        count: number of meshes; every third has no faults.
        kinds: kinds of faults in the meshes with faults.
        silent_share: share of meshes in which telemetry falls silent at times; it does not change the other meshes.
    """

    count: int = 96
    snapshots: int = 400
    seed: int = 0
    kinds: tuple[FaultKind, ...] = KINDS
    silent_share: float = 0.3


@dataclass(frozen=True, slots=True)
class _SimulatedMesh:
    """A run's recipe, which gives the same run in any process."""

    spec: MeshSpec
    faults: tuple[Fault, ...]
    changes: tuple[BenignChange, ...]
    length: int
    instrumentation: Instrumentation
    blind_nodes: tuple[int, ...]
    blind_edges: tuple[int, ...]
    silences: tuple[PlannedSilence, ...]

    def snapshots(self) -> Iterator[MeshSnapshot]:
        source = Simulator(self.spec, self.faults, self.changes, self.length).snapshots()
        for index, snapshot in enumerate(instrument(source, self.instrumentation, self.faults)):
            for gap in (gap for gap in self.silences if gap.start <= index < gap.end):
                silent_services = {name for name in snapshot.node_ids if measured_service(name) in gap.services}
                snapshot = silence(snapshot, silent_services, gap.reporter)
            yield _remove_metrics(snapshot, self.blind_nodes, self.blind_edges)


def simulated_runs(meshes: TrainingMeshes) -> list[TrainingRun]:
    """Return runs that vary in size, density, interval, missing metrics, noise and churn; two thirds have faults."""
    rng = np.random.default_rng(np.random.SeedSequence(meshes.seed, spawn_key=(77,)))
    return [_simulated_run(i, meshes, rng) for i in range(meshes.count)]


def _simulated_run(index: int, meshes: TrainingMeshes, rng: np.random.Generator) -> TrainingRun:
    services = int(np.exp(rng.uniform(np.log(16), np.log(220))))
    spec = MeshSpec(
        services=services,
        calls_per_service=float(rng.uniform(1.3, max(1.4, min(6.0, (services - 1) / 6)))),
        interval_seconds=float(rng.choice(INTERVALS)),
        seed=FIRST_SEED + 1000 * meshes.seed + index,
        start=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=float(rng.uniform(0, 24))),
        without_resources=float(rng.choice([0.0, 0.1, 0.5, 1.0], p=[0.3, 0.4, 0.15, 0.15])),
        without_connections=float(rng.choice([0.0, 0.2, 1.0])),
        without_call_latency=float(rng.choice([0.0, 0.1, 0.5, 1.0], p=[0.4, 0.3, 0.1, 0.2])),
        hiccups_per_hour=float(rng.uniform(0.0, 0.09)),
        crowds_per_day=float(rng.choice([0.0, rng.uniform(1.0, 10.0)])),
        batches=float(rng.choice([0.0, rng.uniform(0.005, 0.025)])),
        cold_strength=float(np.exp(rng.uniform(np.log(0.3), np.log(2.5)))),
        cold_seconds=float(rng.uniform(10.0, 40.0)),
    )
    kinds = () if index % 3 == 2 else meshes.kinds
    churn = float(rng.uniform(2, 20))
    first = int(rng.integers(60, 120))
    faults, changes = plan_scenario(
        spec, kinds, spec.seed, snapshots=meshes.snapshots, first=first, duration=(8, 24), churn_per_hour=churn
    )

    faults = tuple(replace(f, severity=_severity(f, rng)) for f in faults)
    instrumentation = _instrumentation(spec.seed, rng)
    blind_nodes = [i for i, m in enumerate(NODE_METRICS) if rng.random() < NODE_METRIC_MISSING.get(m, 0)]
    blind_edges = [i for i, m in enumerate(EDGE_METRICS) if rng.random() < EDGE_METRIC_MISSING.get(m, 0)]

    mesh = _SimulatedMesh(
        spec,
        faults,
        changes,
        meshes.snapshots,
        instrumentation,
        tuple(blind_nodes),
        tuple(blind_edges),
        _silences(spec, faults, meshes),
    )
    labels = tuple(LabelledFault(spec.time_of(f.start), spec.time_of(f.end), f.service) for f in faults)
    return TrainingRun(f"{services} services, seed {spec.seed}", mesh.snapshots, labels)


def _instrumentation(seed: int, rng: np.random.Generator) -> Instrumentation:
    """Draw an instrumentation; a third of the meshes are measured completely."""
    fronts, remotes, outside = rng.choice([0.0, 0.15, 0.4]), rng.choice([0.0, 0.15, 0.4]), rng.choice([0.0, 0.4, 1.0])
    if rng.random() < 1 / 3:
        return Instrumentation()
    return Instrumentation(float(fronts), float(remotes), float(outside), seed)


def _silences(spec: MeshSpec, faults: Sequence[Fault], meshes: TrainingMeshes) -> tuple[PlannedSilence, ...]:
    """Return some meshes' silences, from a random stream of their own. A fault's culprit is never silent during it,
    because a fault without evidence teaches nothing."""
    rng = spec.stream(_SILENCE_STREAM)
    if rng.random() >= meshes.silent_share:
        return ()
    hours = meshes.snapshots * spec.interval_seconds / 3600.0
    spec = replace(spec, silences_per_hour=float(rng.uniform(*SILENCES)) / hours)
    silences = []
    for planned in plan_silences(spec, build_mesh(spec).topology.node_ids, meshes.snapshots):
        culprits = {fault.service for fault in faults if fault.start < planned.end and planned.start < fault.end}
        if not culprits or planned.reach is not Reach.RESTART:
            silences.append(replace(planned, services=planned.services - culprits))
    return tuple(silences)


def _severity(fault: Fault, rng: np.random.Generator) -> float:
    """Draw a fifth of the planned severity or more, so that the culprit is not always obvious."""
    severity = fault.size * float(np.exp(rng.uniform(-1.6, 0.0)))
    return (
        min(severity, 1.0) if fault.kind == "error_burst" else max(severity, 1.0 if fault.kind == "retry_storm" else 0)
    )


def _remove_metrics(snapshot: MeshSnapshot, nodes: tuple[int, ...], edges: tuple[int, ...]) -> MeshSnapshot:
    """Return the snapshot without these metrics."""
    node_observed, edge_observed = snapshot.node_observed.copy(), snapshot.edge_observed.copy()
    node_observed[:, nodes] = False
    edge_observed[:, edges] = False
    return replace(
        snapshot,
        node_observed=node_observed,
        edge_observed=edge_observed,
        node_features=np.where(node_observed, snapshot.node_features, np.float32(0)),
        edge_features=np.where(edge_observed, snapshot.edge_features, np.float32(0)),
    )
