"""The populations that drift is measured on: one channel over all services or calls of a mesh.

They are the 14 channels of the network's inputs, and the callers and callees of each service. Each has a histogram with
fixed bins in transformed units, so that those of any mesh, week or training can be compared.

Load moves with the hour, the weekday and the season, and a detector that learns baselines need not care. So channels
that follow it are taken relative to the median service or call of the same snapshot: their histogram shows the *mix* of
traffic and of resources, not their level. The level of a service's CPU is seen in ``cpu_per_request``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS, Array
from model.snapshot import BoolArray

if TYPE_CHECKING:
    from model.state.mesh_state import MeshState, Observation

BINS = 32


@dataclass(frozen=True, slots=True)
class Population:
    """One channel of all services or calls.

    Attributes:
        name: ``service.`` or ``call.`` and the name of the channel.
        low, high: ends of the histogram, transformed units; values beyond are in the last bin.
        relative: whether values are relative to the median of the snapshot.
    """

    name: str
    low: float
    high: float
    relative: bool = False


_RANGES: dict[str, tuple[float, float, bool]] = {
    "request_rate": (-8.0, 8.0, True),
    "requests_per_second": (-8.0, 8.0, True),
    "error_rate": (-5.4, 5.4, False),
    "p50_latency": (-8.6, 4.2, False),
    "p99_latency": (-8.6, 4.2, False),
    "own_time": (-8.6, 4.2, False),
    "cpu_utilization": (-4.0, 4.0, True),
    "memory_utilization": (-4.0, 0.1, False),
    "active_connections": (-6.0, 6.0, True),
    "cpu_per_request": (-9.3, 2.3, False),
    "weight": (-4.7, 0.1, False),
}
DEGREES = (Population("service.callers", 0.0, 6.4), Population("service.callees", 0.0, 6.4))  # log(1 + number)
OF_SERVICES = tuple(Population(f"service.{c.name}", *_RANGES[c.name]) for c in NODE_CHANNELS)
OF_CALLS = tuple(Population(f"call.{c.name}", *_RANGES[c.name]) for c in EDGE_CHANNELS)
POPULATIONS = (*OF_SERVICES, *OF_CALLS, *DEGREES)
CHANNELS = len(OF_SERVICES) + len(OF_CALLS)  # the populations that have tails, too


def count_values(state: MeshState, observation: Observation) -> tuple[Array, Array]:
    """Return the histograms ``[P, BINS]`` of one snapshot, as numbers of values, and how many values could have been
    measured, ``[P]``.

    Args:
        state: after the snapshot.
        observation: of the snapshot.
    """
    nodes, edges = observation.node_present, observation.edge_present
    source, destination = state.edge_index[:, edges]
    size = len(state.node_ids)
    degrees = np.stack([np.bincount(ends, minlength=size) for ends in (destination, source)], axis=1)[nodes]
    tables = (
        (observation.node.value[nodes], observation.node.observed[nodes], OF_SERVICES),
        (observation.edge.value[edges], observation.edge.observed[edges], OF_CALLS),
        (np.log1p(degrees).astype(np.float32), np.ones(degrees.shape, bool), DEGREES),
    )
    counts = np.concatenate([_histograms(*table) for table in tables])
    possible = np.concatenate([np.full(len(populations), len(value)) for value, _, populations in tables])
    return counts, possible.astype(np.float32)


def _histograms(value: Array, observed: BoolArray, populations: tuple[Population, ...]) -> Array:
    """Return the histograms ``[C, BINS]`` of the observed values of each column.

    A value counts for the two bins whose centres are next to it, by its distance, so that a small change of a value at
    a boundary is a small change of the histogram.
    """
    low = np.array([p.low for p in populations], np.float32)
    width = np.array([(p.high - p.low) / BINS for p in populations], np.float32)
    centre = np.zeros(len(populations), np.float32)
    for column, population in enumerate(populations):
        measured = value[observed[:, column], column]
        if population.relative and len(measured):
            centre[column] = np.median(measured)
    position = ((value - centre - low) / width - np.float32(0.5)).clip(0, BINS - 1)
    left = np.minimum(position.astype(np.int64), BINS - 2)
    share = (position - left)[observed]
    at = (left + np.arange(len(populations)) * BINS)[observed]
    length = len(populations) * BINS
    both = np.bincount(at, 1 - share, length) + np.bincount(at + 1, share, length)
    return both.reshape(-1, BINS).astype(np.float32)
