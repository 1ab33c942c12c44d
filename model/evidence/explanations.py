"""The reasons for a suspect: its strongest series, calls into it, a disappearance, or calls that moved or dropped.

Small deviations come last however rare they are, and load and memory come after latency and errors.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from model.evidence.common_cause import OF_CALLER, Shared, symptom_of
from model.evidence.kinds import WORTH_A_LOOK, EvidenceKind
from model.evidence.materiality import material, matters
from model.evidence.scored_mesh import ScoredMesh
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
    rate_of,
)
from model.ordering import largest_of_group, largest_of_rows
from model.snapshot import BoolArray, IntArray
from model.state.mesh_state import Observation
from model.verdict import (
    DROPPED,
    LOSES,
    LOST,
    MOVED,
    NAMESPACE_FAILS,
    NAMESPACE_LOSES,
    NAMESPACE_SLOW,
    NAMESPACE_WAITS,
    NEW,
    SENT,
    VANISHED,
    WAITS,
)

MAX = 3  # reasons of a suspect
SYMPTOMS = (ERROR, P50, P99)  # channels of a call that its destination decides
SHARED_SERIES = {  # what calls share that are slow or fail on the way
    (Shared.CALLER, P50): WAITS,
    (Shared.CALLER, ERROR): LOSES,
    (Shared.FROM_NAMESPACE, P50): NAMESPACE_WAITS,
    (Shared.FROM_NAMESPACE, ERROR): NAMESPACE_LOSES,
    (Shared.INTO_NAMESPACE, P50): NAMESPACE_SLOW,
    (Shared.INTO_NAMESPACE, ERROR): NAMESPACE_FAILS,
}
SERIES = (
    *(c.name for c in NODE_CHANNELS), *(EDGE_CHANNELS[c].name for c in SYMPTOMS), VANISHED, LOST, NEW, MOVED, DROPPED,
    *SHARED_SERIES.values(),
)  # fmt: skip
OWN, CALLS = len(NODE_CHANNELS), len(SYMPTOMS)  # the first of them: of services, and of calls into them
CONTEXT = {RATE: 0.5, MEMORY: 0.5, CONNECTIONS: 0.5, CPU: 0.6, CPU_PER_REQUEST: 0.6}  # weights
RESOURCES = [CPU, CPU_PER_REQUEST, MEMORY]
MIN_SURPRISE, MIN, MIN_SHARE = 1.0, 0.3, 0.2  # surprise, worth, share of the strongest
ALIKE = (  # series of the same symptom: a slow service is slow at the median, at p99 and for its callers
    [ERROR, OWN + SYMPTOMS.index(ERROR)],
    [P50, P99, OWN_TIME, OWN + SYMPTOMS.index(P50), OWN + SYMPTOMS.index(P99)],
    [CPU, CPU_PER_REQUEST],
)
REPEATED = np.float32(0.5)  # weight of all but the strongest of them
LOAD_SIGMAS = 2.0  # least change of the load to report
MORE_CALLS = 1.3  # times its usual calls, and its usual calls for each request, from which a service makes far more
MIN_FAILING = 0.02  # rise in the error rate of calls to one service, from which they are reported
FIRST = np.float32(1.01)  # times the strongest other reason: a cause comes before what follows from it


@dataclass(frozen=True, slots=True)
class Fact:
    """A metric of a candidate, of a call into it from ``source``, or of calls that it makes to ``destination``; in the
    metric's unit, 1/s for calls that are new, lost, moved or dropped."""

    metric: str
    observed: float
    expected: float
    destination: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of M candidates.

    Attributes:
        reasons: the strongest series of each, strongest first.
        gone: ``[M]`` snapshots since the candidate was last seen; 0: it is present.
        load: ``[M]`` requests now relative to usual; 1: unchanged or unknown.
        context: facts that help to tell the kind of a candidate's fault beside its reasons, by row.
    """

    reasons: tuple[tuple[Fact, ...], ...]
    gone: IntArray
    load: Array
    context: dict[int, tuple[Fact, ...]]


@dataclass(frozen=True, slots=True)
class _Table:
    """``[M, len(SERIES)]`` of each series: its surprise, that weighted by how much it matters, its value now and
    usually in the metric's unit, and its call; -1: none."""

    surprise: Array
    worth: Array
    now: Array
    usual: Array
    call: IntArray

    @classmethod
    def empty(cls, candidates: int) -> Self:
        shape = candidates, len(SERIES)
        surprise, worth, now, usual = np.zeros((4, *shape), np.float32)
        return cls(surprise, worth, now, usual, np.full(shape, -1))

    def add(
        self,
        rows: IntArray,
        column: int,
        surprise: Array | float,
        worth: Array | float,
        values: tuple[NDArray[np.floating] | float, NDArray[np.floating] | float],
        call: IntArray | int = -1,
    ) -> None:
        """Write one series of some candidates, in place. If a row occurs repeatedly, the last one counts."""
        self.surprise[rows, column], self.worth[rows, column] = surprise, worth
        self.now[rows, column], self.usual[rows, column] = values
        self.call[rows, column] = call


def explain(mesh: ScoredMesh, kinds: Array, is_dropped: BoolArray, keep: IntArray) -> Explanation:
    """Select the reasons for the candidates.

    Args:
        is_dropped: bool ``[E]`` calls that their caller suddenly no longer makes.
        keep: ``[M]`` rows of the candidates.
    """
    state, observation = mesh.state, mesh.observation
    table = _Table.empty(len(keep))
    _add_own(mesh, keep, table)
    _add_calls(mesh, keep, table)
    gone = observation.presence.gone[keep]
    _add_moved_calls(mesh, kinds[keep, EvidenceKind.VANISHED], is_dropped, keep, table, gone)
    _add_shared_symptoms(mesh, keep, table)
    best = np.argsort(-table.worth, axis=1, kind="stable")[:, :MAX]
    surprise, worth = (np.take_along_axis(array, best, axis=1) for array in (table.surprise, table.worth))
    is_strong = (surprise >= MIN_SURPRISE) & (worth >= np.maximum(MIN, MIN_SHARE * worth[:, :1]))
    reasons: list[list[Fact]] = [[] for _ in keep]
    for m, c in zip(np.nonzero(is_strong)[0].tolist(), best[is_strong].tolist(), strict=True):
        peer, name = "", SERIES[c]
        if table.call[m, c] >= 0:
            source, destination = state.edge_index[:, table.call[m, c]].tolist()
            peer = state.node_ids[destination if source == keep[m] else source]
        values = float(table.now[m, c]), float(table.usual[m, c])
        reasons[m].append(Fact(name, *values, *((peer, "") if name == MOVED else ("", peer))))
    gone_for = np.where(gone, state.node_unmeasured[keep], 0).astype(np.int64)
    load = _load(observation, keep)
    context: dict[int, tuple[Fact, ...]] = {}
    for m in np.flatnonzero(kinds[keep, EvidenceKind.CALLS_OUT] >= WORTH_A_LOOK).tolist():
        context[m] = _outgoing_calls(mesh, int(keep[m]), float(load[m]))
    for m, c in _scarce_resources(table, np.where(is_strong, best, -1)):
        context[m] = (*context.get(m, ()), Fact(SERIES[c], float(table.now[m, c]), float(table.usual[m, c])))
    return Explanation(reasons=tuple(map(tuple, reasons)), gone=gone_for, load=load, context=context)


def _outgoing_calls(mesh: ScoredMesh, row: int, load: float) -> tuple[Fact, ...]:
    """Return the total of a service's calls, and the error rate of those that fail most, if it makes at least
    ``MORE_CALLS`` times as many as usual, in total and for each request; ``load`` are its requests relative to
    usual."""
    state = mesh.state
    edge, error = mesh.observation.edge, EDGE_CHANNELS[ERROR]
    calls = np.flatnonzero(state.edge_index[0] == row)
    now, usual = _traffic(mesh, calls)
    calls_now, due = float(now.sum()), float(usual.sum())
    if due <= 0 or calls_now < MORE_CALLS * due * max(load, 1.0):
        return ()
    rates, before = (error.invert(of[calls, ERROR]) for of in (edge.value, edge.expected))
    more = np.where(edge.observed[calls, ERROR], rates - before, 0)
    worst = int((more * now).argmax())
    total_calls = Fact(SENT, calls_now, due)
    if more[worst] < MIN_FAILING:
        return (total_calls,)
    callee = state.node_ids[state.edge_index[1, calls[worst]]]
    return total_calls, Fact(error.name, float(rates[worst]), float(before[worst]), callee)


def _scarce_resources(table: _Table, series: IntArray) -> Iterator[tuple[int, int]]:
    """Yield the candidates that use far more of a resource which is not among their reasons, and its series."""
    worth = np.where(table.surprise[:, RESOURCES] >= MIN_SURPRISE, table.worth[:, RESOURCES], 0)
    for m, best in enumerate(worth.argmax(axis=1).tolist()):
        if worth[m, best] >= MIN and not np.isin(series[m], RESOURCES).any():
            yield m, RESOURCES[best]


def _add_own(mesh: ScoredMesh, keep: IntArray, table: _Table) -> None:
    node, expected = mesh.observation.node, mesh.surprise.node_expected[keep]
    own = mesh.surprise.node[keep]
    worth = own * matters(node.value[keep], expected, mesh.repeats[0][keep], mesh.floors)
    for c, channel in enumerate(NODE_CHANNELS):
        # For load, ignore what callers explain.
        usual = node.expected[keep, RATE] if c == RATE else expected[:, c]
        values = channel.invert(node.value[keep, c]), channel.invert(usual)
        table.add(np.arange(len(keep)), c, own[:, c], worth[:, c] * np.float32(CONTEXT.get(c, 1.0)), values)


def _add_calls(mesh: ScoredMesh, keep: IntArray, table: _Table) -> None:
    """Add the strongest call into each candidate for each symptom, in place, unless it is because of its caller. Series
    that repeat a symptom count less."""
    state, surprises = mesh.state, mesh.surprise
    row = np.full(len(state.node_ids), -1)
    row[keep] = np.arange(len(keep))
    into = np.flatnonzero(row[state.edge_index[1]] >= 0)
    target = row[state.edge_index[1, into]]
    value, expected = mesh.observation.edge.value[into], surprises.edge_expected[into]
    p50, p99, errors = material(value, expected, mesh.repeats[1][into], mesh.floors)
    slow, failing = mesh.causes.slow_by_caller[into], mesh.causes.failing_by_caller[into]
    for j, (c, count, by_caller) in enumerate(zip(SYMPTOMS, (errors, p50, p99), (failing, slow, slow), strict=True)):
        surprise = surprises.edge[into, c] * ~by_caller
        worth = surprise * count
        order = np.lexsort((surprise, worth))  # the strongest is written last
        values = EDGE_CHANNELS[c].invert(value[order, c]), EDGE_CHANNELS[c].invert(expected[order, c])
        table.add(target[order], OWN + j, surprise[order], worth[order], values, into[order])
    for symptom in ALIKE:
        worth = table.worth[:, symptom]
        first = np.arange(len(symptom)) == worth.argmax(axis=1)[:, None]
        table.worth[:, symptom] = np.where(first, worth, REPEATED * worth)


def _add_shared_symptoms(mesh: ScoredMesh, keep: IntArray, table: _Table) -> None:
    """Add the symptoms of the calls that share a cause, in place, at the candidates that make these calls, or that get
    them."""
    for (cause, channel), series in SHARED_SERIES.items():
        of = mesh.causes.of(channel) == cause
        if not of.any():
            continue
        end = 0 if cause in OF_CALLER else 1
        surprise = mesh.surprise.edge[:, channel] * of
        strongest = largest_of_group(surprise, mesh.state.edge_index[end], len(mesh.state.node_ids))[keep]
        now, usual = symptom_of(mesh.state, mesh.observation, channel, of, end)
        m = np.flatnonzero(strongest >= MIN_SURPRISE)
        worth = FIRST * np.maximum(strongest, largest_of_rows(table.worth))[m]
        table.add(m, SERIES.index(series), strongest[m], worth, (now[keep[m]], usual[keep[m]]))


def _add_moved_calls(
    mesh: ScoredMesh, disappearance: Array, is_dropped: BoolArray, keep: IntArray, table: _Table, gone: BoolArray
) -> None:
    """Add disappearances and calls that are new, lost, moved or dropped, in place: of each kind the call whose traffic
    changed most. ``disappearance`` ``[M]`` is the surprise of all of them."""
    state, new = mesh.state, mesh.new_calls
    rows, values = np.flatnonzero(gone), (table.now[gone, RATE], table.usual[gone, RATE])
    table.add(rows, SERIES.index(VANISHED), disappearance[gone], disappearance[gone], values)
    table.worth[gone, RATE] = 0  # the disappearance says so already
    candidates = np.flatnonzero(~gone & (disappearance >= MIN_SURPRISE)).tolist()
    if not candidates:
        return
    makes_new = np.zeros(len(state.node_ids), bool)
    makes_new[state.edge_index[0, new]] = True
    rows = np.flatnonzero(makes_new[state.edge_index[0]] | is_dropped)  # of calls that can be a reason
    (source, destination), young, is_dropped = state.edge_index[:, rows], new[rows], is_dropped[rows]
    is_older = ~young & makes_new[source]  # usual calls of a caller that also makes new ones
    now, usual = _traffic(mesh, rows)
    more = now - usual
    for m in candidates:
        worth = float(disappearance[m])
        for series, change in (
            (NEW, np.where(young & (destination == keep[m]), more, 0)),
            (MOVED, np.where(young & (source == keep[m]), more, 0)),
            (LOST, np.where(is_older & (destination == keep[m]), -more, 0)),
            (DROPPED, np.where(is_dropped & (destination == keep[m]), -more, 0)),
        ):
            if change.max(initial=0) > 0:
                largest = change.argmax()
                values, call = (now[largest], usual[largest]), int(rows[largest])
                table.add(np.array([m]), SERIES.index(series), worth, worth, values, call)


def _traffic(mesh: ScoredMesh, rows: IntArray) -> tuple[Array, Array]:
    """Return requests of these calls now and usually, 1/s. A new call has 0 usual requests."""
    edge = mesh.observation.edge
    now, usual = (rate_of(of[rows, RATE]) for of in (edge.value, edge.expected))
    return now * mesh.observation.edge_present[rows], np.where(mesh.new_calls[rows], 0, usual)


def _load(observation: Observation, keep: IntArray) -> Array:
    """Return the candidates' requests relative to usual, ``[M]``; 1 if the change is too small to report."""
    node = observation.node
    ratio = np.exp(node.value[keep, RATE] - node.expected[keep, RATE])
    has_changed = (
        node.observed[keep, RATE] & (np.abs(node.now[keep, RATE]) >= LOAD_SIGMAS) & observation.node_present[keep]
    )
    return np.where(has_changed, ratio, 1).astype(np.float32)
