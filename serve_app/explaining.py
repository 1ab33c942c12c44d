"""What Kubernetes told of the services of an incident, beside it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from model.verdict import ClusterEvent, Incident, Verdict

BEFORE = timedelta(minutes=15)  # an incident began, as early as what may explain it
MOST = 10  # told of one incident


def explained(verdict: Verdict, events: Sequence[ClusterEvent]) -> Verdict:
    """The verdict with what was told of its incidents' services; nothing else of it changes.

    Args:
        verdict: of the detector.
        events: of the mesh, newest first.
    """
    if not events or not verdict.incidents:
        return verdict
    return replace(verdict, incidents=tuple(_explained(incident, events) for incident in verdict.incidents))


def _explained(incident: Incident, events: Sequence[ClusterEvent]) -> Incident:
    services = {*incident.affected, *(suspect.service for suspect in incident.suspects)}
    near = [event for event in events if event.service in services and event.last >= incident.since - BEFORE]
    return replace(incident, events=tuple(near[:MOST]))
