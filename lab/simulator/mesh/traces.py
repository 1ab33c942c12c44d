"""Draw the calls of the traced requests."""

import numpy as np

from lab.simulator.mesh.topology import Topology
from lab.simulator.physics.propagation import SCENARIOS, LayerTraces
from lab.simulator.physics.queueing import Floats

_STRIDES = np.array([s for s in range(1, SCENARIOS) if s % 2 and s % 5])  # coprime to 50


def draw_traces(
    topology: Topology, parallelism: Floats, rng: np.random.Generator, latent: bool = False
) -> tuple[LayerTraces, ...]:
    """Traces of the calls from the start, or of the latent calls.

    A request makes floor(c) or ceil(c) calls, for c calls per request on average. The golden ratio spreads them over
    the scenarios; the callee's scenarios are in random order.
    """
    chosen = np.flatnonzero(topology.latent_calls == latent)
    scenario = np.arange(SCENARIOS)
    golden = (scenario * 0.6180339887498949 + rng.random(len(chosen))[:, None]) % 1.0
    calls = np.floor(topology.calls_per_request[chosen, None] + golden)
    met = rng.choice(_STRIDES, len(chosen))[:, None], rng.integers(0, SCENARIOS, len(chosen))[:, None]
    traces = []
    for nodes, part in zip(topology.node_slices, topology.call_slices, strict=True):
        first, last = np.searchsorted(chosen, [part.start, part.stop])
        row, at = np.nonzero(calls[first:last])
        row += first
        source = topology.source[chosen[row]]
        scenario_met = (at * met[0][row, 0] + met[1][row, 0]) % SCENARIOS
        traces.append(
            LayerTraces(
                row=(source - nodes.start) * SCENARIOS + at,
                column=topology.destination[chosen[row]] * SCENARIOS + scenario_met,
                call=chosen[row] - part.start,
                count=calls[row, at] * parallelism[source],
            )
        )
    return tuple(traces)
