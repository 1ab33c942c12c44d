"""Operations on a healthy mesh: rolling deploys, manual scaling, node drains, autoscaling."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lab.simulator.mesh.topology import Ints
from lab.simulator.physics.propagation import MeshPhysics
from lab.simulator.physics.queueing import Floats

ChangeKind = Literal["deploy", "scale_out", "scale_in", "new_service", "deletion", "canary", "node_drain"]
WIRING_KINDS: frozenset[ChangeKind] = frozenset({"new_service", "deletion", "canary"})
DEFAULT_FACTOR: dict[ChangeKind, float] = {"deploy": 1.02, "scale_out": 1.5, "scale_in": 0.7}  # others: 1
REASONS: dict[ChangeKind, str] = {
    "deploy": "rolling update to a new image",
    "scale_out": "replicas raised by an operator",
    "scale_in": "replicas lowered by an operator",
    "new_service": "workload created",
    "deletion": "workload to be deleted",
    "canary": "canary of a new version",
    "node_drain": "node drained for maintenance",
}

RESTART_SECONDS = 40.0  # duration of a rollout's batch
BATCHES = 4  # per rollout: at most a quarter of the replicas restart at a time, as in Kubernetes by default
START_SECONDS = 45.0  # until new replicas serve
REACTION_SECONDS = 60.0  # the autoscaler's averaging time
QUIET_SECONDS = 300.0  # low load before the autoscaler removes a replica
TARGET = 0.6  # the autoscaler's target utilisation
SAFE = 0.55  # utilisation above which operators do not scale in
STAGES = 4  # of a canary, each with a larger share of the traffic


@dataclass(frozen=True, slots=True)
class BenignChange:
    """A benign change.

    Attributes:
        kind: ``deploy``, ``scale_out``, ``scale_in``; ``new_service``: a service appears and callers start to use it;
            ``deletion``: announced, drained, and removed two snapshots later; ``canary``: ``name-canary`` takes 10, 25,
            50 and 100% of the traffic and returns it, when the service has the new version; ``node_drain``: services
            with a replica on the host of this service restart that replica.
        service: node id.
        at: index of the snapshot in which it begins.
        factor: for a deploy or a canary, factor on the new version's service time; for scaling, on the replicas.
            None: the default.
        reason: reason in the planned change that announces it.
        errors: for a deploy or a canary, share of requests that fail in the new version, until the next deploy.
        stages: for a canary, number of stages before it stops; below four, all traffic returns to the old version.
    """

    kind: ChangeKind
    service: str
    at: int
    factor: float | None = None
    reason: str = ""
    errors: float = 0.0
    stages: int = STAGES

    def __post_init__(self) -> None:
        if self.kind not in REASONS:
            raise ValueError(f"kind: expected one of {', '.join(REASONS)}, got {self.kind!r}")
        if not 0 <= self.errors <= 1:
            raise ValueError(f"errors: expected a share from 0 to 1, got {self.errors}")
        if not 1 <= self.stages <= STAGES:
            raise ValueError(f"stages: expected 1 to {STAGES}, got {self.stages}")
        if self.factor is None:
            object.__setattr__(self, "factor", self.size)
        if not self.reason:
            object.__setattr__(self, "reason", REASONS[self.kind])

    @property
    def size(self) -> float:
        return DEFAULT_FACTOR.get(self.kind, 1.0) if self.factor is None else self.factor


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Slowdown of new processes: extra service time as a factor, and its duration, s."""

    strength: float
    seconds: float

    def stall(self, batches: int, ticks: int, interval: float) -> float:
        """Return the factor on the service time if one of ``batches`` started this many ticks ago."""
        return 1.0 + self.strength / batches if ticks < max(1, round(self.seconds / interval)) else 1.0


@dataclass(frozen=True, slots=True)
class Rollout:
    """A deploy in progress.

    Attributes:
        service: its position.
        done: ticks since the start.
        batch_ticks: ticks per batch.
        factor: factor on the service time afterwards.
        restarts: batches after which it ends, if fewer than ``batches``.
        errors: share of requests that fail in the new version; None: the version stays.
    """

    service: int
    done: int
    batches: int
    batch_ticks: int
    factor: float
    restarts: int = BATCHES
    errors: float | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """Replicas and their state, ``[N]`` each.

    Attributes:
        replicas: replicas that serve.
        fewest: the autoscaler's lower limit; manual scaling changes it.
        ordered, due: requested replicas, and ticks until they serve; 0 if none are requested.
        busy: average utilisation.
        quiet: ticks of low load in a row.
        age_hours: time since the processes started, average over replicas.
        speed: service time relative to the start of the run, changed by deploys.
        errors: share of requests that fail because of the version.
        rollouts: deploys in progress.
    """

    replicas: Floats
    fewest: Floats
    ordered: Floats
    due: Floats
    busy: Floats
    quiet: Floats
    age_hours: Floats
    speed: Floats
    errors: Floats
    rollouts: tuple[Rollout, ...] = ()


def first_fleet(mesh: MeshPhysics, rng: np.random.Generator) -> Fleet:
    """Return the fleet at the start of a run, with processes of random age."""
    replicas = mesh.services.replicas
    zeros = np.zeros_like(replicas)
    age = rng.exponential(30.0, len(replicas))
    return Fleet(replicas, replicas, replicas, zeros, mesh.usual_utilisation, zeros, age, zeros + 1.0, zeros)


def begin_changes(
    fleet: Fleet, changes: Sequence[BenignChange], position: Mapping[str, int], host: Ints, interval: float
) -> Fleet:
    """Start the changes of this tick. A new deploy does not wait for a rollout in progress."""
    if not changes:
        return fleet
    replicas, fewest, ordered, due = (a.copy() for a in (fleet.replicas, fleet.fewest, fleet.ordered, fleet.due))
    rollouts = list(fleet.rollouts)
    for change in changes:
        i = position[change.service]
        if change.kind in WIRING_KINDS:
            continue
        if change.kind == "node_drain":
            rollouts += [
                Rollout(int(j), 0, int(max(1, replicas[j])), 1, 1.0, 1) for j in np.flatnonzero(host == host[i])
            ]
            continue
        if change.kind == "deploy":
            batches = int(min(replicas[i], BATCHES))
            ticks = max(1, round(RESTART_SECONDS / interval))
            rollouts.append(Rollout(i, 0, batches, ticks, change.size, errors=change.errors))
            continue
        ordered[i] = _replicas_after(change, replicas[i], fleet.busy[i])
        due[i] = 1 if change.kind == "scale_in" else max(1, round(START_SECONDS / interval))
        fewest[i] = ordered[i]
    return replace(fleet, fewest=fewest, ordered=ordered, due=due, rollouts=tuple(rollouts))


def effective_capacity(fleet: Fleet, cold: ColdStart, interval: float) -> tuple[Floats, Floats, Floats]:
    """Return serving replicas, factor on the service time, and factor of cold starts, ``[N]`` each.

    A new replica starts before an old one stops (maxSurge), so capacity drops by less than one replica.
    """
    replicas, speed, stall = fleet.replicas.copy(), fleet.speed.copy(), np.ones_like(fleet.speed)
    for rollout in fleet.rollouts:
        i = rollout.service
        replicas[i] -= min(0.4, 0.2 * replicas[i])
        speed[i] *= rollout.factor ** (rollout.done / (rollout.batches * rollout.batch_ticks))
        stall[i] *= cold.stall(rollout.batches, rollout.done % rollout.batch_ticks, interval)
    return replicas, speed, stall


def version_errors(fleet: Fleet) -> Floats:
    """Return the share of requests that fail because of the serving versions, ``[N]``."""
    errors = fleet.errors
    for rollout in (rollout for rollout in fleet.rollouts if rollout.errors is not None):
        i, progress = rollout.service, rollout.done / (rollout.batches * rollout.batch_ticks)
        errors = errors.copy()
        errors[i] += progress * ((rollout.errors or 0.0) - errors[i])
    return errors


def advance(mesh: MeshPhysics, fleet: Fleet, utilisation: Floats, interval: float) -> Fleet:
    """Advance rollouts, process ages and the autoscaler (Kubernetes' rule: ceil(replicas x load / target))
    by a tick."""
    speed, errors, age = fleet.speed.copy(), fleet.errors.copy(), fleet.age_hours + interval / 3600.0
    rollouts = []
    for rollout in fleet.rollouts:
        ticks = rollout.batches * rollout.batch_ticks - rollout.done
        age[rollout.service] *= 1.0 - 1.0 / ticks
        if ticks > 1 and rollout.done + 1 < rollout.restarts * rollout.batch_ticks:
            rollouts.append(replace(rollout, done=rollout.done + 1))
        else:
            speed[rollout.service] *= rollout.factor
            if rollout.errors is not None:
                errors[rollout.service] = rollout.errors
    fleet = replace(fleet, speed=speed, errors=errors, age_hours=age, rollouts=tuple(rollouts))
    return _autoscale(mesh, fleet, utilisation, interval)


def _autoscale(mesh: MeshPhysics, fleet: Fleet, utilisation: Floats, interval: float) -> Fleet:
    has_arrived = fleet.due == 1
    replicas = np.where(has_arrived, fleet.ordered, fleet.replicas)
    due = np.maximum(fleet.due - 1, 0)
    weight = 1.0 - math.exp(-interval / REACTION_SECONDS)
    busy = fleet.busy + weight * (np.minimum(utilisation, 1.0) - fleet.busy)
    is_free = (mesh.services.max_replicas > mesh.services.replicas) & (due == 0) & ~has_arrived
    target = np.minimum(np.ceil(replicas * busy / TARGET - 0.1), np.maximum(mesh.services.max_replicas, replicas))
    grows = is_free & (target > replicas)
    is_low = is_free & (replicas > fleet.fewest) & (busy * replicas / np.maximum(replicas - 1, 1) < 0.9 * TARGET)
    quiet = np.where(is_low, fleet.quiet + 1, 0)
    shrinks = quiet * interval >= QUIET_SECONDS
    return replace(
        fleet,
        replicas=np.where(shrinks, replicas - 1, replicas),
        ordered=np.where(grows, target, fleet.ordered),
        due=np.where(grows, max(1, round(START_SECONDS / interval)), due),
        busy=busy,
        quiet=np.where(shrinks, 0, quiet),
    )


def _replicas_after(change: BenignChange, replicas: float, busy: float) -> float:
    target = round(replicas * change.size)
    if change.kind == "scale_out":
        return max(replicas + 1, target)
    return min(replicas, max(1, target, math.ceil(replicas * busy / SAFE)))
