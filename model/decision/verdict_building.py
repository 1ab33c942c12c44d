"""From the evidence of all parts to the verdict of the mesh."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from model.decision.independent import find_independent, independent_of
from model.decision.meta_model import MetaModel
from model.decision.notices import drop_repeated, follow_notices, open_notices, remember_notices, short_services
from model.decision.ranking import probability, reasons_of, root_cause_shares, suspects, with_neighbours
from model.decision.traffic_incidents import follow_traffic
from model.evidence.gather import Evidence
from model.evidence.kinds import led_by_resources
from model.evidence.level_shifts import excess, lower_evidence, notice_excess
from model.evidence.traffic import traffic_score
from model.features import Array
from model.incidents.feedback import preference
from model.incidents.kind import incident_kind
from model.incidents.matching import (
    CLEAR_SHARE,
    Culprit,
    FoundGroup,
    Group,
    MatchedIncidents,
    groups,
    match_incidents,
    split_muted,
)
from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import OpenIncident, PastNotice, is_recovering, is_unseen
from model.incidents.policy import AlertPolicy, VerdictContext
from model.incidents.reconstruction_history import ReconstructionHistory, follow_reconstruction
from model.incidents.threshold import (
    CLOSES,
    LASTING_DECADES,
    SEVERE,
    began,
    decisive_scores,
    follow_scores,
    watch_level,
)
from model.snapshot import BoolArray, IntArray
from model.verdict import Incident, Severity, Status, Verdict, Watched

MAX_SILENT = 0.05  # share of the services; above it, a verdict without an incident is partial
AFFECTED_SHARE = 0.6  # of the page level, from which symptoms belong to a neighbouring incident


def build_verdict(
    meta: MetaModel, evidence: Evidence, memory: IncidentMemory, policy: AlertPolicy, context: VerdictContext
) -> tuple[Verdict, IncidentMemory]:
    """Build the verdict of one snapshot.

    Returns:
        The verdict and what alerting remembers next. There is no incident while the mesh warms up.
    """
    policy = policy.at_interval(context.interval_seconds)
    warming = context.learned < policy.warm_up
    memory = replace(memory, threshold=(context.level, context.observed_at.timestamp()))
    if warming:
        evidence = replace(evidence, notice=np.zeros_like(evidence.notice))
    else:
        memory = replace(memory, schedule=evidence.schedule or memory.schedule)
    score = np.zeros_like(evidence.page) if warming else evidence.page
    tracks = follow_scores(memory.tracks, evidence.names, score, context.level, policy, context.observed_at)
    memory = replace(memory, tracks=tracks).without_muted()
    decisive = decisive_scores(tracks, evidence.names, policy, _may_last(evidence))
    is_confirmed = decisive >= context.level
    affected = (evidence.affected > AFFECTED_SHARE * context.level) & (not warming)
    muted = memory.active_mutes.is_muted(evidence.names)
    unmuted_groups, hidden_rows = split_muted(
        groups((score >= context.level) | is_confirmed | affected, is_confirmed, evidence.calls), is_confirmed, muted
    )
    earlier = open_notices(memory.open, context)
    alerting = follow_alerts(evidence, memory, unmuted_groups, policy, context)
    lost_ids = find_lost(evidence, alerting.open, policy, context)
    if lost_ids:
        alerting = replace(alerting, open=tuple(i for i in alerting.open if i.id not in lost_ids))
        memory = replace(memory, lost=(*memory.lost, *lost_ids))
    memory = memory.forget_ended(alerting.open)
    changes = () if warming else evidence.traffic
    alerted = {name for incident in alerting.open for name in incident.members}
    of_traffic = follow_traffic(changes, memory, alerted, evidence.unseen, policy, context)
    memory = of_traffic.memory.end((*alerting.ended, *of_traffic.ended), context.observed_at)
    memory, noticing, short = follow_notices(evidence, memory, alerting.open, muted, policy, context)
    hides = {evidence.names[i] for i in hidden_rows} | of_traffic.hidden_services | short
    memory = replace(memory, open=(*alerting.open, *of_traffic.alerts, *of_traffic.notices, *noticing.open))
    memory, incidents = _describe_open(evidence, memory, alerting.groups | noticing.groups, earlier, policy, context)
    mesh_score = max(float(decisive.max(initial=0.0)), of_traffic.score)
    unmuted_score = max(float(decisive[~muted].max(initial=0.0)), of_traffic.score)
    is_anomalous = any(i.is_alert for i in memory.open)
    memory = memory.add_score(unmuted_score, context.observed_at, normal=not memory.open, keep=policy.history)
    if memory.open:
        memory = memory.record_open(evidence.names, _excess(evidence, memory, policy, context), context.observed_at)
    coverage = evidence.services / evidence.total if evidence.total else 1.0
    silent_share = evidence.silence.share if evidence.silence else 0.0
    preferences = preference(memory.feedback, evidence.names, [i.members for i in memory.open])
    verdict = Verdict(
        observed_at=context.observed_at,
        sequence=context.sequence,
        status=_status(is_anomalous, warming, is_partial=coverage < 1 or silent_share > MAX_SILENT),
        mesh_score=mesh_score,
        threshold=context.level,
        probability=probability(meta, evidence, memory, context.level),
        suspects=suspects(evidence, np.arange(len(evidence.names)), memory, context, preferences),
        incidents=incidents,
        coverage=coverage,
        missing_parts=context.missing_parts,
        muted=memory.active_mutes.with_hidden(tuple(hides)),
        silence=evidence.silence,
        watching=_watch(evidence, memory, policy, context) if not warming else (),
        lost=memory.lost,
    )
    return verdict, memory


def _describe_open(
    evidence: Evidence,
    memory: IncidentMemory,
    groups_now: Mapping[str, Group],
    earlier: Sequence[PastNotice],
    policy: AlertPolicy,
    context: VerdictContext,
) -> tuple[IncidentMemory, tuple[Incident, ...]]:
    """Return the open incidents as the verdict shows them, and what they remember of it."""
    if not memory.open:
        return memory, ()
    memory = memory.attach_changes(context.observed_at, context.interval_seconds)
    own = _find_own_faults(evidence, memory, groups_now, policy, context)
    incidents = [_describe(evidence, memory, i, groups_now.get(i.id), own[i.id], policy, context) for i in memory.open]
    with_strongest = [
        open_incident
        if open_incident.scope
        else open_incident.with_strongest(
            i.score,
            i.suspects,
            context.observed_at,
            context.interval_seconds,
            {evidence.names[row] for row in own[i.id].tolist()},
        )
        for open_incident, i in zip(memory.open, incidents, strict=True)
    ]
    memory = replace(memory, open=drop_repeated(remember_notices(evidence, with_strongest, earlier, context)))
    by_id = {incident.id: incident for incident in incidents}
    incidents = [
        replace(by_id[o.id], suspects=o.shown_suspects(context.observed_at), suspects_at=o.suspects_at)
        for o in memory.open
    ]
    return memory, tuple(replace(i, kind=incident_kind(i, evidence.unseen)) for i in incidents)


def _find_own_faults(
    evidence: Evidence,
    memory: IncidentMemory,
    groups_now: Mapping[str, Group],
    policy: AlertPolicy,
    context: VerdictContext,
) -> dict[str, IntArray]:
    """Return the candidates of each open incident that have a fault of their own, by its id."""
    none = np.zeros(0, np.int64)
    own = {i.id: none for i in memory.open}
    alerts = [i.id for i in memory.open if i.is_alert and i.id in groups_now]
    if alerts:
        independent = find_independent(evidence, memory.tracks, context.level, policy)
        own |= {i: independent_of(evidence, groups_now[i].rows, independent) for i in alerts}
    return own


def add_reconstruction(
    verdict: Verdict,
    memory: IncidentMemory,
    loss: float | None,
    embedding: Array,
    policy: AlertPolicy,
    context: VerdictContext,
) -> tuple[Verdict, IncidentMemory]:
    """Return a verdict and its memory with the mesh as a whole. If the loss is not known, nothing is learned."""
    history = memory.reconstruction
    if history.model != verdict.model_digest:
        history = ReconstructionHistory(verdict.model_digest)
    if loss is None:
        return verdict, replace(memory, reconstruction=history)
    comparison, history = follow_reconstruction(history, loss, embedding, policy, context, alerted=bool(verdict.alerts))
    raises = comparison.exceeded and policy.reconstruction == "alert" and verdict.status is not Status.WARMING_UP
    if raises:
        verdict = replace(verdict, status=Status.ANOMALOUS, mesh_score=max(verdict.mesh_score, verdict.threshold))
    return replace(verdict, reconstruction=comparison), replace(memory, reconstruction=history)


def _may_last(evidence: Evidence) -> BoolArray:
    """Return for which candidates ``[M]`` the duration of the deviation counts.

    Users are not affected if a service needs more of a resource for minutes, and a notice reports it. A rollout lasts,
    too.
    """
    may_last = ~led_by_resources(evidence.kinds)
    return may_last if evidence.rolling is None else may_last & ~evidence.rolling


def _watch(
    evidence: Evidence, memory: IncidentMemory, policy: AlertPolicy, context: VerdictContext
) -> tuple[Watched, ...]:
    row = {name: i for i, name in enumerate(evidence.names)}
    watched_services = watch(evidence.names, memory, context.level, policy)
    return tuple(
        replace(entry, reasons=reasons_of(evidence, row[entry.service], memory, context)) for entry in watched_services
    )


def _excess(evidence: Evidence, memory: IncidentMemory, policy: AlertPolicy, context: VerdictContext) -> Array:
    """Return by how many decades ``[M, 5]`` the levels must rise so that this evidence raises neither an alert nor a
    notice, by ``feedback.SYMPTOMS``."""
    visible = lower_evidence(evidence.kinds, memory.active_mutes.level_shifts(evidence.names)[:, None])
    short = notice_excess(evidence.notice, memory, evidence.names, context.notice_level)
    tracks = (memory.tracks.get(name) for name in evidence.names)
    lasts = [track is not None and track.lasts(context.level, policy) for track in tracks]
    levels = context.level - np.float32(LASTING_DECADES) * np.array(lasts, np.float32)
    return np.column_stack([excess(visible, levels), short])


def _status(anomalous: bool, warming: bool, *, is_partial: bool) -> Status:
    if anomalous:
        return Status.ANOMALOUS
    if warming:
        return Status.WARMING_UP
    return Status.PARTIAL if is_partial else Status.NORMAL


def _describe(
    evidence: Evidence,
    memory: IncidentMemory,
    incident: OpenIncident,
    group: Group | None,
    own: IntArray,
    policy: AlertPolicy,
    context: VerdictContext,
) -> Incident:
    """Build an incident of the verdict. A quiet incident keeps its services. ``own`` are the candidates of it that have
    a fault of their own."""
    described = Incident(
        id=incident.id,
        since=incident.since,
        severity=incident.severity,
        score=0.0,
        suspects=incident.suspects,
        affected=incident.members,
        changes=incident.changes,
        recurrences=incident.recurrences,
        recovering=is_recovering(incident, policy.clear),
        suspects_at=incident.suspects_at,
        scope=incident.scope,
    )
    if incident.scope:
        change = next((change for change in evidence.traffic if change.scope == incident.scope), None)
        return replace(described, score=traffic_score(change) if change else 0.0)
    row = {name: i for i, name in enumerate(evidence.names)}
    rows = group.rows if group else np.array([row[m] for m in incident.members if m in row], np.int64)
    if incident.severity is Severity.NOTICE:
        score, ranking = evidence.notice, short_services(evidence, rows, memory, context)
    else:
        preferences = preference(memory.feedback, evidence.names, [incident.members])
        near = np.union1d(with_neighbours(rows, evidence.calls), np.flatnonzero(preferences))
        score, ranking = evidence.page, suspects(evidence, near, memory, context, preferences, own)
    # What cannot be seen is shown as such, by its kind, and does not end.
    is_hidden = incident.shows_nothing and is_unseen(incident, evidence.unseen)
    return replace(
        described,
        score=float(score[rows].max(initial=0.0)),
        suspects=ranking,
        affected=tuple(evidence.names[i] for i in rows) if group else incident.members,
        recovering=described.recovering or is_hidden,
    )


UNSEEN_SECONDS = 900.0  # without telemetry of its services, after which an incident is given up ...
BLIND_SHARE = 0.5  # ... unless more than this share of the services is silent


def follow_alerts(
    evidence: Evidence,
    memory: IncidentMemory,
    present_groups: Sequence[Group],
    policy: AlertPolicy,
    context: VerdictContext,
) -> MatchedIncidents:
    found_groups = [
        FoundGroup(
            group,
            first_evidence(evidence, group, memory, policy, context),
            Severity.MINOR,  # until its harm is known
            _culprit(evidence, group, memory, policy, context) if group.is_confirmed else Culprit(),
        )
        for group in present_groups
    ]
    before = [i for i in memory.open if i.is_alert and not i.scope]
    pages = dict(zip(evidence.names, evidence.page.tolist(), strict=True))
    high = {name for name, page in pages.items() if page > CLOSES * context.level}
    unseen = {incident.id for incident in before if is_unseen(incident, evidence.unseen)}
    return match_incidents(
        before,
        found_groups,
        evidence.names,
        policy.clear,
        context.interval_seconds,
        deviating=high,
        above={name for name in high if pages[name] >= context.level},
        unseen=unseen,
        lately=[incident for incident in memory.ended_lately(context.observed_at) if not incident.scope],
    )


def find_lost(
    evidence: Evidence, incidents: Sequence[OpenIncident], policy: AlertPolicy, context: VerdictContext
) -> tuple[str, ...]:
    """Return the ids of incidents that were unseen for too long, although snapshots come. If they show
    nothing of most services, they are as good as missing."""
    is_blind = evidence.silence is not None and evidence.silence.share > BLIND_SHARE
    longest = policy.longest_gap_seconds if is_blind else min(UNSEEN_SECONDS, policy.longest_gap_seconds)
    return tuple(
        incident.id
        for incident in incidents
        if is_unseen(incident, evidence.unseen) and incident.unseen * context.interval_seconds > longest
    )


def _culprit(
    evidence: Evidence, group: Group, memory: IncidentMemory, policy: AlertPolicy, context: VerdictContext
) -> Culprit:
    """Return the service where a group probably starts, and when it arose if it is confirmed and severe."""
    rows = with_neighbours(group.rows, evidence.calls)
    share = root_cause_shares(evidence, rows, np.zeros(len(evidence.names), np.float32))
    best = int(share.argmax())
    if share[best] < CLEAR_SHARE:
        return Culprit()
    name = evidence.names[rows[best]]
    is_severe = evidence.page[rows[best]] > SEVERE * context.level
    track = memory.tracks.get(name)
    if not is_severe or track is None or track.times_above(context.level, policy.confirm_of) < policy.confirm:
        return Culprit(name)
    return Culprit(name, track.above_since)


def first_evidence(
    evidence: Evidence, group: Group, memory: IncidentMemory, policy: AlertPolicy, context: VerdictContext
) -> datetime:
    names = [evidence.names[row] for row in group.rows]
    now, interval = context.observed_at, context.interval_seconds
    return min((began(memory.tracks, name, context.level, policy, now, interval) for name in names), default=now)


MAX_WATCHED = 5
MIN_SEEN = 2  # snapshots of a moderate deviation, from which it is worth watching


def watch(names: Sequence[str], memory: IncidentMemory, threshold: float, policy: AlertPolicy) -> tuple[Watched, ...]:
    """Return the services to watch, the most unusual first, without their reasons."""
    incident_services = {name for incident in memory.open if not incident.scope for name in incident.members}
    watched_services = []
    for name in memory.tracks.keys() & set(names) - incident_services:
        track = memory.tracks[name]
        now, min_score = track.scores[0], watch_level(threshold)
        if now >= threshold:
            doubtful = 0 if now >= SEVERE * threshold else policy.doubtful
            needed_snapshots, since = policy.confirm + doubtful, track.above_since or track.unusual_since
            snapshots_above = min(track.times_above(threshold, policy.confirm_of + doubtful), needed_snapshots - 1)
            watched_services.append(Watched(name, now, threshold, since, snapshots_above, needed_snapshots))
        elif (
            now >= min_score
            and (snapshots_above := min(track.times_above(min_score, policy.lasting_of), policy.lasting - 1))
            >= MIN_SEEN
        ):
            watched_services.append(Watched(name, now, min_score, track.unusual_since, snapshots_above, policy.lasting))
    muted = memory.active_mutes.is_muted([entry.service for entry in watched_services]).tolist()
    visible = [entry for entry, is_hidden in zip(watched_services, muted, strict=True) if not is_hidden]
    return tuple(sorted(visible, key=lambda entry: (-entry.score, entry.service))[:MAX_WATCHED])
