"""The shares of a caller's errors and time that its calls explain, call by call.

A failing service raises the error rate of each caller by its calls per request times the rise of their error rate, and
the caller's latency by its calls per request times the rise of theirs. What is left over is the caller's own doing.
The ranking reads both: a caller counts less for what callees explain that deviate themselves, and a callee counts more
for the harm that it explains.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.features import EDGE_CHANNELS, ERROR, NODE_CHANNELS, P50, RATE, Array
from model.snapshot import BoolArray, IntArray
from model.state.filters import Deviation
from model.state.mesh_state import Observation

# Nats in the ranking for a caller whose symptoms are fully explained, and for a callee that fully explains a caller's.
# Chosen on simulated meshes, PetShop's training issues and odd cases of Sock Shop: from 4 nats on nothing is worse.
NATS = 6.0
MIN_ERRORS = 0.005  # rise of a service's error rate, from which it can be divided among its calls
MIN_SLOWER = 0.2  # rise of its median latency relative to the usual one, from which it can be divided
MIN_REQUESTS = 0.05  # 1/s, below which calls per request say nothing
BEGINS, FULL = 2.0, 4.0  # surprise from which a symptom counts, and counts in full
OVERLOADED = 2.0  # times its usual requests, from which a callee explains nothing: it may itself be a victim

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Attribution:
    """The share of their callers' symptoms that C calls explain.

    Attributes:
        errors: float32 ``[C]`` share of the caller's additional errors that the call explains, 0..1. The calls of
            a caller explain at most 1 together. 0 if the caller's errors did not rise, or not everything was measured.
        time: float32 ``[C]`` the same for the rise of its median latency.
    """

    errors: Array
    time: Array

    def nats(self, calls: IntArray, errors: Array, latency: Array, disappearance: Array, load: Array) -> Array:
        """Return nats in the ranking for each of M candidates, ``[M]``, from ``-NATS`` to ``NATS``.

        A larger share never ranks the caller higher, nor the callee lower. A call counts only if both ends show the
        symptom. Errors that no call explains cost the caller nothing.

        Args:
            calls: ``[2, C]`` rows of the candidates.
            errors, latency: ``[M]`` surprise of each candidate's own symptoms, or of the calls to it.
            load: ``[M]`` requests relative to usual, without the retries that its own failures explain.
        """
        source, destination = calls
        weight = errors / np.maximum(errors + latency, 1e-6)
        failing, slow = _shows(np.maximum(errors, disappearance))[destination], _shows(latency)[destination]
        is_cause = np.clip(OVERLOADED - load, 0, 1)[destination]
        of_errors = weight[source] * self.errors * failing * is_cause
        of_time = (1 - weight)[source] * self.time * slow * is_cause
        harm = of_errors * _shows(errors)[source] + of_time * _shows(latency)[source]
        explained_share, explains = (
            np.minimum(np.bincount(end, share, len(load)), 1)
            for end, share in ((source, of_errors + of_time), (destination, harm))
        )
        return (NATS * (explains - explained_share)).astype(np.float32)


def _shows(surprise: Array) -> Array:
    """Return how clearly a symptom shows, 0 to 1."""
    return np.clip((surprise - BEGINS) / (FULL - BEGINS), 0, 1)


def attribute(observation: Observation, edge_index: IntArray, rows: IntArray) -> Attribution:
    """Divide the symptoms of callers among their calls.

    Args:
        edge_index: ``[2, E]`` rows of the mesh's services.
        rows: ``[C]`` calls of interest, ascending. All calls of their callers count for the limit of 1.
    """
    callers = np.unique(edge_index[0, rows])
    shares = []
    for channel in (ERROR, P50):
        own, usual, measured = _rise_of_services(observation.node, callers, channel)
        rose = measured & (own >= (MIN_ERRORS if channel == ERROR else MIN_SLOWER * usual))
        shares.append(_divide(observation, edge_index, rows, callers[rose], own[rose], channel))
    return Attribution(*shares)


def _divide(
    observation: Observation, edge_index: IntArray, rows: IntArray, callers: IntArray, rises: Floats, channel: int
) -> Array:
    """Return the share of its caller's rise that each of the calls ``rows`` explains, ``[C]``; 0 for
    other callers. Usually the metric of hardly any caller rose.
    """
    share = np.zeros(len(rows), np.float32)
    if not len(callers):
        return share
    rise_of = np.zeros(len(observation.node_present))
    rise_of[callers] = rises
    calls = np.flatnonzero(rise_of[edge_index[0]])
    source, destination = edge_index[:, calls]
    rise, is_known = _rise_of_calls(observation, destination, calls, channel)
    per_request = _calls_per_request(observation, source, destination, calls)
    part = np.where(is_known, per_request * np.maximum(rise, 0) / np.maximum(rise_of[source], 1e-9), 0)
    together = np.bincount(source, part, len(rise_of))[source]
    explained_part = (part / np.maximum(together, 1)).astype(np.float32)
    positions = np.flatnonzero(rise_of[edge_index[0, rows]])
    share[positions] = explained_part[np.searchsorted(calls, rows[positions])]
    return share


def _calls_per_request(observation: Observation, source: IntArray, destination: IntArray, calls: IntArray) -> Floats:
    """Return how often each of n calls is made for a request of its caller, ``[n]``; 0 if unknown.

    Calls beyond the usual number are the caller's own doing, so they do not count. Calls to a service that is gone
    count as usual.
    """
    node, edge = observation.node, observation.edge
    (now, before), (call_rate, usual) = (
        (channel.invert(of.value[rows, RATE]), channel.invert(of.expected[rows, RATE]))
        for channel, of, rows in ((NODE_CHANNELS[RATE], node, source), (EDGE_CHANNELS[RATE], edge, calls))
    )
    usual = usual / np.maximum(before, MIN_REQUESTS)
    call_rate = np.minimum(call_rate * observation.edge_present[calls] / np.maximum(now, MIN_REQUESTS), usual)
    is_known = node.observed[source, RATE] & (now > MIN_REQUESTS)
    return np.where(observation.presence.gone[destination], usual, call_rate) * is_known


def _rise_of_services(past: Deviation, rows: IntArray, channel: int) -> tuple[Floats, Floats, BoolArray]:
    """Return by how much a metric of n services is above its past, what is usual, in the metric's unit, and whether it
    was measured, ``[n]``."""
    now, usual = (NODE_CHANNELS[channel].invert(of[rows, channel]) for of in (past.value, past.expected))
    return now - usual, usual, past.observed[rows, channel]


def _rise_of_calls(
    observation: Observation, destination: IntArray, calls: IntArray, channel: int
) -> tuple[Floats, BoolArray]:
    """Return by how much a metric of n calls is above its past, and whether that is known, ``[n]``.

    Many meshes measure calls only where they arrive: then all callers of a service see what it measures itself. All
    calls to a service that is gone fail.
    """
    edge, gone = observation.edge, observation.presence.gone[destination]
    now, usual = (EDGE_CHANNELS[channel].invert(of[calls, channel]) for of in (edge.value, edge.expected))
    of_callee, _, callee_measured = _rise_of_services(observation.node, destination, channel)
    measured = edge.observed[calls, channel]
    rise, is_known = np.where(measured, now - usual, of_callee), measured | callee_measured
    if channel == ERROR:
        return np.where(gone, 1.0, rise), is_known | gone
    return rise, is_known & ~gone
