"""Losses of telemetry: missed scrapes, services without metrics for a while, counters that restart.

Losses depend only on the spec and the time, so that two runs of one mesh have the same losses.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.simulator.events.operations import Fleet
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.physics.queueing import Floats

SLOT_SECONDS = 3600.0  # losses are drawn an hour at a time
LONGEST_GAP = 4  # snapshots without a scrape
LONGEST_BLACKOUT = 8  # snapshots in which a service reports nothing
_STREAM = 7


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of one slot: index of its first snapshot, lost snapshots ``[T]``, services without metrics ``[T, N]``."""

    first: int
    lost: NDArray[np.bool_]
    dark: NDArray[np.bool_]


def draw_losses(spec: MeshSpec, services: int, slot: int) -> Losses:
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
    """Snapshots in a slot."""
    return max(1, round(SLOT_SECONDS / spec.interval_seconds))


def restarted_share(fleet: Fleet) -> Floats:
    """Share of each service's replicas whose counters restart in this tick, ``[N]``."""
    share = np.zeros_like(fleet.replicas)
    for rollout in fleet.rollouts:
        if rollout.done % rollout.batch_ticks == 0:
            share[rollout.service] += 1.0 / rollout.batches
    return np.minimum(share, 1.0)


def undercount(rates: Floats, share: Floats, u: Floats) -> Floats:
    """Rates as Prometheus computes them when counters restart: what the old process counted after its last scrape is
    lost. If all replicas restarted, the rate is NaN.

    Args:
        rates: true rates, 1/s.
        share: share of replicas that restarted.
        u: time of the restart within the interval, 0 to 1.
    """
    return np.where(share >= 1.0, np.nan, rates * (1.0 - share * u))
