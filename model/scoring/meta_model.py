"""The meta-model: from the evidence of all parts to the cluster's verdict. It is small, trained, and takes
milliseconds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels import ops
from model.features import CONNECTIONS, CPU, CPU_PER_REQUEST, MEMORY, NODE_CHANNELS, Array
from model.incidents.continuity import PastNotice, renew
from model.incidents.feedback import preference
from model.incidents.kind import incident_kind
from model.incidents.tracking import (
    CLEAR_SHARE,
    LASTING_DECADES,
    RETURNED_SHARE,
    SUSPICIOUS_SHARE,
    AlertPolicy,
    Culprit,
    Group,
    IncidentMemory,
    OpenIncident,
    Streaks,
    confirm_services,
    groups,
    is_confirmed,
    is_recovering,
    is_unseen,
    match_incidents,
    split_muted,
)
from model.network.autoencoder import Autoencoder
from model.scoring.evidence import (
    WORTH_A_LOOK,
    Evidence,
    EvidenceKind,
    K,
    excess,
    led_by_resources,
    lower_evidence,
    notice_excess,
    unlikelihood,
)
from model.scoring.explanations import SERIES
from model.scoring.regular_work import overdue_reason
from model.scoring.resources import Trend
from model.scoring.traffic import traffic_score
from model.scoring.traffic_incidents import follow_traffic
from model.scoring.watching import watch
from model.snapshot import BoolArray, IntArray, SignalKind, mark_services
from model.verdict import MOVED, Incident, Reason, Severity, Status, Suspect, Verdict, Watched

EITHER_WAY = (
    EvidenceKind.RISE,
    EvidenceKind.FALL,
    EvidenceKind.CONNECTIONS,
    EvidenceKind.CALLERS,
    EvidenceKind.REMOTES,
)
RANK_INPUTS = 2 * (K + len(EITHER_WAY)) + 2
DETECT_INPUTS = 8
STREAK = 0b111  # the last three snapshots, as bits of ``Streaks``
MOST_SUSPECTS = 10
NOTICE_CLEAR_SECONDS = 600.0  # without evidence after which a notice ends
NOTICE_CONFIRM, NOTICE_CONFIRM_OF = 3, 4  # snapshots above the level, of the last so many; a notice is not urgent
SIGNALS = frozenset(SignalKind)
RESOURCE_METRICS = frozenset(NODE_CHANNELS[c].name for c in (CPU, MEMORY, CONNECTIONS, CPU_PER_REQUEST))
MOST_SILENT = 0.05  # share of the services; above it, a verdict without an incident is partial
# Times the page level, from which an alert needs a snapshot less, and a culprit can be another fault beside it.
SEVERE = 1.5
AFFECTED_SHARE = 0.6  # of the page level, from which symptoms belong to a neighbouring incident
# Nats in the ranking for each decade of page score, whatever was learned. Many more decades than a disappearance has
# show the damage rather than the cause.
PAGE_NATS, MOST_DECADES = 1.5, 8.0
# Kinds of evidence for latency and their equivalents for errors. Training exchanges them at random.
COUNTERPARTS = {
    EvidenceKind.LATENCY: EvidenceKind.ERROR,
    EvidenceKind.LATENCY_RAW: EvidenceKind.ERROR_RAW,
    EvidenceKind.CALLS_IN_LATENCY: EvidenceKind.CALLS_IN_ERROR,
}


class RankingNetwork(nn.Module):
    """Root-cause score per candidate, monotone in its evidence.

    A deviation of its own, or of calls into it, never makes a service less suspect. Symptoms of its callees never make
    it more suspect. Load can be cause or effect, so it counts either way. Without this constraint the ranking learns
    from three kinds of simulated faults that a service with high cpu is a victim. Weights are positive through a
    softplus, as in monotone networks (Sill 1998).
    """

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.full((RANK_INPUTS, hidden), -2.0) + 0.3 * torch.randn(RANK_INPUTS, hidden))
        self.bias = nn.Parameter(torch.linspace(-1.0, 0.0, hidden))
        self.second = nn.Parameter(torch.full((hidden, 1), -1.0))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map ``[R, RANK_INPUTS]`` to ``[R, 1]``."""
        hidden = functional.relu(inputs @ functional.softplus(self.first) + self.bias)
        return hidden @ functional.softplus(self.second)


class MetaModel(nn.Module):
    """Two small networks: a root-cause score per candidate, compared within its group, and the probability of an
    incident."""

    def __init__(self) -> None:
        super().__init__()
        self.rank = RankingNetwork()
        self.detect = nn.Sequential(nn.Linear(DETECT_INPUTS, 16), nn.GELU(), nn.Linear(16, 1))

    def root_cause_score(self, inputs: Tensor, measured: Tensor) -> Tensor:
        """Return nats ``[R]`` for each candidate: learned from :func:`rank_inputs`, and ``measured`` from
        :func:`measured_nats`."""
        learned: Tensor = self.rank(inputs).squeeze(1)
        return learned + measured

    def incident_logit(self, inputs: Tensor) -> Tensor:
        """Map ``[DETECT_INPUTS]`` from :func:`detect_inputs` to the logit of the probability, ``[1]``, as ``detect``
        does, but in one op."""
        return ops.perceptron(inputs[None], None, None, *self.detect.parameters())[0]


@dataclass(frozen=True, slots=True)
class CrossingCalls:
    """Calls between parts. The embeddings of both ends meet only here.

    Attributes:
        embeddings: float32 ``[B, D]`` of services at the boundary.
        ends: int64 ``[2, X]`` rows of ``embeddings``: source and destination.
        candidates: int64 ``[2, X]`` rows of the evidence; -1: not a candidate.
        young: bool ``[X]``: whether the learned structure judges the call.
    """

    embeddings: Array
    ends: IntArray
    candidates: IntArray
    young: BoolArray


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """What the verdict needs besides the evidence.

    Attributes:
        observed_at: the snapshot's time.
        sequence: snapshots counted, this one included.
        learned: snapshots learned from, this one included.
        interval_seconds: between snapshots, s.
        level, notice_level: page level and level of notices, surprise.
        missing_parts: parts that did not answer.
    """

    observed_at: datetime
    sequence: int
    learned: int
    interval_seconds: float
    level: float
    notice_level: float
    missing_parts: tuple[int, ...] = ()


def decode_crossing(network: Autoencoder, crossing: CrossingCalls) -> Array:
    """Return the structure logits ``[X]`` of the calls between parts."""
    device = next(network.parameters()).device
    z = torch.from_numpy(np.array(crossing.embeddings)).to(device)
    source, target = torch.from_numpy(np.array(crossing.ends)).to(device)
    with torch.inference_mode():
        logits: Array = network.structure(z, z, source, target).cpu().numpy()
    return logits


def with_crossing(evidence: Evidence, crossing: CrossingCalls, logits: Array) -> Evidence:
    """Add to the evidence how unlikely the young calls between parts are."""
    kinds = evidence.kinds.copy()
    unlikely = unlikelihood(logits) * crossing.young
    for ends in crossing.candidates:
        known = ends >= 0
        np.maximum.at(kinds[:, EvidenceKind.STRUCTURE], ends[known], unlikely[known])
    return replace(evidence, kinds=kinds)


def build_verdict(
    meta: MetaModel, evidence: Evidence, memory: IncidentMemory, policy: AlertPolicy, when: VerdictContext
) -> tuple[Verdict, IncidentMemory]:
    """The verdict of one snapshot.

    Args:
        meta: trained.
        evidence: of the services worth a look, calls between parts included.
        memory: what alerting remembered, advanced to this snapshot.
        policy: when to alert.
        when: time, sequence, levels, and what is missing.

    Returns:
        The verdict and what alerting remembers next. There is no incident while the mesh warms up.
    """
    policy = policy.at_interval(when.interval_seconds)
    warming = when.learned < policy.warm_up
    if not warming:
        memory, evidence = _with_lasting(evidence, memory, policy, when)
        memory = replace(memory, schedule=evidence.schedule or memory.schedule)
    mesh_score = max(float(evidence.page.max(initial=0.0)), *map(traffic_score, evidence.traffic), 0.0)
    if warming:
        evidence = replace(evidence, notice=np.zeros_like(evidence.notice))
    score = np.zeros_like(evidence.page) if warming else evidence.page
    above_level, confirmed = confirm_services(
        memory.above_level, evidence.names, score, when.level, policy, when.observed_at, is_clear(evidence, when.level)
    )
    above_level = _with_lasting_since(above_level, memory.above_lasting, policy, when)
    memory = replace(memory, above_level=above_level).without_muted()
    affected = (evidence.affected > AFFECTED_SHARE * when.level) & (not warming)
    muted = memory.active_mutes.is_muted(evidence.names)
    found, hidden = split_muted(
        groups((score > when.level) | confirmed | affected, confirmed, evidence.calls), confirmed, muted
    )
    mutes = memory.active_mutes.with_hidden([evidence.names[i] for i in hidden])
    earlier = _notices(memory.open, when)
    alerting = _follow_alerts(meta, evidence, memory, found, policy, when)
    lost = _find_lost(evidence, alerting.open, policy, when)
    alerting = replace(alerting, open=tuple(i for i in alerting.open if i.id not in lost))
    memory = replace(memory.forget_ended(alerting.open), lost=(*memory.lost, *lost))
    changes = () if warming else evidence.traffic
    alerted = {name for incident in alerting.open for name in incident.members}
    of_traffic = follow_traffic(changes, memory, alerted, evidence.unseen, policy, when.observed_at)
    memory, noticing = _follow_notices(evidence, of_traffic.memory, alerting.open, muted, policy, when)
    memory = replace(memory, open=(*alerting.open, *of_traffic.alerts, *of_traffic.notices, *noticing.open))
    memory = memory.attach_changes(when.observed_at, when.interval_seconds)
    groups_now = alerting.groups | noticing.groups
    incidents = tuple(_describe(meta, evidence, memory, i, groups_now.get(i.id), policy, when) for i in memory.open)
    memory = replace(
        memory,
        open=tuple(
            open_incident
            if open_incident.scope
            else open_incident.with_strongest(i.score, i.suspects, when.observed_at, when.interval_seconds)
            for open_incident, i in zip(memory.open, incidents, strict=True)
        ),
    )
    memory = replace(memory, open=_with_notices(evidence, memory.open, earlier, when))
    incidents = tuple(
        replace(i, suspects=o.shown_suspects(when.observed_at), suspects_at=o.suspects_at)
        for i, o in zip(incidents, memory.open, strict=True)
    )
    incidents = tuple(replace(i, kind=incident_kind(i, evidence.unseen)) for i in incidents)
    threshold = memory.threshold(policy.percentile, SUSPICIOUS_SHARE * when.level)
    unmuted_score = (
        float(evidence.page[~muted].max(initial=0.0)) if len(hidden) else mesh_score
    )  # a muted incident is not normal either
    is_anomalous = any(i.is_alert for i in memory.open)
    memory = memory.add_score(unmuted_score, when.observed_at, alerted=is_anomalous, keep=policy.history)
    memory = memory.record_hidden(mutes, when.observed_at)
    if memory.open:
        memory = memory.record_open(evidence.names, _excess(evidence, memory, policy, when), when.observed_at)
    coverage = evidence.services / evidence.total if evidence.total else 1.0
    silent_share = evidence.silence.share if evidence.silence else 0.0
    preferred = preference(memory.feedback, evidence.names, [i.members for i in memory.open])
    verdict = Verdict(
        when.observed_at,
        when.sequence,
        _status(is_anomalous, warming, is_partial=coverage < 1 or silent_share > MOST_SILENT),
        mesh_score,
        threshold,
        probability(meta, evidence, memory, when.level),
        suspects(meta, evidence, np.arange(len(evidence.names)), memory, when, preferred),
        incidents,
        coverage,
        when.missing_parts,
        muted=mutes,
        silence=evidence.silence,
        watching=_watch(evidence, memory, policy, when) if not warming else (),
        lost=memory.lost,
    )
    return verdict, memory


def _watch(
    evidence: Evidence, memory: IncidentMemory, policy: AlertPolicy, when: VerdictContext
) -> tuple[Watched, ...]:
    """Return what is unusual, and not confirmed."""
    row = {name: i for i, name in enumerate(evidence.names)}
    page = evidence.page if evidence.lasting is None else evidence.page - evidence.lasting
    return watch(
        dict(zip(evidence.names, page.tolist(), strict=True)),
        dict(zip(evidence.names, is_clear(evidence, when.level).tolist(), strict=True)),
        memory,
        when.level,
        policy,
        lambda name: _reasons(evidence, row[name], memory, when),
    )


def is_clear(evidence: Evidence, level: float) -> BoolArray:
    """Return which candidates ``[M]`` are far above the page level, or have been near it for long."""
    clear: BoolArray = evidence.page > SEVERE * level
    return clear if evidence.lasting is None else clear | (evidence.lasting > 0)


def _with_lasting(
    evidence: Evidence, memory: IncidentMemory, policy: AlertPolicy, when: VerdictContext
) -> tuple[IncidentMemory, Evidence]:
    """Add up to ``LASTING_DECADES`` to the page scores of services that deviate moderately for minutes.

    Each snapshot alone is not improbable enough for an alert. Chance reaches this level now and then, but hardly ever
    in 12 of 16 snapshots. A page score that is far above its level gains nothing. Neither does one that is mainly for
    resources: users do not suffer if a service needs more for minutes, and a notice says it. A rollout lasts, too, so
    its snapshots do not count.
    """
    level, policy = when.level - LASTING_DECADES, replace(policy, confirm=policy.lasting, confirm_of=policy.lasting_of)
    counted = evidence.page if evidence.rolling is None else evidence.page * ~evidence.rolling
    above, lasting = confirm_services(memory.above_lasting, evidence.names, counted, level, policy, when.observed_at)
    lasting &= ~led_by_resources(evidence.kinds)
    decades = (np.float32(when.level + LASTING_DECADES) - evidence.page).clip(0, LASTING_DECADES) * lasting
    return replace(memory, above_lasting=above), replace(evidence, page=evidence.page + decades, lasting=decades)


def _with_lasting_since(above: Streaks, lasting: Streaks, policy: AlertPolicy, when: VerdictContext) -> Streaks:
    """Let the streaks of services whose deviation lasts begin with the first of the snapshots that count."""
    earlier = dict(above)
    for name in above.keys() & lasting.keys():
        bits, (_, since) = lasting[name][0], above[name]
        if bits.bit_count() >= policy.lasting:
            first = when.observed_at - timedelta(seconds=(bits.bit_length() - 1) * when.interval_seconds)
            earlier[name] = above[name][0], min(since, first)
    return earlier


@dataclass(frozen=True, slots=True)
class FollowedIncidents:
    """Open incidents, and the group of each in this snapshot, by incident id."""

    open: tuple[OpenIncident, ...]
    groups: dict[str, Group]


def _follow_alerts(
    meta: MetaModel,
    evidence: Evidence,
    memory: IncidentMemory,
    found: Sequence[Group],
    policy: AlertPolicy,
    when: VerdictContext,
) -> FollowedIncidents:
    """Match the groups of this snapshot with the open incidents that raise an alert."""
    began = [_began(memory.above_level, evidence, g, when.observed_at) for g in found]
    severities = [_severity(evidence, g, when.level) for g in found]
    culprits = [_culprit(meta, evidence, g, memory, policy, when) if g.confirmed else Culprit() for g in found]
    before = [i for i in memory.open if i.is_alert and not i.scope]
    deviating = _find_deviating(evidence, before, when.level)
    clear, interval = policy.clear, when.interval_seconds
    return FollowedIncidents(
        *match_incidents(before, found, evidence.names, began, severities, culprits, clear, interval, deviating)
    )


def _find_deviating(evidence: Evidence, incidents: Sequence[OpenIncident], level: float) -> set[str]:
    """Return the ids of the incidents with a service whose page score is not back to normal."""
    high = {name for name, page in zip(evidence.names, evidence.page, strict=True) if page > RETURNED_SHARE * level}
    return {
        incident.id
        for incident in incidents
        if not high.isdisjoint(incident.members) or is_unseen(incident, evidence.unseen)
    }


def _find_lost(
    evidence: Evidence, incidents: Sequence[OpenIncident], policy: AlertPolicy, when: VerdictContext
) -> tuple[str, ...]:
    """Return the ids of the incidents of which nothing was seen for too long."""
    return tuple(
        incident.id
        for incident in incidents
        if is_unseen(incident, evidence.unseen) and incident.quiet * when.interval_seconds > policy.longest_gap_seconds
    )


def _follow_notices(
    evidence: Evidence,
    memory: IncidentMemory,
    alerting: Sequence[OpenIncident],
    muted: BoolArray,
    policy: AlertPolicy,
    when: VerdictContext,
) -> tuple[IncidentMemory, FollowedIncidents]:
    """Match resources that become short with the open notices. A service has an alert or a notice, not both."""
    alerted = {name for incident in alerting for name in incident.members}
    free = ~muted & ~mark_services(evidence.names, alerted)
    policy = replace(policy, confirm=NOTICE_CONFIRM, confirm_of=NOTICE_CONFIRM_OF)
    above, confirmed = confirm_services(
        memory.above_notice, evidence.names, evidence.notice * free, when.notice_level, policy, when.observed_at
    )
    member = (evidence.notice > when.notice_level) & free
    found = [g for g in groups(member, confirmed, evidence.calls) if g.confirmed]
    began = [_began(above, evidence, g, when.observed_at) for g in found]
    before = [i for i in memory.open if not i.is_alert and not i.scope and alerted.isdisjoint(i.members)]
    followed = match_incidents(
        before,
        found,
        evidence.names,
        began,
        [Severity.NOTICE] * len(found),
        [Culprit()] * len(found),
        max(2, round(NOTICE_CLEAR_SECONDS / when.interval_seconds)),
    )
    return replace(memory, above_notice=above), FollowedIncidents(*followed)


def _excess(evidence: Evidence, memory: IncidentMemory, policy: AlertPolicy, when: VerdictContext) -> Array:
    """Return by how many decades ``[M, 5]`` the levels must rise so that this evidence raises neither an alert nor a
    notice, by ``feedback.SYMPTOMS``."""
    shown = lower_evidence(evidence.kinds, memory.active_mutes.level_shifts(evidence.names)[:, None])
    short = notice_excess(evidence.notice, memory, evidence.names, when.notice_level)
    lasting = is_confirmed(memory.above_lasting, evidence.names, policy.lasting)
    return np.column_stack([excess(shown, when.level - np.float32(LASTING_DECADES) * lasting), short])


def _status(anomalous: bool, warming: bool, *, is_partial: bool) -> Status:
    if anomalous:
        return Status.ANOMALOUS
    if warming:
        return Status.WARMING_UP
    return Status.PARTIAL if is_partial else Status.NORMAL


def _began(above: dict[str, tuple[int, datetime]], evidence: Evidence, group: Group, now: datetime) -> datetime:
    """Return when the first streak above the level began in a group; ``above`` as in ``IncidentMemory``."""
    return min((above[evidence.names[i]][1] for i in group.rows if evidence.names[i] in above), default=now)


def _severity(evidence: Evidence, group: Group, level: float) -> Severity:
    """Critical: twice the page level over three services; major: either of them; else minor."""
    strong = bool(evidence.page[group.rows].max() > 2 * level)
    wide = len(group.rows) >= 3
    return Severity.CRITICAL if strong and wide else Severity.MAJOR if strong or wide else Severity.MINOR


def _culprit(
    meta: MetaModel,
    evidence: Evidence,
    group: Group,
    memory: IncidentMemory,
    policy: AlertPolicy,
    when: VerdictContext,
) -> Culprit:
    """Return the service where a group probably starts, and when it arose if it is confirmed and severe."""
    rows = with_neighbours(group.rows, evidence.calls)
    share = root_cause_shares(meta, evidence, rows, np.zeros(len(evidence.names), np.float32))
    best = int(share.argmax())
    if share[best] < CLEAR_SHARE:
        return Culprit()
    name = evidence.names[rows[best]]
    is_severe = evidence.page[rows[best]] > SEVERE * when.level
    if not is_severe or not is_confirmed(memory.above_level, [name], policy.confirm)[0]:
        return Culprit(name)
    return Culprit(name, memory.above_level[name][1])


def _describe(
    meta: MetaModel,
    evidence: Evidence,
    memory: IncidentMemory,
    incident: OpenIncident,
    group: Group | None,
    policy: AlertPolicy,
    when: VerdictContext,
) -> Incident:
    """Build an incident of the verdict. A quiet incident keeps its services."""
    if incident.scope:
        return _describe_traffic(incident, evidence, policy)
    row = {name: i for i, name in enumerate(evidence.names)}
    rows = group.rows if group else np.array([row[m] for m in incident.members if m in row], np.int64)
    if incident.severity is Severity.NOTICE:
        score, ranked = evidence.notice, _short_services(evidence, rows, memory, when)
    else:
        preferred = preference(memory.feedback, evidence.names, [incident.members])
        near = np.union1d(with_neighbours(rows, evidence.calls), np.flatnonzero(preferred))
        score, ranked = evidence.page, suspects(meta, evidence, near, memory, when, preferred)
    return Incident(
        incident.id,
        incident.since,
        incident.severity,
        float(score[rows].max(initial=0.0)),
        ranked,
        tuple(evidence.names[i] for i in rows) if group else incident.members,
        incident.changes,
        # What cannot be seen is shown as such, by its kind, and does not end.
        recovering=is_recovering(incident, policy.clear)
        or (incident.quiet > 0 and is_unseen(incident, evidence.unseen)),
    )


def _describe_traffic(incident: OpenIncident, evidence: Evidence, policy: AlertPolicy) -> Incident:
    """Build an incident of traffic."""
    change = next((one for one in evidence.traffic if one.scope == incident.scope), None)
    return Incident(
        incident.id,
        incident.since,
        incident.severity,
        traffic_score(change) if change else 0.0,
        incident.suspects,
        incident.members,
        incident.changes,
        recovering=is_recovering(incident, policy.clear),
        suspects_at=incident.suspects_at,
        scope=incident.scope,
    )


def _short_services(
    evidence: Evidence, rows: IntArray, memory: IncidentMemory, when: VerdictContext
) -> tuple[Suspect, ...]:
    """Return the services of a notice, the one whose resource deviates most first."""
    share = evidence.notice[rows] / max(float(evidence.notice[rows].sum()), 1e-6)
    best = np.argsort(-share, kind="stable")[:MOST_SUSPECTS]
    found = []
    for i in best:
        row = int(rows[i])
        began = memory.above_notice.get(evidence.names[row], (0, when.observed_at))[1]
        rising = tuple(_rising_reason(t, when.observed_at) for t in evidence.trends if t.row == row)
        grown = {reason.metric for reason in rising}
        others = (
            replace(reason, since=began)
            for reason in _reasons(evidence, row, memory, when)
            if reason.metric in RESOURCE_METRICS and reason.metric not in grown
        )
        facts = (f for f in evidence.explanation.context.get(row, ()) if f.metric in SIGNALS)
        signals = (Reason(f.metric, f.observed, f.expected, began) for f in facts)
        late = overdue_reason(memory.schedule, evidence.names[row], when.observed_at, when.interval_seconds)
        found.append(Suspect(evidence.names[row], float(share[i]), (*late, *signals, *rising, *others)))
    return tuple(found)


def _notices(incidents: Sequence[OpenIncident], when: VerdictContext) -> list[PastNotice]:
    """Return the services of open notices, with their reasons."""
    return [
        PastNotice(suspect, incident.suspects_at or when.observed_at)
        for incident in incidents
        if incident.severity is Severity.NOTICE
        for suspect in incident.suspects
    ]


def _with_notices(
    evidence: Evidence, incidents: Sequence[OpenIncident], earlier: Sequence[PastNotice], when: VerdictContext
) -> tuple[OpenIncident, ...]:
    """Let incidents remember the notices about their services, those that just ended included. Resources that still
    rise have new forecasts."""
    found = [*earlier, *_notices(incidents, when)]
    rising: dict[str, dict[str, Reason]] = {}
    for trend in evidence.trends:
        rising.setdefault(evidence.names[trend.row], {})[trend.metric] = _rising_reason(trend, when.observed_at)
    remembering = []
    for incident in incidents:
        heir = incident.inherit_notices(found)
        renewed = tuple(renew(one, rising.get(one.suspect.service, {}), when.observed_at) for one in heir.notices)
        remembering.append(replace(heir, notices=renewed) if renewed else heir)
    return tuple(remembering)


def _rising_reason(trend: Trend, now: datetime) -> Reason:
    began = now - timedelta(seconds=trend.seconds)
    return Reason(trend.metric, trend.observed, trend.usual, began, forecast=trend.forecast)


def with_neighbours(rows: IntArray, calls: IntArray) -> IntArray:
    """Add the callers and callees of a group, because the root cause may show no symptom itself."""
    touching = np.isin(calls, rows).any(axis=0)
    near: IntArray = np.union1d(rows, calls[:, touching].ravel()).astype(np.int64)
    return near


def suspects(
    meta: MetaModel,
    evidence: Evidence,
    rows: IntArray,
    memory: IncidentMemory,
    when: VerdictContext,
    preferred: Array,
) -> tuple[Suspect, ...]:
    """Rank these candidates by root-cause score and explain the best ones.

    Args:
        meta, evidence, memory, when: as in :func:`build_verdict`.
        rows: candidates to rank.
        preferred: ``[M]`` nats for services that feedback named before.
    """
    if not len(rows):
        return ()
    share = root_cause_shares(meta, evidence, rows, preferred)
    best = np.argsort(-share, kind="stable")[:MOST_SUSPECTS]
    found = []
    for i in best:
        row = int(rows[i])
        reasons, context = _reasons(evidence, row, memory, when), _context(evidence, row, memory, when)
        found.append(Suspect(evidence.names[row], float(share[i]), reasons, context))
    return tuple(found)


def root_cause_shares(meta: MetaModel, evidence: Evidence, rows: IntArray, preferred: Array) -> Array:
    """Return the probability of each of R candidates that the fault starts there, ``[R]``; arguments as of
    :func:`suspects`."""
    with torch.inference_mode():
        scores = meta.root_cause_score(rank_inputs(evidence, rows), measured_nats(evidence, rows))
        shares: Array = torch.softmax(scores + torch.from_numpy(preferred[rows]), 0).numpy()
    return shares


def _reasons(evidence: Evidence, row: int, memory: IncidentMemory, when: VerdictContext) -> tuple[Reason, ...]:
    now, explanation = when.observed_at, evidence.explanation
    since = _since(evidence, row, memory, now)
    if explanation.gone[row]:
        since = min(since, now - timedelta(seconds=(int(explanation.gone[row]) - 1) * when.interval_seconds))
    reasons: list[Reason] = []
    for k, series in enumerate(explanation.series[row]):
        if series < 0:
            continue
        peer = explanation.peers[explanation.peer[row, k]] if explanation.peer[row, k] >= 0 else ""
        source, destination = ("", peer) if SERIES[series] == MOVED else (peer, "")
        values = float(explanation.observed[row, k]), float(explanation.expected[row, k])
        load = 1.0 if reasons else float(explanation.load[row])  # reported once
        reasons.append(Reason(SERIES[series], *values, since, source, destination, load))
    return tuple(reasons)


def _context(evidence: Evidence, row: int, memory: IncidentMemory, when: VerdictContext) -> tuple[Reason, ...]:
    """Return ``Suspect.context``."""
    since = _since(evidence, row, memory, when.observed_at)
    facts = evidence.explanation.context.get(row, ())
    return tuple(Reason(f.metric, f.observed, f.expected, since, destination=f.destination) for f in facts)


def _since(evidence: Evidence, row: int, memory: IncidentMemory, now: datetime) -> datetime:
    """Return the first snapshot of a candidate's present deviation."""
    return memory.above_level.get(evidence.names[row], (0, now))[1]


def measured_nats(evidence: Evidence, rows: IntArray) -> Tensor:
    """Return the nats ``[R]`` of each candidate that are not learned: from its page score, and from what its calls and
    its callers' calls explain."""
    return page_nats(evidence, rows) + torch.from_numpy(attribution_nats(evidence)[rows])


def attribution_nats(evidence: Evidence) -> Array:
    """Return nats ``[M]`` for each candidate: fewer for what its callees explain, more for what it explains of its
    callers. 0 if the calls are unknown."""
    if evidence.attribution is None or not evidence.calls.shape[1]:
        return np.zeros(len(evidence.names), np.float32)
    kinds = evidence.kinds
    return evidence.attribution.nats(
        evidence.calls,
        kinds[:, [EvidenceKind.ERROR_RAW, EvidenceKind.CALLS_IN_ERROR]].max(axis=1),
        kinds[:, [EvidenceKind.LATENCY_RAW, EvidenceKind.CALLS_IN_LATENCY]].max(axis=1),
        kinds[:, EvidenceKind.VANISHED],
        evidence.explanation.load,
    )


def page_nats(evidence: Evidence, rows: IntArray) -> Tensor:
    """Return nats ``[R]`` for each candidate from its own page score.

    How long it lasts does not count, because that says nothing about the cause. A service that disappeared counts in
    full: the surprise of that is moderate, while its callers can fail all their requests.
    """
    page = evidence.page[rows] if evidence.lasting is None else (evidence.page - evidence.lasting)[rows]
    is_missed = evidence.kinds[rows, EvidenceKind.VANISHED] > WORTH_A_LOOK
    return torch.from_numpy(PAGE_NATS * np.where(is_missed, MOST_DECADES, page.clip(max=MOST_DECADES)))


def rank_inputs(evidence: Evidence, rows: IntArray) -> Tensor:
    """Return ``[R, RANK_INPUTS]``: the evidence of each candidate, absolute and relative to the strongest of its group.

    Each value has the sign in which it counts; load has both. There is no level, age or mesh size among the inputs.
    """
    kinds = evidence.kinds[rows]
    beside = kinds / np.maximum(kinds.max(axis=0, initial=0), 1.0)
    signed = []
    for table in (kinds / 5, beside):
        signed += [table, -table[:, EITHER_WAY]]
        table[:, EvidenceKind.CALLEES] *= -1
    logit = evidence.root_cause_logit[rows] - evidence.root_cause_logit[rows].max(initial=0)
    signed += [-evidence.remote[rows, None].astype(np.float32), np.clip(logit, -10, 10)[:, None] / 5]
    table = np.concatenate(signed, axis=1)
    return torch.from_numpy(table.astype(np.float32))


def rank_mask(kinds: BoolArray, *, logit: bool) -> Array:
    """Return ``[RANK_INPUTS]``: 1 for the inputs that :func:`rank_inputs` derives from these kinds ``[K]`` and from the
    network's logit."""
    table = np.concatenate([kinds, kinds[list(EITHER_WAY)]])
    return np.concatenate([table, table, [True, logit]]).astype(np.float32)


def rank_exchange() -> Tensor:
    """Return ``[RANK_INPUTS]``: the inputs of :func:`rank_inputs` with latency and errors exchanged."""
    places = np.arange(RANK_INPUTS)
    for table in (0, K + len(EITHER_WAY)):
        for latency, error in COUNTERPARTS.items():
            pair = [table + latency, table + error]
            places[pair] = places[pair[::-1]]
    return torch.from_numpy(places)


def probability(meta: MetaModel, evidence: Evidence, memory: IncidentMemory, level: float) -> float:
    """Return the probability that an incident is in progress, 0 to 1."""
    with torch.inference_mode():
        logit = meta.incident_logit(detect_inputs(evidence, memory, level))
    return float(torch.sigmoid(logit))


def detect_inputs(evidence: Evidence, memory: IncidentMemory, level: float) -> Tensor:
    """Return ``[DETECT_INPUTS]``: the three highest page scores relative to the page level, how many services deviate,
    and in how many of the last three snapshots one did."""
    top = np.sort(np.append(evidence.page, [0, 0, 0]))[::-1][:3] / max(level, 1.0)
    streak = max(((bits & STREAK).bit_count() for bits, _ in memory.above_level.values()), default=0)
    symptoms = np.sort(np.append(evidence.affected, [0, 0]))[::-1][:2] / max(level, 1.0)
    counts = np.log1p(np.array(evidence.counts[1:]))
    return torch.from_numpy(np.concatenate([top, symptoms, counts, [streak]]).astype(np.float32))
