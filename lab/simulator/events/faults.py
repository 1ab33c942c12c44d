"""Faults with a known culprit, and their effects on the mesh's physics. Symptoms follow from the simulation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from lab.simulator.mesh.topology import Ints
from lab.simulator.physics.propagation import Conditions, MeshPhysics
from lab.simulator.physics.queueing import Floats

FaultKind = Literal[
    "latency_injection",
    "error_burst",
    "retry_storm",
    "partial_partition",
    "slow_leak",
    "cpu_saturation",
    "disappearance",
    "misroute",
    "hub_degradation",
    "grey_edge",
]
Level = Literal["minor", "major", "critical"]
LEVELS: tuple[Level, ...] = ("minor", "major", "critical")


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One kind of fault.

    Attributes:
        sizes: severity at each of ``LEVELS``.
        metric: metric that shows the fault, at the culprit or at calls into it.
        words: description for people.
        share: whether the severity is a share, 0 to 1.
    """

    sizes: tuple[float, float, float]
    metric: str
    words: str
    share: bool = True

    @property
    def levels(self) -> dict["Level", float]:
        """Size by level; a fault with only one size is critical."""
        return dict(zip(LEVELS, self.sizes, strict=True)) if len(set(self.sizes)) > 1 else {"critical": self.sizes[-1]}


CATALOGUE: dict[FaultKind, FaultSpec] = {
    "latency_injection": FaultSpec(
        (0.5, 3.0, 10.0),
        "p50_latency",
        "each request takes longer by this multiple of the usual median, without CPU work: a slow disk, a lock",
        share=False,
    ),
    "error_burst": FaultSpec((0.03, 0.3, 0.8), "error_rate", "a share of requests fails"),
    "retry_storm": FaultSpec(
        (1.0, 6.0, 10.0),
        "requests_per_second",
        "the culprit times out at its callees' usual median and retries this many times, without a retry budget",
        share=False,
    ),
    "partial_partition": FaultSpec(
        (0.05, 0.4, 0.9), "error_rate", "a share of requests from every other caller does not reach the service"
    ),
    "slow_leak": FaultSpec(
        (0.15, 0.5, 0.8),
        "memory_utilization",
        "memory use rises by this share; near the limit, garbage collection slows the service",
    ),
    "cpu_saturation": FaultSpec(
        (0.3, 0.6, 0.8), "cpu_utilization", "a process outside the mesh takes a share of the host's CPU"
    ),
    "disappearance": FaultSpec((1.0, 1.0, 1.0), "request_rate", "the service disappears without a planned change"),
    "misroute": FaultSpec(
        (0.2, 0.6, 1.0),
        "requests_per_second",
        "two callers swap a share of their calls: each reaches the other's callee",
    ),
    "hub_degradation": FaultSpec(
        (0.75, 1.0, 1.3),
        "p99_latency",
        "a shared service loses capacity until its utilisation is this high",
        share=False,
    ),
    "grey_edge": FaultSpec(
        (0.5, 4.0, 15.0),
        "p50_latency",
        "one call takes longer by this multiple of its callee's median and loses requests; both services are healthy",
        share=False,
    ),
}
KINDS: tuple[FaultKind, ...] = tuple(CATALOGUE)
DEFAULT_SEVERITY: dict[FaultKind, float] = {kind: spec.sizes[1] for kind, spec in CATALOGUE.items()}
UNLIMITED = 1e9
GREY_LOSS = 0.02  # share of lost attempts per median that a grey edge adds, at most a quarter
NEARLY_FULL = 0.8  # memory use above which garbage collection takes time
COLLECTION_SLOWDOWN = 4.0  # extra work at full memory, as a factor


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at one service, the culprit.

    Attributes:
        service: the culprit's node id; for a grey edge the callee, for a misroute one of the callers.
        start, end: the fault is active in the snapshots start <= index < end.
        severity: None: its kind's default.
    """

    kind: FaultKind
    service: str
    start: int
    end: int
    severity: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in CATALOGUE:
            raise ValueError(f"kind: expected one of {', '.join(CATALOGUE)}, got {self.kind!r}")
        if self.start >= self.end:
            raise ValueError(f"end: expected a snapshot after start {self.start}, got {self.end}")
        if self.severity is None:
            object.__setattr__(self, "severity", DEFAULT_SEVERITY[self.kind])
        share = CATALOGUE[self.kind].share
        if self.size <= 0 or (share and self.size > 1):
            requirement = "a share above 0 up to 1" if share else "a number above 0"
            raise ValueError(f"severity: expected {requirement} for {self.kind}, got {self.size}")

    @property
    def size(self) -> float:
        return DEFAULT_SEVERITY[self.kind] if self.severity is None else self.severity

    @property
    def level(self) -> Level:
        """The highest level whose size it reaches; ``minor`` if it reaches none."""
        rank = sum(self.size >= 0.99 * size for size in CATALOGUE[self.kind].sizes)
        return LEVELS[max(0, rank - 1)]


@dataclass(frozen=True, slots=True)
class _ActiveFault:
    """A fault in one tick: the culprit's position, and the elapsed share of its duration."""

    mesh: MeshPhysics
    fault: Fault
    at: int
    progress: float


def apply_faults(
    faults: Sequence[Fault], index: int, mesh: MeshPhysics, position: Mapping[str, int], now: Conditions
) -> Conditions:
    for fault in faults:
        if fault.start <= index < fault.end:
            progress = (index - fault.start + 1) / (fault.end - fault.start)
            now = _EFFECTS[fault.kind](_ActiveFault(mesh, fault, position[fault.service], progress), now)
    return now


def candidates(mesh: MeshPhysics, kind: FaultKind, minimum_rate: float = 5.0) -> Ints:
    """Return the positions of services where a fault of this kind has an effect; empty if there is none.

    All need traffic. A retry storm's culprit also needs a callee that it can nearly overload. It must not be able to
    take down a shared service, or an entry with a third of the traffic, because the whole mesh would fail. If no
    service qualifies, any service with calls is a candidate.
    """
    topology = mesh.topology
    busy = mesh.usual_rate >= min(minimum_rate, float(mesh.usual_rate.max()))
    if kind == "retry_storm":
        return _storm_candidates(mesh, busy)
    callers = np.bincount(topology.destination, ~topology.latent_calls, len(busy))
    if kind == "hub_degradation":
        return np.flatnonzero(busy & (topology.shared | (callers >= max(3.0, np.quantile(callers, 0.95)))))
    if kind in ("grey_edge", "disappearance"):
        return np.flatnonzero(busy & (callers >= 1))
    if kind == "partial_partition":
        return np.flatnonzero(busy & (callers >= 2))
    if kind == "misroute":
        return np.unique(topology.source[mesh.misroutes[:, 0]])
    if kind == "cpu_saturation":
        return np.flatnonzero(busy & (mesh.usual_utilisation > 0.1))
    return np.flatnonzero(busy)


def possible_culprits(mesh: MeshPhysics, position: Mapping[str, int], fault: Fault) -> Ints:
    """Return the positions of all correct answers: the culprit, and services that telemetry cannot tell from it."""
    at = position[fault.service]
    topology = mesh.topology
    if fault.kind == "misroute":
        calls = mesh.misroutes[_misroute_row(mesh, at)]
        return np.unique(np.concatenate([topology.source[calls], topology.destination[calls]]))
    if fault.kind == "grey_edge":
        return np.unique([at, topology.source[_grey_call(mesh, at)]])
    if fault.kind == "partial_partition":
        return np.unique(np.append(topology.source[_partitioned_calls(mesh, at)], at))
    return np.array([at])


def _storm_candidates(mesh: MeshPhysics, busy: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    topology = mesh.topology
    source, to = topology.source, topology.destination
    flow = mesh.usual_rate[source] * topology.calls_per_request * ~topology.latent_calls
    share = flow / np.maximum(mesh.usual_rate[to], 1e-9)
    storm_load = mesh.usual_utilisation[to] * (1.0 + DEFAULT_SEVERITY["retry_storm"] * share)
    reach = np.zeros(len(mesh.usual_rate))
    np.maximum.at(reach, source, storm_load)
    harm = np.zeros_like(reach)
    np.maximum.at(harm, source, np.where(topology.shared[to], storm_load, 0.0))
    main_door = mesh.services.entry > mesh.services.entry.sum() / 3.0
    able = busy & (reach > 0) if (busy & (reach > 0)).any() else reach > 0
    harmless = able & (harm < 0.9) & ~main_door
    able = harmless if harmless.any() else able
    return np.flatnonzero(able & (reach >= min(0.9, float(reach[able].max()))))


def _delay(active: _ActiveFault, now: Conditions) -> Conditions:
    extra = active.fault.size * active.mesh.usual_p50[active.at]
    return replace(now, injected_delay=_with(now.injected_delay, active.at, now.injected_delay[active.at] + extra))


def _fail(active: _ActiveFault, now: Conditions) -> Conditions:
    errors = 1.0 - (1.0 - now.injected_errors[active.at]) * (1.0 - active.fault.size)
    return replace(now, injected_errors=_with(now.injected_errors, active.at, errors))


def _storm(active: _ActiveFault, now: Conditions) -> Conditions:
    calls = active.mesh.topology.source == active.at
    usual = active.mesh.usual_p50[active.mesh.topology.destination[calls]]
    return replace(
        now,
        timeout=_with(now.timeout, calls, np.minimum(now.timeout[calls], usual)),
        retries=_with(now.retries, calls, active.fault.size),
        budget=_with(now.budget, calls, UNLIMITED),
    )


def _partition(active: _ActiveFault, now: Conditions) -> Conditions:
    return replace(now, lost=_with(now.lost, _partitioned_calls(active.mesh, active.at), active.fault.size))


def _leak(active: _ActiveFault, now: Conditions) -> Conditions:
    leak = active.fault.size * active.progress
    full = np.clip(active.mesh.services.memory_base[active.at] + leak, 0.0, 1.0)
    slower = 1.0 + COLLECTION_SLOWDOWN * max(0.0, float(full) - NEARLY_FULL) / (1.0 - NEARLY_FULL)
    return replace(
        now,
        leak=_with(now.leak, active.at, leak),
        cpu_time=_with(now.cpu_time, active.at, now.cpu_time[active.at] * slower),
    )


def _saturate(active: _ActiveFault, now: Conditions) -> Conditions:
    slower = 1.0 / (1.0 - min(active.fault.size, 0.95))
    return replace(now, cpu_time=_with(now.cpu_time, active.at, now.cpu_time[active.at] * slower))


def _remove(active: _ActiveFault, now: Conditions) -> Conditions:
    alive = now.alive.copy()
    alive[active.at] = False
    return replace(now, alive=alive)


def _misroute(active: _ActiveFault, now: Conditions) -> Conditions:
    calls = active.mesh.misroutes[_misroute_row(active.mesh, active.at)]
    share = active.fault.size
    shares = now.carried.copy()
    shares[calls[2:]] = share * shares[calls[:2]]
    shares[calls[:2]] *= 1.0 - share
    return replace(now, carried=shares)


def _degrade(active: _ActiveFault, now: Conditions) -> Conditions:
    remaining = min(1.0, active.mesh.usual_utilisation[active.at] / active.fault.size)
    return replace(now, capacity=_with(now.capacity, active.at, now.capacity[active.at] * remaining))


def _slow_one_call(active: _ActiveFault, now: Conditions) -> Conditions:
    call = _grey_call(active.mesh, active.at)
    return replace(
        now,
        call_delay=_with(now.call_delay, call, active.fault.size * active.mesh.usual_p50[active.at]),
        lost=_with(now.lost, call, min(GREY_LOSS * active.fault.size, 0.25)),
    )


_EFFECTS: dict[FaultKind, Callable[[_ActiveFault, Conditions], Conditions]] = {
    "latency_injection": _delay,
    "error_burst": _fail,
    "retry_storm": _storm,
    "partial_partition": _partition,
    "slow_leak": _leak,
    "cpu_saturation": _saturate,
    "disappearance": _remove,
    "misroute": _misroute,
    "hub_degradation": _degrade,
    "grey_edge": _slow_one_call,
}


def _with(values: Floats, at: Any, value: Any) -> Floats:
    result = values.copy()
    result[at] = value
    return result


def _calls_into(mesh: MeshPhysics, at: int) -> Ints:
    """Return the calls into a service, busiest first, without latent calls."""
    topology = mesh.topology
    calls = np.flatnonzero((topology.destination == at) & ~topology.latent_calls)
    flow = mesh.usual_rate[topology.source[calls]] * topology.calls_per_request[calls]
    return calls[np.argsort(-flow, kind="stable")]


def _partitioned_calls(mesh: MeshPhysics, at: int) -> Ints:
    """Return every second call into a service, in order of traffic."""
    return _calls_into(mesh, at)[::2]


def _grey_call(mesh: MeshPhysics, at: int) -> int:
    """Return the busiest call into a service."""
    calls = _calls_into(mesh, at)
    if not len(calls):
        raise ValueError(f"grey_edge: no service calls {mesh.topology.node_ids[at]!r}; choose one of candidates()")
    return int(calls[0])


def _misroute_row(mesh: MeshPhysics, at: int) -> int:
    """Return the row of ``mesh.misroutes`` whose first caller is ``at``."""
    rows = np.flatnonzero(mesh.topology.source[mesh.misroutes[:, 0]] == at)
    if not len(rows):
        raise ValueError(
            f"misroute: {mesh.topology.node_ids[at]!r} has no call that can be swapped; choose one of candidates()"
        )
    return int(rows[0])
