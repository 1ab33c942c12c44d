"""What is told of a suspect: its strongest series and those of the calls into it, a disappearance, calls that moved.

What is rare but small is not told first, and load and memory come after latency and errors.
"""

from dataclasses import dataclass

import numpy as np

from model.features import (
    CONNECTIONS,
    CPU,
    CPU_PER_REQUEST,
    EDGE_CHANNELS,
    ERROR,
    MEMORY,
    NODE_CHANNELS,
    OWN_TIME,
    P50,
    P99,
    RATE,
    Array,
)
from model.snapshot import BoolArray, IntArray
from model.state.mesh_state import MeshState, Observation
from model.verdict import LOST, MOVED, NEW, VANISHED

MOST = 3  # reasons of a suspect
SYMPTOMS = (ERROR, P50, P99)  # channels of a call that its destination decides
SERIES = (*(c.name for c in NODE_CHANNELS), *(EDGE_CHANNELS[c].name for c in SYMPTOMS), VANISHED, LOST, NEW, MOVED)
OWN, CALLS = len(NODE_CHANNELS), len(SYMPTOMS)
CONTEXT = {RATE: 0.5, MEMORY: 0.5, CONNECTIONS: 0.5, CPU: 0.6, CPU_PER_REQUEST: 0.6}  # what these count for
LEAST_SURPRISE, LEAST, LEAST_SHARE = 1.0, 0.3, 0.2  # one in ten, not next to nothing, also beside the strongest
ALIKE = (  # series that show the same symptom: whoever is slow is slow at the median and for its callers, too
    [ERROR, OWN + SYMPTOMS.index(ERROR)],
    [P50, P99, OWN_TIME, OWN + SYMPTOMS.index(P50), OWN + SYMPTOMS.index(P99)],
    [CPU, CPU_PER_REQUEST],
)
REPEATED = np.float32(0.5)  # what all but the strongest of them count for
LOAD_SIGMAS = 2.0  # from which on a change of the load is told


@dataclass(frozen=True, slots=True)
class Strength:
    """How strong what could be told is.

    Attributes:
        node: ``[M, 9]`` of the candidates' own series: surprise.
        node_matters: ``[M, 9]`` how much each deviation matters, 0 to 1.
        into: int64 ``[I]`` calls into candidates.
        call, call_matters: ``[I, 3]`` of their ``SYMPTOMS``.
        vanished: ``[M]`` surprise of being missed, or of calls that moved.
        young: bool ``[E]`` calls that are new.
    """

    node: Array
    node_matters: Array
    into: IntArray
    call: Array
    call_matters: Array
    vanished: Array
    young: BoolArray


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is told of M candidates.

    Attributes:
        series: int64 ``[M, 3]`` strongest series of each, index into ``SERIES``; -1 none.
        peer: int64 ``[M, 3]`` for a series of a call: the other end's index in ``peers``; -1 its own metric.
        observed, expected: ``[M, 3]`` in the metric's unit; of calls that are new, lost or moved in 1/s.
        gone: ``[M]`` snapshots since it was last seen; 0: it is there.
        load: ``[M]`` requests now over the usual; 1: as usual, or nobody knows.
        peers: ids that ``peer`` names.
    """

    series: IntArray
    peer: IntArray
    observed: Array
    expected: Array
    gone: IntArray
    load: Array
    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """``[M, len(SERIES)]``: surprise of each series, the same as far as it matters, and the call it is of; -1 none."""

    surprise: Array
    worth: Array
    call: IntArray

    def lay(self, rows: IntArray | int, series: str, surprise: Array | float, worth: Array | float) -> None:
        """Write a series of some candidates, in place."""
        column = SERIES.index(series)
        self.surprise[rows, column], self.worth[rows, column] = surprise, worth


def told(
    state: MeshState,
    observation: Observation,
    strength: Strength,
    node_expected: Array,
    edge_expected: Array,
    keep: IntArray,
) -> Explanation:
    """What is told of the candidates.

    Args:
        state, observation: of the mesh.
        strength: of what could be told.
        node_expected, edge_expected: ``[N, 9]``, ``[E, 5]`` in transformed units.
        keep: ``[M]`` rows of the candidates.
    """
    shape = len(keep), len(SERIES)
    table = _Table(np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.full(shape, -1))
    discount = np.array([CONTEXT.get(c, 1.0) for c in range(OWN)], np.float32)
    table.surprise[:, :OWN], table.worth[:, :OWN] = strength.node, strength.node * strength.node_matters * discount
    _lay_calls(state, strength, keep, table)
    now, usual = _traffic(observation, strength.young)
    _lay_moves(state, strength, keep, table, now - usual)
    best = np.argsort(-table.worth, axis=1, kind="stable")[:, :MOST]
    surprise, worth = (np.take_along_axis(one, best, axis=1) for one in (table.surprise, table.worth))
    told_of = (surprise >= LEAST_SURPRISE) & (worth >= np.maximum(LEAST, LEAST_SHARE * worth[:, :1]))
    series = np.where(told_of, best, -1)
    call = np.where(series >= 0, np.take_along_axis(table.call, best, axis=1), -1)
    nobody = np.full((2, 1), -1)  # what -1 finds, in a mesh without calls too
    ends = np.concatenate([state.edge_index, nobody], axis=1)[:, call]
    peer = np.where(call >= 0, np.where(ends[0] == keep[:, None], ends[1], ends[0]), -1)
    values = np.zeros((2, *series.shape), np.float32)
    for m, k in np.argwhere(series >= 0):
        which, edge = int(series[m, k]), int(call[m, k])
        if which >= OWN + CALLS and edge >= 0:
            values[:, m, k] = now[edge], usual[edge]
        else:
            values[:, m, k] = _values(observation, node_expected, edge_expected, int(keep[m]), edge, which)
    named = sorted(set(peer[peer >= 0].tolist()))
    place = {row: i for i, row in enumerate(named)} | {-1: -1}
    peers = np.array([[place[row] for row in rows] for rows in peer.tolist()], np.int64).reshape(series.shape)
    names = tuple(state.node_ids[row] for row in named)
    gone = state.node_absent[keep].astype(np.int64)
    return Explanation(series, peers, values[0], values[1], gone, _load(observation, keep), names)


def _values(
    observation: Observation, node_expected: Array, edge_expected: Array, node: int, edge: int, series: int
) -> tuple[float, float]:
    """Observed and expected, in the metric's unit, of a service's own series or of a call's."""
    if OWN <= series < OWN + CALLS:
        c = SYMPTOMS[series - OWN]
        call = EDGE_CHANNELS[c]
        return call.inverse(float(observation.edge.value[edge, c])), call.inverse(float(edge_expected[edge, c]))
    c = series if series < OWN else RATE  # who is gone has no requests
    expected = observation.node.expected if c == RATE else node_expected  # the usual load, whatever callers explain
    channel = NODE_CHANNELS[c]
    return channel.inverse(float(observation.node.value[node, c])), channel.inverse(float(expected[node, c]))


def _lay_calls(state: MeshState, strength: Strength, keep: IntArray, table: _Table) -> None:
    """Of each symptom the strongest call into each candidate, in place; what shows the same thing twice counts less."""
    row = np.full(len(state.node_ids), -1)
    row[keep] = np.arange(len(keep))
    target = row[state.edge_index[1, strength.into]]
    for j in range(CALLS):
        worth = strength.call[:, j] * strength.call_matters[:, j]
        order = np.lexsort((strength.call[:, j], worth))  # the strongest is written last
        at, column = target[order], OWN + j
        table.call[at, column] = strength.into[order]
        table.surprise[at, column], table.worth[at, column] = strength.call[order, j], worth[order]
    for symptom in ALIKE:
        worth = table.worth[:, symptom]
        first = np.arange(len(symptom)) == worth.argmax(axis=1)[:, None]
        table.worth[:, symptom] = np.where(first, worth, REPEATED * worth)


def _lay_moves(state: MeshState, strength: Strength, keep: IntArray, table: _Table, more: Array) -> None:
    """Who is gone, and which calls are new, lost or moved, in place: of each the one whose traffic changed most."""
    gone = state.node_absent[keep] > 0
    table.lay(np.flatnonzero(gone), VANISHED, strength.vanished[gone], strength.vanished[gone])
    table.worth[gone, RATE] = 0  # it is told already
    source, destination = state.edge_index
    for m in np.flatnonzero(~gone & (strength.vanished >= LEAST_SURPRISE)).tolist():
        worth = float(strength.vanished[m])
        for series, changed in (
            (NEW, np.where(strength.young & (destination == keep[m]), more, 0)),
            (MOVED, np.where(strength.young & (source == keep[m]), more, 0)),
            (LOST, np.where(~strength.young & (destination == keep[m]), -more, 0)),
        ):
            if changed.max(initial=0) > 0:
                table.lay(m, series, worth, worth)
                table.call[m, SERIES.index(series)] = int(changed.argmax())


def _traffic(observation: Observation, young: BoolArray) -> tuple[Array, Array]:
    """Requests of each call now and usually, ``[E]`` 1/s; a new call has no usual ones."""
    offset = np.float32(EDGE_CHANNELS[RATE].offset)
    now, usual = (np.exp(v[:, RATE]) - offset for v in (observation.edge.value, observation.edge.expected))
    return now * observation.edge_present, np.where(young, 0, usual)


def _load(observation: Observation, keep: IntArray) -> Array:
    """``[M]``: requests of the candidates now over the usual, where they differ."""
    node = observation.node
    ratio = np.exp(node.value[keep, RATE] - node.expected[keep, RATE])
    told = node.observed[keep, RATE] & (np.abs(node.now[keep, RATE]) >= LOAD_SIGMAS) & observation.node_present[keep]
    load: Array = np.where(told, ratio, 1).astype(np.float32)
    return load
