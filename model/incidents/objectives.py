"""The share of error budgets that an incident uses, at the front doors for which people named objectives.

An objective promises that a share of a service's requests succeeds, or is fast, over some days. The rest is its
error budget. What an incident uses is counted from its first evidence on, snapshot by snapshot, while the service is
one of the incident's. When it leaves, the counters stay, and go on when it comes back:

    bad  = sum of requests/s * share of bad requests * seconds since the snapshot before
    used = bad / ((1 - target) * usual requests/s * seconds of the period)

The usual traffic is the mean of the kept snapshots before the incident, since a detector does not know the next days.
So ``used`` is what the incident costs if the traffic stays as it was. Two counters are kept with the open incident.

Bad requests are those that failed. For an objective of latency they are those that took too long: a snapshot has the
median and the 99th percentile, between which latencies are taken to be lognormal. Requests that never reach the service
cannot be counted.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import NormalDist
from typing import NamedTuple

from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import OpenIncident
from model.snapshot import MeshSnapshot, NodeMetric
from model.verdict import ErrorBudget, Incident, Objective, Severity, Verdict

MAX_SECONDS = 120.0  # between two snapshots that count: what happens in a longer gap is unknown
USUAL_SECONDS = 15.0  # for the first kept snapshot
DAY = 86_400.0
_NORMAL = NormalDist()
_Z99 = _NORMAL.inv_cdf(0.99)


class Spent(NamedTuple):
    """An incident's part of one objective's budget.

    Attributes:
        usual: requests/s before the incident.
    """

    objective: str
    bad: float
    usual: float


def add_error_budgets(
    verdict: Verdict, memory: IncidentMemory, window: Sequence[MeshSnapshot], objectives: Sequence[Objective]
) -> tuple[Verdict, IncidentMemory]:
    """Return the verdict with what its incidents use of the error budgets, and the memory with their counters."""
    if not objectives or not verdict.alerts:
        return verdict, memory
    counters = {
        incident.id: tuple(_spent(incident, objectives, window))
        for incident in memory.open
        if incident.severity is not Severity.NOTICE
    }
    by_name = {objective.name: objective for objective in objectives}
    incidents = tuple(_add_budgets(incident, counters.get(incident.id, ()), by_name) for incident in verdict.incidents)
    still_open = tuple(replace(incident, spent=counters.get(incident.id, ())) for incident in memory.open)
    return replace(verdict, incidents=incidents), replace(memory, open=still_open)


def _add_budgets(incident: Incident, counters: Sequence[Spent], objectives: dict[str, Objective]) -> Incident:
    budgets = []
    for counter in counters:
        objective = objectives[counter.objective]
        allowance = (1 - objective.target) * counter.usual * objective.days * DAY
        if allowance > 0:
            budgets.append(ErrorBudget(objective, counter.bad / allowance, counter.bad))
    return replace(incident, error_budgets=tuple(sorted(budgets, key=lambda budget: -budget.used)))


def _spent(incident: OpenIncident, objectives: Sequence[Objective], window: Sequence[MeshSnapshot]) -> Iterator[Spent]:
    """Yield the counters after the newest snapshot, which counts for services that are members."""
    earlier = {entry.objective: entry for entry in (Spent(*counter) for counter in incident.spent)}
    for objective in objectives:
        before, is_member = earlier.get(objective.name), objective.service in incident.members
        if before and is_member:
            yield before._replace(bad=before.bad + _bad_requests(window, len(window) - 1, objective))
        elif before:
            yield before
        elif is_member:
            yield _count_all(incident, objective, window)


def _count_all(incident: OpenIncident, objective: Objective, window: Sequence[MeshSnapshot]) -> Spent:
    """Count all kept snapshots since the first evidence."""
    first = next((i for i, snapshot in enumerate(window) if snapshot.observed_at >= incident.since), len(window) - 1)
    usual = _usual_rate(window, incident.since, objective.service)
    return Spent(objective.name, sum(_bad_requests(window, i, objective) for i in range(first, len(window))), usual)


def _usual_rate(window: Sequence[MeshSnapshot], since: datetime, service: str) -> float:
    """Mean requests/s before the incident; of all kept snapshots if none is from before."""
    before = [snapshot for snapshot in window if snapshot.observed_at < since] or window
    rates = [rate for snapshot in before if (rate := _measure(snapshot, service, NodeMetric.REQUEST_RATE)) is not None]
    return sum(rates) / len(rates) if rates else 0.0


def _bad_requests(window: Sequence[MeshSnapshot], i: int, objective: Objective) -> float:
    """Bad requests between the snapshot before and the one at ``i``."""
    snapshot = window[i]
    gap = (snapshot.observed_at - window[i - 1].observed_at).total_seconds() if i else USUAL_SECONDS
    rate = _measure(snapshot, objective.service, NodeMetric.REQUEST_RATE)
    return (rate or 0.0) * _bad_share(snapshot, objective) * min(gap, MAX_SECONDS)


def _bad_share(snapshot: MeshSnapshot, objective: Objective) -> float:
    if objective.latency_seconds is None:
        return _measure(snapshot, objective.service, NodeMetric.ERROR_RATE) or 0.0
    median = _measure(snapshot, objective.service, NodeMetric.P50_LATENCY)
    high = _measure(snapshot, objective.service, NodeMetric.P99_LATENCY)
    return slow_share(median, high, objective.latency_seconds)


def slow_share(median: float | None, high: float | None, limit: float) -> float:
    """Return the estimated share of requests that take longer than a limit.

    Args:
        median, high: 50th and 99th percentile of the latency, s; None: not measured.
    """
    if median is None or high is None or median <= 0:
        return 0.0
    if limit <= 0:
        return 1.0
    if high <= median:  # all take the same time
        return float(median > limit)
    spread = math.log(high / median) / _Z99
    return 1.0 - _NORMAL.cdf(math.log(limit / median) / spread)


def _measure(snapshot: MeshSnapshot, service: str, metric: NodeMetric) -> float | None:
    """Return a service's metric; None if it is not measured."""
    try:
        row = snapshot.node_ids.index(service)
    except ValueError:
        return None
    return float(snapshot.node_features[row, metric]) if snapshot.node_observed[row, metric] else None
