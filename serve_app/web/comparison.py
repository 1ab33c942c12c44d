"""Compares two periods of a mesh: which metrics differ by more than their usual variation. Returns JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS, Array, Channel, channel_values
from model.snapshot import EDGE_METRICS, NODE_METRICS, FloatArray, IntArray, MeshSnapshot
from serve_app.errors import InvalidParameter
from serve_app.web.history import instant

MOST_DIFFERENCES = 60  # rows of a comparison
LEAST_STRENGTH = 2.0  # of a row
CONTEXT = frozenset({"request_rate", "requests_per_second", "memory_utilization", "active_connections"})
CONTEXT_WEIGHT = 0.25  # in the order of rows: latencies, errors and cpu say more about a fault


@dataclass(frozen=True, slots=True, eq=False)
class _Typical:
    """The typical values of services ``[N, 7]`` or calls ``[E, 4]`` in a period; NaN if nothing was observed.

    Attributes:
        median: in the units of the metrics.
        centre: the median in transformed units (``model.features``).
        spread: usual difference of a single snapshot, in transformed units.
    """

    median: Array
    centre: Array
    spread: Array


def comparison(first: Sequence[MeshSnapshot], second: Sequence[MeshSnapshot], interval_seconds: float) -> bytes:
    """Return JSON of a ``ComparisonDocument``.

    The strength of a difference is the difference of the medians in transformed units (``model.features``), divided by
    the usual difference of one snapshot. This is the largest of the spread within a period (1.48 times the median
    absolute deviation), the counting noise of the requests, and the floor of the channel. So strengths of all metrics
    are comparable, and noisy metrics and rare calls do not count. Traffic and memory come after latencies, errors and
    cpu of the same strength.

    Args:
        first, second: snapshots of the periods.
        interval_seconds: time over which requests were counted, s.
    """
    names = tuple(dict.fromkeys(name for snapshot in (*first, *second) for name in snapshot.node_ids))
    row = {name: i for i, name in enumerate(names)}
    rows = [_rows(period, row) for period in (first, second)]
    codes = np.unique(np.concatenate([code for period in rows for _, code in period]))
    ends = np.stack([codes % len(names), codes // len(names)])
    (a, a_calls), (b, b_calls) = (
        _typical(*_values(period, at, len(names), codes), ends, interval_seconds)
        for period, at in zip((first, second), rows, strict=True)
    )
    found = [
        {"service": names[i], "source": None, **difference} for i, difference in _differences(a, b, NODE_METRICS)
    ] + [
        {"service": names[ends[1, i]], "source": names[ends[0, i]], **difference}
        for i, difference in _differences(a_calls, b_calls, EDGE_METRICS)
    ]
    found.sort(key=lambda one: -abs(one["strength"]) * (CONTEXT_WEIGHT if one["metric"] in CONTEXT else 1.0))
    return msgspec.json.encode(
        {"first_snapshots": len(first), "second_snapshots": len(second), "rows": found[:MOST_DIFFERENCES]}
    )


def period(window: Sequence[MeshSnapshot], begin: datetime, end: datetime, name: str) -> list[MeshSnapshot]:
    """Return the kept snapshots from ``begin`` to ``end``, both included.

    Raises:
        InvalidParameter: there is none.
    """
    found = [snapshot for snapshot in window if begin <= snapshot.observed_at <= end]
    if not found:
        kept = f"{instant(window[0].observed_at)} to {instant(window[-1].observed_at)}" if window else "none"
        raise InvalidParameter(
            f"query: expected a {name} period with a snapshot in it, got {instant(begin)} to "
            f"{instant(end)}; the kept snapshots are {kept}"
        )
    return found


def _rows(period: Sequence[MeshSnapshot], row: dict[str, int]) -> list[tuple[IntArray, IntArray]]:
    """Return for each snapshot the rows of its services, and a code of the two rows for each call."""
    places: list[tuple[IntArray, IntArray]] = []
    last: MeshSnapshot | None = None
    for snapshot in period:
        if last is None or snapshot.node_ids is not last.node_ids or snapshot.edge_index is not last.edge_index:
            at = np.fromiter((row[name] for name in snapshot.node_ids), np.int64, snapshot.num_nodes)
            source, destination = at[snapshot.edge_index]
            place = at, destination * len(row) + source
        places.append(place)
        last = snapshot
    return places


def _values(
    period: Sequence[MeshSnapshot], places: Sequence[tuple[IntArray, IntArray]], services: int, codes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the observed metrics of services ``[T, N, 7]`` and calls ``[T, E, 4]``; NaN if not observed."""
    nodes = np.full((len(period), services, len(NODE_METRICS)), np.nan, np.float32)
    edges = np.full((len(period), len(codes), len(EDGE_METRICS)), np.nan, np.float32)
    for t, (snapshot, (at, code)) in enumerate(zip(period, places, strict=True)):
        nodes[t, at] = np.where(snapshot.node_observed, snapshot.node_features, np.float32(np.nan))
        between = np.searchsorted(codes, code)
        edges[t, between] = np.where(snapshot.edge_observed, snapshot.edge_features, np.float32(np.nan))
    return nodes, edges


def _typical(
    nodes: FloatArray, edges: FloatArray, ends: IntArray, interval_seconds: float
) -> tuple[_Typical, _Typical]:
    node, edge = _median(nodes), _median(edges)
    known = ~np.isnan(node), ~np.isnan(edge)
    channels = channel_values(np.nan_to_num(node), known[0], np.nan_to_num(edge), known[1], ends, interval_seconds)
    services = _variation(nodes, node, channels.node_noise, NODE_CHANNELS)
    return services, _variation(edges, edge, channels.edge_noise, EDGE_CHANNELS)


def _variation(values: FloatArray, median: Array, noise: Array, channels: Sequence[Channel]) -> _Typical:
    """``values`` ``[T, rows, metrics]`` around their ``median``; ``noise`` is a variance of the channels."""
    metrics = range(values.shape[2])
    centre = np.stack([channels[i].forward(median[:, i]) for i in metrics], axis=1)
    transformed = np.stack([channels[i].forward(values[:, :, i]) for i in metrics], axis=2)
    spread = np.float32(1.48) * _median(np.abs(transformed - centre))
    floor = np.array([channels[i].floor for i in metrics], np.float32)
    return _Typical(median, centre, np.maximum(np.maximum(spread, np.sqrt(noise[:, : len(metrics)])), floor))


def _differences(first: _Typical, second: _Typical, metrics: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield rows and their differences."""
    strength = (second.centre - first.centre) / np.maximum(first.spread, second.spread)
    for i, metric in np.argwhere(np.abs(strength) >= LEAST_STRENGTH).tolist():
        yield (
            i,
            {
                "metric": metrics[metric],
                "first": float(f"{first.median[i, metric]:.5g}"),
                "second": float(f"{second.median[i, metric]:.5g}"),
                "strength": round(float(strength[i, metric]), 2),
            },
        )


def _median(values: FloatArray) -> Array:
    """The median of the observed values along the first axis, NaN without any; ``np.nanmedian`` is ten times slower."""
    ordered = np.sort(values, axis=0)  # NaN goes last
    known = (~np.isnan(values)).sum(axis=0, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(known - 1, 0) // 2, axis=0)
    high = np.take_along_axis(ordered, known // 2, axis=0)
    return np.asarray((low + high)[0] / 2, np.float32)
