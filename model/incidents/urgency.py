"""The order of open incidents: the most urgent first, the same for everybody who reads a verdict.

Incidents that go on come before those that recover, and all of them before notices. Among these, the more severe one
comes first; of equal ones, the one that more requests from outside reach. Shares are compared in tenths, so that noise
does not swap two incidents between snapshots, and of incidents that differ in nothing else the older one comes first.
"""

from dataclasses import replace

from model.verdict import Incident, Severity, Verdict

_SEVERITIES = tuple(Severity)


def sort_by_urgency(verdict: Verdict) -> Verdict:
    """Return the verdict with its most urgent incident first; nothing else changes."""
    if len(verdict.incidents) < 2:
        return verdict
    return replace(verdict, incidents=tuple(sorted(verdict.incidents, key=_urgency)))


def _urgency(incident: Incident) -> tuple[object, ...]:
    """A key for sorting: smaller ones are more urgent."""
    share = incident.impact.front_door_share if incident.impact else None
    return (
        incident.severity is Severity.NOTICE,
        incident.recovering,
        -_SEVERITIES.index(incident.severity),
        -round(share or 0.0, 1),
        incident.since,
        incident.id,
    )
