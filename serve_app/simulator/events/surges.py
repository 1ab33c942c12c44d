"""Benign load beyond the day's course: flash crowds within capacity, and batches that run by the clock."""

from dataclasses import dataclass, replace

import numpy as np

from serve_app.simulator.mesh.topology import Ints, MeshSpec
from serve_app.simulator.physics.propagation import Conditions, MeshPhysics
from serve_app.simulator.physics.queueing import Floats

SLOT_SECONDS = 3600.0  # in each of which a namespace may see one crowd
CROWD = (1.5, 2.5)  # load at its height over the usual
CROWD_MINUTES = (10.0, 30.0)  # from first to last; rises in a quarter of it, falls in half
FULL = 0.7  # utilisation that neither crowd nor batch leads to
AT_PEAK = 1.35  # load of a busy hour over the mean
BATCH = (3.0, 8.0)  # calls of a batch over the usual
BATCH_MINUTES = (5.0, 10.0, 15.0, 30.0, 60.0)
BATCH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Batches:
    """Calls that multiply by the clock: call, factor, period and offset in ticks, ``[B]``; ``ticks`` each lasts."""

    call: Ints
    factor: Floats
    period: Ints
    offset: Ints
    ticks: int


@dataclass(frozen=True, slots=True)
class Crowd:
    """More requests at the gateways of a namespace, from tick ``start`` for ``ticks``, up to ``factor``."""

    namespace: int
    start: int
    ticks: int
    factor: float

    def load(self, index: int) -> float:
        """Factor on the entry: up in the first quarter, down in the second half."""
        done = (index - self.start) / self.ticks
        return 1.0 + (self.factor - 1.0) * float(np.clip(min(done * 4.0, (1.0 - done) * 2.0), 0.0, 1.0))


def draw_batches(spec: MeshSpec, mesh: MeshPhysics, rng: np.random.Generator) -> Batches:
    """Calls to services that call nobody, as many times the usual as their capacity allows."""
    topology = mesh.topology
    to = topology.destination
    calls_nobody = np.bincount(topology.source[~topology.latent_calls], minlength=len(mesh.usual_rate)) == 0
    flow = mesh.usual_rate[topology.source] * topology.calls_per_request
    room = FULL / np.maximum(mesh.usual_utilisation[to], 1e-9) - AT_PEAK
    most = 1.0 + room * mesh.usual_rate[to] / np.maximum(flow, 1e-9)
    able = np.flatnonzero(calls_nobody[to] & ~topology.latent_calls & ~topology.shared[to] & (most > BATCH[0]))
    _, one_each = np.unique(to[able], return_index=True)  # two batches never meet at one service
    able = able[one_each]
    chosen = rng.permutation(able)[: round(spec.batches * spec.services)]
    period = np.maximum(np.round(rng.choice(BATCH_MINUTES, len(chosen)) * 60.0 / spec.interval_seconds), 2)
    return Batches(
        chosen,
        np.minimum(rng.uniform(*BATCH, len(chosen)), most[chosen]),
        period.astype(np.int64),
        rng.integers(0, 1 << 30, len(chosen)) % period.astype(np.int64),
        max(1, round(BATCH_SECONDS / spec.interval_seconds)),
    )


def slot_ticks(spec: MeshSpec) -> int:
    """Ticks of an hour."""
    return max(4, round(SLOT_SECONDS / spec.interval_seconds))


def crowds_of(spec: MeshSpec, mesh: MeshPhysics, slot: int) -> tuple[Crowd, ...]:
    """The crowds that begin in an hour of the run; equal however often and in which order it is asked."""
    rng = np.random.default_rng(np.random.SeedSequence(spec.seed, spawn_key=(8, slot + (1 << 20))))
    hour = slot_ticks(spec)
    namespaces = int(mesh.topology.namespace.max()) + 1
    comes = rng.random(namespaces) < spec.crowds_per_day * SLOT_SECONDS / 86_400.0
    start, length, height = rng.random((3, namespaces))
    crowds = []
    for namespace in np.flatnonzero(comes)[:1]:  # one at a time: two could add up to more than there is room for
        minutes = CROWD_MINUTES[0] + length[namespace] * (CROWD_MINUTES[1] - CROWD_MINUTES[0])
        ticks = min(max(4, round(minutes * 60.0 / spec.interval_seconds)), hour)
        wanted = CROWD[0] + height[namespace] * (CROWD[1] - CROWD[0])
        factor = min(wanted, _most(mesh, int(namespace)))
        if factor >= CROWD[0]:
            at = slot * hour + int(start[namespace] * max(hour - ticks, 0))
            crowds.append(Crowd(int(namespace), at, ticks, factor))
    return tuple(crowds)


def surge(mesh: MeshPhysics, crowds: tuple[Crowd, ...], batches: Batches, index: int, now: Conditions) -> Conditions:
    """The conditions of one tick with what is on."""
    entry = now.entry
    for crowd in crowds:
        entry = np.where(mesh.topology.namespace == crowd.namespace, entry * crowd.load(index), entry)
    running = (index + batches.offset) % batches.period < batches.ticks
    if running.any():
        calls = now.calls_per_request.copy()
        calls[batches.call[running]] *= batches.factor[running]
        now = replace(now, calls_per_request=calls)
    return replace(now, entry=entry)


def _most(mesh: MeshPhysics, namespace: int) -> float:
    """How many times its usual load the mesh can take from one namespace: load flows down as it does usually."""
    topology = mesh.topology
    rate = np.where(topology.namespace == namespace, mesh.services.entry, 0.0)
    carried = topology.calls_per_request * ~topology.latent_calls
    for calls in topology.call_slices:
        to = topology.destination[calls]
        rate += np.bincount(to, rate[topology.source[calls]] * carried[calls], len(rate))
    share = rate / np.maximum(mesh.usual_rate, 1e-9)
    room = FULL / np.maximum(mesh.usual_utilisation, 1e-9) - AT_PEAK
    reached = share > 1e-6
    return 1.0 + float((np.maximum(room[reached], 0.0) / share[reached] / AT_PEAK).min()) if reached.any() else 1.0
