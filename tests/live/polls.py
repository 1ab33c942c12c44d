"""A source that polls a real Prometheus, and the values of its snapshots."""

from contextlib import AbstractContextManager, closing

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.settings import CollectorSettings, MeshSettings


def open_source(url: str, collector: CollectorSettings, dialect: str = "istio") -> AbstractContextManager[MeshSource]:
    return closing(MeshSource(MeshSettings(prometheus=url, source=dialect), collector))


def rates_of_calls(mesh: MeshSnapshot) -> dict[tuple[str, str], float]:
    """Return the requests of each call, 1/s."""
    ends = ((mesh.node_ids[a], mesh.node_ids[b]) for a, b in mesh.edge_index.T.tolist())
    return dict(zip(ends, (round(rate, 3) for rate in mesh.edge_features[:, 0].tolist()), strict=True))


def value_of(mesh: MeshSnapshot, service: str, metric: str) -> float | None:
    """Return a metric of a service; None if it was not observed."""
    row, column = mesh.node_ids.index(service), NODE_METRICS.index(metric)
    return float(mesh.node_features[row, column]) if mesh.node_observed[row, column] else None


def value_of_call(mesh: MeshSnapshot, source: str, destination: str, metric: str) -> float | None:
    """Return a metric of a call; None if it was not observed."""
    ends = [mesh.node_ids.index(source), mesh.node_ids.index(destination)]
    row, column = mesh.edge_index.T.tolist().index(ends), EDGE_METRICS.index(metric)
    return float(mesh.edge_features[row, column]) if mesh.edge_observed[row, column] else None
