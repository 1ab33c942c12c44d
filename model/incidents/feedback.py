"""What people say of incidents, and what follows from it for paging, threshold and ranking.

Nothing that was learned is rewritten: a :class:`Feedback` lies beside it and is read again with every snapshot, so that
taking it back leaves what there would be without it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.snapshot import BoolArray

SYMPTOMS = ("latency", "errors", "disappearance", "resources")  # what pages, each with a level of its own
LOWERED = 0.5  # decades for one missed incident: what happens 3 times as often pages
LOWERED_AT_MOST = 1.0  # decades
PREFERENCE = 2.0  # nats added to a told culprit's ranking score: 7 to 1
SIMILAR = 0.5  # share of members in common (Jaccard) from which two groups are of a kind

Times = NDArray[np.float64]
Moves = tuple[float, ...]  # decades, by ``SYMPTOMS``


@dataclass(frozen=True, slots=True)
class PastIncident:
    """An incident that paged, open or ended, as feedback may name it.

    Attributes:
        id: as it was told.
        since, until: first evidence, and the last snapshot whose verdict told it.
        members: services that were part of it.
        excess: of those that paged, how far their levels would have had to be raised for silence.
    """

    id: str
    since: datetime
    until: datetime
    members: tuple[str, ...]
    excess: dict[str, Moves] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Feedback:
    """What somebody says of one incident; there is one at most of each.

    Attributes:
        incident: id, of one that paged or was missed.
        was_incident: False: it should have paged nobody.
        services: node ids that were part of it.
        since, until: its time.
        given_at: the mesh's clock when it was said: its newest snapshot.
        moves: of some services, decades by which their page levels rise, or fall below 0.
        missed: it paged nobody, and should have.
        culprit: node id of whose doing it was; empty: not said.
        note: for people.
    """

    incident: str
    was_incident: bool
    services: tuple[str, ...]
    since: datetime
    until: datetime
    given_at: datetime
    moves: dict[str, Moves] = field(default_factory=dict)
    missed: bool = False
    culprit: str = ""
    note: str = ""


def feedback_on_past(
    incident: PastIncident, *, was_incident: bool, given_at: datetime, culprit: str = "", note: str = ""
) -> Feedback:
    """What is said of an incident that paged. One that was none raises the levels of those that paged."""
    return Feedback(
        incident.id,
        was_incident,
        incident.members,
        incident.since,
        incident.until,
        given_at,
        moves={} if was_incident else incident.excess,
        culprit=culprit,
        note=note,
    )


def feedback_on_missed(
    incident: str,
    services: tuple[str, ...],
    since: datetime,
    until: datetime,
    *,
    given_at: datetime,
    culprit: str = "",
    note: str = "",
) -> Feedback:
    """What is said of an incident that paged nobody: it lowers the levels of its services."""
    moves = dict.fromkeys(services, (-LOWERED,) * len(SYMPTOMS))
    return Feedback(incident, True, services, since, until, given_at, moves, True, culprit, note)


def level_shifts(feedback: Iterable[Feedback], names: Sequence[str]) -> Array:
    """``[N, 4]`` decades by which page levels are raised, by ``SYMPTOMS``; below 0: lowered.

    What is said later counts more: a missed incident first gives up what was raised before.
    """
    levels: dict[str, Array] = {}
    for one in feedback:
        for service, moves in one.moves.items():
            before, told = levels.get(service, np.zeros(len(SYMPTOMS), np.float32)), np.array(moves, np.float32)
            if one.missed:
                levels[service] = np.maximum(np.minimum(before, 0) + told, -LOWERED_AT_MOST)
            else:
                levels[service] = np.maximum(before, told)
    table = np.zeros((len(names), len(SYMPTOMS)), np.float32)
    for i, name in enumerate(names):
        if name in levels:
            table[i] = levels[name]
    return table


def preference(feedback: Iterable[Feedback], names: Sequence[str], groups: Sequence[Sequence[str]]) -> Array:
    """``[N]`` nats to add to ranking scores: told culprits of groups like one of ``groups``, up to ``PREFERENCE``."""
    added = np.zeros(len(names), np.float32)
    row = {name: i for i, name in enumerate(names)}
    for one in feedback:
        if one.culprit in row:
            then, at = set(one.services), row[one.culprit]
            alike = max((len(then & set(g)) / len(then | set(g)) for g in groups), default=0.0)
            added[at] = max(added[at], PREFERENCE * alike * (alike >= SIMILAR))
    return added


def normal_scores(
    scores: Sequence[float],
    times: Sequence[float],
    alerted_scores: Sequence[tuple[float, float]],
    past: Iterable[PastIncident],
    feedback: Iterable[Feedback],
) -> Times:
    """The mesh scores that a threshold is made of: those without alerts, less those of missed incidents, and those of
    what turned out to be none.

    Args:
        scores, times: without alerts, and when (Unix, s).
        alerted_scores: time and score of snapshots that alerted.
        past: what they alerted of.
        feedback: what is said of it.
    """
    quiet, alerted = np.array([times, scores], np.float64), np.array(alerted_scores, np.float64).reshape(-1, 2).T
    denied = [one for one in feedback if not one.was_incident]
    ids = {one.incident for one in denied}
    normal = ~_is_within((one for one in feedback if one.missed), quiet[0])
    cleared = _is_within(denied, alerted[0]) & ~_is_within((one for one in past if one.id not in ids), alerted[0])
    return np.concatenate([quiet[1, normal], alerted[1, cleared]])


def _is_within(spans: Iterable[PastIncident | Feedback], times: Times) -> BoolArray:
    """Which times lie in one of these spans."""
    inside = np.zeros(len(times), bool)
    for one in spans:
        inside |= (times >= one.since.timestamp()) & (times <= one.until.timestamp())
    return inside
