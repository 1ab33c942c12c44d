"""Ranking as in BARO (Pham, Ha and Zhang, FSE 2024): median and interquartile range, no scales, no graph.

BARO fits ``RobustScaler`` to each metric before the anomaly. It ranks a service by the highest value that any of its
metrics reached since then, in interquartile ranges above the median. All metrics count alike, also rates and memory. A
call counts for its destination. The paper finds the start of an anomaly with Bayesian change points over the whole
recording, that is in hindsight. Here the start comes from N-sigma's alerts, and *since* means the newest snapshots
without a gap.
"""

from dataclasses import dataclass, replace

import numpy as np

from lab.contenders import n_sigma
from lab.contenders.deviation import Series, call_names, max_of_incoming_calls
from lab.contenders.n_sigma import SIGMAS
from lab.contenders.paging import Floats, build_verdict
from lab.contenders.past import Past
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from model.verdict import Verdict

LABEL = "BARO"
WINDOW = 720  # snapshots of the median
SINCE = 10  # most snapshots since the start of the anomaly
SUMMARY = (
    f"pages like N-sigma; ranked by the highest value of any metric in {SINCE} snapshots, in interquartile ranges "
    f"above the median of {WINDOW}"
)


@dataclass(frozen=True, slots=True)
class BaroState:
    """State between two snapshots; ``peaks``: highest values of services in the newest snapshots."""

    paging: n_sigma.NSigmaState
    services: Series
    calls: Series
    peaks: Past


def start(interval_seconds: float, warm_up: int) -> BaroState:
    """Return the state before the first snapshot."""
    services, calls = (Series.empty((0.0,) * len(names), WINDOW) for names in (NODE_METRICS, EDGE_METRICS))
    return BaroState(n_sigma.start(interval_seconds, warm_up), services, calls, Past(SINCE))


def advance(state: BaroState, snapshot: MeshSnapshot) -> tuple[Verdict, BaroState]:
    """Process one snapshot."""
    paging, names, calls = state.paging, snapshot.node_ids, call_names(snapshot)
    of_services = np.where(snapshot.node_observed, snapshot.node_features.astype(np.float64), np.nan)
    of_calls = np.where(snapshot.edge_observed, snapshot.edge_features.astype(np.float64), np.nan)
    peak = np.maximum(
        state.services.rises(names, of_services).max(axis=1),
        max_of_incoming_calls(snapshot, state.calls.rises(calls, of_calls).max(axis=1)),
    )
    peaks = Past(SINCE) if paging.watch.has_gap_before(snapshot) else state.peaks
    peaks = peaks.with_frame(names, peak[:, None])
    verdict, watch = build_verdict(
        paging.watch, snapshot, n_sigma.scores(paging.mesh, snapshot), SIGMAS, _highest(peaks, names)
    )
    paging = n_sigma.NSigmaState(watch, paging.mesh.with_snapshot(snapshot))
    after = (state.services.with_frame(names, of_services), state.calls.with_frame(calls, of_calls))
    return verdict, replace(state, paging=paging, services=after[0], calls=after[1], peaks=peaks)


def _highest(peaks: Past, names: tuple[str, ...]) -> Floats:
    """Highest peak of each service, ``[N]``."""
    return peaks.look_up(np.nan_to_num(peaks.cube()).max(axis=2).astype(np.float64), names)[:, 0]
