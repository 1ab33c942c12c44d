"""From anomalous services to incidents: groups that hang together, followed from snapshot to snapshot.

A service is *hot* while its page score is above the page level, *confirmed* when it is and was in k of the last n
snapshots. Hot and affected services that call each other form a group; a group with a confirmed service is an incident.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.incidents.feedback import Feedback, PastIncident, normal_scores
from model.incidents.mutes import ActiveMutes, Mute, patterns
from model.snapshot import BoolArray, IntArray, PlannedChange
from model.verdict import MuteInForce, NearbyChange, Severity

CLEAR_SECONDS = 120.0
REMEMBERED = 50  # incidents that feedback may name
MOST_CHANGES = 10  # planned near an incident
DELETIONS = frozenset({"delete", "deletion", "retire", "retirement"})


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """When to page.

    Attributes:
        false_pages_per_day: budget; None: 1, or 1 for each 50 services.
        confirm: hot snapshots (k) ...
        confirm_of: ... of the last so many (n) that confirm a service.
        clear: snapshots without a confirmed service after which an incident ends, at most (:meth:`clear_after`).
        percentile: of the mesh scores without alerts, the shown threshold.
        history: mesh scores kept for it.
        mute_intervals: snapshots for which a planned deletion mutes its neighbourhood.
        change_intervals: snapshots for which what a service shows after another planned change is judged by what
            such changes do.
        warm_up: snapshots seen before a verdict is given.
    """

    false_pages_per_day: float | None = None
    confirm: int = 2
    confirm_of: int = 3
    clear: int = 4
    percentile: float = 99.0
    history: int = 2000
    mute_intervals: int = 2
    change_intervals: int = 12
    warm_up: int = 10

    def budget(self, services: int) -> float:
        """False pages allowed a day in a mesh of so many services."""
        if self.false_pages_per_day is not None:
            return self.false_pages_per_day
        return max(1.0, services / 50)

    @property
    def change_memory(self) -> int:
        """Snapshots that a planned change is remembered for."""
        return max(self.change_intervals, self.mute_intervals) + 1

    def clear_after(self, interval_seconds: float) -> int:
        """Quiet snapshots that end an incident: ``clear``, or two minutes if that is less, but never under two."""
        return min(self.clear, max(2, round(CLEAR_SECONDS / interval_seconds)))

    def page_level(self, services: int, interval_seconds: float) -> float:
        """Surprise that chance reaches as often as the budget allows: ``log10(services x snapshots per day / budget)``
        (one test per service and snapshot); the offset of the weights not counted."""
        return float(np.log10(services * 86400 / interval_seconds / self.budget(services)))


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """An incident as remembered between snapshots; ``members`` are services that were part of it so far, ``changes``
    those that were planned near it, the newest first."""

    id: str
    since: datetime
    severity: Severity
    members: tuple[str, ...]
    quiet: int = 0
    changes: tuple[NearbyChange, ...] = ()


@dataclass(frozen=True, slots=True)
class IncidentMemory:
    """What paging remembers of a mesh.

    Attributes:
        scores, times: mesh scores without alerts, and when (Unix, s), oldest first.
        withheld: time and mesh score of snapshots with an alert, oldest first.
        hot: per service that was hot in the last n snapshots: bits (1 = newest) and when the streak began.
        open: incidents that page.
        changes: planned changes of the last snapshots, with how many snapshots ago they came.
        past: the last incidents, open ones included, as feedback may name them; the newest last.
        feedback: what people say of incidents; the newest last.
        mutes: that people gave, in force and to come; in the order in which they were given.
        hidden: whom mutes named that hid something, and the last snapshot in which they did: what those services showed
            until then is no past to adapt to.
        active_mutes: with the snapshot at hand, made anew for each; see ``muting.py``.
    """

    scores: tuple[float, ...] = ()
    times: tuple[float, ...] = ()
    alerted_scores: tuple[tuple[float, float], ...] = ()
    above_level: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    open: tuple[OpenIncident, ...] = ()
    changes: tuple[tuple[PlannedChange, int], ...] = ()
    past: tuple[PastIncident, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    mutes: tuple[Mute, ...] = ()
    last_hidden: dict[str, datetime] = field(default_factory=dict)
    active_mutes: ActiveMutes = field(default_factory=ActiveMutes)

    def is_in_incident(self, node_ids: Sequence[str]) -> BoolArray:
        """Which of these services belong to an open incident: what they show is no past to learn from."""
        members = {name for incident in self.open for name in incident.members}
        if not members:
            return np.zeros(len(node_ids), bool)
        return np.fromiter((name in members for name in node_ids), bool, len(node_ids))

    def has_planned_change(self, node_ids: Sequence[str]) -> BoolArray:
        """Which of these services a planned change was announced for, deletions apart, as long as it is remembered."""
        names = {change.service for change, _ in self.changes if change.kind not in DELETIONS}
        if not names:
            return np.zeros(len(node_ids), bool)
        return np.fromiter((name in names for name in node_ids), bool, len(node_ids))

    def advance_changes(self, changes: Iterable[PlannedChange], keep: int, keep_deletions: int = 0) -> "IncidentMemory":
        """One snapshot later, with the changes announced in it; those older than ``keep`` snapshots are dropped.

        Deletions stay for ``keep_deletions`` if that is more: whoever was retired stays in view as absent until it is
        forgotten, and must not be missed in between.
        """
        older = tuple(
            (change, age + 1)
            for change, age in self.changes
            if age + 1 < (max(keep, keep_deletions) if change.kind in DELETIONS else keep)
        )
        return replace(self, changes=(*older, *((change, 0) for change in changes)))

    def attach_changes(self, now: datetime, interval_seconds: float) -> "IncidentMemory":
        """With what was planned at the services of each open incident: the page tells it for as long as it is open,
        which is longer than changes are remembered."""
        if not self.changes or not self.open:
            return self
        told = [(change, now - timedelta(seconds=age * interval_seconds)) for change, age in self.changes]
        return replace(self, open=tuple(_attach_changes(incident, told) for incident in self.open))

    def threshold(self, percentile: float) -> float:
        """Percentile of the scores that were normal, by what is known now; 0 while there are none."""
        scores: Sequence[float] | NDArray[np.float64] = self.scores
        if self.feedback:
            scores = normal_scores(self.scores, self.times, self.alerted_scores, self.past, self.feedback)
        return float(np.percentile(scores, percentile)) if len(scores) else 0.0

    def add_score(self, score: float, at: datetime, *, alerted: bool, keep: int) -> "IncidentMemory":
        """With one more mesh score; at most ``keep`` without and as many with an alert."""
        if alerted:
            return replace(self, alerted_scores=(*self.alerted_scores, (at.timestamp(), score))[-keep:])
        return replace(self, scores=(*self.scores, score)[-keep:], times=(*self.times, at.timestamp())[-keep:])

    def record_open(self, names: Sequence[str], excess: Array, now: datetime) -> "IncidentMemory":
        """With what is open now among the incidents that feedback may name.

        Args:
            names: of M candidates.
            excess: ``[M, 4]`` how far their page levels would have to be raised now for silence.
            now: of the snapshot.
        """
        past = {one.id: one for one in self.past}
        rows = excess.astype(np.float64).round(3).tolist()  # few digits: it is stored with every snapshot
        over = {name: tuple(row) for name, row in zip(names, rows, strict=True) if any(row)}
        for i in self.open:
            highest = dict(past.pop(i.id).excess) if i.id in past else {}
            for name in over.keys() & set(i.members):
                highest[name] = tuple(map(max, over[name], highest.get(name, over[name])))
            past[i.id] = PastIncident(i.id, i.since, now, i.members, highest)
        return replace(self, past=tuple(past.values())[-REMEMBERED:])

    def add_feedback(self, feedback: Feedback) -> "IncidentMemory":
        """With what somebody says of an incident instead of what was said of it before; one that is none has ended."""
        memory = replace(self, feedback=(*self.remove_feedback(feedback.incident).feedback, feedback))
        if feedback.was_incident:
            return memory
        hot = {name: bits for name, bits in self.above_level.items() if name not in feedback.services}
        return replace(memory, open=tuple(i for i in self.open if i.id != feedback.incident), above_level=hot)

    def remove_feedback(self, incident: str) -> "IncidentMemory":
        """As if nothing had been said of this incident."""
        return replace(self, feedback=tuple(one for one in self.feedback if one.incident != incident))

    def remove_mute(self, mute: str) -> "IncidentMemory":
        """As if there were no such mute."""
        return replace(self, mutes=tuple(one for one in self.mutes if one.id != mute))

    def without_muted(self) -> "IncidentMemory":
        """Without muted members of open incidents; one that loses some ends if nobody left was hot of late."""
        if not self.active_mutes.mutes or not self.open:
            return self
        heard = [~self.active_mutes.is_muted(incident.members) for incident in self.open]
        left = [
            replace(incident, members=tuple(np.array(incident.members, object)[kept]))
            for incident, kept in zip(self.open, heard, strict=True)
        ]
        goes_on = [
            kept.all() or not self.above_level.keys().isdisjoint(i.members) for i, kept in zip(left, heard, strict=True)
        ]
        return replace(self, open=tuple(incident for incident, on in zip(left, goes_on, strict=True) if on))

    def record_hidden(self, mutes: Iterable[MuteInForce], now: datetime) -> "IncidentMemory":
        """With whom the mutes name that hide something now."""
        found = {pattern: now for mute in mutes if mute.hides for pattern in patterns(mute)}
        return replace(self, last_hidden=self.last_hidden | found) if found else self

    def drop_expired(self, now: datetime, oldest: datetime) -> "IncidentMemory":
        """Without the mutes that hold for no snapshot after ``now``, and what they hid before the ``oldest`` kept."""
        return replace(
            self,
            mutes=tuple(mute for mute in self.mutes if mute.end > now),
            last_hidden={service: last for service, last in self.last_hidden.items() if last >= oldest},
            active_mutes=ActiveMutes(),
        )


def _attach_changes(incident: OpenIncident, told: Sequence[tuple[PlannedChange, datetime]]) -> OpenIncident:
    """The incident with those of the changes at its services that it does not know yet."""
    known = {near.change for near in incident.changes}
    new = [
        NearbyChange(change, at) for change, at in told if change.service in incident.members and change not in known
    ]
    if not new:
        return incident
    changes = sorted([*incident.changes, *new], key=lambda near: near.at, reverse=True)
    return replace(incident, changes=tuple(changes[:MOST_CHANGES]))


@dataclass(frozen=True, slots=True)
class Group:
    """Services that deviate and call each other: rows of the candidates."""

    rows: IntArray
    confirmed: bool


def confirm_services(
    memory: IncidentMemory, names: Sequence[str], scores: Array, level: float, policy: AlertPolicy, at: datetime
) -> tuple[dict[str, tuple[int, datetime]], BoolArray]:
    """Which candidates are confirmed, and the hot services' bits one snapshot later."""
    mask = (1 << policy.confirm_of) - 1
    bits = {name: ((b << 1) & mask, since) for name, (b, since) in memory.above_level.items()}
    for name, score in zip(names, scores, strict=True):
        if score > level:
            before, since = bits.get(name, (0, at))
            bits[name] = (before | 1, since if before else at)
    bits = {name: value for name, value in bits.items() if value[0]}
    found = [bits.get(name, (0, at))[0] for name in names]
    confirmed = np.array([b & 1 and b.bit_count() >= policy.confirm for b in found], bool)
    return bits, confirmed


def groups(member: BoolArray, confirmed: BoolArray, calls: IntArray) -> list[Group]:
    """Connected components of the members along direct calls, those with a confirmed service first.

    Args:
        member: ``[M]`` hot or affected candidates.
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
    """The groups without their muted services, and the muted rows of those that page or would.

    Whoever is muted still holds a group together, so that one trouble is one incident.

    Args:
        found: groups of candidates.
        confirmed, muted: ``[M]`` candidates.
    """
    left = [group.rows[~muted[group.rows]] for group in found]
    heard = [Group(rows, bool(confirmed[rows].any())) for rows in left if len(rows)]
    hidden = [group.rows[muted[group.rows]] for group in found if group.confirmed]
    return sorted(heard, key=lambda g: not g.confirmed), np.concatenate([np.zeros(0, np.int64), *hidden])


def follow(
    memory: IncidentMemory,
    found: Sequence[Group],
    names: Sequence[str],
    since: Sequence[datetime],
    severities: Sequence[Severity],
    clear_after: int,
) -> tuple[tuple[OpenIncident, ...], dict[str, Group]]:
    """Match groups to open incidents by shared services: incidents are born, grow, merge into the oldest, and end.

    Args:
        memory: with the open incidents.
        found: today's groups; an unconfirmed one can keep an incident's services in view, not begin one.
        names: candidates' ids.
        since: per group, when its first evidence was seen.
        severities: per group.
        clear_after: quiet snapshots that end an incident.

    Returns:
        The incidents open now, and the group each of them has in this snapshot, by incident id.
    """
    open_now = {incident.id: incident for incident in memory.open}
    seen: dict[str, Group] = {}
    for group, began, severity in zip(found, since, severities, strict=True):
        members = {names[i] for i in group.rows}
        touched = sorted((i for i in open_now.values() if members & set(i.members)), key=lambda i: (i.since, i.id))
        if not touched and not group.confirmed:
            continue
        home = touched[0] if touched else _start_incident(names, group, began, severity)
        for merged in touched[1:]:
            members |= set(merged.members)
            severity = max(severity, merged.severity, key=list(Severity).index)
            del open_now[merged.id]
        shown = [*(seen.pop(i.id) for i in touched if i.id in seen), group]
        seen[home.id] = Group(np.concatenate([g.rows for g in shown]), any(g.confirmed for g in shown))
        open_now[home.id] = replace(
            home,
            severity=max(home.severity, severity, key=list(Severity).index),
            members=tuple(sorted(set(home.members) | members)),
            quiet=0 if seen[home.id].confirmed else home.quiet,
        )
    ended = {i for i in open_now if not (i in seen and seen[i].confirmed) and open_now[i].quiet + 1 >= clear_after}
    alive = tuple(
        incident if incident.id in seen and seen[incident.id].confirmed else replace(incident, quiet=incident.quiet + 1)
        for incident in open_now.values()
        if incident.id not in ended
    )
    return alive, {i: group for i, group in seen.items() if i not in ended}


def _start_incident(names: Sequence[str], group: Group, began: datetime, severity: Severity) -> OpenIncident:
    members = tuple(sorted(names[i] for i in group.rows))
    return OpenIncident(incident_id(began, members), began, severity, members)


def incident_id(began: datetime, members: Sequence[str]) -> str:
    """Name of an incident by its first evidence (UTC) and the services that it began with, sorted."""
    mark = hashlib.blake2b("\n".join((began.isoformat(), *members)).encode(), digest_size=4).hexdigest()
    return f"{began:%Y%m%dT%H%M%SZ}-{mark}"
