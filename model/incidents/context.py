"""Planned changes and Kubernetes events near the services of an incident. They are context and change no score.

The detector reports the changes that it takes into account, at services that deviate, and forgets them after a few
minutes. People also need to know whether the first suspect was deployed, and what changed 15 minutes ago.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from model.snapshot import MeshSnapshot
from model.verdict import ClusterEvent, Incident, NearbyChange, Verdict

BEFORE = timedelta(minutes=15)  # before the start of an incident, from which changes are shown
SUSPECTS = 3  # suspects whose changes are shown even if they do not deviate
MAX = 10  # changes shown for one incident, and events


def add_context(verdict: Verdict, window: Iterable[MeshSnapshot], events: Sequence[ClusterEvent] = ()) -> Verdict:
    """Return the verdict with the changes and events near its incidents; nothing else changes."""
    if not verdict.incidents:
        return verdict
    planned_changes = [NearbyChange(change, snapshot.observed_at) for snapshot in window for change in snapshot.changes]
    return replace(
        verdict, incidents=tuple(_add_context(incident, planned_changes, events) for incident in verdict.incidents)
    )


def _add_context(
    incident: Incident, planned_changes: Sequence[NearbyChange], events: Sequence[ClusterEvent]
) -> Incident:
    services = {*incident.affected, *(suspect.service for suspect in incident.suspects[:SUSPECTS])}
    since, known_changes = incident.since - BEFORE, {near.change for near in incident.changes}
    more = [
        near
        for near in planned_changes
        if near.change.service in services and near.at >= since and near.change not in known_changes
    ]
    changes = sorted([*incident.changes, *more], key=lambda near: near.at, reverse=True)
    nearby = [event for event in events if event.service in services and event.last >= since]
    return replace(incident, changes=tuple(changes[:MAX]), events=tuple(nearby[:MAX]))
