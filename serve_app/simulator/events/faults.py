"""Faults with a known culprit: what each does to the physics. What follows from it is up to the mesh."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from serve_app.simulator.mesh.topology import Ints
from serve_app.simulator.physics.propagation import Conditions, MeshPhysics
from serve_app.simulator.physics.queueing import Floats

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
    """What is known of one kind of fault.

    Attributes:
        sizes: severity at each of ``LEVELS``.
        metric: that shows it at the culprit or at the calls into it.
        words: what happens.
        share: whether the severity is a share, 0 to 1.
    """

    sizes: tuple[float, float, float]
    metric: str
    words: str
    share: bool = True

    @property
    def levels(self) -> dict["Level", float]:
        """The levels that it has, with their sizes: what has only one size is critical."""
        return dict(zip(LEVELS, self.sizes, strict=True)) if len(set(self.sizes)) > 1 else {"critical": self.sizes[-1]}


CATALOGUE: dict[FaultKind, FaultSpec] = {
    "latency_injection": FaultSpec(
        (0.5, 3.0, 10.0),
        "p50_latency",
        "every request takes longer by so many usual medians, without work: a slow disk, a lock",
        share=False,
    ),
    "error_burst": FaultSpec((0.03, 0.3, 0.8), "error_rate", "a share of the requests fails"),
    "retry_storm": FaultSpec(
        (1.0, 6.0, 10.0),
        "requests_per_second",
        "the culprit waits no longer than its callees' usual median and retries so often, with no budget",
        share=False,
    ),
    "partial_partition": FaultSpec(
        (0.05, 0.4, 0.9), "error_rate", "a share of the attempts of every other caller does not reach the service"
    ),
    "slow_leak": FaultSpec(
        (0.15, 0.5, 0.8), "memory_utilization", "memory climbs by so much; near the limit collections slow the service"
    ),
    "cpu_saturation": FaultSpec(
        (0.3, 0.6, 0.8), "cpu_utilization", "a neighbour outside the mesh takes a share of the host's cpu"
    ),
    "disappearance": FaultSpec((1.0, 1.0, 1.0), "request_rate", "the service is gone, and nobody planned it"),
    "misroute": FaultSpec(
        (0.2, 0.6, 1.0), "requests_per_second", "a share of one caller's calls goes to another's callee, and back"
    ),
    "hub_degradation": FaultSpec(
        (0.75, 1.0, 1.3), "p99_latency", "a shared service loses capacity until it is that busy", share=False
    ),
    "grey_edge": FaultSpec(
        (0.5, 4.0, 15.0),
        "p50_latency",
        "one call takes longer by so many medians of its callee and loses some attempts; both ends are well",
        share=False,
    ),
}
KINDS: tuple[FaultKind, ...] = tuple(CATALOGUE)
DEFAULT_SEVERITY: dict[FaultKind, float] = {kind: known.sizes[1] for kind, known in CATALOGUE.items()}
UNLIMITED = 1e9
GREY_LOSS = 0.02  # share of attempts lost by a grey edge for each median that it adds, at most a quarter
CROWDED = 0.8  # memory above which collections take time
COLLECTING = 4.0  # by how much the work takes longer where memory is full


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks at one service, the culprit; everything else follows from the physics.

    Attributes:
        kind: what ``CATALOGUE`` says in words.
        service: node id of the culprit; of a grey edge the callee, of a misroute the one caller.
        start, end: it acts in the snapshots start <= index < end.
        severity: None takes the kind's default.
        other: the second service of a grey edge (the caller) and of a misroute (the other caller); empty takes the
            busiest caller, and the caller that the mesh offers.
    """

    kind: FaultKind
    service: str
    start: int
    end: int
    severity: float | None = None
    other: str = ""

    def __post_init__(self) -> None:
        if self.kind not in CATALOGUE:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, came {self.kind!r}")
        if self.start >= self.end:
            raise ValueError(f"end: expected a snapshot after start {self.start}, came {self.end}")
        if self.severity is None:
            object.__setattr__(self, "severity", DEFAULT_SEVERITY[self.kind])
        share = CATALOGUE[self.kind].share
        if self.size <= 0 or (share and self.size > 1):
            expected = "a share above 0 up to 1" if share else "a number above 0"
            raise ValueError(f"severity: expected {expected} for {self.kind}, came {self.size}")

    @property
    def size(self) -> float:
        """The severity in force."""
        return DEFAULT_SEVERITY[self.kind] if self.severity is None else self.severity

    @property
    def level(self) -> Level:
        """The highest of ``LEVELS`` whose size it reaches, ``minor`` below all."""
        reached = sum(self.size >= 0.99 * size for size in CATALOGUE[self.kind].sizes)
        return LEVELS[max(0, reached - 1)]


@dataclass(frozen=True, slots=True)
class _Acting:
    """One fault in one tick: the mesh, the culprit's position, the other's (-1: none), how far through it is, 0..1."""

    mesh: MeshPhysics
    fault: Fault
    at: int
    other: int
    progress: float


def apply_faults(
    faults: Sequence[Fault], index: int, mesh: MeshPhysics, position: Mapping[str, int], now: Conditions
) -> Conditions:
    """The conditions of one tick with the faults that act in it."""
    for fault in faults:
        if fault.start <= index < fault.end:
            progress = (index - fault.start + 1) / (fault.end - fault.start)
            other = position[fault.other] if fault.other else -1
            now = _EFFECTS[fault.kind](_Acting(mesh, fault, position[fault.service], other, progress), now)
    return now


def candidates(mesh: MeshPhysics, kind: FaultKind, minimum_rate: float = 5.0) -> Ints:
    """Positions of services where a fault of this kind is one; none where the mesh offers none.

    All need traffic. The culprit of a storm also needs a callee that it can nearly drown, and must be able to take
    down neither a shared service nor the door to a third of the mesh's traffic, or the mesh would go along; where
    no service is that harmless, any with calls will do.
    """
    topology = mesh.topology
    busy = mesh.usual_rate >= min(minimum_rate, float(mesh.usual_rate.max()))
    if kind == "retry_storm":
        return _stormy(mesh, busy)
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


def involved(mesh: MeshPhysics, position: Mapping[str, int], fault: Fault) -> Ints:
    """Positions of the services that may rightly be named: the culprit, and who cannot be told from it."""
    at = position[fault.service]
    topology = mesh.topology
    if fault.kind == "misroute":
        calls = mesh.misroutes[_misroute(mesh, at, position.get(fault.other, -1))]
        return np.unique(np.concatenate([topology.source[calls], topology.destination[calls]]))
    if fault.kind == "grey_edge":
        return np.unique([at, topology.source[_grey_call(mesh, at, position.get(fault.other, -1))]])
    if fault.kind == "partial_partition":
        return np.unique(np.append(topology.source[_parted_calls(mesh, at)], at))
    return np.array([at])


def _stormy(mesh: MeshPhysics, busy: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    topology = mesh.topology
    source, to = topology.source, topology.destination
    flow = mesh.usual_rate[source] * topology.calls_per_request * ~topology.latent_calls
    share = flow / np.maximum(mesh.usual_rate[to], 1e-9)
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


def _delayed(acting: _Acting, now: Conditions) -> Conditions:
    extra = acting.fault.size * acting.mesh.usual_p50[acting.at]
    return replace(now, injected_delay=_with(now.injected_delay, acting.at, now.injected_delay[acting.at] + extra))


def _failing(acting: _Acting, now: Conditions) -> Conditions:
    errors = 1.0 - (1.0 - now.injected_errors[acting.at]) * (1.0 - acting.fault.size)
    return replace(now, injected_errors=_with(now.injected_errors, acting.at, errors))


def _storming(acting: _Acting, now: Conditions) -> Conditions:
    calls = acting.mesh.topology.source == acting.at
    usual = acting.mesh.usual_p50[acting.mesh.topology.destination[calls]]
    return replace(
        now,
        timeout=_with(now.timeout, calls, np.minimum(now.timeout[calls], usual)),
        retries=_with(now.retries, calls, acting.fault.size),
        budget=_with(now.budget, calls, UNLIMITED),
    )


def _parted(acting: _Acting, now: Conditions) -> Conditions:
    return replace(now, lost=_with(now.lost, _parted_calls(acting.mesh, acting.at), acting.fault.size))


def _leaking(acting: _Acting, now: Conditions) -> Conditions:
    leak = acting.fault.size * acting.progress
    full = np.clip(acting.mesh.services.memory_base[acting.at] + leak, 0.0, 1.0)
    slower = 1.0 + COLLECTING * max(0.0, float(full) - CROWDED) / (1.0 - CROWDED)
    return replace(
        now,
        leak=_with(now.leak, acting.at, leak),
        cpu_time=_with(now.cpu_time, acting.at, now.cpu_time[acting.at] * slower),
    )


def _crowded(acting: _Acting, now: Conditions) -> Conditions:
    """The work takes longer by what the neighbour took."""
    slower = 1.0 / (1.0 - min(acting.fault.size, 0.95))
    return replace(now, cpu_time=_with(now.cpu_time, acting.at, now.cpu_time[acting.at] * slower))


def _gone(acting: _Acting, now: Conditions) -> Conditions:
    alive = now.alive.copy()
    alive[acting.at] = False
    return replace(now, alive=alive)


def _misrouted(acting: _Acting, now: Conditions) -> Conditions:
    calls = acting.mesh.misroutes[_misroute(acting.mesh, acting.at, acting.other)]
    share = acting.fault.size
    carried = now.carried.copy()
    carried[calls[2:]] = share * carried[calls[:2]]
    carried[calls[:2]] *= 1.0 - share
    return replace(now, carried=carried)


def _degraded(acting: _Acting, now: Conditions) -> Conditions:
    left = min(1.0, acting.mesh.usual_utilisation[acting.at] / acting.fault.size)
    return replace(now, capacity=_with(now.capacity, acting.at, now.capacity[acting.at] * left))


def _grey(acting: _Acting, now: Conditions) -> Conditions:
    call = _grey_call(acting.mesh, acting.at, acting.other)
    return replace(
        now,
        call_delay=_with(now.call_delay, call, acting.fault.size * acting.mesh.usual_p50[acting.at]),
        lost=_with(now.lost, call, min(GREY_LOSS * acting.fault.size, 0.25)),
    )


_EFFECTS: dict[FaultKind, Callable[[_Acting, Conditions], Conditions]] = {
    "latency_injection": _delayed,
    "error_burst": _failing,
    "retry_storm": _storming,
    "partial_partition": _parted,
    "slow_leak": _leaking,
    "cpu_saturation": _crowded,
    "disappearance": _gone,
    "misroute": _misrouted,
    "hub_degradation": _degraded,
    "grey_edge": _grey,
}


def _with(values: Floats, at: Any, new: Any) -> Floats:
    changed = values.copy()
    changed[at] = new
    return changed


def _calls_into(mesh: MeshPhysics, at: int) -> Ints:
    """Ordinary calls into a service, the busiest first."""
    topology = mesh.topology
    calls = np.flatnonzero((topology.destination == at) & ~topology.latent_calls)
    flow = mesh.usual_rate[topology.source[calls]] * topology.calls_per_request[calls]
    return calls[np.argsort(-flow, kind="stable")]


def _parted_calls(mesh: MeshPhysics, at: int) -> Ints:
    """Every other call into a service, by traffic."""
    return _calls_into(mesh, at)[::2]


def _grey_call(mesh: MeshPhysics, at: int, caller: int) -> int:
    calls = _calls_into(mesh, at)
    chosen = calls[mesh.topology.source[calls] == caller] if caller >= 0 else calls
    if not len(chosen):
        names = mesh.topology.node_ids
        raise ValueError(f"grey_edge: {names[at]!r} is not called by {names[caller] if caller >= 0 else 'anybody'}")
    return int(chosen[0])


def _misroute(mesh: MeshPhysics, at: int, other: int) -> int:
    """Row of ``mesh.misroutes`` that starts at a caller."""
    one, two = mesh.topology.source[mesh.misroutes[:, :2]].T
    rows = np.flatnonzero((one == at) & ((two == other) if other >= 0 else True))
    if not len(rows):
        raise ValueError(
            f"misroute: {mesh.topology.node_ids[at]!r} has no call that could be swapped; see candidates()"
        )
    return int(rows[0])
