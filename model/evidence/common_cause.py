"""Common causes of calls that are slow or fail on the way, and calls that are repeated because they fail.

What a call takes beyond what its callee takes is lost on the way, and so is the share of its requests that fail
although the callee answers. Such a fault belongs to what all affected calls share: their caller, their callee, or a
namespace that they leave or enter. Then they are evidence about that, and say nothing against the services that are
well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.features import EDGE_CHANNELS, ERROR, NODE_CHANNELS, P50, RATE, Array
from model.snapshot import BoolArray, IntArray, number_namespaces
from model.state.mesh_state import MeshState, Observation

MIN_CALLS = 2  # that have to share a cause, and services of a namespace
MOST_OF = 0.8  # share of a cause's requests, and of a namespace's services, that have to suffer
MIN_SIGMAS = 2.0  # of a call's symptom, from which it may be lost on the way
MIN_FAILING = 0.05  # additional share of a call's requests that fail on the way
ON_THE_WAY = 0.3  # share of a symptom's rise that has to be lost on the way
UNKNOWN = 0.02  # share of the requests that a callee answers, up to which little is known about the way to it
MIN_RATE = 0.05  # 1/s, below which a change of the requests says nothing
MAX_RETRIES = 5  # of a request, that are usual
TOLERANCE = 1.3  # times the calls that failures explain, up to which they are retries

Floats = NDArray[np.float64]


class Shared(IntEnum):
    """The end that the calls of a common cause share. Of two that explain as many calls, the first one here is the
    cause: what all callers of a service see is evidence about this service anyway."""

    NOTHING = 0
    CALLEE = 1
    CALLER = 2
    FROM_NAMESPACE = 3
    INTO_NAMESPACE = 4


OF_CALLER = (Shared.CALLER, Shared.FROM_NAMESPACE)  # the calls are evidence about their caller
SYMPTOMS = (P50, ERROR)


@dataclass(frozen=True)
class CommonCauses:
    """The common causes of calls that are lost on the way.

    Attributes:
        latency, errors: int64 ``[E]``, :class:`Shared` of each call, for both symptoms.
    """

    latency: IntArray
    errors: IntArray

    @cached_property
    def slow_by_caller(self) -> BoolArray:
        """Which calls ``[E]`` are slow because of their caller, or of its namespace."""
        return np.isin(self.latency, OF_CALLER)

    @cached_property
    def failing_by_caller(self) -> BoolArray:
        """Which calls ``[E]`` fail because of their caller, or of its namespace."""
        return np.isin(self.errors, OF_CALLER)

    def of(self, channel: int) -> IntArray:
        return self.latency if channel == P50 else self.errors


def find_common_causes(state: MeshState, observation: Observation, floor: float) -> CommonCauses:
    """Return what the calls share that are slow or fail on the way.

    Args:
        floor: least rise of a latency that counts, s.
    """
    return CommonCauses(*(_find_shared(state, observation, c, floor) for c in SYMPTOMS))


def symptom_of(
    state: MeshState, observation: Observation, channel: int, of: BoolArray, end: int
) -> tuple[Array, Array]:
    """Return a symptom of calls now and usually, ``[N]`` in its unit: the mean over the calls of each service, weighted
    by their requests; 0 without any.

    Args:
        of: ``[E]`` which calls.
        end: 0: of the services that make them, 1: that get them.
    """
    edge, rows, count = observation.edge, np.flatnonzero(of), len(state.node_ids)
    group, traffic = state.edge_index[end, rows], EDGE_CHANNELS[RATE].invert(edge.value[rows, RATE])
    total = np.maximum(np.bincount(group, traffic, count), 1e-9)
    now, usual = (
        (np.bincount(group, traffic * EDGE_CHANNELS[channel].invert(at[rows, channel]), count) / total).astype(
            np.float32
        )
        for at in (edge.value, edge.expected)
    )
    return now, usual


def find_retried(state: MeshState, observation: Observation) -> BoolArray:
    """Return which calls ``[E]`` are made more often than usual for each request of their caller, and no more than the
    failures of their callee explain: callers that retry what a service fails send it many times its requests, and that
    is the service's own doing."""
    node, edge, (source, destination) = observation.node, observation.edge, state.edge_index
    is_retried = np.zeros(len(source), bool)
    is_known = edge.observed[:, RATE] & node.observed[source, RATE] & node.observed[destination, ERROR]
    is_known &= (edge.now[:, RATE] > 0) & (node.now[destination, ERROR] >= MIN_SIGMAS)
    rows = np.flatnonzero(is_known)
    now, usual = (NODE_CHANNELS[ERROR].invert(of[destination[rows], ERROR]) for of in (node.value, node.expected))
    attempts = (np.maximum(now - usual, 0)[:, None] ** np.arange(MAX_RETRIES + 1)).sum(axis=1)
    is_retried[rows] = (now - usual >= MIN_FAILING) & (
        _calls_for_each(state, observation, rows) <= TOLERANCE * attempts
    )
    return is_retried


def load_of(state: MeshState, observation: Observation, is_retried: BoolArray, keep: IntArray) -> Array:
    """Return the requests to services relative to usual, ``[M]``, without the retries of what they fail themselves.

    Args:
        is_retried: ``[E]`` by :func:`find_retried`.
    """
    rows = np.flatnonzero(is_retried)
    call_rate = EDGE_CHANNELS[RATE].invert(observation.edge.value[rows, RATE])
    again = call_rate * (1 - 1 / np.maximum(_calls_for_each(state, observation, rows), 1))
    now, usual = (
        NODE_CHANNELS[RATE].invert(of[keep, RATE]) for of in (observation.node.value, observation.node.expected)
    )
    retries = np.bincount(state.edge_index[1, rows], again, len(state.node_ids))[keep]
    load: Array = (np.maximum(now - retries, 0) / np.maximum(usual, MIN_RATE)).astype(np.float32)
    return np.where(observation.node.observed[keep, RATE], load, 1).astype(np.float32)


def _calls_for_each(state: MeshState, observation: Observation, rows: IntArray) -> Floats:
    """Return how often some calls are made for each request of their caller, relative to usual, ``[R]``."""
    node, edge, source = observation.node, observation.edge, state.edge_index[0, rows]
    of_call, of_caller = (past.value[at, RATE] - past.expected[at, RATE] for past, at in ((edge, rows), (node, source)))
    return np.exp((of_call - of_caller).astype(np.float64))


class _Lost(NamedTuple):
    """Calls of which a symptom was measured at both ends.

    Attributes:
        is_measured: bool ``[E]``.
        ill: bool ``[E]`` which of them suffer on the way.
        requests: ``[E]`` 1/s, 0 where unknown.
    """

    is_measured: BoolArray
    ill: BoolArray
    requests: Floats


def _find_shared(state: MeshState, observation: Observation, channel: int, floor: float) -> IntArray:
    """Return the :class:`Shared` of each call ``[E]`` for one symptom: the causes that explain most calls come first,
    and what they explain says nothing about the others."""
    cause_of = np.zeros(state.edge_index.shape[1], np.int64)
    lost_calls = _find_lost(state, observation, channel, floor)
    if lost_calls is None:
        return cause_of
    candidates = sorted(_candidates(state, lost_calls), key=lambda candidate: (-len(candidate[1]), candidate[0]))
    for cause, rows in candidates:
        unexplained = rows[cause_of[rows] == Shared.NOTHING]
        if len(unexplained) >= MIN_CALLS:
            cause_of[unexplained] = cause
    return cause_of


def _candidates(state: MeshState, lost_calls: _Lost) -> Iterator[tuple[Shared, IntArray]]:
    """Yield what calls may share, and the calls that suffer: nearly all requests of a service that makes or gets calls,
    or of nearly all services of a namespace, do."""
    count, ill = len(state.node_ids), np.flatnonzero(lost_calls.ill)
    namespaces = number_namespaces(state.node_ids)
    for ends, of_service, of_namespace in (
        (state.edge_index[1], Shared.CALLEE, Shared.INTO_NAMESPACE),
        (state.edge_index[0], Shared.CALLER, Shared.FROM_NAMESPACE),
    ):
        all_of, ill_of = (
            np.bincount(ends, lost_calls.requests * of, count) for of in (lost_calls.is_measured, lost_calls.ill)
        )
        suffers = (ill_of > 0) & (ill_of >= MOST_OF * all_of)
        has_many = np.bincount(ends[ill], minlength=count) >= MIN_CALLS
        for service in np.flatnonzero(suffers & has_many).tolist():
            yield of_service, ill[ends[ill] == service]
        if not namespaces.any():  # one alone says nothing
            continue
        called_services, suffering, all_in, ill_in = (
            np.bincount(namespaces, of) for of in (all_of > 0, suffers, all_of, ill_of)
        )
        shares = (ill_in >= MOST_OF * all_in) & (suffering >= np.maximum(MIN_CALLS, MOST_OF * called_services))
        for namespace in np.flatnonzero(shares).tolist():
            yield of_namespace, ill[namespaces[ends[ill]] == namespace]


def _find_lost(state: MeshState, observation: Observation, channel: int, floor: float) -> _Lost | None:
    """Return which calls suffer on the way; None if they are too few to share a cause."""
    node, edge, (source, destination) = observation.node, observation.edge, state.edge_index
    measured = edge.observed[:, channel] & observation.edge_present & (source != destination)
    rows = np.flatnonzero(measured & (edge.now[:, channel] >= MIN_SIGMAS))
    min_rise = floor if channel == P50 else MIN_FAILING
    call, usual_call = (EDGE_CHANNELS[channel].invert(of[rows, channel]) for of in (edge.value, edge.expected))
    risen = call - usual_call >= min_rise
    rows, call, usual_call = rows[risen], call[risen], usual_call[risen]
    if len(rows) < MIN_CALLS:
        return None
    requests = np.where(measured, EDGE_CHANNELS[RATE].invert(edge.value[:, RATE]), 0)
    ill = np.zeros(len(measured), bool)
    callee, usual = (
        np.where(
            node.observed[destination[rows], channel],
            NODE_CHANNELS[channel].invert(own[destination[rows], channel]),
            _seen_by_others(destination, rows, EDGE_CHANNELS[channel].invert(of[:, channel]), requests),
        )
        for own, of in ((node.value, edge.value), (node.expected, edge.expected))
    )
    way = _on_the_way(call, callee, channel) - _on_the_way(usual_call, usual, channel)
    ill[rows] = (way >= np.maximum(min_rise, ON_THE_WAY * (call - usual_call))) & np.isfinite(callee)
    return _Lost(measured, ill, requests) if np.count_nonzero(ill) >= MIN_CALLS else None


def _on_the_way(call: Floats, callee: Floats, channel: int) -> Floats:
    """Return what is lost between both ends: seconds, or the share of the requests that never get an answer. Of a
    callee that fails nearly all requests, that share is not known, and 0."""
    return call - callee if channel == P50 else 1 - (1 - call + UNKNOWN) / (1 - callee + UNKNOWN)


def _seen_by_others(destination: IntArray, rows: IntArray, symptom: Floats, requests: Floats) -> Floats:
    """Return what the other callers of the same callees see, ``[R]``: the mean, weighted by requests; NaN
    without any."""
    count = int(destination.max()) + 1
    all_of, total_symptom = (
        np.bincount(destination, requests, count),
        np.bincount(destination, requests * symptom, count),
    )
    other_requests = all_of[destination[rows]] - requests[rows]
    total = total_symptom[destination[rows]] - (requests * symptom)[rows]
    return np.where(other_requests > 1e-6, total / np.maximum(other_requests, 1e-6), np.nan)
