"""A mesh's front door: its users' requests, now and usually, and the way from there to a cause."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.front_door import find_entry_points, measure_entries_of
from model.incidents.impact import measure_traffic
from model.snapshot import IntArray, MeshSnapshot, NodeMetric
from serve_app.web.graph.propagation import Hop
from serve_app.web.history import five_digits, instant

MAX_SNAPSHOTS = 60  # of the charts
METRICS = ("request_rate", "error_rate", "p99_latency")
MEANS = [NodeMetric.ERROR_RATE, NodeMetric.P99_LATENCY]
USUAL = (1, 99)  # percentiles: the ends of the usual range, which a calm minute should not leave

Values = NDArray[np.float64]
Period = tuple[datetime, datetime | None]  # None: it has not ended


def front_door(
    window: Sequence[MeshSnapshot], entry_points: Collection[str], calm: Sequence[MeshSnapshot]
) -> dict[str, Any]:
    """Return the columns of a ``MapFrontDoor``.

    Args:
        window: snapshots up to the moment, oldest first, at least one.
        calm: snapshots before the moment without an incident, oldest first; they show what is usual.
    """
    newest = window[-MAX_SNAPSHOTS:]
    observed, before = (
        np.array([_measure(snapshot, entry_points) for snapshot in snapshots]).reshape(-1, len(METRICS))
        for snapshots in (newest, calm[-MAX_SNAPSHOTS:])
    )
    usual = np.full((len(USUAL), len(METRICS)), np.nan)
    is_known = np.isfinite(before).any(axis=0)
    usual[:, is_known] = np.nanpercentile(before[:, is_known], USUAL, axis=0)
    return {
        "times": [instant(snapshot.observed_at) for snapshot in newest],
        "metrics": [
            {
                "metric": name,
                "observed": five_digits(observed[:, column]),
                "expected": [None] * len(newest),
                "low": five_digits(np.full(len(newest), usual[0, column])),
                "high": five_digits(np.full(len(newest), usual[1, column])),
            }
            for column, name in enumerate(METRICS)
        ],
    }


def snapshots_outside(snapshots: Iterable[MeshSnapshot], periods: Collection[Period]) -> list[MeshSnapshot]:
    """Return the snapshots that no period contains."""

    def is_within(at: datetime, since: datetime, until: datetime | None) -> bool:
        return since <= at and (until is None or at < until)

    return [
        snapshot for snapshot in snapshots if not any(is_within(snapshot.observed_at, *period) for period in periods)
    ]


def _measure(snapshot: MeshSnapshot, entry_points: Collection[str]) -> Values:
    """Return the ``METRICS`` of all entry points together, means weighted by their requests; NaN: not observed."""
    entry = measure_traffic(snapshot, entry_points).entry
    rows = np.flatnonzero(entry)
    if not len(rows):
        return np.full(len(METRICS), np.nan)
    values = measure_entries_of(snapshot, rows)[:, MEANS]
    weight = np.where(np.isfinite(values), entry[rows, None], 0.0)
    total = weight.sum(axis=0)
    means = (np.nan_to_num(values) * weight).sum(axis=0) / np.where(total > 0, total, np.nan)
    return np.array([entry.sum(), *means])


def way_in(
    first: str, hops: Collection[Hop], names: Sequence[str], edge_index: IntArray, entry_points: Collection[str]
) -> list[str]:
    """Return the services on the shortest way from the front door to the first suspect, both included; empty if the
    incident, which spread along ``hops``, reached no entry point. ``names`` and ``edge_index`` are as in the map."""
    entries = {names[row] for row in np.flatnonzero(find_entry_points(names, edge_index, entry_points)).tolist()}
    nearer = {hop.far: hop.near for hop in hops if not hop.is_down}
    way = [next((name for name in (first, *nearer) if name in entries), "")]
    while way[-1] in nearer:
        way.append(nearer[way[-1]])
    return way if way[-1] == first else []
