"""Input of static rules: samples with enough requests behind them, and their ratio to the limits."""

import numpy as np

from lab.contenders.paging import Floats
from model.snapshot import MeshSnapshot, NodeMetric

OF_REQUESTS = [NodeMetric.ERROR_RATE, NodeMetric.P50_LATENCY, NodeMetric.P99_LATENCY]
LEAST_REQUESTS = 100.0  # in a sample; with fewer, ratios and latencies are mostly noise
_RATE = NodeMetric.REQUEST_RATE


def samples(snapshot: MeshSnapshot, interval_seconds: float) -> Floats:
    """Return samples ``[N, 7]``, NaN where not observed or where there are too few requests."""
    values = np.where(snapshot.node_observed, snapshot.node_features.astype(np.float64), np.nan)
    few = ~(values[:, _RATE] * interval_seconds >= LEAST_REQUESTS)
    values[np.flatnonzero(few)[:, None], OF_REQUESTS] = np.nan
    return values


def times_over(values: Floats, limits: Floats) -> Floats:
    """Return each service's largest ratio of a value to its limit, ``[N]``; 0 where nothing was observed."""
    return np.asarray(np.nan_to_num(values / limits).max(axis=1), np.float64)
