"""The metrics of one service, or of the calls between two, over the kept snapshots, each with its expected values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS, Array, Channel, channel_values
from model.snapshot import EDGE_METRICS, NODE_METRICS, BoolArray, FloatArray, IntArray
from model.state.mesh_state import MeshState
from serve_app.web.expectation import Measurements, expectation
from serve_app.web.history import plain
from serve_app.web.period import Subject


def metric_histories(subject: Subject, state: MeshState, table: FloatArray, paused: BoolArray) -> list[dict[str, Any]]:
    """Return a ``MetricHistory`` for each metric.

    Args:
        subject: the service or the calls.
        state: newest of the mesh.
        table: of :func:`metric_table`, for T snapshots.
        paused: ``[T]``, whether an alert was open at the service before a snapshot, so that its baselines paused.
    """
    names, channels, filters = _baseline(subject, state)
    expected = expectation(_measurements(subject, state, table, paused), filters, channels)
    return [
        {
            "metric": name,
            "observed": plain(table[:, i]),
            "expected": plain(expected.value[:, i]),
            "low": plain(expected.low[:, i]),
            "high": plain(expected.high[:, i]),
        }
        for i, name in enumerate(names)
    ]


def _baseline(subject: Subject, state: MeshState) -> tuple[Sequence[str], Sequence[Channel], Array | None]:
    """The metrics, their channels, and the filters of the row ``[13, C]``; None: the state has no such row."""
    row = {name: i for i, name in enumerate(state.node_ids)}
    place = [row.get(name) for name in subject.ends]
    if subject.source is None:
        channels = NODE_CHANNELS[: len(NODE_METRICS)]
        filters = None if place[0] is None else state.node_filters[:, place[0], : len(channels)]
        return NODE_METRICS, channels, filters
    channels = EDGE_CHANNELS[: len(EDGE_METRICS)]
    found: IntArray = np.zeros(0, np.int64)
    if None not in place:
        found = np.flatnonzero((state.edge_index[0] == place[0]) & (state.edge_index[1] == place[1]))
    return EDGE_METRICS, channels, state.edge_filters[:, found[0], : len(channels)] if len(found) else None


def _measurements(subject: Subject, state: MeshState, table: FloatArray, paused: BoolArray) -> Measurements:
    """The measurements as channels: each snapshot counts as a service, or as a call, of its own."""
    count, known = len(table), ~np.isnan(table)
    none = np.zeros((count, len(NODE_METRICS)), np.float32), np.zeros((count, len(NODE_METRICS)), bool)
    if subject.source is None:
        nodes: tuple[FloatArray, BoolArray] = np.nan_to_num(table), known
        no_calls = np.zeros((0, len(EDGE_METRICS)), np.float32), np.zeros((0, len(EDGE_METRICS)), bool)
        values = channel_values(*nodes, *no_calls, np.zeros((2, 0), np.int64), state.interval_seconds)
        value, measured, noise = values.node, values.node_observed, values.node_noise
    else:
        ends = np.stack([np.arange(count), np.arange(count)])
        values = channel_values(*none, np.nan_to_num(table), known, ends, state.interval_seconds)
        value, measured, noise = values.edge, values.edge_observed, values.edge_noise
    metrics = table.shape[1]
    return Measurements(value[:, :metrics], measured[:, :metrics], noise[:, :metrics], paused)
