"""The metrics of one service, or of the calls between two, over the kept snapshots, with their expected values.

The detector keeps only the filters of the newest snapshot. So the filters of one row are updated again with the kept
snapshots, as the detector did. They start from the row's present slow baseline.
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


def metric_histories(
    subject: Subject, state: MeshState, table: FloatArray, is_paused: BoolArray
) -> list[dict[str, Any]]:
    """Return a ``MetricHistory`` for each metric. Values within ``TAIL_START`` sigmas of the expected one are usual.

    Args:
        table: of :func:`metric_table`, for T snapshots.
        is_paused: ``[T]``, whether an alert was open at the service before a snapshot, so that its baselines paused.
    """
    channels = (NODE_CHANNELS if subject.source is None else EDGE_CHANNELS)[: table.shape[1]]
    expected, low, high = np.full((3, *table.shape), np.nan)
    row = row_of(state, subject)
    if row is not None:
        filters = (state.node_filters if subject.source is None else state.edge_filters)[:, row, : len(channels)]
        expected, low, high = _expectation(_measurements(subject, state, table), is_paused, filters, channels)
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
    """Return the measurements in the transformed units of C channels, whether they were measured, and their sampling
    variance, ``[T, C]``: each snapshot counts as a service, or as a call, of its own."""
    count, metrics = table.shape
    nodes, edges = table, np.empty((0, len(EDGE_METRICS)), np.float32)
    if subject.source is not None:
        nodes, edges = np.full((count, len(NODE_METRICS)), np.nan, np.float32), table
    ends = np.tile(np.arange(len(edges)), (2, 1))
    channels = channel_values(
        np.nan_to_num(nodes), ~np.isnan(nodes), np.nan_to_num(edges), ~np.isnan(edges), ends, state.interval_seconds
    )
    if subject.source is None:
        return channels.node[:, :metrics], channels.node_observed[:, :metrics], channels.node_noise[:, :metrics]
    return channels.edge[:, :metrics], channels.edge_observed[:, :metrics], channels.edge_noise[:, :metrics]


def _expectation(
    measurements: tuple[Array, BoolArray, Array], is_paused: BoolArray, filters: Array, channels: Sequence[Channel]
) -> NDArray[np.float64]:
    """Return the values that the row's own past predicts for each snapshot, and the bounds of the usual range,
    ``[3, T, C]`` in the units of the metrics; NaN: unknown. ``filters`` ``[13, C]`` are the row's in the newest state.
    """
    value, is_measured, noise = measurements
    bounds = np.full((3, *value.shape), np.nan)
    state = _initial_filters(filters)
    for t in range(len(value)):
        at = slice(t, t + 1)
        deviation, state = update_filters(
            state, value[at], is_measured[at], noise[at], is_paused[at], is_paused[at], tuple(channels)
        )
        centre = np.where(deviation.seen[0] > UNSEEN, deviation.expected[0], np.nan)
        reach = np.float32(TAIL_START) * deviation.spread[0]
        bounds[:, t] = centre, centre - reach, centre + reach
    for c, channel in enumerate(channels):
        for column in bounds[:, :, c]:
            is_known = ~np.isnan(column)
            column[is_known] = channel.invert(column[is_known])
    return bounds


def _initial_filters(filters: Array) -> Array:
    """Return a row's filters ``[13, 1, C]`` at rest at its slow baseline, before the first snapshot."""
    initial = filters[:, None, :].copy()
    initial[CENTRE], initial[VARIANCE] = initial[SLOW_CENTRE], initial[SLOW_VARIANCE]
    initial[[SHORT, LONG]] = 0
    initial[EXCEED_COUNT.start :] = 0
    initial[SEEN] = np.minimum(initial[SEEN], 1 / FAST)
    return initial
