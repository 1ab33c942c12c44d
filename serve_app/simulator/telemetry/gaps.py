"""What telemetry loses on its way: scrapes, services that report nothing for a while, counters that start again.

All of it is a function of the spec and the time, so that two runs of one mesh lose the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serve_app.simulator.events.operations import Fleet
from serve_app.simulator.mesh.topology import MeshSpec
from serve_app.simulator.physics.queueing import Floats

SLOT_SECONDS = 3600.0  # losses are drawn an hour at a time
LONGEST_GAP = 4  # snapshots without a scrape
LONGEST_BLACKOUT = 8  # snapshots in which a service reports nothing
_STREAM = 7


@dataclass(frozen=True, slots=True)
class Losses:
    """Of one slot: index of its first snapshot, whether each is lost ``[T]``, who is dark ``[T, N]``."""

    first: int
    lost: NDArray[np.bool_]
    dark: NDArray[np.bool_]


def losses_of(spec: MeshSpec, services: int, slot: int) -> Losses:
    """Draw one hour's losses; a gap or blackout ends with its slot."""
    rng = np.random.default_rng(np.random.SeedSequence(spec.seed, spawn_key=(_STREAM, slot)))
    ticks = slot_ticks(spec)
    lost, dark = np.zeros(ticks, np.bool_), np.zeros((ticks, services), np.bool_)
    days = ticks * spec.interval_seconds / 86_400.0
    for start in rng.integers(0, ticks, rng.poisson(spec.scrape_gaps_per_day * days)):
        lost[start : start + int(rng.integers(1, LONGEST_GAP + 1))] = True
    for start in rng.integers(0, ticks, rng.poisson(spec.blackouts_per_day * days * services)):
        length = int(rng.integers(1, LONGEST_BLACKOUT + 1))
        dark[start : start + length, int(rng.integers(services))] = True
    return Losses(slot * ticks, lost, dark)


def slot_ticks(spec: MeshSpec) -> int:
    """Snapshots of a slot."""
    return max(1, round(SLOT_SECONDS / spec.interval_seconds))


def restarted(fleet: Fleet) -> Floats:
    """Share of each service's replicas whose counters begin again in this tick, ``[N]``."""
    share = np.zeros_like(fleet.replicas)
    for rollout in fleet.rollouts:
        if rollout.done % rollout.batch_ticks == 0:
            share[rollout.service] += 1.0 / rollout.batches
    return np.minimum(share, 1.0)


def undercounted(rates: Floats, share: Floats, u: Floats) -> Floats:
    """What a rate over one interval shows of counters that began again: Prometheus' ``rate`` never sees what the old
    process counted after its last scrape; of a service whose only replica restarted nothing is known.

    Args:
        rates: 1/s.
        share: of the replicas behind each that restarted.
        u: when in the interval, 0 to 1.
    """
    return np.where(share >= 1.0, np.nan, rates * (1.0 - share * u))
