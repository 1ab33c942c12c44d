"""What was decided and what befell the services of an incident, told beside it: context, which moves no score.

The detector tells the changes that it weighs, of services that deviate, and forgets them after a few minutes. People
want to know of a deploy of the first suspect as well, and of one that was a quarter of an hour ago.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from model.snapshot import MeshSnapshot
from model.verdict import ClusterEvent, Incident, NearbyChange, Verdict

BEFORE = timedelta(minutes=15)  # an incident began, as early as what may explain it
SUSPECTS = 3  # of an incident, whose changes are told though they deviate in nothing
MOST = 10  # changes told of one incident, and events


def add_context(verdict: Verdict, window: Iterable[MeshSnapshot], events: Sequence[ClusterEvent] = ()) -> Verdict:
    """The verdict with what is near its incidents; nothing else of it changes.

    Args:
        verdict: of the detector.
        window: the last snapshots, whose planned changes are told.
        events: what Kubernetes told of the mesh, newest first.
    """
    if not verdict.incidents:
        return verdict
    decided = [NearbyChange(change, snapshot.observed_at) for snapshot in window for change in snapshot.changes]
    return replace(verdict, incidents=tuple(_add_context(one, decided, events) for one in verdict.incidents))


def _add_context(incident: Incident, decided: Sequence[NearbyChange], events: Sequence[ClusterEvent]) -> Incident:
    services = {*incident.affected, *(suspect.service for suspect in incident.suspects[:SUSPECTS])}
    since, known = incident.since - BEFORE, {near.change for near in incident.changes}
    more = [
        near for near in decided if near.change.service in services and near.at >= since and near.change not in known
    ]
    changes = sorted([*incident.changes, *more], key=lambda near: near.at, reverse=True)
    befell = [event for event in events if event.service in services and event.last >= since]
    return replace(incident, changes=tuple(changes[:MOST]), events=tuple(befell[:MOST]))
