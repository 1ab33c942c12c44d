"""What an incident remembers besides its peak: suspects that led for a while, and notices from before it.

The suspects of one snapshot depend on what that snapshot shows. A cause that restarts, or is hidden by a backlog, shows
nothing later, and a resource that was running out before the incident explains it although something else is now
further from normal. Neither may vanish from the list that people read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from model.incidents.kind import reason_kind
from model.verdict import MAX_SUSPECTS, IncidentKind, Reason, Suspect

LEADS = 0.5  # of the root-cause score of all suspects, from which the first one leads
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
        snapshots: in which it led.
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
    """Return the leads after a snapshot with evidence that shows these suspects.

    Args:
        independent: services with a fault of their own. They lead beside the first suspect.
    """
    first = suspects[0].service if suspects and suspects[0].score >= LEADS else ""
    leading = [one for one in suspects if one.service == first]
    leading += [one for one in suspects if one.service in independent and one.service != first][: MAX_LEADS - 1]
    now = {one.service for one in leading}
    before = {lead.suspect.service: lead.snapshots for lead in leads}
    others = [replace(lead, age=lead.age + 1) for lead in leads if lead.suspect.service not in now]
    present = [Lead(one, before.get(one.service, 0) + 1) for one in leading]
    return *present, *_longest(others)[: MAX_LEADS - len(present)]


def join_leads(leads: tuple[Lead, ...], others: tuple[Lead, ...]) -> tuple[Lead, ...]:
    """Return the leads of an incident that another one merges into it."""
    both = {lead.suspect.service: lead for lead in others}
    for lead in leads:
        same = both.get(lead.suspect.service)
        both[lead.suspect.service] = replace(lead, snapshots=lead.snapshots + same.snapshots) if same else lead
    return tuple(_longest(both.values())[:MAX_LEADS])


def _longest(leads: Iterable[Lead]) -> list[Lead]:
    return sorted(leads, key=lambda lead: -lead.snapshots)


def with_leads(suspects: tuple[Suspect, ...], leads: Sequence[Lead]) -> tuple[Suspect, ...]:
    """Return the suspects with those that led before, best first. The scores add up to 1 at most."""
    shown = {suspect.service: suspect for suspect in suspects}
    share = {}
    for lead in leads:
        listed = shown.get(lead.suspect.service)
        if lead.snapshots >= LED and (listed is None or listed.score < _share(lead)):
            share[lead.suspect.service] = _share(lead)
            shown[lead.suspect.service] = listed if listed and listed.reasons else lead.suspect
    if not share:
        return suspects
    most = min(LEAD_SHARE / sum(share.values()), 1.0)
    before = {suspect.service: suspect.score for suspect in suspects}
    share = {service: max(most * one, before.get(service, 0.0)) for service, one in share.items()}
    scored = _make_room([one for name, one in shown.items() if name not in share], 1 - sum(share.values()))
    scored += [replace(shown[name], score=score) for name, score in share.items()]
    ranked = sorted(scored, key=lambda one: -one.score)
    others = [one.service for one in ranked if one.service not in share]
    dropped = others[max(MAX_SUSPECTS - len(share), 1) :]
    return tuple(one for one in ranked if one.service not in dropped)


def _make_room(suspects: list[Suspect], most: float) -> list[Suspect]:
    """Return the suspects, best first, with scores that add up to ``most`` at most. The first one gives way last, so
    that a clear cause stays clear."""
    if not suspects:
        return []
    first, *others = suspects
    score, rest = min(first.score, most), sum(one.score for one in others)
    scale = min((most - score) / rest, 1.0) if rest else 1.0
    return [replace(first, score=score), *(replace(one, score=one.score * scale) for one in others)]


def _share(lead: Lead) -> float:
    return max(LEAD_SHARE * float(0.5 ** (lead.age / HALF_LIFE)), MIN_SHARE)


def inherit(
    notices: tuple[PastNotice, ...], found: Sequence[PastNotice], services: Collection[str]
) -> tuple[PastNotice, ...]:
    """Return the notices that an incident remembers.

    Args:
        notices: that it remembered before.
        found: that are open, or were until now.
        services: that it is about.
    """
    known = {one.suspect.service: one for one in notices}
    known |= {one.suspect.service: one for one in found if one.suspect.service in services and one.suspect.reasons}
    return tuple(known.values())


def renew(notice: PastNotice, reasons: Mapping[str, Reason], now: datetime) -> PastNotice:
    """Return a notice with new reasons, by metric, where it has these metrics."""
    if reasons.keys().isdisjoint(reason.metric for reason in notice.suspect.reasons):
        return notice
    renewed = tuple(reasons.get(reason.metric, reason) for reason in notice.suspect.reasons)
    return PastNotice(replace(notice.suspect, reasons=renewed), now)


def with_notices(suspects: tuple[Suspect, ...], notices: Sequence[PastNotice], now: datetime) -> tuple[Suspect, ...]:
    """Return the suspects with the reasons of earlier notices about them, first or second: first if the suspect's own
    first reason is a resource, else right after the symptom."""
    past = {one.suspect.service: one for one in notices}
    return tuple(
        _with_notice(suspect, past[suspect.service], now) if suspect.service in past else suspect
        for suspect in suspects
    )


def _with_notice(suspect: Suspect, notice: PastNotice, now: datetime) -> Suspect:
    passed = (now - notice.at).total_seconds()
    inherited = [_aged(reason, passed) for reason in notice.suspect.reasons[:MAX_INHERITED]]
    same = {reason.metric: reason for reason in suspect.reasons if not reason.source and not reason.destination}
    inherited = [replace(one, observed=same[one.metric].observed) if one.metric in same else one for one in inherited]
    metrics = {one.metric for one in inherited}
    own = [one for one in suspect.reasons if one.source or one.destination or one.metric not in metrics]
    load = suspect.reasons[0].load if suspect.reasons else 1.0
    place = 1 if own and reason_kind(own[0]) is not IncidentKind.RESOURCES else 0
    first, *later = [*own[:place], *inherited, *own[place:]]
    return replace(suspect, reasons=(replace(first, load=load), *(replace(one, load=1.0) for one in later)))


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
