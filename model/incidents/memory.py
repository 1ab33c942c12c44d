"""The memory of alerting about a mesh, from one snapshot to the next."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.incidents.confirmation import Streaks
from model.incidents.feedback import Feedback, PastIncident, normal_scores
from model.incidents.mutes import ActiveMutes, Mute
from model.incidents.open_incident import REOPENS_SECONDS, OpenIncident, with_changes
from model.incidents.reconstruction_history import ReconstructionHistory
from model.incidents.schedule import Schedule
from model.incidents.threshold import SETTLES_SECONDS, Tracks, forget, watch_level
from model.snapshot import DELETIONS, SCALINGS, BoolArray, PlannedChange, mark_services

SUSPICIOUS, SUSPICIOUS_OF = 2, 3  # snapshots above the level of lasting deviations that make a service suspicious
SHORT_SECONDS = 1800.0  # for which a short resource is suspicious
SUSPICIOUS_SECONDS = 3600.0  # for which any other unusual service is
NOT_STORED = {"stored": False}  # for fields that are of one snapshot, that follow from others, or are stored elsewhere
REMEMBERED = 50  # past incidents that feedback can refer to


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentMemory:
    """The memory of alerting about a mesh.

    Attributes:
        scores, times: mesh scores without alerts, and when (Unix, s), oldest first.
        incident_scores: time and mesh score of snapshots with an open incident, oldest first.
        threshold: of the newest snapshot, and its time (Unix, s); None before the first one.
        tracks: page scores of the services that were unusual in one of the last snapshots.
        above_notice: services above the notice level in one of the last n snapshots.
        above_traffic: scopes whose traffic is not as usual, likewise.
        changes: planned changes of the last snapshots, and how many snapshots ago they came.
        expiring_changes: services whose last planned change is over with the present snapshot, for them or for their
            neighbours.
        late: services past the time in which a planned change may show at their neighbours, but not at them; of the
            present snapshot.
        lost: ids of the incidents that were given up because nothing was seen of them for too long; of the present
            snapshot.
        past: the last incidents, open ones and notices included, the newest last; feedback refers to them.
        mutes: set by people, in force and to come, in the order in which they were set.
        active_mutes: of the present snapshot; computed again for each, see ``mutes.py``.
    """

    scores: tuple[float, ...] = ()
    times: tuple[float, ...] = ()
    incident_scores: tuple[tuple[float, float], ...] = ()
    threshold: tuple[float, float] | None = None
    tracks: Tracks = field(default_factory=dict)
    above_notice: Streaks = field(default_factory=dict)
    above_traffic: Streaks = field(default_factory=dict)
    open: tuple[OpenIncident, ...] = ()
    ended: tuple[OpenIncident, ...] = ()
    changes: tuple[tuple[PlannedChange, int], ...] = ()
    past: tuple[PastIncident, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    mutes: tuple[Mute, ...] = ()
    schedule: Schedule = field(default_factory=Schedule)
    reconstruction: ReconstructionHistory = field(default_factory=ReconstructionHistory)
    active_mutes: ActiveMutes = field(default_factory=ActiveMutes, metadata=NOT_STORED)
    expiring_changes: frozenset[str] = field(default=frozenset(), metadata=NOT_STORED)
    late: frozenset[str] = field(default=frozenset(), metadata=NOT_STORED)
    lost: tuple[str, ...] = field(default=(), metadata=NOT_STORED)

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

    def is_alerted_after_change(self, node_ids: Sequence[str], now: datetime, longest: float) -> BoolArray:
        """Return which of these services are in an alert since their own planned change, for at most this many s."""
        alerts = (i for i in self.open if i.is_alert and (now - i.since).total_seconds() <= longest)
        changed_services = {
            near.change.service
            for i in alerts
            for near in i.changes
            if near.change.kind not in DELETIONS | SCALINGS and near.change.service in i.members
        }
        return mark_services(node_ids, changed_services)

    def is_above_threshold(self, node_ids: Sequence[str]) -> BoolArray:
        """Return which of these services were above the threshold in one of the last snapshots."""
        return mark_services(node_ids, {name for name, track in self.tracks.items() if track.above_since})

    def alert_ages(self, node_ids: Sequence[str], now: datetime, interval_seconds: float) -> Array:
        """Return for how many snapshots the oldest alert at each service has been open, ``[N]``; 0 without one."""
        ages = np.zeros(len(node_ids), np.float32)
        for incident in self.open:
            if incident.is_alert and not incident.scope:
                age = np.float32((now - incident.since).total_seconds() / interval_seconds)
                ages = np.where(mark_services(node_ids, incident.members), np.maximum(ages, age), ages)
        return ages

    def is_suspicious(self, node_ids: Sequence[str], now: datetime) -> BoolArray:
        """Return which of these services were unusual in the newest snapshot and in one shortly before it. Nothing is
        learned from them until they are usual again, or have an alert.

        That lasts for a while only. A leak lasts for hours, a batch may be here to stay, and what was unusual for an
        hour without an alert is the new normal.
        """
        lately = (1 << SUSPICIOUS_OF) - 1
        names = {
            name
            for name, (bits, since) in self.above_notice.items()
            if bits & 1 and (bits & lately).bit_count() >= SUSPICIOUS and (now - since).total_seconds() <= SHORT_SECONDS
        }
        min_score = watch_level(self.threshold[0] if self.threshold else np.inf)
        names |= {
            name
            for name, track in self.tracks.items()
            if track.scores[0] >= min_score
            and track.times_above(min_score, SUSPICIOUS_OF) >= SUSPICIOUS
            and (now - track.unusual_since).total_seconds() <= SUSPICIOUS_SECONDS
        }
        return mark_services(node_ids, names)

    def forget_incidents(self) -> "IncidentMemory":
        """Give up what was open before a long gap."""
        lost_ids = tuple(i.id for i in self.open)
        return replace(self._keep_streaks(frozenset()), open=(), changes=(), lost=lost_ids)

    def learn_baseline(self, judged: "IncidentMemory") -> "IncidentMemory":
        """Learn only the scores from the memory after a baseline's verdict: they are for the threshold. A baseline has
        no incident, and ends no mute, since mutes end by the mesh's clock."""
        return replace(
            self,
            scores=judged.scores,
            times=judged.times,
            reconstruction=judged.reconstruction,
            tracks={},
            above_notice={},
            above_traffic={},
            open=(),
            active_mutes=ActiveMutes(),
        )

    def pass_gap(self, missing: int) -> "IncidentMemory":
        """Advance over missing snapshots. Incidents stay open. Where the first snapshots after the gap are back to
        normal, an incident ends sooner, because it may have ended in the gap."""
        older_changes = tuple((change, age + missing) for change, age in self.changes)
        waiting = tuple(replace(i, unseen=i.unseen + missing) for i in self.open)
        return replace(self, changes=older_changes, open=waiting)

    def planned_deletions(self) -> set[str]:
        """Services whose deletion was announced recently enough to be remembered."""
        return {change.service for change, _ in self.changes if change.kind in DELETIONS}

    def has_new_version(self, node_ids: Sequence[str], but: AbstractSet[str] = DELETIONS | SCALINGS) -> BoolArray:
        """Return which of these services have a remembered planned change that may make them behave differently: any
        but these kinds."""
        return mark_services(node_ids, {change.service for change, _ in self.changes if change.kind not in but})

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
        all_changes = (*older, *((change, 0) for change in changes))
        ages = {change.service: age for change, age in all_changes if change.kind not in DELETIONS}  # of the newest
        expiring = frozenset(service for service, age in ages.items() if age + 1 in (keep, versions))
        late = frozenset(service for service, age in ages.items() if age >= keep)
        return replace(self, changes=all_changes, expiring_changes=expiring, late=late)

    def attach_changes(self, now: datetime, interval_seconds: float) -> "IncidentMemory":
        """Attach the planned changes at the services of each open incident. They stay with it longer than changes are
        remembered."""
        if not self.changes or not self.open:
            return self
        dated_changes = [(change, now - timedelta(seconds=age * interval_seconds)) for change, age in self.changes]
        return replace(self, open=tuple(with_changes(incident, dated_changes) for incident in self.open))

    def normal_scores(self, until: float = np.inf) -> NDArray[np.float64]:
        """Return the mesh scores ``[T]`` of normal operation: without an incident, feedback considered.

        Args:
            until: Unix, s. What is building up now may be an alert soon, and must not raise its own threshold.
        """
        count = bisect_right(self.times, until)
        if not self.feedback:
            return np.array(self.scores[:count])
        return normal_scores(self.scores[:count], self.times[:count], self.incident_scores, self.past, self.feedback)

    def ended_lately(self, now: datetime) -> tuple[OpenIncident, ...]:
        """Return the alerts that ended so short a time ago that the same fault would be the same incident."""
        limit = timedelta(seconds=REOPENS_SECONDS)
        return tuple(incident for incident in self.ended if incident.ended_at and now - incident.ended_at <= limit)

    def end(self, incidents: Iterable[OpenIncident], now: datetime) -> "IncidentMemory":
        """Remember the alerts that ended with this snapshot, for some minutes."""
        still_open = {incident.id for incident in self.open}
        recent = tuple(incident for incident in self.ended_lately(now) if incident.id not in still_open)
        return replace(self, ended=(*recent, *(replace(incident, ended_at=now) for incident in incidents)))

    def last_threshold(self) -> tuple[float, float] | None:
        """Return the threshold of the snapshot before, and its time; None while it still follows the first scores."""
        is_settled = self.threshold and self.times and self.threshold[1] - self.times[0] >= SETTLES_SECONDS
        return self.threshold if is_settled else None

    def add_score(self, score: float, at: datetime, *, normal: bool, keep: int) -> "IncidentMemory":
        """Add a mesh score. At most ``keep`` scores of normal operation are kept, and as many with an open incident."""
        if not normal:
            return replace(self, incident_scores=(*self.incident_scores, (at.timestamp(), score))[-keep:])
        return replace(self, scores=(*self.scores, score)[-keep:], times=(*self.times, at.timestamp())[-keep:])

    def record_open(self, names: Sequence[str], excess: Array, now: datetime) -> "IncidentMemory":
        """Record the open incidents among those that feedback can refer to.

        Args:
            excess: ``[M, 5]`` by how much their levels would have to rise for silence now.
        """
        past = {incident.id: incident for incident in self.past}
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
        open_services = {name for incident in still_open for name in incident.members}
        ended_services = {
            name for incident in self.open if incident.is_alert and not incident.scope for name in incident.members
        } - open_services
        return replace(self, tracks=forget(self.tracks, ended_services))

    def _end(self, incident: str, services: Collection[str]) -> "IncidentMemory":
        """Close an incident, and forget that these services were above their levels."""
        ended_names = {candidate.scope for candidate in self.open if candidate.id == incident} | set(services)
        above = {*self.tracks, *self.above_notice, *self.above_traffic}
        return replace(self._keep_streaks(above - ended_names), open=tuple(i for i in self.open if i.id != incident))

    def _keep_streaks(self, names: AbstractSet[str]) -> "IncidentMemory":
        """Forget all tracks and streaks but the ones of some services and scopes."""
        tracks = {name: track for name, track in self.tracks.items() if name in names}
        notice, traffic = (
            {name: bits for name, bits in above.items() if name in names}
            for above in (self.above_notice, self.above_traffic)
        )
        return replace(self, tracks=tracks, above_notice=notice, above_traffic=traffic)

    def remove_feedback(self, incident: str) -> "IncidentMemory":
        return replace(self, feedback=tuple(judgement for judgement in self.feedback if judgement.incident != incident))

    def remove_mute(self, mute: str) -> "IncidentMemory":
        return replace(self, mutes=tuple(entry for entry in self.mutes if entry.id != mute))

    def without_muted(self) -> "IncidentMemory":
        """Remove muted members from open incidents. An incident without members is over, and so is an alert that loses
        some if none of the others was above the threshold recently: they may only be affected by what is muted."""
        if not self.active_mutes.mutes or not self.open:
            return self
        remaining = []
        for incident in self.open:
            members = self.active_mutes.drop_muted(incident.members)
            may_be_affected = incident.is_alert and not incident.scope and members != incident.members
            if members and not (may_be_affected and not self.is_above_threshold(members).any()):
                remaining.append(replace(incident, members=members))
        return replace(self, open=tuple(remaining))

    def drop_expired(self, now: datetime) -> "IncidentMemory":
        """Drop mutes that end at ``now`` or before, and what is of one snapshot only."""
        return replace(
            self,
            mutes=tuple(mute for mute in self.mutes if mute.end > now),
            active_mutes=ActiveMutes(),
            expiring_changes=frozenset(),
            late=frozenset(),
            lost=(),
        )
