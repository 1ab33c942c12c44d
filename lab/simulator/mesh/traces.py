"""Draws the traced requests' calls."""

import numpy as np

from lab.simulator.mesh.topology import Topology
from lab.simulator.physics.propagation import SCENARIOS, LayerTraces
from lab.simulator.physics.queueing import Floats

_STRIDES = np.array([s for s in range(1, SCENARIOS) if s % 2 and s % 5])  # coprime to 50


def draw_traces(
    topology: Topology, parallelism: Floats, rng: np.random.Generator, latent: bool = False
) -> tuple[LayerTraces, ...]:
    """Draw the traces of the calls that exist from the start, or of the latent calls.

    A request makes floor(c) or ceil(c) calls, for c calls per request on average. The golden ratio spreads them over
    the scenarios; the callee's scenarios are in random order.
    """
    active_calls = np.flatnonzero(topology.latent_calls == latent)
    scenario = np.arange(SCENARIOS)
    golden = (scenario * 0.6180339887498949 + rng.random(len(active_calls))[:, None]) % 1.0
    calls = np.floor(topology.calls_per_request[active_calls, None] + golden)
    strides = rng.choice(_STRIDES, len(active_calls))[:, None], rng.integers(0, SCENARIOS, len(active_calls))[:, None]
    traces = []
    for nodes, part in zip(topology.node_slices, topology.call_slices, strict=True):
        first, last = np.searchsorted(active_calls, [part.start, part.stop])
        row, at = np.nonzero(calls[first:last])
        row += first
        source = topology.source[active_calls[row]]
        scenario_met = (at * strides[0][row, 0] + strides[1][row, 0]) % SCENARIOS
        traces.append(
            LayerTraces(
                row=(source - nodes.start) * SCENARIOS + at,
                column=topology.destination[active_calls[row]] * SCENARIOS + scenario_met,
                call=active_calls[row] - part.start,
                count=calls[row, at] * parallelism[source],
            )
        )
    return tuple(traces)
