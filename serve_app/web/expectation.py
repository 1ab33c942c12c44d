"""The metrics of one service, or of the calls between two, over the kept snapshots, each with its expected values.

The detector keeps the filters of the newest snapshot only. So the filters of one row are updated again with the kept
snapshots, as the detector did it. They start from the slow baseline that the row has now.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.features import EDGE_CHANNELS, NODE_CHANNELS, Array, Channel, channel_values
from model.snapshot import EDGE_METRICS, NODE_METRICS, BoolArray, FloatArray
from model.state.filters import (
    CENTRE,
    EXCEED_COUNT,
    FAST,
    LONG,
    SEEN,
    SHORT,
    SLOW_CENTRE,
    SLOW_VARIANCE,
    TAIL_START,
    VARIANCE,
    update_filters,
)
from model.state.mesh_state import MeshState
from serve_app.web.history import plain
from serve_app.web.period import Subject

UNSEEN = 0.0  # of ``SEEN``


def metric_histories(subject: Subject, state: MeshState, table: FloatArray, paused: BoolArray) -> list[dict[str, Any]]:
    """Return a ``MetricHistory`` for each metric. Values within ``TAIL_START`` sigmas of the expected one are usual.

    Args:
        subject: the service or the calls.
        state: newest of the mesh.
        table: of :func:`metric_table`, for T snapshots.
        paused: ``[T]``, whether an alert was open at the service before a snapshot, so that its baselines paused.
    """
    channels = (NODE_CHANNELS if subject.source is None else EDGE_CHANNELS)[: table.shape[1]]
    expected, low, high = np.full((3, *table.shape), np.nan)
    filters = _filters(subject, state)
    if filters is not None:
        measured = _measurements(subject, state, table)
        expected, low, high = _expectation(measured, paused, filters[:, : len(channels)], channels)
    return [
        {
            "metric": name,
            "observed": plain(table[:, i]),
            "expected": plain(expected[:, i]),
            "low": plain(low[:, i]),
            "high": plain(high[:, i]),
        }
        for i, name in enumerate(subject.metrics)
    ]


def _filters(subject: Subject, state: MeshState) -> Array | None:
    """The filters of the row, ``[13, channels]``; None: the state has no such row."""
    row = {name: i for i, name in enumerate(state.node_ids)}
    place = [row[name] for name in subject.ends if name in row]
    if len(place) < len(subject.ends):
        return None
    if subject.source is None:
        return state.node_filters[:, place[0]]
    found = np.flatnonzero((state.edge_index[0] == place[0]) & (state.edge_index[1] == place[1]))
    return state.edge_filters[:, found[0]] if len(found) else None


def _measurements(subject: Subject, state: MeshState, table: FloatArray) -> tuple[Array, BoolArray, Array]:
    """The measurements in the transformed units of C channels, whether they were measured, and their sampling variance,
    ``[T, C]``: each snapshot counts as a service, or as a call, of its own."""
    count, metrics = table.shape
    known = ~np.isnan(table)
    if subject.source is None:
        no_calls = np.zeros((0, len(EDGE_METRICS)), np.float32), np.zeros((0, len(EDGE_METRICS)), bool)
        values = channel_values(
            np.nan_to_num(table), known, *no_calls, np.zeros((2, 0), np.int64), state.interval_seconds
        )
        return values.node[:, :metrics], values.node_observed[:, :metrics], values.node_noise[:, :metrics]
    none = np.zeros((count, len(NODE_METRICS)), np.float32), np.zeros((count, len(NODE_METRICS)), bool)
    ends = np.stack([np.arange(count), np.arange(count)])
    values = channel_values(*none, np.nan_to_num(table), known, ends, state.interval_seconds)
    return values.edge[:, :metrics], values.edge_observed[:, :metrics], values.edge_noise[:, :metrics]


def _expectation(
    measurements: tuple[Array, BoolArray, Array], paused: BoolArray, filters: Array, channels: Sequence[Channel]
) -> NDArray[np.float64]:
    """The values that the row's own past predicts for each snapshot, and the bounds of the usual range, ``[3, T, C]``
    in the units of the metrics; NaN: unknown.

    Args:
        measurements: of :func:`_measurements`.
        filters: of the row in the newest state, ``[13, C]``.
    """
    value, measured, noise = measurements
    found = np.full((3, *value.shape), np.nan)
    now = _start(filters)
    for t in range(len(value)):
        at = slice(t, t + 1)
        deviation, now = update_filters(
            now, value[at], measured[at], noise[at], paused[at], paused[at], tuple(channels)
        )
        centre = np.where(deviation.seen[0] > UNSEEN, deviation.expected[0], np.nan)
        reach = np.float32(TAIL_START) * deviation.spread[0]
        found[:, t] = centre, centre - reach, centre + reach
    for c, channel in enumerate(channels):
        for column in found[:, :, c]:
            known = ~np.isnan(column)
            column[known] = [channel.inverse(float(one)) for one in column[known]]
    return found


def _start(filters: Array) -> Array:
    """The filters of a row ``[13, 1, C]`` at rest at its slow baseline, before the first snapshot."""
    started = filters[:, None, :].copy()
    started[CENTRE], started[VARIANCE] = started[SLOW_CENTRE], started[SLOW_VARIANCE]
    started[[SHORT, LONG]] = 0
    started[EXCEED_COUNT.start :] = 0
    started[SEEN] = np.minimum(started[SEEN], 1 / FAST)
    return started
