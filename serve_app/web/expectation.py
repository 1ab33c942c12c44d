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
from serve_app.web.history import five_digits, row_of
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
    row = row_of(state, subject)
    if row is not None:
        filters = (state.node_filters if subject.source is None else state.edge_filters)[:, row, : len(channels)]
        expected, low, high = _expectation(_measurements(subject, state, table), paused, filters, channels)
    return [
        {
            "metric": name,
            "observed": five_digits(table[:, i]),
            "expected": five_digits(expected[:, i]),
            "low": five_digits(low[:, i]),
            "high": five_digits(high[:, i]),
        }
        for i, name in enumerate(subject.metrics)
    ]


def _measurements(subject: Subject, state: MeshState, table: FloatArray) -> tuple[Array, BoolArray, Array]:
    """The measurements in the transformed units of C channels, whether they were measured, and their sampling variance,
    ``[T, C]``: each snapshot counts as a service, or as a call, of its own."""
    count, metrics = table.shape
    nodes, edges = table, np.empty((0, len(EDGE_METRICS)), np.float32)
    if subject.source is not None:
        nodes, edges = np.full((count, len(NODE_METRICS)), np.nan, np.float32), table
    ends = np.tile(np.arange(len(edges)), (2, 1))
    found = channel_values(
        np.nan_to_num(nodes), ~np.isnan(nodes), np.nan_to_num(edges), ~np.isnan(edges), ends, state.interval_seconds
    )
    if subject.source is None:
        return found.node[:, :metrics], found.node_observed[:, :metrics], found.node_noise[:, :metrics]
    return found.edge[:, :metrics], found.edge_observed[:, :metrics], found.edge_noise[:, :metrics]


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
