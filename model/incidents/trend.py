"""The trend of an open incident: the course of its strongest reason over the last minutes.

The reason is the first one of the first suspect that the snapshots measure. Its excess is how far the metric is from
the expected value, in the direction of the reason. The snapshots since the incident began, at most ``MAX``, are split
into thirds, and the median excess of the last third is compared with the first: an incident is worsening if it is
``FACTOR`` times as large, easing if it is ``FACTOR`` times smaller, and else steady. Medians ignore single snapshots.
What rises steadily towards its limit is worsening, however slowly.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from statistics import median

import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, EdgeMetric, MeshSnapshot, NodeMetric, find_rows
from model.verdict import DROPPED, LOST, MOVED, NEW, VANISHED, Incident, IncidentTrend, Reason, Verdict

MIN, MAX = 8, 12  # snapshots with the metric, since the incident began
FACTOR = 1.25
_CALLS = frozenset({NEW, LOST, MOVED, DROPPED})  # reasons whose values are the requests/s of a call


def add_trends(verdict: Verdict, window: Sequence[MeshSnapshot]) -> Verdict:
    """Return the verdict with the trend of each open incident; None if it cannot be said yet, or is recovering."""
    if not verdict.incidents:
        return verdict
    return replace(
        verdict, incidents=tuple(replace(incident, trend=_trend(incident, window)) for incident in verdict.incidents)
    )


def _trend(incident: Incident, window: Sequence[MeshSnapshot]) -> IncidentTrend | None:
    if incident.recovering or not incident.suspects:
        return None
    newest = islice(reversed(window), MAX)
    snapshots = [snapshot for snapshot in newest if snapshot.observed_at >= incident.since][::-1]
    if len(snapshots) < MIN:
        return None
    first = incident.suspects[0]
    services = incident.affected if incident.scope else (first.service,)
    for reason in first.reasons:
        values = _values(reason, services, snapshots)
        if len(values) >= MIN:
            sign = 1.0 if reason.observed >= reason.expected else -1.0
            trend = _compare([sign * (value - reason.expected) for value in values])
            rises = reason.forecast is not None and trend is IncidentTrend.STEADY
            return IncidentTrend.WORSENING if rises else trend
    return None


def _compare(excess: Sequence[float]) -> IncidentTrend:
    third = len(excess) // 3
    before, now = (max(median(part), 0.0) for part in (excess[:third], excess[-third:]))
    if now >= FACTOR * before and now > 0:
        return IncidentTrend.WORSENING
    return IncidentTrend.EASING if FACTOR * now <= before and before > 0 else IncidentTrend.STEADY


def _values(reason: Reason, services: Sequence[str], snapshots: Sequence[MeshSnapshot]) -> list[float]:
    """Return the values of a reason's metric, oldest first, without the snapshots that do not measure it; none if
    snapshots have no such metric.
    """
    if reason.source or reason.destination:
        ends = reason.source or services[0], reason.destination or services[0]
        metric = "requests_per_second" if reason.metric in _CALLS else reason.metric
        return _call_values(ends, EdgeMetric(EDGE_METRICS.index(metric)), snapshots) if metric in EDGE_METRICS else []
    metric = "request_rate" if reason.metric == VANISHED else reason.metric
    return (
        _service_values(services, NodeMetric(NODE_METRICS.index(metric)), snapshots) if metric in NODE_METRICS else []
    )


def _service_values(services: Sequence[str], metric: NodeMetric, snapshots: Sequence[MeshSnapshot]) -> list[float]:
    """Return the sum of a metric over some services. Those that are absent get no requests."""
    values, row = [], dict[str, int]()
    for snapshot in snapshots:
        row = find_rows(snapshot.node_ids, services, row)
        rows = list(row.values())
        if snapshot.node_observed[rows, metric].all() and (rows or metric is NodeMetric.REQUEST_RATE):
            values.append(float(snapshot.node_features[rows, metric].sum()))
    return values


def _call_values(ends: tuple[str, str], metric: EdgeMetric, snapshots: Sequence[MeshSnapshot]) -> list[float]:
    """Return a metric of a call, from its source to its destination. One that is absent has no requests."""
    values, row, at, index = [], dict[str, int](), np.zeros(0, np.int64), None
    for snapshot in snapshots:
        before, row = row, find_rows(snapshot.node_ids, ends, row)
        if snapshot.edge_index is not index or row != before:  # most snapshots share their calls
            index = snapshot.edge_index
            source, destination = (row.get(end, -1) for end in ends)
            at = np.flatnonzero((index[0] == source) & (index[1] == destination))
        if snapshot.edge_observed[at, metric].all() and (len(at) or metric is EdgeMetric.REQUESTS_PER_SECOND):
            values.append(float(snapshot.edge_features[at, metric].sum()))
    return values
