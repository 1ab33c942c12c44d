"""The fault of a simulated mesh is found from the metrics of a connector alone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import load
from model.snapshot import MeshSnapshot
from serve_app.collect.otlp.decode import PROTOBUF, decode_metrics
from serve_app.collect.otlp.service_graph import ServiceGraph, add_points
from serve_app.pipeline import Mesh, advance, options
from serve_app.settings import Settings
from tests.serve_app.collect.otlp.connector import BOUNDS, Connector
from tests.serve_app.running import failing, record_simulation

INTERVAL, QUIET = 15.0, 40
SPEC = MeshSpec(services=30, calls_per_service=3.0, seed=4)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def observe(connector: Connector, snapshot: MeshSnapshot) -> None:
    """Count the requests of a snapshot, at its median latency."""
    names = [name.replace("/", ".") for name in snapshot.node_ids]
    for (source, destination), (rate, errors, median, _) in zip(
        snapshot.edge_index.T.tolist(), np.nan_to_num(snapshot.edge_features).tolist(), strict=True
    ):
        requests = round(rate * INTERVAL)
        bucket = int(np.searchsorted(BOUNDS, median))
        connector.observe(
            (names[source], names[destination]), requests, failures=round(requests * errors), bucket=bucket
        )


def watch(recording: Sequence[MeshSnapshot]) -> list[MeshSnapshot]:
    """Return the snapshots made from the metrics of a mesh."""
    connector, graph, found = Connector(), ServiceGraph(), []
    for snapshot in recording:
        observe(connector, snapshot)
        request = connector.flush(snapshot.observed_at.timestamp())
        graph, made = add_points(graph, decode_metrics(request.SerializeToString(), PROTOBUF)[0], INTERVAL)
        found += [made] if made else []
    return found


def test_a_fault_is_found_by_the_metrics_of_a_connector_alone(weights: Path) -> None:
    recording = record_simulation(SPEC, QUIET + 20, fault_from=QUIET)
    checkpoint, chosen, mesh = load(weights), options(Settings()), Mesh()
    statuses, suspects = [], []
    for snapshot in watch(recording):
        verdict, mesh = advance(checkpoint, mesh, snapshot, chosen)
        statuses.append(verdict.status.value)
        suspects += [one.suspects[0].service for one in verdict.incidents]
    assert "anomalous" not in statuses[: QUIET - 2]
    assert "anomalous" in statuses[QUIET - 2 :]
    assert failing(SPEC).replace("/", ".") in {name.removeprefix("default/") for name in suspects}
