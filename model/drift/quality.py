"""Series that are measured badly: missing, stale or constant ones, from the snapshots that a mesh keeps.

A metric of a live service is never exactly the same for long. If all metrics of a service are, its exporter is stuck,
and the service is *stale*. If a single metric is, it is *constant*: a placeholder, or a gauge that nothing updates.
Values of 0 are left out, since errors and idle services have them rightly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, BoolArray, MeshSnapshot

STALE_SECONDS, STALE_SNAPSHOTS = 300.0, 10  # both at least; scrapes can be rarer than snapshots
CONSTANT_SECONDS, CONSTANT_SNAPSHOTS = 1500.0, 20  # likewise


@dataclass(frozen=True, slots=True)
class DataQuality:
    """Series that are measured badly at the newest snapshot.

    Attributes:
        missing: share of the services without a metric, and of the calls, by the names of ``populations.py``.
        stale: services of which nothing changes.
        constant: services and their metrics that alone do not change.
    """

    missing: dict[str, float]
    stale: tuple[str, ...]
    constant: tuple[tuple[str, str], ...]


def data_quality(window: Sequence[MeshSnapshot]) -> DataQuality:
    """Return the quality of the newest snapshot; ``window`` has at least one, oldest first."""
    newest = window[-1]
    missing = {f"service.{name}": _share(newest.node_observed[:, i]) for i, name in enumerate(NODE_METRICS)}
    missing |= {f"call.{name}": _share(newest.edge_observed[:, i]) for i, name in enumerate(EDGE_METRICS)}
    nonzero = newest.node_observed & (newest.node_features != 0)
    has_few = nonzero.sum(axis=1) < 2  # one value that stays says little about its exporter
    stale = np.zeros(len(newest.node_ids), bool)
    is_unchanged = nonzero.copy()
    constant = np.zeros_like(nonzero)
    for number, earlier in enumerate(reversed(window[:-1]), 2):
        is_unchanged &= _equal(newest, earlier)
        if not is_unchanged.any():
            break
        seconds = (newest.observed_at - earlier.observed_at).total_seconds()
        if seconds >= STALE_SECONDS and number >= STALE_SNAPSHOTS and not stale.any():
            stale = (is_unchanged == nonzero).all(axis=1) & ~has_few
        if seconds >= CONSTANT_SECONDS and number >= CONSTANT_SNAPSHOTS:
            constant = is_unchanged & ~stale[:, None]
            break
    names = newest.node_ids
    pairs = tuple((names[row], NODE_METRICS[column]) for row, column in np.argwhere(constant).tolist())
    return DataQuality(missing, tuple(names[row] for row in np.flatnonzero(stale).tolist()), pairs)


def _share(observed: BoolArray) -> float:
    return 1 - float(observed.mean()) if len(observed) else 0.0


def _equal(newest: MeshSnapshot, earlier: MeshSnapshot) -> BoolArray:
    """Return which metrics of the newest snapshot's services have the same values in an earlier one, ``[N, 7]``."""
    features, observed = earlier.node_features, earlier.node_observed
    if newest.node_ids != earlier.node_ids:
        row_of = {name: row for row, name in enumerate(earlier.node_ids)}
        rows = np.array([row_of.get(name, -1) for name in newest.node_ids])
        is_known = (rows >= 0)[:, None]
        features, observed = features[rows], observed[rows] & is_known
    return observed & (newest.node_features == features)
