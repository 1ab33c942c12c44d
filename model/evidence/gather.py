"""Evidence for and against each service: its own series, calls into and out of it, and its neighbours.

It is computed over the whole mesh from calibrated surprises. Only the services with the most evidence go on to the
meta-model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from model.evidence.attribution import Attribution, attribute
from model.evidence.common_cause import load_of
from model.evidence.explanations import Explanation, Fact, explain
from model.evidence.finders import FINDERS
from model.evidence.kinds import (
    AFFECTED,
    EVENT_SURPRISE,
    WORTH_A_LOOK,
    EvidenceKind,
    led_by_resources,
    page_score,
    symptoms,
)
from model.evidence.level_shifts import apply_level_shifts, apply_notice_shifts
from model.evidence.resources import Trend, cpu_use, find_filling, shortage, trends
from model.evidence.saturation import weigh_resources
from model.evidence.scored_mesh import ScoredMesh
from model.evidence.series_evidence import series_evidence
from model.evidence.signals import impatience, pressure, unusual_signals
from model.evidence.traffic import TrafficChange, traffic_changes
from model.features import Array
from model.incidents.policy import AlertPolicy
from model.incidents.schedule import Schedule, Use, follow_work
from model.ordering import largest_of_rows
from model.scoring.surprises import MeshScores, Surprises, with_rare_failures
from model.snapshot import DELETIONS, BoolArray, IntArray, mark_services
from model.state.change_impact import KNOWN, OWN
from model.state.filters import SEEN
from model.state.mesh_state import MeshState, Observation
from model.verdict import Silence


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The M candidates with the most evidence, and the inputs of the meta-model about the other services.

    Attributes:
        names: ids of the candidates, worst first.
        kinds: float32 ``[M, K]``, surprises by :class:`EvidenceKind`.
        page: ``[M]`` page scores.
        affected: ``[M]`` the strongest of ``AFFECTED``.
        calls: int64 ``[2, C]`` calls among the candidates, as rows.
        counts: number of services with a page score above 2, 3 and 5.
        notice: ``[M]`` surprise of resources that are running out, for notices.
        inbound_load: ``[M]`` requests relative to usual, without the retries of what a candidate fails itself.
        trends: resources that rise steadily; ``row`` is a row of the candidates.
        silence: the services whose telemetry is missing, None if there are none.
        unseen: services of open incidents whose telemetry is missing.
        traffic: requests from outside that are not as usual.
        rolling: ``[M]`` which of them are being replaced by a new version; None: none is.
        schedule: of regular work, this snapshot included; None: unknown.
        attribution: the share of its caller's symptoms that each call explains; None: unknown.
    """

    names: tuple[str, ...]
    kinds: Array
    page: Array
    affected: Array
    calls: IntArray
    explanation: Explanation
    counts: tuple[int, int, int]
    services: int
    total: int
    notice: Array
    inbound_load: Array
    trends: tuple[Trend, ...] = ()
    silence: Silence | None = None
    unseen: frozenset[str] = frozenset()
    traffic: tuple[TrafficChange, ...] = ()
    rolling: BoolArray | None = None
    schedule: Schedule | None = None
    attribution: Attribution | None = None


MAX_CANDIDATES = 256


class Scores(NamedTuple):
    """The attention that each of N services needs.

    Attributes:
        page: ``[N]`` page score.
        affected: ``[N]`` strongest symptom of a service beside a fault.
        notice: ``[N]`` surprise of a resource that is running out.
    """

    page: Array
    affected: Array
    notice: Array
    schedule: Schedule


def gather(
    state: MeshState,
    observation: Observation,
    mesh_scores: MeshScores,
    surprise: Surprises,
    policy: AlertPolicy,
    threshold: float,
) -> Evidence:
    surprise = with_rare_failures(observation, surprise)
    mesh = ScoredMesh(state, observation, mesh_scores, surprise, policy.latency_floor_seconds)
    kinds = series_evidence(mesh)
    is_dropped = _add_findings(kinds, mesh)
    rising, unusual = _rising(state, observation), unusual_signals(state, observation)
    short = _shortages(mesh, rising, unusual)
    kinds[:, EvidenceKind.RESOURCES] = weigh_resources(
        state, observation, kinds, short >= EVENT_SURPRISE, threshold, mesh.floors
    )
    scores = _scores(mesh, kinds, np.maximum(short, impatience(observation, unusual)), policy)
    keep = _candidates(mesh, scores)
    row = np.full(len(kinds), -1)
    row[keep] = np.arange(len(keep))
    calls = row[state.edge_index]
    among = np.flatnonzero((calls >= 0).all(axis=0) & (calls[0] != calls[1]))
    explanation = explain(mesh, kinds, is_dropped, keep)
    of_signals = {m: unusual[row] for m, row in enumerate(keep.tolist()) if row in unusual}
    context = explanation.context | {m: (*explanation.context.get(m, ()), *more) for m, more in of_signals.items()}
    silent, present = silent_services(state, observation), observation.node_present
    return Evidence(
        names=tuple(state.node_ids[i] for i in keep),
        kinds=kinds[keep],
        page=scores.page[keep].astype(np.float32),
        affected=scores.affected[keep].astype(np.float32),
        calls=calls[:, among],
        explanation=replace(explanation, context=context),
        counts=(int((scores.page > 2).sum()), int((scores.page > 3).sum()), int((scores.page > 5).sum())),
        services=int((mesh_scores.scored & present).sum()),
        total=int(present.sum()),
        notice=scores.notice[keep].astype(np.float32),
        inbound_load=np.minimum(load_of(state, observation, mesh.retried, keep), explanation.load),
        trends=tuple(replace(trend, row=int(row[trend.row])) for trend in rising if row[trend.row] >= 0),
        silence=silence_of(state, silent, int((present | silent).sum())),
        unseen=unseen_services(state, observation),
        traffic=traffic_changes(state),
        rolling=_rolling(state, observation)[keep],
        schedule=scores.schedule,
        attribution=attribute(observation, state.edge_index, among),
    )


def _shortages(mesh: ScoredMesh, rising: Sequence[Trend], unusual: Mapping[int, tuple[Fact, ...]]) -> Array:
    """Return the surprise ``[N]`` of services that lack a resource, or will."""
    short = shortage(mesh.state, mesh.observation, mesh.surprise.node)
    short[[trend.row for trend in rising]] = EVENT_SURPRISE
    return np.maximum(short * mesh.observation.presence.measured, pressure(unusual, len(short)))


def _scores(mesh: ScoredMesh, kinds: Array, short: Array, policy: AlertPolicy) -> Scores:
    """Return the scores of all services. Regular work raises neither alerts nor notices, and work that is overdue is a
    notice.

    Args:
        short: ``[N]`` surprise of resources.
    """
    state = mesh.state
    shifted_kinds = apply_level_shifts(kinds, state.memory, state.node_ids)
    counts = _leniency(state, policy) * mesh.scores.scored
    page, notice = page_score(shifted_kinds) * counts, short * counts
    assert state.learned_at is not None  # time of the snapshot that was observed
    use = Use(notice, *cpu_use(mesh.observation))
    work = follow_work(state.memory.schedule, state.node_ids, use, state.learned_at, state.interval_seconds)
    notice = np.where(work.regular, 0, notice)
    notice[work.overdue] = EVENT_SURPRISE
    is_excused = work.regular & led_by_resources(shifted_kinds)
    other_symptoms = largest_of_rows(symptoms(shifted_kinds)[:, :-1])
    page = np.where(is_excused, np.minimum(other_symptoms, page), page)
    return Scores(
        page,
        largest_of_rows(shifted_kinds[:, AFFECTED]) * mesh.scores.scored,
        apply_notice_shifts(notice, state.memory, state.node_ids),
        work.schedule,
    )


def _rising(state: MeshState, observation: Observation) -> tuple[Trend, ...]:
    """Return the resources that rise steadily, and the memory that is about to be full, one for each series."""
    steady = trends(state)
    steady_series = {(trend.row, trend.metric) for trend in steady}
    return *steady, *(
        trend for trend in find_filling(state, observation) if (trend.row, trend.metric) not in steady_series
    )


def _add_findings(kinds: Array, mesh: ScoredMesh) -> BoolArray:
    """Add what the finders find to the evidence ``[N, K]``, in place, and return the calls ``[E]`` to report as no
    longer made."""
    is_dropped = np.zeros(mesh.state.edge_index.shape[1], bool)
    for find in FINDERS:
        for finding in find(mesh):
            np.maximum(kinds[:, finding.kind], finding.surprise, out=kinds[:, finding.kind])
            if finding.dropped is not None:
                is_dropped |= finding.dropped
    return is_dropped


def _rolling(state: MeshState, observation: Observation) -> BoolArray:
    """Return which services ``[N]`` are being replaced by a new version, or are new themselves."""
    is_new = largest_of_rows(state.node_filters[SEEN]) <= KNOWN
    is_replaced = is_new | state.memory.has_new_version(state.node_ids)
    return (observation.node_exposure == OWN) & is_replaced


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


def _candidates(mesh: ScoredMesh, scores: Scores) -> IntArray:
    """Return the rows of the services that need attention most. Services of open incidents stay among them."""
    memory, names = mesh.state.memory, mesh.state.node_ids
    interest = np.maximum.reduce([scores.page, scores.affected, scores.notice])
    interest = interest + 1e-3 * np.maximum(largest_of_rows(mesh.surprise.node), scores.page)
    interest += WORTH_A_LOOK * memory.is_in_incident(names)
    worst = _first(np.argsort(-interest, kind="stable"), memory.active_mutes.is_muted(names))
    return worst[(interest[worst] >= WORTH_A_LOOK) | (np.arange(len(worst)) < 10)]


def _first(order: IntArray, muted: BoolArray) -> IntArray:
    """Select the first ``MAX_CANDIDATES`` of ``order``, and as many that are not muted, so that a muted namespace does
    not displace other services.

    Args:
        order: ``[N]`` rows, the most interesting first.
    """
    first = order[:MAX_CANDIDATES]
    if not muted.any():
        return first
    unmuted_first: IntArray = order[~muted[order]][:MAX_CANDIDATES]
    return order[np.isin(order, np.union1d(first, unmuted_first))]


MAX_NAMED = 50  # silent services


def silence_of(state: MeshState, silent: BoolArray, total: int) -> Silence | None:
    """Return the silence of a mesh, the services that are silent for longest first; None if none is."""
    rows = np.flatnonzero(silent)
    if not len(rows):
        return None
    longest = rows[np.argsort(-state.node_unmeasured[rows], kind="stable")]
    assert state.learned_at is not None  # time of the snapshot that was observed
    age = timedelta(seconds=(int(state.node_unmeasured[longest[0]]) - 1) * state.interval_seconds)
    return Silence(len(rows), total, state.learned_at - age, tuple(state.node_ids[i] for i in longest[:MAX_NAMED]))


def silent_services(state: MeshState, observation: Observation) -> BoolArray:
    """Return which services ``[N]`` are silent, without those whose deletion was planned."""
    planned_deletions = state.memory.planned_deletions()
    silent: BoolArray = observation.presence.silent
    if planned_deletions and silent.any():
        silent = silent & ~mark_services(state.node_ids, planned_deletions)
    return silent


def unseen_services(state: MeshState, observation: Observation) -> frozenset[str]:
    """Return the services of open incidents whose telemetry is missing."""
    silent = observation.presence.silent
    if not state.memory.open or not silent.any():
        return frozenset()
    rows = np.flatnonzero(silent & state.memory.is_in_incident(state.node_ids))
    return frozenset(state.node_ids[row] for row in rows.tolist())
