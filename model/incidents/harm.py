"""The severity of an alert: the harm to users.

Harm is the share of the requests at the front door that fail or are slow because of an incident. Only entry points
whose requests reach the incident count; see :mod:`model.incidents.impact`. For each of them

    harm = (errors now - errors before) + (share of slow requests now - the same before)

where a request is slow if it takes longer than the usual p99 and than the usual median plus the floor of the policy.
Between the median and the p99, latencies are taken to be lognormal. *Now* is the median of the last ``NOW`` snapshots,
*before* is the median of the last ``BEFORE`` snapshots before the incident.

Where people set objectives, the share of an error budget that the incident has used counts, too. As in alerts on burn
rates, 2% in one incident is much, and 5% is very much (Beyer et al., The Site Reliability Workbook, chapter 5).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from model.front_door import measure_entries_of
from model.incidents.impact import Traffic, find_reaching, measure_traffic
from model.incidents.memory import IncidentMemory
from model.incidents.objectives import slow_share
from model.snapshot import MeshSnapshot, NodeMetric, find_rows
from model.verdict import Impact, Incident, Severity, Verdict, first_service, worst

NOW, BEFORE = 4, 20  # snapshots
CRITICAL, MAJOR = 0.2, 0.05  # harm, from which an alert is critical or major
SPENT_CRITICAL, SPENT_MAJOR = 0.05, 0.02  # of an error budget, from which an alert is critical or major
LASTING_MINUTES, LASTING = 15.0, 0.02  # for which this harm makes it major, too
METRICS = [NodeMetric.ERROR_RATE, NodeMetric.P50_LATENCY, NodeMetric.P99_LATENCY]
Values = NDArray[np.float64]


def add_severity(
    verdict: Verdict,
    memory: IncidentMemory,
    window: Sequence[MeshSnapshot],
    floor: float,
    entry_points: Collection[str],
) -> tuple[Verdict, IncidentMemory]:
    """Return the verdict with the harm and the severity of its alerts, and the memory with these severities. An alert
    about traffic has its severity from the requests that are missing.

    Args:
        floor: least rise of a latency that matters, s.
    """
    alerts = [incident for incident in verdict.alerts if not incident.scope]
    if not alerts or not window:
        return verdict, memory
    judgements = {incident.id: _judge(incident, window, floor, entry_points) for incident in alerts}
    severity = {id: _severity(harm, incident, verdict.observed_at) for id, (incident, harm) in judgements.items()}
    severity = {
        incident.id: worst(incident.severity, severity[incident.id])
        for incident in memory.open
        if incident.id in severity
    }
    by_id = {
        id: replace(incident, severity=severity.get(id, incident.severity)) for id, (incident, _) in judgements.items()
    }
    incidents = tuple(by_id.get(incident.id, incident) for incident in verdict.incidents)
    still_open = tuple(
        replace(incident, severity=severity.get(incident.id, incident.severity)) for incident in memory.open
    )
    return replace(verdict, incidents=incidents), replace(memory, open=still_open)


def _judge(
    incident: Incident, window: Sequence[MeshSnapshot], floor: float, entry_points: Collection[str]
) -> tuple[Incident, float]:
    """Return the incident with its harm in the impact, and the harm; 0 if it cannot be measured."""
    earlier = [snapshot for snapshot in window if snapshot.observed_at < incident.since][-BEFORE:]
    if not earlier or incident.impact is None:
        return incident, 0.0
    harm = measure_harm(measure_traffic(earlier[-1], entry_points), incident, earlier, window[-NOW:], floor)
    return replace(incident, impact=Impact(incident.impact.services, incident.impact.front_door_share, harm)), harm


def measure_harm(
    traffic: Traffic, incident: Incident, earlier: Sequence[MeshSnapshot], newest: Sequence[MeshSnapshot], floor: float
) -> float:
    """Return the share of front-door requests that fail or are slow because of an incident, 0 to 1.

    Args:
        floor: least rise of a latency that matters, s.
    """
    suspect = first_service(incident.suspects)
    share = find_reaching(traffic, incident.affected, suspect)
    rows = np.flatnonzero((traffic.entry > 0) & (share > 0))
    if not len(rows):
        return 0.0
    names = [traffic.node_ids[row] for row in rows.tolist()]
    before, now = _medians(earlier, names), _medians(newest, names)
    bad = [_harm(usual, present, floor) for usual, present in zip(before, now, strict=True)]
    return float(np.minimum(bad, 1.0) @ traffic.entry[rows] / traffic.entry.sum())


def _harm(usual: Values, now: Values, floor: float) -> float:
    """Return the harm at one entry point, from its ``METRICS`` before and now."""
    failing = max(0.0, float(now[0] - usual[0])) if np.isfinite([now[0], usual[0]]).all() else 0.0
    if not np.isfinite([*usual[1:], *now[1:]]).all():
        return failing
    limit = max(float(usual[2]), float(usual[1]) + floor)
    slow, before = (slow_share(float(of[1]), float(of[2]), limit) for of in (now, usual))
    return failing + max(0.0, slow - before)


def _medians(snapshots: Sequence[MeshSnapshot], names: Sequence[str]) -> Values:
    """Return the median ``METRICS`` ``[n, 3]`` of entry points over snapshots; not a number where none was measured."""
    metrics = np.full((len(snapshots), len(names), len(METRICS)), np.nan)
    place, row = {name: at for at, name in enumerate(names)}, dict[str, int]()
    for at, snapshot in enumerate(snapshots):
        row = find_rows(snapshot.node_ids, place.keys(), row)
        measured = measure_entries_of(snapshot, np.array([*row.values()], np.int64))
        metrics[at, [place[name] for name in row]] = measured[:, METRICS]
    is_known = np.isfinite(metrics).any(axis=0)
    middle = np.full(metrics.shape[1:], np.nan)
    middle[is_known] = np.nanmedian(metrics[:, is_known], axis=0)
    return middle


def _severity(harm: float, incident: Incident, now: datetime) -> Severity:
    budget_used = max((budget.used for budget in incident.error_budgets), default=0.0)
    if harm >= CRITICAL or budget_used >= SPENT_CRITICAL:
        return Severity.CRITICAL
    lasts = now - incident.since >= timedelta(minutes=LASTING_MINUTES) and harm >= LASTING
    return Severity.MAJOR if harm >= MAJOR or lasts or budget_used >= SPENT_MAJOR else Severity.MINOR
