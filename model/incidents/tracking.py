"""From anomalous services to incidents: connected groups, followed from snapshot to snapshot.

A service is *above the level* while its page score exceeds the page level. It is *confirmed* if that holds now and in k
of the last n snapshots. Services above the level and affected services that call each other form a group. A group with
a confirmed service is an incident.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.incidents.continuity import (
    Lead,
    PastNotice,
    follow_leads,
    inherit,
    join_leads,
    with_leads,
    with_notices,
)
from model.incidents.feedback import Feedback, PastIncident, normal_scores
from model.incidents.mutes import ActiveMutes, Mute, patterns
from model.incidents.schedule import Schedule
from model.snapshot import BoolArray, IntArray, PlannedChange, mark_services, namespace_of
from model.verdict import MuteInForce, NearbyChange, Severity, Suspect

CONFIRM_SECONDS = 45.0  # of evidence that an alert needs
DOUBTFUL_SECONDS = 60.0  # the same if the page score is not far above the level
CLEAR_SECONDS = 120.0  # without evidence, after which it ends
ONSET_SECONDS, ONSET_SNAPSHOTS = 240.0, 4  # after an incident's first evidence, whichever is longer
AT_ONCE_SECONDS, AT_ONCE_SNAPSHOTS = 60.0, 1  # between two groups of one fault in a namespace, whichever is longer
RECOVERS = 3  # snapshots in a row in which its services are back to normal, after which an incident recovers
RETURNED = 6  # such snapshots in a row, after which it is over
RETURNED_SHARE = 0.5  # of the page level, below which the page scores of an incident's services are back to normal
SUSPICIOUS, SUSPICIOUS_OF = 2, 3  # snapshots above the level of lasting deviations that make a service suspicious
STRONGER = 1.3  # times the peak, for new suspects after the onset
LASTING_DECADES = 2.5  # that a page score gains when it lasts
LONG_RUN = 3  # scores in a row that are not by chance
SUSPICIOUS_SHARE = 0.6  # of the page level, from which a mesh score in a run is not normal
SHORT_SECONDS = 1800.0  # for which a short resource is suspicious
CLEAR_SHARE = 0.5  # of the root-cause score of all suspects, from which the first one is the culprit
REMEMBERED = 50  # past incidents that feedback can refer to
MOST_CHANGES = 10  # planned changes kept with an incident
LIKELY_SHARE = 0.1  # of that score, from which a suspect explains what a group does
DELETIONS = frozenset({"delete", "deletion", "retire", "retirement"})
SCALINGS = frozenset({"scale_out", "scale_in"})


# By service: in which of the last snapshots it was above a level, as bits (1 = newest), and when the streak began.
Streaks = dict[str, tuple[int, datetime]]


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """When to raise an alert.

    Attributes:
        false_pages_per_day: budget of false alerts; None: 1, or 1 for each 50 services.
        false_notices_per_day: budget of false notices; None: the same.
        confirm: snapshots above the level (k) ...
        confirm_of: ... of the last so many (n) that confirm a service. For longer intervals see :meth:`at_interval`.
        doubtful: by how much both are larger for a page score that is not far above the level.
        lasting, lasting_of: the same for a deviation that lasts: its page score then counts ``LASTING_DECADES`` more.
        clear: snapshots in which its services are back to normal, after which an incident ends; see
            :meth:`at_interval`.
        percentile: of the mesh scores without alerts, for the threshold that is shown.
        history: mesh scores kept for it.
        mute_intervals: snapshots for which a planned deletion mutes its neighbourhood.
        change_intervals: snapshots for which a service near another planned change is compared with earlier changes.
        version_intervals: the same for a service with a new version itself, because a rollout can take minutes.
        warm_up: snapshots before the first verdict.
        longest_gap_seconds: without a snapshot, after which open incidents are given up.
    """

    false_pages_per_day: float | None = None
    false_notices_per_day: float | None = None
    confirm: int = 3
    confirm_of: int = 4
    doubtful: int = 1
    lasting: int = 12
    lasting_of: int = 16
    clear: int = 8
    percentile: float = 99.0
    history: int = 2000
    mute_intervals: int = 2
    change_intervals: int = 12
    version_intervals: int = 24
    warm_up: int = 10
    longest_gap_seconds: float = 1800.0

    def budget(self, services: int) -> float:
        """Return the false alerts allowed per day in a mesh of so many services."""
        if self.false_pages_per_day is not None:
            return self.false_pages_per_day
        return max(1.0, services / 50)

    @property
    def change_memory(self) -> int:
        """Snapshots for which a planned change is remembered."""
        return max(self.change_intervals, self.mute_intervals) + 1

    @property
    def version_memory(self) -> int:
        """The same for a change that may bring a new version."""
        return max(self.change_memory, self.version_intervals + 1)

    def at_interval(self, interval_seconds: float) -> "AlertPolicy":
        """Return the policy for snapshots of this interval, s.

        Evidence for 45 s confirms a service, but at least two snapshots and at most ``confirm``. If it is doubtful, it
        takes up to a minute. Two quiet minutes end an incident, but at least two snapshots and at most ``clear``.
        """
        confirm = min(self.confirm, max(2, round(CONFIRM_SECONDS / interval_seconds)))
        return replace(
            self,
            confirm=confirm,
            confirm_of=round(self.confirm_of * confirm / self.confirm),
            doubtful=self.doubtful if (confirm + self.doubtful) * interval_seconds <= DOUBTFUL_SECONDS else 0,
            clear=min(self.clear, max(2, round(CLEAR_SECONDS / interval_seconds))),
        )

    def page_level(self, services: int, interval_seconds: float) -> float:
        """Return the surprise that chance reaches as often as the budget allows, without the offset of the weights.

        With one test per service and snapshot it is ``log10(services x snapshots per day / budget)``.
        """
        return float(np.log10(services * 86400 / interval_seconds / self.budget(services)))

    def notice_level(self, services: int, interval_seconds: float) -> float:
        """Return the same for the budget of notices."""
        if self.false_notices_per_day is None:
            return self.page_level(services, interval_seconds)
        return float(np.log10(services * 86400 / interval_seconds / self.false_notices_per_day))


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """An incident as stored between snapshots.

    Attributes:
        id, since, severity: see :class:`~model.verdict.Incident`.
        members: services that were part of it so far.
        quiet: snapshots without a confirmed service, those missing included.
        returned: snapshots in a row in which its services are back to normal.
        unseen: snapshots that were missing just before this one.
        changes: planned changes near it, newest first.
        peak: score of its strongest snapshot.
        suspects: of that snapshot; see :meth:`with_strongest`.
        suspects_at: its time; None if stored by version 0.1.0.
        scope: of an incident of traffic, as in :class:`~model.verdict.Incident`; empty: of all others.
        leads: suspects that led in some snapshot, the present one first if there is one.
        notices: that were open at its services or suspects, before it or beside it.
    """

    id: str
    since: datetime
    severity: Severity
    members: tuple[str, ...]
    quiet: int = 0
    returned: int = 0
    unseen: int = 0
    changes: tuple[NearbyChange, ...] = ()
    peak: float = 0.0
    suspects: tuple[Suspect, ...] = ()
    suspects_at: datetime | None = None
    scope: str = ""
    leads: tuple[Lead, ...] = ()
    notices: tuple[PastNotice, ...] = ()

    @property
    def is_alert(self) -> bool:
        """Whether it is more than a notice."""
        return self.severity is not Severity.NOTICE

    def with_strongest(
        self, score: float, suspects: tuple[Suspect, ...], now: datetime, interval_seconds: float
    ) -> "OpenIncident":
        """Keep the suspects of the strongest snapshot. A notice keeps the newest suspects, because a forecast ages.

        The cause shows best while the incident begins. Later the backlog, retries and other faults beside it are often
        stronger, and a recovering incident shows no cause at all. So after the onset only a far stronger snapshot
        replaces the suspects. Those that led for several snapshots are remembered whatever happens.
        """
        if self.severity is Severity.NOTICE:
            known = self
            if not self.quiet:
                return replace(self, peak=score, suspects=suspects, suspects_at=now)
        else:
            known = self if self.quiet else replace(self, leads=follow_leads(self.leads, suspects))
        needed = self.peak * (1 if now - self.since <= _onset(interval_seconds) else STRONGER)
        if self.suspects and (score < needed or not suspects):
            return known
        return replace(known, peak=score, suspects=suspects, suspects_at=now)

    def inherit_notices(self, notices: Sequence[PastNotice]) -> "OpenIncident":
        """Remember the notices about its services or likely suspects."""
        if self.severity is Severity.NOTICE or not notices:
            return self
        return replace(self, notices=inherit(self.notices, notices, {*self.members, *_likely_services(self)}))

    def shown_suspects(self, now: datetime) -> tuple[Suspect, ...]:
        """Return the suspects for people: of its strongest snapshot, those that led for several snapshots, and what
        notices said about them."""
        return with_notices(with_leads(self.suspects, self.leads), self.notices, now)


@dataclass(frozen=True, slots=True)
class IncidentMemory:
    """What alerting remembers about a mesh.

    Attributes:
        scores, times: mesh scores without alerts, and when (Unix, s), oldest first.
        alerted_scores: time and mesh score of snapshots with an alert, oldest first.
        above_level: services above their page level in one of the last n snapshots.
        above_lasting: the same for ``LASTING_DECADES`` below the page level.
        above_notice: the same for the level of notices.
        above_traffic: scopes whose traffic is not as usual, likewise.
        open: open incidents, notices included.
        changes: planned changes of the last snapshots, and how many snapshots ago they came.
        expiring_changes: services whose last planned change is over with the present snapshot, for them or for their
            neighbours.
        late: services whose last planned change is so long ago that only they may still show it; of the present
            snapshot.
        lost: ids of the incidents that were given up because nothing was seen of them for too long; of the present
            snapshot.
        past: the last incidents, open ones and notices included, the newest last; feedback refers to them.
        feedback: from people, the newest last.
        mutes: set by people, in force and to come, in the order in which they were set.
        last_hidden: for each pattern of a mute that hid something, the last snapshot in which it did. An adapter does
            not learn from these services up to then.
        schedule: of the regular work of services, see ``schedule.py``.
        active_mutes: of the present snapshot; computed again for each, see ``mutes.py``.
    """

    scores: tuple[float, ...] = ()
    times: tuple[float, ...] = ()
    alerted_scores: tuple[tuple[float, float], ...] = ()
    above_level: Streaks = field(default_factory=dict)
    above_lasting: Streaks = field(default_factory=dict)
    above_notice: Streaks = field(default_factory=dict)
    above_traffic: Streaks = field(default_factory=dict)
    open: tuple[OpenIncident, ...] = ()
    changes: tuple[tuple[PlannedChange, int], ...] = ()
    past: tuple[PastIncident, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    mutes: tuple[Mute, ...] = ()
    last_hidden: dict[str, datetime] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Schedule)
    active_mutes: ActiveMutes = field(default_factory=ActiveMutes)
    expiring_changes: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    lost: tuple[str, ...] = ()

    def is_in_incident(self, node_ids: Sequence[str]) -> BoolArray:
        """Return which of these services belong to an open incident. Baselines do not learn from them."""
        members = {name for incident in self.open for name in incident.members}
        return mark_services(node_ids, members)

    def is_alerted(self, node_ids: Sequence[str], before: datetime | None = None) -> BoolArray:
        """Return which of these services belong to an alert, or to one that began ``before`` a time. What they do now
        does not become normal for them."""
        members = {
            name
            for i in self.open
            if i.is_alert and not i.scope and (before is None or i.since < before)
            for name in i.members
        }
        return mark_services(node_ids, members)

    def is_above_level(self, node_ids: Sequence[str]) -> BoolArray:
        """Return which of these services were above their page level in one of the last snapshots."""
        return mark_services(node_ids, self.above_level)

    def alert_ages(self, node_ids: Sequence[str], now: datetime, interval_seconds: float) -> Array:
        """Return for how many snapshots the oldest alert at each service has been open, ``[N]``; 0 without one."""
        ages = np.zeros(len(node_ids), np.float32)
        for one in self.open:
            if one.is_alert and not one.scope:
                age = np.float32((now - one.since).total_seconds() / interval_seconds)
                ages = np.where(mark_services(node_ids, one.members), np.maximum(ages, age), ages)
        return ages

    def is_suspicious(self, node_ids: Sequence[str], now: datetime) -> BoolArray:
        """Return which of these services were unusual in the newest snapshot and in one shortly before it. Nothing is
        learned from them until they are usual again, or have an alert.

        A short resource is suspicious only for a while: a leak lasts for hours, and a batch may be here to stay.
        """
        lately = (1 << SUSPICIOUS_OF) - 1
        above = (
            *self.above_lasting.items(),
            *((name, x) for name, x in self.above_notice.items() if (now - x[1]).total_seconds() <= SHORT_SECONDS),
        )
        names = {name for name, (bits, _) in above if bits & 1 and (bits & lately).bit_count() >= SUSPICIOUS}
        return mark_services(node_ids, names)

    def forget_incidents(self) -> "IncidentMemory":
        """Give up what was open before a long gap."""
        lost = tuple(i.id for i in self.open)
        return replace(self._keep_streaks(frozenset()), open=(), changes=(), lost=lost)

    def pass_gap(self, missing: int) -> "IncidentMemory":
        """Advance over missing snapshots. Incidents stay open. Where the first snapshots after the gap are back to
        normal, an incident ends sooner, because it may have ended in the gap."""
        aged = tuple((change, age + missing) for change, age in self.changes)
        waiting = tuple(replace(i, unseen=missing) for i in self.open)
        return replace(self, changes=aged, open=waiting)

    def planned_deletions(self) -> set[str]:
        """Services whose deletion was announced recently enough to be remembered."""
        return {change.service for change, _ in self.changes if change.kind in DELETIONS}

    def has_planned_change(self, node_ids: Sequence[str]) -> BoolArray:
        """Return which of these services have a remembered planned change, deletions excluded."""
        names = {change.service for change, _ in self.changes if change.kind not in DELETIONS}
        return mark_services(node_ids, names)

    def has_new_version(self, node_ids: Sequence[str]) -> BoolArray:
        """Return which of these services have a remembered planned change that may make them behave differently."""
        names = {change.service for change, _ in self.changes if change.kind not in DELETIONS | SCALINGS}
        return mark_services(node_ids, names)

    def has_expiring_change(self, node_ids: Sequence[str]) -> BoolArray:
        """Return which of these services have a planned change that is over, for them or for their neighbours."""
        return mark_services(node_ids, self.expiring_changes)

    def has_late_change(self, node_ids: Sequence[str]) -> BoolArray:
        """Return which of these services may still show a planned change that their neighbours no longer show."""
        return mark_services(node_ids, self.late)

    def advance_changes(
        self, changes: Iterable[PlannedChange], keep: int, keep_deletions: int = 0, keep_versions: int = 0
    ) -> "IncidentMemory":
        """Advance by one snapshot: add its announced changes, and drop those older than ``keep`` snapshots.

        Deletions stay for ``keep_deletions`` if that is more. A retired service remains in the table as absent until it
        is forgotten, and must not be missed meanwhile. Changes that may bring a new version stay for ``keep_versions``:
        replicas are replaced one after the other, which can take minutes.
        """
        longer = dict.fromkeys(SCALINGS, keep) | dict.fromkeys(DELETIONS, max(keep, keep_deletions))
        versions = max(keep, keep_versions)
        older = tuple((change, age + 1) for change, age in self.changes if age + 1 < longer.get(change.kind, versions))
        remembered = (*older, *((change, 0) for change in changes))
        ages = {change.service: age for change, age in remembered if change.kind not in DELETIONS}  # of the newest
        expiring = frozenset(service for service, age in ages.items() if age + 1 in (keep, versions))
        late = frozenset(service for service, age in ages.items() if age >= keep)
        return replace(self, changes=remembered, expiring_changes=expiring, late=late)

    def attach_changes(self, now: datetime, interval_seconds: float) -> "IncidentMemory":
        """Attach the planned changes at the services of each open incident. They stay with it longer than changes are
        remembered."""
        if not self.changes or not self.open:
            return self
        dated = [(change, now - timedelta(seconds=age * interval_seconds)) for change, age in self.changes]
        return replace(self, open=tuple(_attach_changes(incident, dated) for incident in self.open))

    def threshold(self, percentile: float, suspicious: float) -> float:
        """Return the percentile of the normal scores, feedback included; 0 if there are none.

        Runs of scores above ``suspicious`` are not normal, and the newest run may become one. So the threshold holds
        still during an anomaly, even if it never raises an alert.
        """
        kept = _normal_runs(np.array(self.scores), suspicious)
        scores: Sequence[float] | NDArray[np.float64] = np.array(self.scores)[kept]
        if self.feedback:
            times = np.array(self.times)[kept]
            scores = normal_scores(tuple(scores), tuple(times), self.alerted_scores, self.past, self.feedback)
        return float(np.percentile(scores, percentile)) if len(scores) else 0.0

    def add_score(self, score: float, at: datetime, *, alerted: bool, keep: int) -> "IncidentMemory":
        """Add a mesh score. At most ``keep`` scores are kept without an alert, and as many with one."""
        if alerted:
            return replace(self, alerted_scores=(*self.alerted_scores, (at.timestamp(), score))[-keep:])
        return replace(self, scores=(*self.scores, score)[-keep:], times=(*self.times, at.timestamp())[-keep:])

    def record_open(self, names: Sequence[str], excess: Array, now: datetime) -> "IncidentMemory":
        """Record the open incidents among those that feedback can refer to.

        Args:
            names: of M candidates.
            excess: ``[M, 5]`` by how much their levels would have to rise for silence now.
            now: time of the snapshot.
        """
        past = {one.id: one for one in self.past}
        rows = excess.astype(np.float64).round(3).tolist()  # few digits, because it is stored with every snapshot
        over = {name: tuple(row) for name, row in zip(names, rows, strict=True) if any(row)}
        for i in self.open:
            highest = dict(past.pop(i.id).excess) if i.id in past else {}
            for name in over.keys() & set(i.members):
                highest[name] = tuple(map(max, over[name], highest.get(name, over[name])))
            past[i.id] = PastIncident(i.id, i.since, now, i.members, highest)
        return replace(self, past=tuple(past.values())[-REMEMBERED:])

    def add_feedback(self, feedback: Feedback) -> "IncidentMemory":
        """Replace the feedback on an incident. A false alarm ends it."""
        memory = replace(self, feedback=(*self.remove_feedback(feedback.incident).feedback, feedback))
        return memory if feedback.was_incident else memory._end(feedback.incident, feedback.services)

    def accept(self, incident: str) -> "IncidentMemory":
        """End an incident whose present state a person accepts as normal."""
        return self._end(incident, {name for i in self.open if i.id == incident for name in i.members})

    def forget_ended(self, still_open: Iterable[OpenIncident]) -> "IncidentMemory":
        """Forget for how long the services of ended alerts deviated: they are back to normal, and what they do next
        lasts from then on."""
        involved = {name for one in still_open for name in one.members}
        ended = {name for one in self.open if one.is_alert and not one.scope for name in one.members} - involved
        if ended.isdisjoint(self.above_lasting):
            return self
        return replace(self, above_lasting={name: x for name, x in self.above_lasting.items() if name not in ended})

    def _end(self, incident: str, services: Collection[str]) -> "IncidentMemory":
        """Close an incident, and forget that these services were above their levels."""
        ended = {one.scope for one in self.open if one.id == incident} | set(services)
        above = {*self.above_level, *self.above_lasting, *self.above_notice, *self.above_traffic}
        return replace(self._keep_streaks(above - ended), open=tuple(i for i in self.open if i.id != incident))

    def _keep_streaks(self, names: AbstractSet[str]) -> "IncidentMemory":
        """Forget all streaks except the streaks of some services and scopes."""
        level, lasting, notice, traffic = (
            {name: bits for name, bits in above.items() if name in names}
            for above in (self.above_level, self.above_lasting, self.above_notice, self.above_traffic)
        )
        return replace(self, above_level=level, above_lasting=lasting, above_notice=notice, above_traffic=traffic)

    def remove_feedback(self, incident: str) -> "IncidentMemory":
        """Remove the feedback on an incident."""
        return replace(self, feedback=tuple(one for one in self.feedback if one.incident != incident))

    def remove_mute(self, mute: str) -> "IncidentMemory":
        """Remove a mute."""
        return replace(self, mutes=tuple(one for one in self.mutes if one.id != mute))

    def without_muted(self) -> "IncidentMemory":
        """Remove muted members from open incidents. An incident that loses members ends unless one of the others was
        above its level recently."""
        if not self.active_mutes.mutes or not self.open:
            return self
        unmuted = [~self.active_mutes.is_muted(incident.members) for incident in self.open]
        left = [
            replace(incident, members=tuple(np.array(incident.members, object)[kept]))
            for incident, kept in zip(self.open, unmuted, strict=True)
        ]
        continues = [
            kept.all() or bool(i.scope) or not self.above_level.keys().isdisjoint(i.members)
            for i, kept in zip(left, unmuted, strict=True)
        ]
        return replace(self, open=tuple(incident for incident, on in zip(left, continues, strict=True) if on))

    def record_hidden(self, mutes: Iterable[MuteInForce], now: datetime) -> "IncidentMemory":
        """Record the patterns of mutes that hide something now."""
        found = {pattern: now for mute in mutes if mute.hides for pattern in patterns(mute)}
        return replace(self, last_hidden=self.last_hidden | found) if found else self

    def drop_expired(self, now: datetime, oldest: datetime) -> "IncidentMemory":
        """Drop mutes that end at ``now`` or before, and records of hidden services older than ``oldest``."""
        return replace(
            self,
            mutes=tuple(mute for mute in self.mutes if mute.end > now),
            last_hidden={service: last for service, last in self.last_hidden.items() if last >= oldest},
            active_mutes=ActiveMutes(),
            expiring_changes=frozenset(),
            late=frozenset(),
            lost=(),
        )


def _normal_runs(scores: NDArray[np.float64], suspicious: float) -> BoolArray:
    """Return which scores ``[T]`` are not in a run of at least ``LONG_RUN`` above ``suspicious``, nor in the last
    run."""
    above = scores > suspicious
    edges = np.flatnonzero(np.diff(np.concatenate([[False], above, [False]]).astype(np.int8)))
    kept = np.ones(len(scores), bool)
    for begin, end in edges.reshape(-1, 2).tolist():
        if end - begin >= LONG_RUN or end == len(scores):
            kept[begin:end] = False
    return kept


def _attach_changes(incident: OpenIncident, dated: Sequence[tuple[PlannedChange, datetime]]) -> OpenIncident:
    """Add the changes at the incident's services that it does not have yet."""
    known = {near.change for near in incident.changes}
    new = [
        NearbyChange(change, at) for change, at in dated if change.service in incident.members and change not in known
    ]
    if not new:
        return incident
    changes = sorted([*incident.changes, *new], key=lambda near: near.at, reverse=True)
    return replace(incident, changes=tuple(changes[:MOST_CHANGES]))


@dataclass(frozen=True, slots=True)
class Group:
    """Services that deviate and call each other, as rows of the candidates, and whether one of them is confirmed."""

    rows: IntArray
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Culprit:
    """Where a group probably starts.

    Attributes:
        service: empty if that is not clear.
        arose: when it began to deviate, if it deviates by far enough to be a fault of its own.
    """

    service: str = ""
    arose: datetime | None = None


def confirm_services(
    above: Streaks,
    names: Sequence[str],
    scores: Array,
    level: float,
    policy: AlertPolicy,
    at: datetime,
    is_clear: BoolArray | None = None,
) -> tuple[Streaks, BoolArray]:
    """Update the services above their level.

    Args:
        above: as in :class:`IncidentMemory`.
        names, scores: of M candidates.
        level: that the scores are compared with.
        policy: how many snapshots confirm a service.
        at: time of the snapshot.
        is_clear: ``[M]`` candidates whose evidence is not ``doubtful``; None: all are.

    Returns:
        Bits and start of the streak for each service above its level, and which candidates are confirmed, ``[M]``.
    """
    doubtful = 0 if is_clear is None else policy.doubtful
    mask = (1 << (policy.confirm_of + doubtful)) - 1
    bits = {name: ((b << 1) & mask, since) for name, (b, since) in above.items()}
    for name, score in zip(names, scores, strict=True):
        if score > level:
            before, since = bits.get(name, (0, at))
            bits[name] = (before | 1, since if before else at)
    bits = {name: value for name, value in bits.items() if value[0]}
    lately = {name: (b & ((1 << policy.confirm_of) - 1), since) for name, (b, since) in bits.items()}
    confirmed = is_confirmed(lately, names, policy.confirm)
    if is_clear is not None:
        confirmed &= is_clear | is_confirmed(bits, names, policy.confirm + doubtful)
    return bits, confirmed


def is_confirmed(above: Streaks, names: Sequence[str], confirm: int) -> BoolArray:
    """Return which candidates ``[M]`` are above their level now and in at least ``confirm`` of the last snapshots."""
    found = (above[name][0] if name in above else 0 for name in names)
    return np.array([bool(bits & 1) and bits.bit_count() >= confirm for bits in found], bool)


def groups(member: BoolArray, confirmed: BoolArray, calls: IntArray) -> list[Group]:
    """Return the connected components of the members along direct calls, those with a confirmed service first.

    Args:
        member: ``[M]`` candidates above their level or affected.
        confirmed: ``[M]``.
        calls: ``[2, C]`` rows of candidates that call each other.
    """
    root = np.arange(len(member))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = int(root[i])
        return i

    for a, b in calls[:, member[calls].all(axis=0)].T:
        root[find(int(a))] = find(int(b))
    rows: dict[int, list[int]] = {}
    for i in np.flatnonzero(member):
        rows.setdefault(find(int(i)), []).append(int(i))
    found = [Group(np.array(r), bool(confirmed[r].any())) for r in rows.values()]
    return sorted(found, key=lambda g: not g.confirmed)


def split_muted(found: Sequence[Group], confirmed: BoolArray, muted: BoolArray) -> tuple[list[Group], IntArray]:
    """Remove the muted services from groups.

    Muted services still connect a group, so that one fault is one incident.

    Args:
        found: groups of candidates.
        confirmed, muted: ``[M]`` candidates.

    Returns:
        The groups that remain, and the muted rows of groups that raise an alert or would.
    """
    left = [group.rows[~muted[group.rows]] for group in found]
    remaining = [Group(rows, bool(confirmed[rows].any())) for rows in left if len(rows)]
    hidden = [group.rows[muted[group.rows]] for group in found if group.confirmed]
    return sorted(remaining, key=lambda g: not g.confirmed), np.concatenate([np.zeros(0, np.int64), *hidden])


def match_incidents(
    before: Sequence[OpenIncident],
    found: Sequence[Group],
    names: Sequence[str],
    since: Sequence[datetime],
    severities: Sequence[Severity],
    culprits: Sequence[Culprit],
    clear_after: int,
    interval_seconds: float = 15.0,
    deviating: AbstractSet[str] = frozenset(),
) -> tuple[tuple[OpenIncident, ...], dict[str, Group]]:
    """Match groups with open incidents by shared services or a shared culprit. Incidents start, grow, merge into the
    oldest, and end.

    One fault often shows in groups that do not call each other: callers of one service, or what is behind a service
    that shows nothing itself. They have the culprit in common. A network fault shows in many groups of one namespace,
    which begin at once. Another fault may touch services of an open incident. It is an incident of its own if its
    culprit is severe, arose after the onset of the other, and is not suspected there.

    Args:
        before: open incidents.
        found: groups of this snapshot; one without a confirmed service can continue an incident but not start one.
        names: candidates' ids.
        since: per group, time of its first evidence.
        severities: per group.
        culprits: per group.
        clear_after: quiet snapshots that end an incident.
        interval_seconds: between snapshots, s.
        deviating: ids of the incidents whose services are not back to normal, confirmed or not.

    Returns:
        The incidents open now, and the group of each in this snapshot, by incident id.
    """
    open_now = {incident.id: incident for incident in before}
    culprit_of = {i.id: i.suspects[0].service for i in before if i.suspects and i.suspects[0].score >= CLEAR_SHARE}
    seen: dict[str, Group] = {}
    onset = _onset(interval_seconds)
    has_namespaces = len({namespace_of(name) for name in names}) > 1  # one alone says nothing
    for group, began, severity, culprit in zip(found, since, severities, culprits, strict=True):
        members = {names[i] for i in group.rows}
        involved = members | ({culprit.service} if culprit.service else set())
        simultaneous: set[str] = set()
        if has_namespaces and group.confirmed:
            simultaneous = _find_simultaneous(open_now.values(), members, began, severity, interval_seconds)
        touched = sorted(
            (
                i
                for i in open_now.values()
                if involved & set(i.members) or culprit_of.get(i.id) in involved or i.id in simultaneous
            ),
            key=lambda i: (i.since, i.id),
        )
        if not touched and not group.confirmed:
            continue
        continued, same, others = _divide(touched, culprit, culprit_of, onset)
        arose = culprit.arose if touched and culprit.arose else began
        first = _absorb(continued or _start_incident(names, group, arose, severity), same)
        others = [i for i in others if _likely_services(i) & involved]
        goes_on = not continued or same or _likely_services(first) & involved
        homes = [first, *others] if goes_on or not others else others
        if culprit.service:
            culprit_of.setdefault(first.id, culprit.service)
        for merged in same:
            members |= set(merged.members)
            culprit_of.pop(merged.id, None)
            severity = max(severity, merged.severity, key=list(Severity).index)
            del open_now[merged.id]
            if merged.id in seen:
                group = _join(group, seen.pop(merged.id))
        for home in homes:
            seen[home.id] = _join(seen[home.id], group) if home.id in seen else group
            open_now[home.id] = replace(
                home,
                severity=max(home.severity, severity, key=list(Severity).index),
                members=tuple(sorted(set(home.members) | members)),
                quiet=0 if seen[home.id].confirmed else home.quiet,
            )
    confirmed = {i for i, group in seen.items() if group.confirmed}
    aged = [advance_quiet(one, one.id in confirmed, one.id in deviating, clear_after) for one in open_now.values()]
    alive = tuple(one for one in aged if not is_over(one, clear_after))
    ended = open_now.keys() - {one.id for one in alive}
    return alive, {i: group for i, group in seen.items() if i not in ended}


def advance_quiet(incident: OpenIncident, is_confirmed: bool, deviates: bool, clear_after: int) -> OpenIncident:
    """Return the incident after a snapshot. Snapshots that were missing before it count as quiet if it is."""
    if is_confirmed:
        return replace(incident, quiet=0, returned=0, unseen=0)
    quiet = incident.quiet + 1 + incident.unseen
    returned = 0 if deviates else incident.returned + 1
    if incident.unseen >= clear_after and returned:
        returned = RECOVERS  # it ended while no snapshot came
    return replace(incident, quiet=quiet, returned=returned, unseen=0)


def is_recovering(incident: OpenIncident, clear_after: int) -> bool:
    """Return whether an incident's services have been back to normal for several snapshots."""
    return incident.returned >= min(RECOVERS, max(clear_after - 1, 1))


def is_unseen(incident: OpenIncident, silent: AbstractSet[str]) -> bool:
    """Return whether the telemetry of an incident's first suspect, or of all its services, is among the ``silent``."""
    suspect = incident.suspects[0].service if incident.suspects else ""
    return bool(silent) and (suspect in silent or silent >= set(incident.members))


def is_over(incident: OpenIncident, clear_after: int) -> bool:
    """Return whether an incident has ended."""
    return incident.returned >= min(RETURNED, clear_after) or (
        incident.quiet >= clear_after and is_recovering(incident, clear_after)
    )


def _divide(
    touched: Sequence[OpenIncident], culprit: Culprit, culprit_of: dict[str, str], onset: timedelta
) -> tuple[OpenIncident | None, list[OpenIncident], list[OpenIncident]]:
    """Return which of the incidents that a group touches, oldest first, it continues (None: it is a new one), which of
    them merge into that one, and which are about other faults."""
    if all(_is_another(i, culprit, onset) for i in touched):
        return None, [], list(touched)
    first, *later = touched
    others = [i for i in later if _is_another(first, Culprit(culprit_of.get(i.id, ""), i.since), onset)]
    return first, [i for i in later if i not in others], others


def _find_simultaneous(
    incidents: Iterable[OpenIncident],
    members: Iterable[str],
    began: datetime,
    severity: Severity,
    interval_seconds: float,
) -> set[str]:
    """Return the ids of the incidents that began with a group of services, mainly in the same namespace.

    Notices are about single services, so this says nothing about them.
    """
    if severity is Severity.NOTICE:
        return set()
    apart = timedelta(seconds=max(AT_ONCE_SECONDS, AT_ONCE_SNAPSHOTS * interval_seconds))
    near = [i for i in incidents if i.severity is not Severity.NOTICE and abs(began - i.since) <= apart]
    namespace = _main_namespace(members) if near else ""
    return {i.id for i in near if _main_namespace(i.members) == namespace}


def _main_namespace(services: Iterable[str]) -> str:
    """Return the namespace of most of these services, the first one by name of several."""
    counts = Counter(sorted(map(namespace_of, services)))
    return max(counts, key=counts.__getitem__, default="")


def _onset(interval_seconds: float) -> timedelta:
    return timedelta(seconds=max(ONSET_SECONDS, ONSET_SNAPSHOTS * interval_seconds))


def _likely_services(incident: OpenIncident) -> set[str]:
    """Return the services that an incident suspects with reason."""
    return {suspect.service for suspect in incident.suspects if suspect.score >= LIKELY_SHARE}


def _is_another(incident: OpenIncident, culprit: Culprit, onset: timedelta) -> bool:
    """Return whether a culprit is of another fault than an incident."""
    if not culprit.service or culprit.arose is None or not incident.suspects:
        return False
    return culprit.arose > incident.since + onset and culprit.service not in _likely_services(incident)


def _absorb(incident: OpenIncident, merged: Sequence[OpenIncident]) -> OpenIncident:
    """Return an incident that also remembers what those that merge into it remembered."""
    for one in merged:
        notices = inherit(one.notices, incident.notices, {notice.suspect.service for notice in incident.notices})
        incident = replace(incident, leads=join_leads(incident.leads, one.leads), notices=notices)
    return incident


def _join(one: Group, other: Group) -> Group:
    return Group(np.union1d(one.rows, other.rows), one.confirmed or other.confirmed)


def _start_incident(names: Sequence[str], group: Group, began: datetime, severity: Severity) -> OpenIncident:
    members = tuple(sorted(names[i] for i in group.rows))
    return OpenIncident(incident_id(began, members), began, severity, members)


def incident_id(began: datetime, members: Sequence[str]) -> str:
    """Return the id of an incident, from its first evidence (UTC) and its first services, sorted."""
    mark = hashlib.blake2b("\n".join((began.isoformat(), *members)).encode(), digest_size=4).hexdigest()
    return f"{began:%Y%m%dT%H%M%SZ}-{mark}"
