"""An incident between two snapshots: its suspects, when it recovers, and when it ends.

The suspects of one snapshot depend on what that snapshot shows. A cause that restarts, or is hidden by a backlog, shows
nothing later, and a resource that was running out before the incident explains it although something else is now
further from normal. Neither may vanish from the list that people read, so an incident remembers both.
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from model.incidents.kind import reason_kind
from model.snapshot import PlannedChange
from model.verdict import MAX_SUSPECTS, MOVED, IncidentKind, NearbyChange, Reason, Severity, Suspect, first_service

LEADS = 0.5  # root-cause score from which the first suspect leads
LED = 3  # snapshots that a suspect has to lead, so that it stays in the list
LEAD_SHARE, MIN_SHARE = 0.25, 0.01  # of the score, for all of them just after they led, and at last for each
HALF_LIFE = 20.0  # snapshots after which their share is half as large
MAX_LEADS = 3  # remembered for an incident, the ones that led for longest
MAX_INHERITED = 2  # reasons of a notice
SOON = 1.0  # s, least that a forecast ages to


@dataclass(frozen=True, slots=True)
class Lead:
    """A suspect that led the list of an incident, or had a fault of its own beside the one that led.

    Attributes:
        suspect: when it led last.
        age: snapshots since, with evidence and another first suspect.
    """

    suspect: Suspect
    snapshots: int = 1
    age: int = 0


@dataclass(frozen=True, slots=True)
class PastNotice:
    """A service with a notice, and the time of the snapshot that showed its reasons last."""

    suspect: Suspect
    at: datetime


def follow_leads(
    leads: tuple[Lead, ...], suspects: Sequence[Suspect], independent: Collection[str] = ()
) -> tuple[Lead, ...]:
    """Return the leads after a snapshot with evidence that shows these suspects."""
    first = suspects[0].service if suspects and suspects[0].score >= LEADS else ""
    leading = [suspect for suspect in suspects if suspect.service == first]
    leading += [suspect for suspect in suspects if suspect.service in independent and suspect.service != first][
        : MAX_LEADS - 1
    ]
    now = {suspect.service for suspect in leading}
    before = {lead.suspect.service: lead.snapshots for lead in leads}
    other_leads = [replace(lead, age=lead.age + 1) for lead in leads if lead.suspect.service not in now]
    present = [Lead(suspect, before.get(suspect.service, 0) + 1) for suspect in leading]
    return *present, *_longest(other_leads)[: MAX_LEADS - len(present)]


def join_leads(leads: tuple[Lead, ...], other_leads: tuple[Lead, ...]) -> tuple[Lead, ...]:
    """Return the leads of an incident that another one merges into it."""
    by_service = {lead.suspect.service: lead for lead in other_leads}
    for lead in leads:
        other = by_service.get(lead.suspect.service)
        by_service[lead.suspect.service] = replace(lead, snapshots=lead.snapshots + other.snapshots) if other else lead
    return tuple(_longest(by_service.values())[:MAX_LEADS])


def _longest(leads: Iterable[Lead]) -> list[Lead]:
    return sorted(leads, key=lambda lead: -lead.snapshots)


def with_leads(suspects: tuple[Suspect, ...], leads: Sequence[Lead]) -> tuple[Suspect, ...]:
    """Return the suspects with those that led before, best first. The scores add up to 1 at most."""
    by_service = {suspect.service: suspect for suspect in suspects}
    share = {}
    for lead in leads:
        suspect = by_service.get(lead.suspect.service)
        if lead.snapshots >= LED and (suspect is None or suspect.score < _share(lead)):
            share[lead.suspect.service] = _share(lead)
            by_service[lead.suspect.service] = suspect if suspect and suspect.reasons else lead.suspect
    if not share:
        return suspects
    scale = min(LEAD_SHARE / sum(share.values()), 1.0)
    before = {suspect.service: suspect.score for suspect in suspects}
    share = {service: max(scale * value, before.get(service, 0.0)) for service, value in share.items()}
    entries = _make_room(
        [suspect for name, suspect in by_service.items() if name not in share], 1 - sum(share.values())
    )
    entries += [replace(by_service[name], score=score) for name, score in share.items()]
    ranking = sorted(entries, key=lambda suspect: -suspect.score)
    other_names = [suspect.service for suspect in ranking if suspect.service not in share]
    dropped_names = other_names[max(MAX_SUSPECTS - len(share), 1) :]
    return tuple(suspect for suspect in ranking if suspect.service not in dropped_names)


def _make_room(suspects: list[Suspect], total: float) -> list[Suspect]:
    """Return the suspects, best first, with scores that add up to ``total`` at most. The first one gives way last, so
    that a clear cause stays clear."""
    if not suspects:
        return []
    first, *later = suspects
    score, other_scores = min(first.score, total), sum(suspect.score for suspect in later)
    scale = min((total - score) / other_scores, 1.0) if other_scores else 1.0
    return [replace(first, score=score), *(replace(suspect, score=suspect.score * scale) for suspect in later)]


def _share(lead: Lead) -> float:
    return max(LEAD_SHARE * float(0.5 ** (lead.age / HALF_LIFE)), MIN_SHARE)


def inherit(
    notices: tuple[PastNotice, ...], new_notices: Sequence[PastNotice], services: Collection[str]
) -> tuple[PastNotice, ...]:
    """Return the notices that an incident remembers."""
    by_service = {notice.suspect.service: notice for notice in notices}
    by_service |= {
        notice.suspect.service: notice
        for notice in new_notices
        if notice.suspect.service in services and notice.suspect.reasons
    }
    return tuple(by_service.values())


def renew(notice: PastNotice, reasons: Mapping[str, Reason], now: datetime) -> PastNotice:
    """Return a notice with new reasons, by metric, where it has these metrics."""
    if reasons.keys().isdisjoint(reason.metric for reason in notice.suspect.reasons):
        return notice
    new_reasons = tuple(reasons.get(reason.metric, reason) for reason in notice.suspect.reasons)
    return PastNotice(replace(notice.suspect, reasons=new_reasons), now)


def with_notices(suspects: tuple[Suspect, ...], notices: Sequence[PastNotice], now: datetime) -> tuple[Suspect, ...]:
    """Return the suspects with the reasons of earlier notices about them, first or second: first if the suspect's own
    first reason is a resource, else right after the symptom."""
    past = {notice.suspect.service: notice for notice in notices}
    return tuple(
        _with_notice(suspect, past[suspect.service], now) if suspect.service in past else suspect
        for suspect in suspects
    )


def _with_notice(suspect: Suspect, notice: PastNotice, now: datetime) -> Suspect:
    seconds = (now - notice.at).total_seconds()
    notice_reasons = [_aged(reason, seconds) for reason in notice.suspect.reasons[:MAX_INHERITED]]
    own_by_metric = {
        reason.metric: reason for reason in suspect.reasons if not reason.source and not reason.destination
    }
    notice_reasons = [
        replace(reason, observed=own_by_metric[reason.metric].observed) if reason.metric in own_by_metric else reason
        for reason in notice_reasons
    ]
    metrics = {reason.metric for reason in notice_reasons}
    own = [reason for reason in suspect.reasons if reason.source or reason.destination or reason.metric not in metrics]
    load = suspect.reasons[0].load if suspect.reasons else 1.0
    place = 1 if own and reason_kind(own[0]) is not IncidentKind.RESOURCES else 0
    first, *later = [*own[:place], *notice_reasons, *own[place:]]
    return replace(suspect, reasons=(replace(first, load=load), *(replace(reason, load=1.0) for reason in later)))


def _aged(reason: Reason, seconds: float) -> Reason:
    """Return a reason as it reads this many seconds later. A forecast counts from the verdict. One that is overdue says
    "soon": only a measurement can say that the limit is reached."""
    forecast = reason.forecast
    if forecast is None or seconds <= 0:
        return reason
    soonest, middle, latest = (
        max(at - seconds, min(at, SOON)) for at in (forecast.soonest, forecast.seconds, forecast.latest)
    )
    return replace(reason, forecast=replace(forecast, soonest=soonest, seconds=middle, latest=latest))


ONSET_SECONDS, ONSET_SNAPSHOTS = 240.0, 4  # after an incident's first evidence, whichever is longer
RECOVERS = 3  # snapshots in a row in which its services are back to normal, after which an incident recovers
RETURNED = 4  # such snapshots in a row, after which a service leaves it
REOPENS_SECONDS = 360.0  # after its end, in which the same fault is the same incident
FADED_SECONDS = 600.0  # without a confirmed service, after which it is over although something still deviates
STRONGER = 1.3  # times the peak, for new suspects after the onset
LIKELY_SHARE = 0.1  # root-cause score from which a suspect explains what a group does
MAX_BESIDE = 2  # reasons beside calls that moved
MAX_CHANGES = 10  # planned changes kept with an incident


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncident:
    """An incident as stored between snapshots.

    Attributes:
        id, since, severity: see :class:`~model.verdict.Incident`.
        members: services that are part of it. One that is back to normal leaves.
        normal_for: for how many snapshots in a row members are back to normal, those that are.
        quiet: snapshots without a confirmed service, those missing before one included.
        returned: snapshots in a row in which its services are back to normal. Once it recovers, a deviation below the
            threshold does not count.
        unseen: snapshots in a row, up to this one, that were missing or showed nothing of it.
        changes: planned changes near it, newest first.
        suspects: of that snapshot; see :meth:`with_strongest`.
        scope: as in :class:`~model.verdict.Incident`; empty unless it is about traffic.
        leads: suspects that led in some snapshot, the present one first if there is one.
        notices: that were open at its services or suspects, before it or beside it.
        spent: of error budgets, as ``objectives.Spent``.
        recurrences: how often it ended and began again within ``REOPENS_SECONDS``.
        ended_at: after its end, the time of that; None while it is open.
    """

    id: str
    since: datetime
    severity: Severity
    members: tuple[str, ...]
    normal_for: dict[str, int] = field(default_factory=dict)
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
    spent: tuple[tuple[str, float, float], ...] = ()
    recurrences: int = 0
    ended_at: datetime | None = None

    @property
    def shows_nothing(self) -> bool:
        """True if the newest snapshot has no evidence of it."""
        return self.quiet > 0 or self.unseen > 0

    @property
    def is_alert(self) -> bool:
        return self.severity is not Severity.NOTICE

    def with_strongest(
        self,
        score: float,
        suspects: tuple[Suspect, ...],
        now: datetime,
        interval_seconds: float,
        independent: Collection[str] = (),
    ) -> "OpenIncident":
        """Keep the suspects of the strongest snapshot, with the numbers of the newest one. A notice keeps the newest
        suspects, because a forecast ages.

        The cause shows best while the incident begins. Later the backlog, retries and other faults beside it are often
        stronger, and a recovering incident shows no cause at all. So after the onset only a far stronger snapshot
        replaces the suspects, until the first of them is back to normal, or its symptom has not been seen for as long
        as an onset lasts. Those that led for several snapshots are remembered whatever happens, and so are
        ``independent`` services, which have a fault of their own.
        """
        suspects = tuple(_with_moved(suspect, self.suspects) for suspect in suspects)
        if self.severity is Severity.NOTICE:
            incident = self
            if not self.shows_nothing:
                return replace(self, peak=score, suspects=suspects, suspects_at=now)
        else:
            leads = self.leads if self.shows_nothing else follow_leads(self.leads, suspects, independent)
            incident = replace(self, leads=leads)
        onset = onset_of(interval_seconds)
        min_score = self.peak * (1 if now - self.since <= onset else STRONGER)
        if self.suspects_at and now - self.suspects_at > onset and not self.shows_nothing:
            min_score = 0.0
        if self.suspects and (score < min_score or not suspects):
            return incident if self.shows_nothing else incident.with_numbers(suspects, now)
        return replace(incident, peak=score, suspects=suspects, suspects_at=now)

    def with_numbers(self, suspects: Sequence[Suspect], now: datetime) -> "OpenIncident":
        """Take the reasons of a newer snapshot where they are about the same symptom of the same suspect, and what it
        adds to the context of a suspect."""
        newer = {suspect.service: suspect for suspect in suspects}
        new_suspects = tuple(
            _renew(suspect, newer[suspect.service]) if suspect.service in newer else suspect
            for suspect in self.suspects
        )
        at = now if new_suspects[0].reasons is not self.suspects[0].reasons else self.suspects_at
        return replace(self, suspects=new_suspects, suspects_at=at)

    def inherit_notices(self, notices: Sequence[PastNotice]) -> "OpenIncident":
        """Remember the notices about its services or likely suspects."""
        if self.severity is Severity.NOTICE or not notices:
            return self
        return replace(self, notices=inherit(self.notices, notices, {*self.members, *likely_services(self)}))

    def shown_suspects(self, now: datetime) -> tuple[Suspect, ...]:
        """Return the suspects for people: of its strongest snapshot, those that led for several snapshots, and what
        notices said about them."""
        return with_notices(with_leads(self.suspects, self.leads), self.notices, now)


def _renew(suspect: Suspect, newer: Suspect) -> Suspect:
    reasons = newer.reasons if _same_symptom(suspect, newer) else suspect.reasons
    context = newer.context or suspect.context
    return (
        suspect
        if reasons is suspect.reasons and context is suspect.context
        else replace(suspect, reasons=reasons, context=context)
    )


def _with_moved(suspect: Suspect, before: Sequence[Suspect]) -> Suspect:
    """Return a suspect with the calls that it moved earlier in the incident: what it made before is soon no longer its
    usual traffic, but a wrong route does not become right by lasting."""
    if not suspect.reasons or any(reason.metric == MOVED for reason in suspect.reasons):
        return suspect
    moved_calls = [
        r for earlier in before if earlier.service == suspect.service for r in earlier.reasons if r.metric == MOVED
    ]
    return replace(suspect, reasons=(*suspect.reasons[:MAX_BESIDE], *moved_calls)) if moved_calls else suspect


def _same_symptom(first: Suspect, second: Suspect) -> bool:
    """Return whether the first reasons of a suspect in two snapshots are about the same series."""
    series = [(r.metric, r.source, r.destination) for suspect in (first, second) for r in suspect.reasons[:1]]
    return len(series) == 2 and series[0] == series[1]


def advance_quiet(
    incident: OpenIncident, is_confirmed: bool, deviates: bool, clear_after: int, *, is_unseen: bool = False
) -> OpenIncident:
    """Return the incident after a snapshot. One that shows nothing of it is as good as missing. Those that were missing
    before this one count as quiet if it is."""
    if is_confirmed:
        return replace(incident, quiet=0, returned=0, unseen=0)
    if is_unseen:
        return replace(incident, unseen=incident.unseen + 1)
    quiet = incident.quiet + 1 + incident.unseen
    normal_snapshots = 0 if deviates else incident.returned + 1
    if incident.unseen >= clear_after and normal_snapshots:
        normal_snapshots = RECOVERS  # it ended while no snapshot came
    return replace(incident, quiet=quiet, returned=normal_snapshots, unseen=0)


def advance_members(incident: OpenIncident, present: Collection[str]) -> OpenIncident:
    """Return the incident without the services that have been back to normal for long enough. With its first suspect,
    its suspects go too: the next snapshot shows who deviates now.

    Args:
        present: services that deviate in it, or of which nothing was seen.
    """
    normal_for = {name: incident.normal_for.get(name, 0) + 1 for name in incident.members if name not in present}
    leaving = {name for name, count in normal_for.items() if count >= RETURNED}
    if leaving.issuperset(incident.members):  # its end is another matter
        return replace(incident, normal_for=normal_for)
    return replace(
        incident,
        members=tuple(name for name in incident.members if name not in leaving),
        normal_for={name: count for name, count in normal_for.items() if name not in leaving},
        peak=0.0 if first_service(incident.suspects) in leaving else incident.peak,
    )


def reopen(incident: OpenIncident) -> OpenIncident:
    again = replace(incident, members=(), normal_for={}, quiet=0, returned=0, unseen=0, peak=0.0, ended_at=None)
    return replace(again, recurrences=incident.recurrences + 1)


def is_recovering(incident: OpenIncident, clear_after: int) -> bool:
    """Return whether an incident's services have been back to normal for several snapshots."""
    return incident.returned >= min(RECOVERS, max(clear_after - 1, 1))


def is_unseen(incident: OpenIncident, silent: AbstractSet[str]) -> bool:
    """Return whether the telemetry of an incident's first suspect, or of all its services, is among the ``silent``."""
    suspect = first_service(incident.suspects)
    return bool(silent) and (suspect in silent or silent >= set(incident.members))


def is_over(incident: OpenIncident, clear_after: int, fades_after: float = math.inf) -> bool:
    """Return whether an incident has ended.

    Args:
        clear_after: quiet snapshots that end it once it recovers.
        fades_after: quiet snapshots that end it although something still deviates: nothing holds an alert open for long
            that would not open one now.
    """
    return (
        incident.returned >= clear_after
        or incident.quiet >= fades_after
        or (incident.quiet >= clear_after and is_recovering(incident, clear_after))
    )


def with_changes(incident: OpenIncident, dated_changes: Sequence[tuple[PlannedChange, datetime]]) -> OpenIncident:
    """Add the changes at the incident's services that it does not have yet."""
    known_changes = {near.change for near in incident.changes}
    new = [
        NearbyChange(change, at)
        for change, at in dated_changes
        if change.service in incident.members and change not in known_changes
    ]
    if not new:
        return incident
    changes = sorted([*incident.changes, *new], key=lambda near: near.at, reverse=True)
    return replace(incident, changes=tuple(changes[:MAX_CHANGES]))


def likely_services(incident: OpenIncident) -> set[str]:
    """Return the services that an incident suspects with reason."""
    return {suspect.service for suspect in incident.suspects if suspect.score >= LIKELY_SHARE}


def onset_of(interval_seconds: float) -> timedelta:
    """Return how long the onset of an incident is, for snapshots of this interval, s."""
    return timedelta(seconds=max(ONSET_SECONDS, ONSET_SNAPSHOTS * interval_seconds))


def incident_id(began: datetime, members: Sequence[str]) -> str:
    """Return the id of an incident, from its first evidence (UTC) and its first services, sorted."""
    mark = hashlib.blake2b("\n".join((began.isoformat(), *members)).encode(), digest_size=4).hexdigest()
    return f"{began:%Y%m%dT%H%M%SZ}-{mark}"
