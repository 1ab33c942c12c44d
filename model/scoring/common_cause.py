"""Calls that are slow because of their caller.

If nearly all calls out of a service take longer, and the services that it calls are as fast as ever, the time is lost
on the way: in the caller's network, on its node, or in its proxy. The calls are then evidence about the caller, and say
nothing against the services that it calls.
"""

import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS, P50, RATE, Array
from model.snapshot import BoolArray, IntArray
from model.state.mesh_state import MeshState, Observation

LEAST_CALLEES = 2  # that a caller has to share out its slowness among
MOST_OF = 0.8  # of a caller's calls, that have to be slow
LEAST_SIGMAS = 2.0  # of a call's median, from which it is slow
OWN_SHARE = 0.3  # of the rise of a call's median, up to which the callee's own median may rise
OTHERS = 0.5  # of the calls into a callee, up to which they may be slow


def find_slow_callers(state: MeshState, observation: Observation, floor: float) -> BoolArray:
    """Return which calls ``[E]`` are slow because of their caller.

    Args:
        state, observation: of the mesh.
        floor: least rise of a latency that counts, s.
    """
    edge, (source, destination) = observation.edge, state.edge_index
    found = np.zeros(len(source), bool)
    measured = edge.observed[:, P50] & observation.edge_present & (source != destination)
    slow = np.flatnonzero(measured & (edge.now[:, P50] >= LEAST_SIGMAS))
    rise = _rise(edge.value, edge.expected, slow)
    slow, rise = slow[rise >= floor], rise[rise >= floor]
    rows = slow[_is_well(observation, destination[slow], rise)]
    if len(rows) < LEAST_CALLEES:
        return found
    count = len(state.node_ids)
    into, slow_into = (np.bincount(destination[of], minlength=count) for of in (measured, slow))
    to = destination[rows]
    rows = rows[(into[to] == 1) | (slow_into[to] <= OTHERS * into[to])]
    traffic = np.maximum(EDGE_CHANNELS[RATE].invert(edge.value[:, RATE]), 0) * measured
    made = np.bincount(source, traffic, count)
    late, callees = np.bincount(source[rows], traffic[rows], count), np.bincount(source[rows], minlength=count)
    is_cause = (callees >= LEAST_CALLEES) & (late >= MOST_OF * made)
    found[rows] = is_cause[source[rows]]
    return found


def waiting_of(state: MeshState, observation: Observation, slow: BoolArray) -> tuple[Array, Array]:
    """Return the median latency now and usually of the calls that each service makes, ``[N]`` in s: the mean over the
    calls that are slow because of it, weighted by their requests; 0 without any."""
    edge, rows, count = observation.edge, np.flatnonzero(slow), len(state.node_ids)
    source = state.edge_index[0, rows]
    traffic = EDGE_CHANNELS[RATE].invert(edge.value[rows, RATE])
    made = np.maximum(np.bincount(source, traffic, count), 1e-9)
    now, usual = (
        (np.bincount(source, traffic * EDGE_CHANNELS[P50].invert(of[rows, P50]), count) / made).astype(np.float32)
        for of in (edge.value, edge.expected)
    )
    return now, usual


def _rise(value: Array, expected: Array, rows: IntArray) -> Array:
    """Return by how many seconds the medians of some rows are above their past."""
    rise: Array = (np.exp(value[rows, P50]) - np.exp(expected[rows, P50])).astype(np.float32)
    return rise


def _is_well(observation: Observation, rows: IntArray, rise: Array) -> BoolArray:
    """Return which services of these rows are about as fast as ever, by their own measurement, beside calls to them
    that take ``rise`` seconds longer."""
    node = observation.node
    now, usual = (NODE_CHANNELS[P50].invert(of[rows, P50]) for of in (node.value, node.expected))
    well: BoolArray = node.observed[rows, P50] & (now - usual <= OWN_SHARE * rise)
    return well
