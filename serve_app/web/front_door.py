"""The front door of a mesh: the requests of its users, now and usually, and the way from there to a cause."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.incidents.impact import measure_traffic
from model.snapshot import EdgeMetric, IntArray, MeshSnapshot, NodeMetric
from serve_app.web.graph.propagation import Hop
from serve_app.web.history import five_digits, instant

MAX_SNAPSHOTS = 60  # of the charts
METRICS = ("request_rate", "error_rate", "p99_latency")
OWN = [NodeMetric.ERROR_RATE, NodeMetric.P99_LATENCY]
OF_CALLS = [EdgeMetric.ERROR_RATE, EdgeMetric.P99_LATENCY]
USUAL = (5, 95)  # percentiles: the ends of the usual range

Values = NDArray[np.float64]


def front_door(window: Sequence[MeshSnapshot], trouble_since: datetime | None = None) -> dict[str, Any]:
    """Return the columns of a ``MapFrontDoor``.

    Args:
        window: snapshots up to the moment, oldest first, at least one.
        trouble_since: start of the first open incident; None: there is none. Snapshots from then on are not usual.
    """
    shown = window[-MAX_SNAPSHOTS:]
    observed = np.array([_measure(snapshot) for snapshot in shown])
    at = window[-1].observed_at if trouble_since is None else trouble_since
    before = observed[[snapshot.observed_at < at for snapshot in shown]]
    usual = np.full((len(USUAL), len(METRICS)), np.nan)
    known = np.isfinite(before).any(axis=0)
    usual[:, known] = np.nanpercentile(before[:, known], USUAL, axis=0)
    return {
        "times": [instant(snapshot.observed_at) for snapshot in shown],
        "metrics": [
            {
                "metric": name,
                "observed": five_digits(observed[:, column]),
                "expected": [None] * len(shown),
                "low": five_digits(np.full(len(shown), usual[0, column])),
                "high": five_digits(np.full(len(shown), usual[1, column])),
            }
            for column, name in enumerate(METRICS)
        ],
    }


def _measure(snapshot: MeshSnapshot) -> Values:
    """Return the ``METRICS`` of all entry points together, weighted by their requests; NaN: not observed.

    A gateway often has no metrics of its own; the metrics of its calls stand for them.
    """
    entry, count = measure_traffic(snapshot).entry, snapshot.num_nodes
    if not entry.any():
        return np.full(len(METRICS), np.nan)
    rates = snapshot.edge_features[:, EdgeMetric.REQUESTS_PER_SECOND]
    means = []
    for own, of_call in zip(OWN, OF_CALLS, strict=True):
        weight = np.where(snapshot.edge_observed[:, of_call], rates, 0.0)
        total, part = (
            np.bincount(snapshot.edge_index[0], values, count)
            for values in (weight, weight * snapshot.edge_features[:, of_call])
        )
        of_calls = np.divide(part, total, out=np.full(count, np.nan), where=total > 0)
        values = np.where(snapshot.node_observed[:, own], snapshot.node_features[:, own], of_calls)
        known = entry * np.isfinite(values)
        means.append(np.nan_to_num(values) @ known / known.sum() if known.any() else np.nan)
    return np.array([entry.sum(), *means])


def way_in(first: str, hops: Collection[Hop], names: Sequence[str], edge_index: IntArray) -> list[str]:
    """Return the services from the front door to the first suspect, both included. Of several ways, the shortest.

    Empty if the incident reached no entry point.

    Args:
        first: the first suspect.
        hops: how the incident spread.
        names: of the services, ``[N]``.
        edge_index: the calls between them, ``[2, E]``.
    """
    source, destination = edge_index
    called = {names[row] for row in np.unique(destination[source != destination]).tolist()}
    nearer = {hop.far: hop.near for hop in hops if not hop.is_down}
    way = [next((name for name in (first, *nearer) if name not in called), "")]
    while way[-1] in nearer:
        way.append(nearer[way[-1]])
    return way if way[-1] == first else []
