"""Benign load on top of the daily pattern: flash crowds within capacity, and scheduled batches."""

from dataclasses import dataclass, replace

import numpy as np

from lab.simulator.mesh.topology import Ints, MeshSpec
from lab.simulator.physics.propagation import Conditions, MeshPhysics
from lab.simulator.physics.queueing import Floats

SLOT_SECONDS = 3600.0  # a namespace has at most one crowd in each slot
CROWD = (1.5, 2.5)  # peak load over the usual load
CROWD_MINUTES = (10.0, 30.0)  # duration; the load rises in the first quarter and falls in the second half
FULL = 0.7  # limit on utilisation under crowds and batches
AT_PEAK = 1.35  # the busiest hour's load over the mean
BATCH = (3.0, 8.0)  # calls during a batch over the usual
BATCH_MINUTES = (5.0, 10.0, 15.0, 30.0, 60.0)
BATCH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Batches:
    """Calls that multiply on a schedule: call, factor, period and offset in ticks, ``[B]``; each lasts ``ticks``."""

    call: Ints
    factor: Floats
    period: Ints
    offset: Ints
    ticks: int


@dataclass(frozen=True, slots=True)
class Crowd:
    """Extra requests at the gateways of a namespace, from tick ``start`` for ``ticks``, up to ``factor``."""

    namespace: int
    start: int
    ticks: int
    factor: float

    def load(self, index: int) -> float:
        """Return the factor on requests from outside: it rises in the first quarter and falls in the second half."""
        elapsed = (index - self.start) / self.ticks
        return 1.0 + (self.factor - 1.0) * float(np.clip(min(elapsed * 4.0, (1.0 - elapsed) * 2.0), 0.0, 1.0))


def draw_batches(spec: MeshSpec, mesh: MeshPhysics, rng: np.random.Generator) -> Batches:
    """Choose calls to services without calls of their own, with factors within their capacity."""
    topology = mesh.topology
    to = topology.destination
    is_leaf = np.bincount(topology.source[~topology.latent_calls], minlength=len(mesh.usual_rate)) == 0
    flow = mesh.usual_rate[topology.source] * topology.calls_per_request
    room = FULL / np.maximum(mesh.usual_utilisation[to], 1e-9) - AT_PEAK
    limit = 1.0 + room * mesh.usual_rate[to] / np.maximum(flow, 1e-9)
    able = np.flatnonzero(is_leaf[to] & ~topology.latent_calls & ~topology.shared[to] & (limit > BATCH[0]))
    _, first_rows = np.unique(to[able], return_index=True)  # at most one batch per service
    able = able[first_rows]
    calls = rng.permutation(able)[: round(spec.batches * spec.services)]
    period = np.maximum(np.round(rng.choice(BATCH_MINUTES, len(calls)) * 60.0 / spec.interval_seconds), 2)
    return Batches(
        calls,
        np.minimum(rng.uniform(*BATCH, len(calls)), limit[calls]),
        period.astype(np.int64),
        rng.integers(0, 1 << 30, len(calls)) % period.astype(np.int64),
        max(1, round(BATCH_SECONDS / spec.interval_seconds)),
    )


def slot_ticks(spec: MeshSpec) -> int:
    """Return the ticks in an hour."""
    return max(4, round(SLOT_SECONDS / spec.interval_seconds))


def draw_crowds(spec: MeshSpec, mesh: MeshPhysics, slot: int) -> tuple[Crowd, ...]:
    """Return the crowds that begin in an hour of the run; equal for each call."""
    rng = np.random.default_rng(np.random.SeedSequence(spec.seed, spawn_key=(8, slot + (1 << 20))))
    hour = slot_ticks(spec)
    namespaces = int(mesh.topology.namespace.max()) + 1
    has_crowd = rng.random(namespaces) < spec.crowds_per_day * SLOT_SECONDS / 86_400.0
    start, length, height = rng.random((3, namespaces))
    crowds = []
    for namespace in np.flatnonzero(has_crowd)[:1]:  # one at a time, because two together could exceed the capacity
        minutes = CROWD_MINUTES[0] + length[namespace] * (CROWD_MINUTES[1] - CROWD_MINUTES[0])
        ticks = min(max(4, round(minutes * 60.0 / spec.interval_seconds)), hour)
        factor = min(CROWD[0] + height[namespace] * (CROWD[1] - CROWD[0]), _max_factor(mesh, int(namespace)))
        if factor >= CROWD[0]:
            at = slot * hour + int(start[namespace] * max(hour - ticks, 0))
            crowds.append(Crowd(int(namespace), at, ticks, factor))
    return tuple(crowds)


def surge(mesh: MeshPhysics, crowds: tuple[Crowd, ...], batches: Batches, index: int, now: Conditions) -> Conditions:
    """Apply active crowds and batches to the conditions of one tick."""
    entry = now.entry
    for crowd in crowds:
        entry = np.where(mesh.topology.namespace == crowd.namespace, entry * crowd.load(index), entry)
    is_running = (index + batches.offset) % batches.period < batches.ticks
    if is_running.any():
        calls = now.calls_per_request.copy()
        calls[batches.call[is_running]] *= batches.factor[is_running]
        now = replace(now, calls_per_request=calls)
    return replace(now, entry=entry)


def _max_factor(mesh: MeshPhysics, namespace: int) -> float:
    """Return the largest factor on a namespace's load that keeps all services within capacity."""
    topology = mesh.topology
    rate = np.where(topology.namespace == namespace, mesh.services.entry, 0.0)
    calls_per_request = topology.calls_per_request * ~topology.latent_calls
    for calls in topology.call_slices:
        to = topology.destination[calls]
        rate += np.bincount(to, rate[topology.source[calls]] * calls_per_request[calls], len(rate))
    share = rate / np.maximum(mesh.usual_rate, 1e-9)
    room = FULL / np.maximum(mesh.usual_utilisation, 1e-9) - AT_PEAK
    is_reached = share > 1e-6
    return (
        1.0 + float((np.maximum(room[is_reached], 0.0) / share[is_reached] / AT_PEAK).min())
        if is_reached.any()
        else 1.0
    )
