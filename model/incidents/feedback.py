"""People's feedback on incidents, and its effect on alerts, threshold and ranking.

Learned values are not rewritten. :class:`Feedback` is stored beside them and applied with every snapshot, so
withdrawing it restores the state without it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.snapshot import BoolArray

# Each has its own level: four of the symptoms that raise alerts, and one of the shortages that notices are about.
SYMPTOMS = ("latency", "errors", "disappearance", "resources", "shortage")
SHORTAGE = SYMPTOMS.index("shortage")
LOWERED = 0.5  # decades per missed incident: deviations that are 3 times as frequent raise alerts
LOWERED_AT_MOST = 1.0  # decades
PREFERENCE = 2.0  # nats added to the ranking score of a culprit named in feedback: 7 to 1
SIMILAR = 0.5  # share of common members (Jaccard) from which two groups are similar

Times = NDArray[np.float64]
Moves = tuple[float, ...]  # decades, by ``SYMPTOMS``


@dataclass(frozen=True, slots=True)
class PastIncident:
    """An incident, open or ended, to which feedback can refer; notices included.

    Attributes:
        since, until: first evidence, and the last snapshot whose verdict had it.
        members: services that were part of it.
        excess: of each service that raised it, how far its levels would have to rise for it not to, in decades.
    """

    id: str
    since: datetime
    until: datetime
    members: tuple[str, ...]
    excess: dict[str, Moves] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Feedback on one incident; at most one per incident.

    Attributes:
        incident: id of an incident that was listed or missed.
        was_incident: False for a false alarm or a useless notice.
        given_at: the mesh's clock when the feedback was given: its newest snapshot.
        moves: decades by which the levels of some services rise, or fall if negative.
        missed: whether it raised no alert although it should have.
        culprit: node id of the service that caused it; empty: unknown.
        given_by: name of the user or token; empty: unknown.
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
    given_by: str = ""


def moves_of_missed(services: Iterable[str]) -> dict[str, Moves]:
    """Return the moves of feedback on an incident that raised no alert: the page levels of its services fall."""
    return dict.fromkeys(services, (-LOWERED,) * len(SYMPTOMS))


def level_shifts(feedback: Iterable[Feedback], names: Sequence[str]) -> Array:
    """Return the decades ``[N, 5]`` by which feedback raises levels, by ``SYMPTOMS``; negative: lowers.

    Later feedback counts more: a missed incident first removes earlier raises. Feedback that an older version stored
    has no shortage.
    """
    levels: dict[str, Array] = {}
    for judgement in feedback:
        for service, moves in judgement.moves.items():
            before, shift = levels.get(service, np.zeros(len(SYMPTOMS), np.float32)), np.zeros(len(SYMPTOMS))
            shift[: len(moves)] = moves
            if judgement.missed:
                levels[service] = np.maximum(np.minimum(before, 0) + shift, -LOWERED_AT_MOST)
            else:
                levels[service] = np.maximum(before, shift)
    table = np.zeros((len(names), len(SYMPTOMS)), np.float32)
    for i, name in enumerate(names):
        if name in levels:
            table[i] = levels[name]
    return table


def preference(feedback: Iterable[Feedback], names: Sequence[str], groups: Sequence[Sequence[str]]) -> Array:
    """Return nats ``[N]`` to add to ranking scores: up to ``PREFERENCE`` for culprits named in feedback on groups
    similar to one of ``groups``."""
    nats = np.zeros(len(names), np.float32)
    row = {name: i for i, name in enumerate(names)}
    for judgement in feedback:
        if judgement.culprit in row:
            members, at = set(judgement.services), row[judgement.culprit]
            alike = max((len(members & set(g)) / len(members | set(g)) for g in groups), default=0.0)
            nats[at] = max(nats[at], PREFERENCE * alike * (alike >= SIMILAR))
    return nats


def normal_scores(
    scores: Sequence[float],
    times: Sequence[float],
    incident_scores: Sequence[tuple[float, float]],
    past: Iterable[PastIncident],
    feedback: Iterable[Feedback],
) -> Times:
    """Return the scores for the threshold: without alert or in false alarms, but not in missed incidents.

    Args:
        scores, times: without alerts, and when (Unix, s).
        incident_scores: time and score of snapshots with an open incident.
    """
    quiet, alerted = np.array([times, scores], np.float64), np.array(incident_scores, np.float64).reshape(-1, 2).T
    false_alarms = [judgement for judgement in feedback if not judgement.was_incident]
    ids = {judgement.incident for judgement in false_alarms}
    normal = ~_is_within((judgement for judgement in feedback if judgement.missed), quiet[0])
    is_cleared = _is_within(false_alarms, alerted[0]) & ~_is_within(
        (incident for incident in past if incident.id not in ids), alerted[0]
    )
    return np.concatenate([quiet[1, normal], alerted[1, is_cleared]])


def _is_within(spans: Iterable[PastIncident | Feedback], times: Times) -> BoolArray:
    inside = np.zeros(len(times), bool)
    for span in spans:
        inside |= (times >= span.since.timestamp()) & (times <= span.until.timestamp())
    return inside
