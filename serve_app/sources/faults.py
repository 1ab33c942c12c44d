"""Faults with a known culprit: what each does to the physics, and plans of faults amid benign churn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

import numpy as np

from serve_app.sources.churn import plan_churn
from serve_app.sources.mesh import build_mesh
from serve_app.sources.operations import Change
from serve_app.sources.physics import Conditions, Mesh
from serve_app.sources.topology import Ints, MeshSpec

FaultKind = Literal["latency_injection", "error_burst", "retry_storm"]
KINDS: tuple[FaultKind, ...] = ("latency_injection", "error_burst", "retry_storm")
DEFAULT_SEVERITY: dict[FaultKind, float] = {"latency_injection": 3.0, "error_burst": 0.3, "retry_storm": 6.0}
ROOT_CAUSE_METRIC: dict[FaultKind, str] = {
    "latency_injection": "p50_latency",
    "error_burst": "error_rate",
    "retry_storm": "requests_per_second",
}
UNLIMITED = 1e9


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks at one service, the culprit; everything else follows from the physics.

    Attributes:
        kind: ``latency_injection``: every request of the culprit takes longer by ``severity`` times its usual
            median, without work (a slow disk, a lock). ``error_burst``: the share ``severity`` of its requests
            fails. ``retry_storm``: the culprit gives its calls no longer than their usual median and retries up
            to ``severity`` times with no budget (a bad client configuration); its callees see the calls multiply.
        service: node id of the culprit.
        start, end: it acts in the snapshots start <= index < end.
        severity: None takes the kind's default.
    """

    kind: FaultKind
    service: str
    start: int
    end: int
    severity: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in DEFAULT_SEVERITY:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, came {self.kind!r}")
        if self.start >= self.end:
            raise ValueError(f"end: expected a snapshot after start {self.start}, came {self.end}")
        if self.severity is None:
            object.__setattr__(self, "severity", DEFAULT_SEVERITY[self.kind])
        if self.size <= 0 or (self.kind == "error_burst" and self.size > 1):
            expected = "a share above 0 up to 1" if self.kind == "error_burst" else "a number above 0"
            raise ValueError(f"severity: expected {expected} for {self.kind}, came {self.size}")

    @property
    def size(self) -> float:
        """The severity in force."""
        return DEFAULT_SEVERITY[self.kind] if self.severity is None else self.severity


def apply_faults(
    faults: Sequence[Fault], index: int, mesh: Mesh, position: Mapping[str, int], now: Conditions
) -> Conditions:
    """The conditions of one tick with the faults that act in it."""
    active = [fault for fault in faults if fault.start <= index < fault.end]
    if not active:
        return now
    delay, errors = now.injected_delay.copy(), now.injected_errors.copy()
    timeout, retries, budget = now.timeout.copy(), now.retries.copy(), now.budget.copy()
    for fault in active:
        i = position[fault.service]
        if fault.kind == "latency_injection":
            delay[i] += fault.size * mesh.usual_p50[i]
        elif fault.kind == "error_burst":
            errors[i] = 1.0 - (1.0 - errors[i]) * (1.0 - fault.size)
        else:
            calls = mesh.topology.source == i
            usual = mesh.usual_p50[mesh.topology.destination[calls]]
            timeout[calls] = np.minimum(timeout[calls], usual)
            retries[calls], budget[calls] = fault.size, UNLIMITED
    return replace(now, injected_delay=delay, injected_errors=errors, timeout=timeout, retries=retries, budget=budget)


def candidates(mesh: Mesh, kind: FaultKind, minimum_rate: float = 5.0) -> Ints:
    """Positions of services where a fault of this kind is one.

    All need traffic. The culprit of a storm also needs a callee that it can nearly drown, and must be able to take
    down neither a shared service nor the door to a third of the mesh's traffic, or the mesh would go along; where
    no service is that harmless, any with calls will do.
    """
    busy = mesh.usual_rate >= min(minimum_rate, float(mesh.usual_rate.max()))
    if kind != "retry_storm":
        return np.flatnonzero(busy)
    topology = mesh.topology
    source, to = topology.source, topology.destination
    share = (
        mesh.usual_rate[source]
        * topology.calls_per_request
        * ~topology.latent_calls
        / np.maximum(mesh.usual_rate[to], 1e-9)
    )
    stormy = mesh.usual_utilisation[to] * (1.0 + DEFAULT_SEVERITY["retry_storm"] * share)
    reach = np.zeros(len(mesh.usual_rate))
    np.maximum.at(reach, source, stormy)
    harm = np.zeros_like(reach)
    np.maximum.at(harm, source, np.where(topology.shared[to], stormy, 0.0))
    main_door = mesh.services.entry > mesh.services.entry.sum() / 3.0
    able = busy & (reach > 0) if (busy & (reach > 0)).any() else reach > 0
    harmless = able & (harm < 0.9) & ~main_door
    able = harmless if harmless.any() else able
    return np.flatnonzero(able & (reach >= min(0.9, float(reach[able].max()))))


def plan_scenario(
    spec: MeshSpec,
    kinds: Sequence[FaultKind],
    seed: int,
    *,
    snapshots: int = 960,
    first: int = 160,
    duration: tuple[int, int] = (16, 40),
    quiet: tuple[int, int] = (40, 80),
    churn_per_hour: float = 6.0,
    minimum_rate: float = 5.0,
) -> tuple[tuple[Fault, ...], tuple[Change, ...]]:
    """Random faults with quiet spells between them, and benign churn that knows nothing of them.

    Args:
        spec: of the mesh.
        kinds: of the faults, in shuffled rounds; empty for churn alone.
        seed: of the plan; the mesh has its own.
        snapshots: length of the run.
        first: earliest start of a fault.
        duration, quiet: least and most snapshots of a fault and of the spell after it.
        churn_per_hour: benign actions an hour in the whole mesh.
        minimum_rate: least usual traffic of a culprit, 1/s.
    """
    mesh = build_mesh(spec)
    faults_seed, churn_seed = np.random.SeedSequence(seed, spawn_key=(9,)).spawn(2)
    faults = _plan_faults(
        mesh, kinds, np.random.default_rng(faults_seed), snapshots, first, duration, quiet, minimum_rate
    )
    hours = snapshots * spec.interval_seconds / 3600.0
    changes = plan_churn(mesh, np.random.default_rng(churn_seed), snapshots, churn_per_hour * hours)
    culprits = {fault.service for fault in faults}
    return faults, tuple(c for c in changes if c.kind != "deletion" or c.service not in culprits)


def incidents(faults: Sequence[Fault], spec: MeshSpec) -> list[dict[str, Any]]:
    """Rows of incidents.parquet: ``start`` is the first snapshot with the fault, ``end`` the first one without."""

    def moment(index: int) -> datetime:
        return spec.start + timedelta(seconds=index * spec.interval_seconds)

    return [
        {
            "start": moment(fault.start),
            "end": moment(fault.end),
            "kind": fault.kind,
            "root_cause_service": fault.service.split("/", 1)[1],
            "root_cause_namespace": fault.service.split("/", 1)[0],
            "root_cause_metric": ROOT_CAUSE_METRIC[fault.kind],
            "severity": fault.size,
        }
        for fault in sorted(faults, key=lambda f: f.start)
    ]


def _plan_faults(
    mesh: Mesh,
    kinds: Sequence[FaultKind],
    rng: np.random.Generator,
    snapshots: int,
    first: int,
    duration: tuple[int, int],
    quiet: tuple[int, int],
    minimum_rate: float,
) -> tuple[Fault, ...]:
    choices = {kind: candidates(mesh, kind, minimum_rate) for kind in kinds}
    faults: list[Fault] = []
    waiting: list[FaultKind] = []
    start = first + int(rng.integers(0, quiet[1] - quiet[0] + 1))
    while kinds:
        waiting = waiting or [kinds[i] for i in rng.permutation(len(kinds))]
        kind = waiting.pop()
        end = start + int(rng.integers(duration[0], duration[1] + 1))
        if end > snapshots:
            break
        severity = DEFAULT_SEVERITY[kind] * float(np.exp(rng.uniform(-0.5, 0.5)))
        service = mesh.topology.node_ids[int(rng.choice(choices[kind]))]
        faults.append(Fault(kind, service, start, end, severity))
        start = end + int(rng.integers(quiet[0], quiet[1] + 1))
    return tuple(faults)
