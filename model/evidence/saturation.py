"""Resources at their limit, and whether that harms anybody.

A service without free CPU is a reason to look. It is a reason to wake someone if its requests, or the requests of its
callers, become slow or fail at the same time. Each sign alone may be moderate: that both come together is far less
probable.
"""

import numpy as np

from model.evidence.kinds import RESOURCES, EvidenceKind
from model.evidence.materiality import Floors
from model.features import EDGE_CHANNELS, ERROR, P50, P99, Array
from model.snapshot import BoolArray, IntArray
from model.state.filters import Deviation
from model.state.mesh_state import MeshState, Observation

ERRORS = EDGE_CHANNELS[ERROR]  # the same channel for services and calls
HARMFUL = 1.1  # of the threshold: the page score of a short resource that harms its users in full
MOST_HARM = 0.85  # from which it harms in full: measured, harm differs from one snapshot to the next
HARMLESS_SHARE = 0.5  # of a resource's surprise, if it measurably harms no request
MIN = 2.0  # surprise of a resource, from which its harm is looked for
SLOWER = {P50: (np.log(1.15), np.log(1.4)), P99: (np.log(1.3), np.log(2.0))}  # logarithms of the ratio: from, in full
MIN_SHARE = 0.1  # of a latency's rise that matters by itself, from which it is harm
FAILS = 0.005, 0.02  # more of the requests: from, in full
MIN_SIGMAS = 1.0  # of the average over 4 snapshots; one slow snapshot does no harm
CALLERS = 2.0, 4.0  # surprise of the worst caller's symptoms: from, in full


def weigh_resources(
    state: MeshState, observation: Observation, kinds: Array, is_short: BoolArray, threshold: float, floors: Floors
) -> Array:
    """Return the evidence of resources ``[N]``, weighed by the harm to its users.

    A short resource that harms its users is enough for an alert, whatever else shows. It does not lift a page score
    beyond that: how strongly a service deviates is for the measurements to say.

    Args:
        is_short: ``[N]`` services with a resource at its limit, or far beyond everything before.
    """
    resources = kinds[:, EvidenceKind.RESOURCES]
    rows = np.flatnonzero(is_short | (resources >= MIN))
    if not len(rows):
        return resources
    harm, measured = _harm(state, observation, rows, kinds[rows, EvidenceKind.CALLERS], floors)
    share = np.where(measured, HARMLESS_SHARE + (1 - HARMLESS_SHARE) * harm, 1)
    evidence = resources.copy()
    enough = HARMFUL * threshold * np.minimum(harm / MOST_HARM, 1) / RESOURCES  # for that page score
    evidence[rows] = np.maximum(resources[rows] * share, enough * is_short[rows])
    return evidence


def _harm(
    state: MeshState, observation: Observation, rows: IntArray, callers: Array, floors: Floors
) -> tuple[Array, BoolArray]:
    """Return how much the users of n services suffer, ``[n]`` from 0 to 1, and where that is measured."""
    place = np.full(len(state.node_ids), -1)
    place[rows] = np.arange(len(rows))
    calls = np.flatnonzero(place[state.edge_index[1]] >= 0)
    to = place[state.edge_index[1, calls]]
    worst, measured = suffering(observation.node, rows, floors)
    of_calls, calls_measured = suffering(observation.edge, calls, floors)
    np.maximum.at(worst, to, of_calls)
    measured[to[calls_measured]] = True
    start, full = CALLERS
    harm: Array = np.maximum(worst, np.clip((callers - start) / (full - start), 0, 1)).astype(np.float32)
    return harm, measured


def suffering(past: Deviation, rows: IntArray, floors: Floors) -> tuple[Array, BoolArray]:
    """Return how much slower the requests of n rows are, or how many more of them fail, ``[n]`` from 0 to 1, and where
    that is measured."""
    value: Array = past.value[rows]
    expected: Array = past.expected[rows]
    observed, lately = past.observed[rows], past.past_short[rows]
    lasts = observed & (lately >= MIN_SIGMAS)
    more = ERRORS.invert(value[:, ERROR]) - ERRORS.invert(expected[:, ERROR])
    worst = np.clip((more - FAILS[0]) / (FAILS[1] - FAILS[0]), 0, 1) * lasts[:, ERROR]
    for channel, (start, full) in SLOWER.items():
        min_rise = MIN_SHARE * (floors.p50 if channel == P50 else floors.p99)
        amount = (np.exp(value[:, channel]) - np.exp(expected[:, channel])) / min_rise
        share = np.clip((value[:, channel] - expected[:, channel] - start) / (full - start), 0, 1)
        share = np.minimum(share, np.clip(2 * amount - 1, 0, 1))
        worst = np.maximum(worst, share * lasts[:, channel])
    return worst.astype(np.float32), np.asarray(observed[:, [ERROR, P50, P99]].any(axis=1))
