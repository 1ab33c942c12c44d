"""Groups of services that deviate and call each other, matched with the open incidents.

Services above the level and affected services that call each other form a group. A group with a confirmed service is an
incident. Incidents start, grow, merge and end.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from model.incidents.open_incident import (
    FADED_SECONDS,
    OpenIncident,
    advance_members,
    advance_quiet,
    incident_id,
    inherit,
    is_over,
    is_recovering,
    join_leads,
    likely_services,
    onset_of,
    reopen,
)
from model.snapshot import BoolArray, IntArray, namespace_of
from model.verdict import Severity, first_service, worst


@dataclass(frozen=True, slots=True)
class Group:
    """Services that deviate and call each other, as rows of the candidates, and whether one of them is confirmed."""

    rows: IntArray
    is_confirmed: bool


def groups(member: BoolArray, is_confirmed: BoolArray, calls: IntArray) -> list[Group]:
    """Return the connected components of the members along direct calls, those with a confirmed service first.

    Args:
        member: ``[M]`` candidates above their level or affected.
        is_confirmed: ``[M]``.
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
    components = [Group(np.array(r), bool(is_confirmed[r].any())) for r in rows.values()]
    return sorted(components, key=lambda g: not g.is_confirmed)


def split_muted(all_groups: Sequence[Group], is_confirmed: BoolArray, muted: BoolArray) -> tuple[list[Group], IntArray]:
    """Remove the muted services from groups.

    Muted services still connect a group, so that one fault is one incident.

    Args:
        is_confirmed, muted: ``[M]`` candidates.

    Returns:
        The groups that remain, and the muted rows of groups that raise an alert or would.
    """
    unmuted_rows = [group.rows[~muted[group.rows]] for group in all_groups]
    remaining = [Group(rows, bool(is_confirmed[rows].any())) for rows in unmuted_rows if len(rows)]
    hidden_rows = [group.rows[muted[group.rows]] for group in all_groups if group.is_confirmed]
    return sorted(remaining, key=lambda g: not g.is_confirmed), np.concatenate([np.zeros(0, np.int64), *hidden_rows])


def join_groups(first: Group, second: Group) -> Group:
    return Group(np.union1d(first.rows, second.rows), first.is_confirmed or second.is_confirmed)


AT_ONCE_SECONDS, AT_ONCE_SNAPSHOTS = 60.0, 1  # between two groups of one fault in a namespace, whichever is longer
CLEAR_SHARE = 0.5  # root-cause score from which the first suspect is the culprit


@dataclass(frozen=True, slots=True)
class Culprit:
    """The service where a group probably starts.

    Attributes:
        service: empty if that is not clear.
        arose: when it began to deviate, if it deviates by far enough to be a fault of its own.
    """

    service: str = ""
    arose: datetime | None = None


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """A group of a snapshot; without a confirmed service, it can continue an incident but not start one."""

    group: Group
    since: datetime
    severity: Severity
    culprit: Culprit = Culprit()


@dataclass(frozen=True, slots=True)
class MatchedIncidents:
    """Incidents after a snapshot."""

    open: tuple[OpenIncident, ...]
    groups: dict[str, Group]
    ended: tuple[OpenIncident, ...] = ()


def match_incidents(
    before: Sequence[OpenIncident],
    found_groups: Sequence[FoundGroup],
    names: Sequence[str],
    clear_after: int,
    interval_seconds: float = 15.0,
    *,
    deviating: AbstractSet[str] = frozenset(),
    above: AbstractSet[str] = frozenset(),
    unseen: AbstractSet[str] = frozenset(),
    lately: Sequence[OpenIncident] = (),
) -> MatchedIncidents:
    """Match groups with open incidents by shared services or a shared culprit. Incidents start, grow, merge into the
    oldest, and end.

    One fault often shows in groups that do not call each other: callers of one service, or what is behind a service
    that shows nothing itself. They have the culprit in common. A network fault shows in many groups of one namespace,
    which begin at once. Another fault may touch services of an open incident. It is an incident of its own if its
    culprit is severe, arose after the onset of the other, and is not suspected there.

    Args:
        deviating: services that are not back to normal, confirmed or not.
        above: the deviating services above the threshold. Only they stop a recovery that has begun.
        lately: that ended so short a time ago that the same fault would be the same incident.
    """
    open_now = {incident.id: incident for incident in before}
    culprit_of = {i.id: i.suspects[0].service for i in before if i.suspects and i.suspects[0].score >= CLEAR_SHARE}
    group_of: dict[str, Group] = {}
    onset = onset_of(interval_seconds)
    has_namespaces = len({namespace_of(name) for name in names}) > 1  # one alone says nothing
    for entry in found_groups:
        group, began, severity, culprit = entry.group, entry.since, entry.severity, entry.culprit
        members = {names[i] for i in group.rows}
        services = members | ({culprit.service} if culprit.service else set())
        simultaneous: set[str] = set()
        if has_namespaces and group.is_confirmed:
            simultaneous = _find_simultaneous(open_now.values(), members, began, severity, interval_seconds)
        touched_incidents = sorted(
            (
                i
                for i in open_now.values()
                if services & set(i.members) or culprit_of.get(i.id) in services or i.id in simultaneous
            ),
            key=lambda i: (i.since, i.id),
        )
        if not touched_incidents and not group.is_confirmed:
            continue
        continued_incident, merging_incidents, other_incidents = _divide(touched_incidents, culprit, culprit_of, onset)
        arose = culprit.arose if touched_incidents and culprit.arose else began
        returned_incident = None if continued_incident else _find_returned(lately, members, culprit, open_now)
        first = _absorb(
            continued_incident or returned_incident or _start_incident(names, group, arose, severity), merging_incidents
        )
        other_incidents = [i for i in other_incidents if likely_services(i) & services]
        goes_on = not continued_incident or merging_incidents or likely_services(first) & services
        homes = [first, *other_incidents] if goes_on or not other_incidents else other_incidents
        if culprit.service:
            culprit_of.setdefault(first.id, culprit.service)
        for merged_incident in merging_incidents:
            members |= set(merged_incident.members)
            culprit_of.pop(merged_incident.id, None)
            severity = worst(severity, merged_incident.severity)
            del open_now[merged_incident.id]
            if merged_incident.id in group_of:
                group = join_groups(group, group_of.pop(merged_incident.id))
        for home in homes:
            group_of[home.id] = join_groups(group_of[home.id], group) if home.id in group_of else group
            open_now[home.id] = replace(
                home,
                severity=worst(home.severity, severity),
                members=(*home.members, *sorted(members - set(home.members))),
                quiet=0 if group_of[home.id].is_confirmed else home.quiet,
            )
    fades_after = max(FADED_SECONDS / interval_seconds, clear_after)
    alive: list[OpenIncident] = []
    over: list[OpenIncident] = []
    for incident in open_now.values():
        now, is_unseen = group_of.get(incident.id), incident.id in unseen
        returning = above if is_recovering(incident, clear_after) else deviating
        deviates = not returning.isdisjoint(incident.members)
        incident_after = advance_quiet(
            incident, now is not None and now.is_confirmed, deviates, clear_after, is_unseen=is_unseen
        )
        if not is_unseen:
            present = {names[i] for i in now.rows} if now else set()
            incident_after = advance_members(incident_after, present | deviating)
        (over if is_over(incident_after, clear_after, fades_after) and not is_unseen else alive).append(incident_after)
    ended_ids = {incident.id for incident in over}
    return MatchedIncidents(
        tuple(alive), {i: group for i, group in group_of.items() if i not in ended_ids}, tuple(over)
    )


def _find_returned(
    ended_incidents: Iterable[OpenIncident],
    members: AbstractSet[str],
    culprit: Culprit,
    open_now: Mapping[str, OpenIncident],
) -> OpenIncident | None:
    """Return the incident that a group continues: one that ended shortly before, with the same first suspect."""
    for incident in ended_incidents:
        first = first_service(incident.suspects)
        if incident.id not in open_now and first and first in ({culprit.service} if culprit.service else members):
            return reopen(incident)
    return None


def _divide(
    incidents: Sequence[OpenIncident], culprit: Culprit, culprit_of: dict[str, str], onset: timedelta
) -> tuple[OpenIncident | None, list[OpenIncident], list[OpenIncident]]:
    """Return which of the incidents that a group touches, oldest first, it continues (None: it is a new one), which of
    them merge into that one, and which are about other faults."""
    if all(_is_another(i, culprit, onset) for i in incidents):
        return None, [], list(incidents)
    first, *later = incidents
    other_incidents = [i for i in later if _is_another(first, Culprit(culprit_of.get(i.id, ""), i.since), onset)]
    return first, [i for i in later if i not in other_incidents], other_incidents


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
    """Return the namespace with most of these services; of equal ones, the first by name."""
    counts = Counter(sorted(map(namespace_of, services)))
    return max(counts, key=counts.__getitem__, default="")


def _is_another(incident: OpenIncident, culprit: Culprit, onset: timedelta) -> bool:
    if not culprit.service or culprit.arose is None or not incident.suspects:
        return False
    return culprit.arose > incident.since + onset and culprit.service not in likely_services(incident)


def _absorb(incident: OpenIncident, absorbed_incidents: Sequence[OpenIncident]) -> OpenIncident:
    """Return an incident that also remembers what those that merge into it remembered."""
    for other in absorbed_incidents:
        notices = inherit(other.notices, incident.notices, {notice.suspect.service for notice in incident.notices})
        incident = replace(incident, leads=join_leads(incident.leads, other.leads), notices=notices)
    return incident


def _start_incident(names: Sequence[str], group: Group, began: datetime, severity: Severity) -> OpenIncident:
    members = tuple(sorted(names[i] for i in group.rows))
    return OpenIncident(id=incident_id(began, members), since=began, severity=severity, members=members)
