"""Missing telemetry: what a snapshot shows while the exporters of some services are silent."""

from collections.abc import Collection
from enum import StrEnum

import numpy as np

from model.snapshot import MeshSnapshot


class Reporter(StrEnum):
    """Which telemetry of a service is missing."""

    BOTH = "both"  # an exporter or a scrape shard: its own metrics, and the calls that it reports as caller
    METRICS = "metrics"  # its own metrics alone
    CALLS = "calls"  # the calls that it reports alone


def silence(snapshot: MeshSnapshot, services: Collection[str], reporter: Reporter = Reporter.BOTH) -> MeshSnapshot:
    """Return the snapshot without what these services (node ids) report. Calls from others to them are still there."""
    silent = np.fromiter((name in services for name in snapshot.node_ids), bool, snapshot.num_nodes)
    nodes = np.where(snapshot.node_observed, snapshot.node_features, np.nan)
    edges = np.where(snapshot.edge_observed, snapshot.edge_features, np.nan)
    kept = np.ones(snapshot.num_edges, bool)
    if reporter is not Reporter.CALLS:
        nodes[silent] = np.nan
    if reporter is not Reporter.METRICS:
        kept = ~silent[snapshot.edge_index[0]]
    return MeshSnapshot.create(
        node_ids=snapshot.node_ids,
        edge_index=snapshot.edge_index[:, kept],
        node_features=nodes,
        edge_features=edges[kept],
        observed_at=snapshot.observed_at,
        changes=snapshot.changes,
    )
