"""The metric of a reason over time."""

from collections.abc import Iterable

import numpy as np

from model.features import NODE_CHANNELS, channel_values
from model.snapshot import EDGE_METRICS, EdgeMetric, MeshSnapshot, SignalKind
from model.verdict import DROPPED, LOST, MOVED, NEW, OVERDUE, VANISHED
from serve_app.api.schemas.verdict import ReasonDocument
from serve_app.drawing.svg import Floats
from serve_app.web.history import row_of, signal_values
from serve_app.web.period import Subject

_OF_TRAFFIC = {NEW, LOST, MOVED, DROPPED}
_SIGNALS = frozenset(SignalKind)
_OWN = [channel.name for channel in NODE_CHANNELS]


def metric_series(snapshots: Iterable[MeshSnapshot], service: str, reason: ReasonDocument) -> Floats:
    """Return the values ``[T]`` in the unit of the metric; NaN if not observed.

    Args:
        snapshots: T snapshots.
        service: the suspect.
        reason: about a metric of the service or of one of its calls.
    """
    if reason.source or reason.destination:
        ends = reason.source or service, reason.destination or service
        return np.array([_of_call(snapshot, *ends, reason.metric) for snapshot in snapshots])
    if reason.metric in _SIGNALS:
        return signal_values(snapshots, service, SignalKind(reason.metric)).astype(np.float64)
    metric = {VANISHED: "request_rate", OVERDUE: "cpu_utilization"}.get(reason.metric, reason.metric)
    return np.array([_of_service(snapshot, service, _OWN.index(metric)) for snapshot in snapshots])


def _of_call(snapshot: MeshSnapshot, source: str, destination: str, metric: str) -> float:
    column = EdgeMetric.REQUESTS_PER_SECOND if metric in _OF_TRAFFIC else EDGE_METRICS.index(metric)
    row = row_of(snapshot, Subject(destination, source))
    if row is None:  # if both services exist, there is no call
        exist = source in snapshot.node_ids and destination in snapshot.node_ids
        return 0.0 if exist and metric in _OF_TRAFFIC else np.nan
    return float(snapshot.edge_features[row, column]) if snapshot.edge_observed[row, column] else np.nan


def _of_service(snapshot: MeshSnapshot, service: str, channel: int) -> float:
    """Return a channel of the detector, which may be derived from other metrics."""
    if service not in snapshot.node_ids:
        return np.nan
    row = snapshot.node_ids.index(service)
    calls = np.flatnonzero(snapshot.edge_index[0] == row)
    callees = np.setdiff1d(snapshot.edge_index[1, calls], [row])
    part = snapshot.take([row, *callees], calls)
    values = channel_values(
        part.node_features, part.node_observed, part.edge_features, part.edge_observed, part.edge_index, 1.0
    )
    if not values.node_observed[0, channel]:
        return np.nan
    return NODE_CHANNELS[channel].inverse(float(values.node[0, channel]))
