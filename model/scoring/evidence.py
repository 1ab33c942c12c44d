"""Evidence for and against each service: its own series, calls into and out of it, and its neighbours.

It is computed over the whole mesh from calibrated surprises. Only the services with the most evidence go on to the
meta-model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum

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
from model.incidents.feedback import SHORTAGE, level_shifts
from model.incidents.schedule import Schedule, Use, follow_work
from model.incidents.tracking import DELETIONS, AlertPolicy, IncidentMemory
from model.scoring.attribution import Attribution, attribute
from model.scoring.bad_change import worse_since_change
from model.scoring.calibration import Tail
from model.scoring.canaries import worse_canaries
from model.scoring.dropped_calls import dropped_calls
from model.scoring.explanations import SYMPTOMS, Explanation, Strength, explain
from model.scoring.resources import SHORTAGE_SURPRISE, Trend, cpu_use, shortage, trends
from model.scoring.saturation import weigh_resources
from model.scoring.score import PartitionScore
from model.scoring.signals import impatience, merge_facts, pressure, signal_reasons, unusual_signals
from model.scoring.traffic import TrafficChange, traffic_changes
from model.scoring.versions import ESTABLISHED, MOST_OF_TIME, is_absorbed, moves_between_versions
from model.snapshot import BoolArray, IntArray, mark_services
from model.state.change_impact import KNOWN, OWN
from model.state.filters import SEEN
from model.state.mesh_state import MeshState, Observation
from model.verdict import Silence


class EvidenceKind(IntEnum):
    """Columns of ``kinds [*, K]``: what speaks for or against a service. Saved weights depend on the order."""

    LATENCY = 0  # latency that neighbours do not explain; the worst of p50, p99 and self time
    LATENCY_RAW = 1  # latency, explained or not
    ERROR = 2  # errors that neighbours do not explain
    ERROR_RAW = 3  # errors, explained or not
    OWN_TIME = 4  # self time, without downstream calls
    RISE = 5  # more requests than expected
    FALL = 6  # fewer requests than usual, explained or not
    RESOURCES = 7  # cpu, in total or per request
    CONNECTIONS = 8  # active connections
    CALLS_IN_LATENCY = 9  # latency of the worst call into the service
    CALLS_IN_ERROR = 10  # errors of the worst call into the service
    CALLS_OUT = 11  # extra traffic on the service's own calls
    CALLEES = 12  # symptoms of the worst service it calls
    CALLERS = 13  # symptoms of the worst service that calls it
    VANISHED = 14  # the service is gone and missed, or calls to it were rerouted or dropped
    STRUCTURE = 15  # new calls that the learned structure does not expect
    REMOTES = 16  # symptoms of the worst remote service it calls (see ``remotes``)


K = len(EvidenceKind)
_SHOWN_BY = (
    (EvidenceKind.LATENCY, EvidenceKind.LATENCY_RAW, EvidenceKind.CALLS_IN_LATENCY),
    (EvidenceKind.ERROR, EvidenceKind.ERROR_RAW, EvidenceKind.CALLS_IN_ERROR),
    (EvidenceKind.VANISHED,),
    (EvidenceKind.RESOURCES,),
)
SYMPTOM = np.array(  # column of ``feedback.SYMPTOMS`` for each kind; -1: context only
    [next((symptom for symptom, kinds in enumerate(_SHOWN_BY) if kind in kinds), -1) for kind in EvidenceKind]
)
RESOURCES = 0.6  # weight of a surprise in resources relative to one in latency or errors
MARGIN = 0.3  # decades: after a false alarm, a similar deviation up to twice as improbable raises no alert either
NOTICE_MARGIN = 3.0  # the same for a useless notice: a shortage that lasts becomes more surprising for some minutes
# What makes a service part of an incident beside it: symptoms, explained or not, and calls out beyond its own load: who
# starts a storm of calls may show nothing else, and is what its victims have in common.
AFFECTED = [
    EvidenceKind.LATENCY_RAW,
    EvidenceKind.ERROR_RAW,
    EvidenceKind.CALLS_IN_LATENCY,
    EvidenceKind.CALLS_IN_ERROR,
    EvidenceKind.CALLS_OUT,
    EvidenceKind.VANISHED,
]
_CALLED_SYMPTOMS = AFFECTED[:4]  # what a caller sees of the services it calls
MOST_NAMED = 50  # silent services
MOST_CANDIDATES = 256
WORTH_A_LOOK = 2.0  # surprise from which a service is a candidate: one in a hundred
# Surprise of events that normal traffic never shows: callers miss a service, or calls go elsewhere.
DISAPPEARANCE_SURPRISE, REROUTE_SURPRISE = 6.0, 8.0
FAILING_SURPRISE = 6.5  # of a service that fails a third of its requests, even after a deploy
IN_FULL, TAIL_IN_FULL = 0.3, 0.7  # logarithms of how much slower counts in full: p50 and other times; p99
LEAST_REQUESTS = 50  # requests on new calls that count in full
LEAST_MOVED = 0.1  # of a call's usual requests, from which it counts as rerouted
REROUTE_COUNTED = 4  # snapshots whose requests count
REROUTE_YOUNG = 20.0  # snapshots for which a call is new to a rerouting, which may take minutes to be complete
YOUNG = 10.0  # snapshots; the learned structure judges calls that were seen less often


@dataclass(frozen=True, slots=True)
class Surprises:
    """Calibrated surprise of every series of a mesh, ``-log10 p`` from 0 to 15.

    Attributes:
        node, edge: ``[N, 9]``, ``[E, 5]``: after subtracting what the neighbours explain.
        node_raw: ``[N, 9]``: without that subtraction.
        edge_rate_raw: ``[E]``: traffic of calls, without that subtraction.
        node_expected, edge_expected: expected value of each series, transformed units.
    """

    node: Array
    edge: Array
    node_raw: Array
    edge_rate_raw: Array
    node_expected: Array
    edge_expected: Array


@dataclass(frozen=True, slots=True)
class Evidence:
    """The M candidates with the most evidence, and what the meta-model needs to know about the other services.

    Attributes:
        names: ids of the candidates, worst first.
        kinds: float32 ``[M, K]``, surprises by :class:`EvidenceKind`.
        remote: bool ``[M]``: see :func:`remotes`.
        root_cause_logit: ``[M]`` logits of the network.
        page: ``[M]`` page scores.
        affected: ``[M]`` the strongest of ``AFFECTED``.
        calls: int64 ``[2, C]`` calls among the candidates, as rows.
        explanation: the reasons for each candidate.
        counts: number of services with a page score above 2, 3 and 5.
        services: number of scored services.
        total: number of services present.
        notice: ``[M]`` surprise of resources that become short, for notices.
        trends: resources that rise steadily; ``row`` is a row of the candidates.
        silence: the services whose telemetry is missing, None if there are none.
        unseen: services of open incidents whose telemetry is missing.
        traffic: requests from outside that are not as usual.
        rolling: ``[M]`` which of them are being replaced by a new version; None: none is.
        lasting: ``[M]`` decades of the page scores that are for their duration; None: of none of them.
        schedule: of regular work, this snapshot included; None: unknown.
        attribution: what each of ``calls`` explains of its caller's symptoms; None: unknown.
    """

    names: tuple[str, ...]
    kinds: Array
    remote: BoolArray
    root_cause_logit: Array
    page: Array
    affected: Array
    calls: IntArray
    explanation: Explanation
    counts: tuple[int, int, int]
    services: int
    total: int
    notice: Array
    trends: tuple[Trend, ...] = ()
    silence: Silence | None = None
    unseen: frozenset[str] = frozenset()
    traffic: tuple[TrafficChange, ...] = ()
    rolling: BoolArray | None = None
    lasting: Array | None = None
    schedule: Schedule | None = None
    attribution: Attribution | None = None


@dataclass(frozen=True, slots=True)
class MeshScores:
    """The scores of all parts as arrays of the whole mesh.

    Attributes:
        node_expected, edge_expected: ``[N, 9]``, ``[E, 5]``: expected deviations, sigmas.
        structure: ``[E]`` logits; NaN for calls between parts.
        root_cause_logit: ``[N]``.
        scored: bool ``[N]``: whether a part with this service in its core answered.
    """

    node_expected: Array
    edge_expected: Array
    structure: Array
    root_cause_logit: Array
    scored: BoolArray


def surprises(observation: Observation, decoded: MeshScores, node_tail: Tail, edge_tail: Tail) -> Surprises:
    """Compute the surprise of every series, with and without the share that neighbours explain."""
    o = observation
    node = node_tail.of(o.node, o.node_exposure, o.node_impact).calibrate(decoded.node_expected)
    edge = edge_tail.of(o.edge, o.edge_exposure, o.edge_impact).calibrate(decoded.edge_expected)
    return Surprises(node[0], edge[0], node[1], edge[1][:, RATE], node[2], edge[2])


def with_rare_failures(observation: Observation, surprise: Surprises) -> Surprises:
    """Return the surprises with the failures among few requests that only many snapshots show."""
    tables = []
    for table, rare in ((surprise.node, observation.node_failures), (surprise.edge, observation.edge_failures)):
        if rare.any():
            table = table.copy()
            table[:, ERROR] = np.maximum(table[:, ERROR], rare)
        tables.append(table)
    return replace(surprise, node=tables[0], edge=tables[1])


def assemble_scores(
    state: MeshState, scores: list[tuple[IntArray, IntArray, PartitionScore]], crossing: IntArray
) -> MeshScores:
    """Merge the scores of the parts into arrays of the whole mesh.

    Args:
        state: whose rows the arrays have.
        scores: for each part, the rows of its core services and of its owned calls, and its score.
        crossing: calls between parts. No part knows their structure.
    """
    nodes, edges = len(state.node_ids), state.edge_index.shape[1]
    if len(scores) == 1 and len(scores[0][0]) == nodes:  # one part, whose arrays have the rows of the mesh
        only = scores[0][2]
        return MeshScores(
            only.node_expected, only.edge_expected, only.structure, only.root_cause_logit, np.ones(nodes, bool)
        )
    decoded = MeshScores(
        np.zeros((nodes, len(NODE_CHANNELS)), np.float32),
        np.zeros((edges, len(EDGE_CHANNELS)), np.float32),
        np.zeros(edges, np.float32),
        np.zeros(nodes, np.float32),
        np.zeros(nodes, bool),
    )
    for core, owned, score in scores:
        decoded.node_expected[core], decoded.edge_expected[owned] = score.node_expected, score.edge_expected
        decoded.structure[owned], decoded.root_cause_logit[core] = score.structure, score.root_cause_logit
        decoded.scored[core] = True
    decoded.structure[crossing] = np.nan
    return decoded


def gather(
    state: MeshState,
    observation: Observation,
    decoded: MeshScores,
    surprise: Surprises,
    policy: AlertPolicy,
    raised: float = 1.0,
) -> Evidence:
    """Compute the evidence of every service and select the candidates.

    Args:
        state, observation, decoded, surprise, policy: of the snapshot.
        raised: how many times higher the page level is because the mesh is restless. Events that normal traffic never
            shows count as many times more, since a restless mesh does not show them either.
    """
    surprise = with_rare_failures(observation, surprise)
    remote = remotes(state)
    dropped = _find_dropped_calls(state, observation)
    kinds = _kinds(state, observation, decoded, surprise, remote, dropped, np.float32(raised))
    rising, unusual = trends(state), unusual_signals(state, observation)
    short = shortage(state, observation, surprise.node)
    short[[trend.row for trend in rising]] = SHORTAGE_SURPRISE
    short = np.maximum(short * observation.presence.measured, pressure(state, observation, unusual))
    resources = kinds[:, EvidenceKind.RESOURCES], short >= SHORTAGE_SURPRISE, kinds[:, EvidenceKind.CALLERS]
    kinds[:, EvidenceKind.RESOURCES] = weigh_resources(state, observation, *resources)
    shifted = apply_level_shifts(kinds, state.memory, state.node_ids)
    page = page_score(shifted) * _leniency(state, policy) * decoded.scored
    affected = shifted[:, AFFECTED].max(axis=1) * decoded.scored
    short = np.maximum(short, impatience(state, observation, unusual))
    notice = short * _leniency(state, policy) * decoded.scored
    assert state.learned_at is not None  # time of the snapshot that was observed
    use = Use(notice, *cpu_use(observation))
    work = follow_work(state.memory.schedule, state.node_ids, use, state.learned_at, state.interval_seconds)
    notice = np.where(work.regular, 0, notice)
    notice[work.overdue] = SHORTAGE_SURPRISE
    excused = work.regular & led_by_resources(shifted)
    page = np.where(excused, np.minimum(page_score(without_resources(shifted)), page), page)
    notice = apply_notice_shifts(notice, state.memory, state.node_ids)
    interest = np.maximum.reduce([page, affected, notice]) + 1e-3 * np.maximum(
        surprise.node.max(axis=1, initial=0), page
    )
    interest += WORTH_A_LOOK * state.memory.is_in_incident(state.node_ids)  # services of open incidents stay candidates
    worst = _candidates(np.argsort(-interest, kind="stable"), state.memory.active_mutes.is_muted(state.node_ids))
    keep = worst[(interest[worst] >= WORTH_A_LOOK) | (np.arange(len(worst)) < 10)]
    row = np.full(len(page), -1)
    row[keep] = np.arange(len(keep))
    calls = row[state.edge_index]
    among = np.flatnonzero((calls >= 0).all(axis=0) & (calls[0] != calls[1]))
    strength = _strength(state, observation, surprise, kinds, dropped, keep)
    silent = _silent_services(state, observation)
    present = observation.node_present
    explanation = explain(state, observation, strength, surprise.node_expected, surprise.edge_expected, keep)
    context = merge_facts(explanation.context, signal_reasons(state, observation, keep, unusual))
    return Evidence(
        tuple(state.node_ids[i] for i in keep),
        kinds[keep],
        remote[keep],
        decoded.root_cause_logit[keep],
        page[keep].astype(np.float32),
        affected[keep].astype(np.float32),
        calls[:, among],
        replace(explanation, context=context),
        (int((page > 2).sum()), int((page > 3).sum()), int((page > 5).sum())),
        int((decoded.scored & present).sum()),
        int(present.sum()),
        notice[keep].astype(np.float32),
        tuple(replace(trend, row=int(row[trend.row])) for trend in rising if row[trend.row] >= 0),
        _silence(state, silent, int((present | silent).sum())),
        _unseen_services(state, observation),
        traffic_changes(state),
        _rolling(state, observation)[keep],
        schedule=work.schedule,
        attribution=attribute(observation, state.edge_index, among),
    )


def _rolling(state: MeshState, observation: Observation) -> BoolArray:
    """Return which services ``[N]`` are being replaced by a new version, or are new themselves."""
    is_new = state.node_filters[SEEN].max(axis=1) <= KNOWN
    replaced = is_new | state.memory.has_new_version(state.node_ids)
    rolling: BoolArray = (observation.node_exposure == OWN) & replaced
    return rolling


def _unseen_services(state: MeshState, observation: Observation) -> frozenset[str]:
    """Return the services of open incidents whose telemetry is missing."""
    silent = observation.presence.silent
    if not state.memory.open or not silent.any():
        return frozenset()
    rows = np.flatnonzero(silent & state.memory.is_in_incident(state.node_ids))
    return frozenset(state.node_ids[row] for row in rows.tolist())


def _silent_services(state: MeshState, observation: Observation) -> BoolArray:
    """Return which services ``[N]`` are silent, without those whose deletion was planned."""
    deleted = state.memory.planned_deletions()
    silent: BoolArray = observation.presence.silent
    if deleted and silent.any():
        silent = silent & ~mark_services(state.node_ids, deleted)
    return silent


def _silence(state: MeshState, silent: BoolArray, total: int) -> Silence | None:
    rows = np.flatnonzero(silent)
    if not len(rows):
        return None
    longest = rows[np.argsort(-state.node_unmeasured[rows], kind="stable")]
    assert state.learned_at is not None  # time of the snapshot that was observed
    age = timedelta(seconds=(int(state.node_unmeasured[longest[0]]) - 1) * state.interval_seconds)
    return Silence(len(rows), total, state.learned_at - age, tuple(state.node_ids[i] for i in longest[:MOST_NAMED]))


def _candidates(order: IntArray, muted: BoolArray) -> IntArray:
    """Select the first ``MOST_CANDIDATES`` of ``order``, and as many that are not muted, so that a muted namespace does
    not displace other services.

    Args:
        order: ``[N]`` rows, the most interesting first.
        muted: ``[N]``.
    """
    first = order[:MOST_CANDIDATES]
    if not muted.any():
        return first
    unmuted: IntArray = order[~muted[order]][:MOST_CANDIDATES]
    return order[np.isin(order, np.union1d(first, unmuted))]


def page_score(kinds: Array) -> Array:
    """Return the page score ``[N]``: the strongest symptom plus 0.3 of the second.

    Symptoms are latency and errors (own, or of calls into the service), disappearance and, with a lower weight,
    resources. Load is context and never raises an alert.
    """
    strong = np.sort(symptoms(kinds), axis=1)
    score: Array = strong[:, -1] + np.float32(0.3) * strong[:, -2]
    return score


def symptoms(kinds: Array) -> Array:
    """Return ``[N, 4]``: latency, errors, disappearance and weighted resources. These can raise alerts."""
    latency = np.maximum(kinds[:, EvidenceKind.LATENCY], kinds[:, EvidenceKind.CALLS_IN_LATENCY])
    error = np.maximum(kinds[:, EvidenceKind.ERROR], kinds[:, EvidenceKind.CALLS_IN_ERROR])
    return np.stack(
        [latency, error, kinds[:, EvidenceKind.VANISHED], np.float32(RESOURCES) * kinds[:, EvidenceKind.RESOURCES]],
        axis=1,
    )


def led_by_resources(kinds: Array) -> BoolArray:
    """Return in which rows ``[N]`` no symptom is stronger than resources."""
    strong = symptoms(kinds)
    led: BoolArray = (strong[:, -1] > 0) & (strong[:, -1] >= strong.max(axis=1))
    return led


def without_resources(kinds: Array) -> Array:
    """Return the evidence ``[N, K]`` as if resources were as usual."""
    kinds = kinds.copy()
    kinds[:, EvidenceKind.RESOURCES] = 0
    return kinds


def apply_level_shifts(kinds: Array, memory: IncidentMemory, names: Sequence[str]) -> Array:
    """Return the evidence ``[N, K]`` less the shifts of page levels from feedback and sensitivity."""
    if not memory.feedback and not memory.active_mutes.levels:
        return kinds
    return lower_evidence(kinds, _level_shifts(memory, names)[:, : len(_SHOWN_BY)])


def apply_notice_shifts(notice: Array, memory: IncidentMemory, names: Sequence[str]) -> Array:
    """Return the surprise ``[N]`` of shortages less the shifts of their levels from feedback and sensitivity."""
    if not memory.feedback and not memory.active_mutes.levels:
        return notice
    lowered: Array = np.maximum(notice - _level_shifts(memory, names)[:, SHORTAGE], 0) * (notice > 0)
    return lowered


def _level_shifts(memory: IncidentMemory, names: Sequence[str]) -> Array:
    """Return the decades ``[N, 5]`` by which feedback and sensitivity raise levels, by ``feedback.SYMPTOMS``."""
    shifts: Array = level_shifts(memory.feedback, names) + memory.active_mutes.level_shifts(names)[:, None]
    return shifts


def lower_evidence(kinds: Array, levels: Array) -> Array:
    """Return the evidence ``[N, K]`` less ``levels``, ``[N, 4]`` by symptom or ``[N, 1]``."""
    moves = np.broadcast_to(levels, (len(kinds), len(_SHOWN_BY)))[:, SYMPTOM] * (SYMPTOM >= 0)
    moves[:, EvidenceKind.RESOURCES] /= RESOURCES
    return np.where(kinds > 0, np.maximum(kinds - moves, 0), 0).astype(np.float32)


def excess(kinds: Array, level: Array | float) -> Array:
    """Return by how many decades ``[N, 4]`` the page levels must rise, by symptom, so that this evidence raises no
    alert.

    All symptoms are reduced by the same share, because the page score of scaled symptoms is the scaled page score.
    """
    # A level below 0, of snapshots that are years apart, permits no symptom at all.
    score, permitted = page_score(kinds), np.maximum(level - MARGIN, 0)
    share = np.where(score > permitted, 1 - permitted / np.where(score > permitted, score, 1), 0)
    over: Array = symptoms(kinds) * share[:, None].astype(np.float32)
    return over


def notice_excess(notice: Array, memory: IncidentMemory, names: Sequence[str], level: float) -> Array:
    """Return by how many decades ``[N]`` the levels of shortages must rise so that this evidence raises no notice.

    Args:
        notice: ``[N]`` surprise of shortages, less the shifts of :func:`apply_notice_shifts`.
        memory: with the feedback, whose shift is part of the result.
        names: ids of the services.
        level: of notices.
    """
    shift = level_shifts(memory.feedback, names)[:, SHORTAGE]
    over: Array = np.maximum(notice + shift - np.float32(level - NOTICE_MARGIN), 0) * (notice > 0)
    return over


def remotes(state: MeshState) -> BoolArray:
    """Return which services ``[N]`` are known only from their callers.

    Such a service makes no calls and never reported cpu, memory or connections: a database, queue or cloud service, a
    load balancer, or an unresolved name. A fault of the caller also shows in its metrics.
    """
    silent = np.bincount(state.edge_index[0], minlength=len(state.node_ids)) == 0
    resources = state.node_filters[SEEN][:, [CPU, MEMORY, CONNECTIONS]].max(axis=1) > 0
    remote: BoolArray = silent & ~resources
    return remote


def _kinds(
    state: MeshState,
    observation: Observation,
    decoded: MeshScores,
    s: Surprises,
    remote: BoolArray,
    dropped: Array,
    raised: np.float32,
) -> Array:
    """Return the evidence ``[N, K]`` by kind."""
    node, edge = observation.node, observation.edge
    source, destination = state.edge_index
    count = len(state.node_ids)
    material, raw_material = _material(node.value, s.node_expected), _material(node.value, node.expected)
    call_material = _material(edge.value, s.edge_expected)
    rising = node.now[:, RATE] > 0
    kinds = np.zeros((count, K), np.float32)
    own = s.node[:, OWN_TIME]
    slow, failing = map(np.maximum, worse_since_change(state, observation), worse_canaries(state))
    kinds[:, EvidenceKind.LATENCY] = np.maximum(
        _either(s.node[:, P50] * material[0], s.node[:, P99] * material[1], own * material[0]), raised * slow
    )
    kinds[:, EvidenceKind.LATENCY_RAW] = _either(
        s.node_raw[:, P50] * raw_material[0], s.node_raw[:, P99] * raw_material[1]
    )
    kinds[:, EvidenceKind.ERROR] = np.maximum(
        s.node[:, ERROR] * material[2], raised * np.maximum(failing, failure_surprise(state, observation))
    )
    kinds[:, EvidenceKind.ERROR_RAW] = s.node_raw[:, ERROR] * raw_material[2]
    kinds[:, EvidenceKind.OWN_TIME] = own
    kinds[:, EvidenceKind.RISE] = s.node[:, RATE] * rising
    kinds[:, EvidenceKind.FALL] = s.node_raw[:, RATE] * ~rising
    kinds[:, EvidenceKind.RESOURCES] = s.node[:, [CPU, CPU_PER_REQUEST]].max(
        axis=1
    )  # memory stays high after an incident
    kinds[:, EvidenceKind.CONNECTIONS] = s.node[:, CONNECTIONS]
    call_latency = _either(s.edge[:, P50] * call_material[0], s.edge[:, P99] * call_material[1])
    kinds[:, EvidenceKind.CALLS_IN_LATENCY] = _worst(call_latency, destination, count)
    kinds[:, EvidenceKind.CALLS_IN_ERROR] = _worst(s.edge[:, ERROR] * call_material[2], destination, count)
    kinds[:, EvidenceKind.CALLS_OUT] = _worst(s.edge[:, RATE] * (edge.now[:, RATE] > 0), source, count)
    symptom = kinds[:, _CALLED_SYMPTOMS].max(axis=1)
    from_afar = remote[destination]
    kinds[:, EvidenceKind.CALLEES] = _worst(symptom[destination] * ~from_afar, source, count)
    kinds[:, EvidenceKind.REMOTES] = _worst(symptom[destination] * from_afar, source, count)
    kinds[:, EvidenceKind.CALLERS] = _worst(symptom[source], destination, count)
    kinds[:, EvidenceKind.VANISHED] = raised * np.maximum.reduce(
        [
            _disappearance(state, observation, s.node_raw[:, RATE]),
            _reroute(state, observation, s),
            _largest(dropped, destination, count),
        ]
    )
    kinds[:, EvidenceKind.STRUCTURE] = _unlikely_calls(state, observation, decoded, count)
    return kinds


def failure_surprise(state: MeshState, observation: Observation) -> Array:
    """Return the surprise ``[N]`` of services that fail for many users while a planned change is near.

    Deploys cause errors for a moment in most meshes, so the tails near changes are heavy. They do not excuse a service
    that fails a third of its requests: ``FAILING_SURPRISE`` if that is true of enough requests in the snapshot. Few
    requests count less each time; together they count as :func:`with_rare_failures`, near changes too.
    """
    node = observation.node
    exposed = (observation.node_exposure == OWN) & node.observed[:, ERROR] & node.observed[:, RATE]
    surprise = np.zeros(len(exposed), np.float32)
    if not exposed.any():
        return surprise
    now, usual = (np.float32(1) / (1 + np.exp(-v[exposed, ERROR])) for v in (node.value, node.expected))
    rate = np.exp(node.value[exposed, RATE]) - np.float32(NODE_CHANNELS[RATE].offset)
    enough = np.clip(rate * state.interval_seconds / LEAST_REQUESTS, 0, 1)
    surprise[exposed] = FAILING_SURPRISE * enough * np.clip((now - usual - 0.15) / 0.15, 0, 1)
    return surprise


def _material(value: Array, expected: Array) -> tuple[Array, Array, Array]:
    """Return how much p50, p99 and errors matter, 0 to 1, because rare alone is not enough.

    The median latency counts in full from 35% above expectation, p99 from twice the expectation. Errors count in full
    from two percentage points and 60% above it: where most requests fail anyway, the error rate varies more.
    """
    now, usual = (np.float32(1) / (1 + np.exp(-v[:, ERROR])) for v in (value, expected))
    more, relative = np.clip((now - usual - 0.003) / 0.017, 0, 1), np.clip((now / usual - 1.1) / 0.5, 0, 1)
    p50, p99 = _slower(value[:, P50] - expected[:, P50]), _slower(value[:, P99] - expected[:, P99], TAIL_IN_FULL)
    errors: Array = (more * relative).astype(np.float32)
    return p50, p99, errors


def _matters(value: Array, expected: Array) -> Array:
    """Return how much each deviation of a service's own series matters, ``[M, 9]``, 0 to 1.

    Latency and errors count as for alerts, counts and times like latency, and shares of a resource from one percentage
    point.
    """
    over = value - expected
    over[:, RATE] = np.abs(over[:, RATE])
    matters = _slower(over)
    matters[:, P50], matters[:, P99], matters[:, ERROR] = _material(value, expected)
    now, usual = (np.float32(1) / (1 + np.exp(-v[:, [CPU, MEMORY]])) for v in (value, expected))
    matters[:, [CPU, MEMORY]] = np.clip((now - usual - 0.01) / 0.05, 0, 1)
    return matters


def _slower(over: Array, in_full: float = IN_FULL) -> Array:
    """Return how much times matter that exceed expectation by ``over``, in logarithms."""
    share: Array = np.clip((over - 0.05) / np.float32(in_full - 0.05), 0, 1)
    return share


def _either(*tests: Array) -> Array:
    """Return the strongest of several tests of one symptom, less ``log10`` of their number (Bonferroni)."""
    worst: Array = np.maximum(np.maximum.reduce(tests) - np.float32(np.log10(len(tests))), 0)
    return worst


def _largest(values: Array, group: IntArray, count: int) -> Array:
    """Return the largest value of each group."""
    most = np.zeros(count, np.float32)
    np.maximum.at(most, group, values)
    return most


def _worst(values: Array, group: IntArray, count: int) -> Array:
    """Return the largest value of each group, less ``log10`` of the group's size (Bonferroni): a hub has many chances
    to deviate."""
    worst = _largest(values, group, count)
    sizes = np.bincount(group, minlength=count)
    return np.maximum(worst - np.log10(np.maximum(sizes, 1)).astype(np.float32), 0)


def _disappearance(state: MeshState, observation: Observation, surprise: Array) -> Array:
    """Return the surprise ``[N]`` of busy services that disappeared and are missed, unless the deletion was planned.

    A canary that ended or a service that was replaced is gone too, but its callers make as many calls as before. So the
    share of its calls that were not redirected counts.
    """
    node, edge = observation.node, observation.edge
    gone = observation.presence.gone & (node.expected[:, RATE] > np.log(1.05))
    planned = state.memory.planned_deletions()
    if planned and gone.any():
        gone &= ~mark_services(state.node_ids, planned)
    if not gone.any():
        return np.zeros_like(surprise)
    source, destination = state.edge_index
    lost = np.maximum(_rate_of(edge.expected[:, RATE]), 0) * _is_reported(observation)
    gone &= ~is_absorbed(state, gone, _rate_of(edge.value[:, RATE]) * observation.edge_present, lost)
    answered = np.where(edge.observed[:, ERROR], 1 - 1 / (1 + np.exp(-edge.value[:, ERROR])), 1)
    shortfall = lost - _rate_of(edge.value[:, RATE]) * answered * observation.edge_present
    count = len(gone)
    short_of = np.bincount(source, shortfall, count)  # drop in the traffic of each caller, over all its calls
    missed = lost * np.clip(short_of[source] / np.maximum(lost, 1e-6), 0, 1)
    part = lost / np.maximum(np.bincount(source, lost, count)[source], 1e-6)  # share of the caller's traffic
    plain = missed * np.clip((part - 0.05) / 0.15, 0, 1)  # a small share is lost in the noise of the other calls
    called, missed, plain = (np.bincount(destination, v, count) for v in (lost, missed, plain))
    share, sure = (np.where(called > 0, v / np.maximum(called, 1e-6), 1.0) for v in (missed, plain))
    worth = np.maximum(surprise, DISAPPEARANCE_SURPRISE * sure * np.minimum(surprise, 1))
    vanished: Array = (worth * gone * np.clip(2 * share - 0.5, 0, 1)).astype(np.float32)
    return vanished


def _reroute(state: MeshState, observation: Observation, s: Surprises) -> Array:
    """Return the surprise ``[N]`` of traffic that an established service moves from a usual callee to another
    established service. It counts for the caller and both destinations.

    There is no past to compare with. The surprise is ``REROUTE_SURPRISE`` if a tenth of the caller's traffic or a third
    of a usual call moves, and that call falls beyond its usual variation. Traffic can take minutes to move, and small
    calls take minutes to make enough requests. So a call counts as new for ``REROUTE_YOUNG`` snapshots.

    Canaries and replacements get their traffic in steps, each caller at its own time. So a destination is established
    after ``ESTABLISHED`` snapshots, or if it has been there for most of the time that the mesh is known.
    """
    edge, (source, destination) = observation.edge, state.edge_index
    young = young_calls(state, observation, _rerouting_age(state))
    young &= state.node_filters[SEEN, destination, RATE] >= min(ESTABLISHED, MOST_OF_TIME * state.learned)
    rerouted = np.zeros(len(state.node_ids), np.float32)
    young &= ~moves_between_versions(state, young)
    if not young.any():
        return rerouted
    now = _rate_of(edge.value[:, RATE]) * observation.edge_present
    usual = np.maximum(_rate_of(edge.expected[:, RATE]), 0) * (_is_reported(observation) & ~young)
    missing = np.maximum(usual - now, 0) * ~young
    count = len(rerouted)
    gained, made = (np.bincount(source, v, count) for v in (now * young, now))
    moved = np.minimum(gained[source], missing) / np.maximum(usual, 1e-6)
    fallen = moved >= LEAST_MOVED
    lost = np.bincount(source, missing * fallen, count)
    share = np.minimum(gained, lost) / np.maximum(made, 1e-6)
    of_call = np.zeros(count)
    np.maximum.at(of_call, source, moved * fallen * (s.edge_rate_raw >= 1))
    fall = np.minimum(_worst(s.edge_rate_raw * fallen, source, count), 1)
    snapshots = np.minimum(state.edge_filters[SEEN, :, RATE], REROUTE_COUNTED)
    requests = np.bincount(source, now * young * snapshots, count) * state.interval_seconds
    counted = np.clip(requests / LEAST_REQUESTS, 0, 1)
    much = np.clip(np.maximum((share - 0.02) / 0.08, (of_call - 0.1) / 0.2), 0, 1)
    strength = (REROUTE_SURPRISE * fall * counted * much).astype(np.float32)
    for ends, calls in ((source, fallen), (destination, fallen), (destination, young)):
        np.maximum.at(rerouted, ends[calls], strength[source[calls]])
    return rerouted


def _find_dropped_calls(state: MeshState, observation: Observation) -> Array:
    """Return the surprise ``[E]`` of calls that their caller suddenly makes no longer, and makes no other ones."""
    young = young_calls(state, observation, _rerouting_age(state))
    has_new_calls = np.bincount(state.edge_index[0, young], minlength=len(state.node_ids)) > 0
    return dropped_calls(state, observation, has_new_calls)


def _is_reported(observation: Observation) -> BoolArray:
    """Return which calls ``[E]`` are known to be made or not to be made; the others are silent."""
    return observation.edge_present | observation.presence.stopped


def _rate_of(transformed: Array) -> Array:
    """Return traffic in 1/s from its channel."""
    rate: Array = np.exp(transformed) - np.float32(EDGE_CHANNELS[RATE].offset)
    return rate


def _unlikely_calls(state: MeshState, observation: Observation, decoded: MeshScores, count: int) -> Array:
    """Return, for both ends, how unlikely the learned structure finds young calls between established services."""
    young = young_calls(state, observation) & np.isfinite(decoded.structure)
    unlikely = unlikelihood(decoded.structure[young])
    worst = np.zeros(count, np.float32)
    for ends in state.edge_index[:, young]:
        np.maximum.at(worst, ends, unlikely)
    return worst


def _rerouting_age(state: MeshState) -> Array | float:
    """Return for how many snapshots a call is new to a rerouting.

    Calls that were new when an alert at their caller began are new until the alert ends: a wrong route does not become
    right by lasting.
    """
    if not state.memory.open or state.learned_at is None:
        return REROUTE_YOUNG
    ages = state.memory.alert_ages(state.node_ids, state.learned_at, state.interval_seconds)
    limit: Array = np.float32(REROUTE_YOUNG) + ages[state.edge_index[0]]
    return limit


def young_calls(state: MeshState, observation: Observation, snapshots: Array | float = YOUNG) -> BoolArray:
    """Return which calls ``[E]`` were seen less often than ``snapshots`` (a number, or ``[E]``), between services that
    were known for ``YOUNG`` snapshots before. The learned structure judges those below ``YOUNG``."""
    age, known_for = state.edge_filters[SEEN, :, RATE], state.node_filters[SEEN, :, RATE].copy()
    rows = np.flatnonzero(observation.edge_present & (age < snapshots))
    source, destination = state.edge_index[:, rows]
    least = age[rows] + YOUNG
    young = np.zeros(len(age), bool)
    young[rows] = (known_for[source] >= least) & (known_for[destination] >= least)
    return young


def unlikelihood(logits: Array) -> Array:
    """Return ``-log10 sigmoid(logit)``: how unexpected a call is."""
    decades: Array = np.log10(1 + np.exp(-logits.clip(-30, 30)))
    return decades


def _leniency(state: MeshState, policy: AlertPolicy) -> Array:
    """Return a factor on page scores: 0 near a planned deletion for two intervals, else 1."""
    factor = np.ones(len(state.node_ids), np.float32)
    if not state.memory.changes:
        return factor
    row = {name: i for i, name in enumerate(state.node_ids)}
    for change, age in state.memory.changes:
        i = row.get(change.service)
        if i is not None and change.kind in DELETIONS and age <= policy.mute_intervals:
            source, destination = state.edge_index
            factor[np.concatenate([[i], destination[source == i], source[destination == i]])] = 0
    return factor


def _strength(
    state: MeshState, observation: Observation, s: Surprises, kinds: Array, dropped: Array, keep: IntArray
) -> Strength:
    """Return how strong each possible reason for the candidates is."""
    node, edge = observation.node, observation.edge
    candidate = np.zeros(len(state.node_ids), bool)
    candidate[keep] = True
    into = np.flatnonzero(candidate[state.edge_index[1]])
    p50, p99, errors = _material(edge.value[into], s.edge_expected[into])
    return Strength(
        s.node[keep],
        _matters(node.value[keep], s.node_expected[keep]),
        into,
        s.edge[into][:, SYMPTOMS],
        np.stack([errors, p50, p99], axis=1),
        kinds[keep, EvidenceKind.VANISHED],
        young_calls(state, observation, _rerouting_age(state)),
        dropped > 0,
        kinds[keep, EvidenceKind.CALLS_OUT] >= WORTH_A_LOOK,
    )
