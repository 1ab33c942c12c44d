"""Adaptation of a served mesh: it runs in the background, is shown, and can be removed by one request."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.features import P50, P99, RATE
from model.snapshot import MeshSnapshot
from tests.serve_app.running import Service, problem, push, record_simulation
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.timeout(180), pytest.mark.ray]

MESH = "adapting"
PATH = f"/v1/meshes/{MESH}/adapter"
SPEC = MeshSpec(services=30, seed=5)


def with_swinging_load(snapshots: Sequence[MeshSnapshot]) -> list[MeshSnapshot]:
    """Add a periodic load, and latencies that follow it more than the shipped model expects."""
    days = []
    for i, s in enumerate(snapshots):
        load = np.float32(1.4 ** np.sin(i / 6))
        nodes, edges = s.node_features.copy(), s.edge_features.copy()
        nodes[:, RATE] *= load
        edges[:, RATE] *= load
        nodes[:, [P50, P99]] *= load**2
        edges[:, P50 : P99 + 1] *= load**2
        days.append(replace(s, node_features=nodes, edge_features=edges))
    return days


@pytest.fixture(scope="module")
def days(service: Service) -> list[MeshSnapshot]:
    return with_swinging_load(record_simulation(SPEC, service.settings.adapt.every_snapshots + 8))


def adapter(service: Service) -> dict[str, Any]:
    response = service.http.get(PATH)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_an_adapter_is_fitted_in_the_background_and_removed_by_one_request(
    service: Service, days: list[MeshSnapshot]
) -> None:
    every = service.settings.adapt.every_snapshots
    problem(service.http.get(PATH), 404, "unknown-mesh")
    problem(service.http.post(f"{PATH}/rollback"), 404, "unknown-mesh")
    for snapshot in days[: every - 1]:
        push(service, MESH, snapshot)
    assert adapter(service) == {"adapter": None, "former": None, "rolled_back_at": None}
    problem(service.http.post(f"{PATH}/rollback"), 409, "no-adapter")

    verdicts = [push(service, MESH, snapshot) for snapshot in days[every - 1 : every + 4]]  # while it is fitted
    assert [verdict["sequence"] for verdict in verdicts] == list(range(every, every + 5))
    until = time.monotonic() + PATIENCE_SECONDS
    while (found := adapter(service)["adapter"]) is None:  # poll with requests, because there is no event to wait for
        assert time.monotonic() < until, "no adapter was adopted"
    newest = [verdict["observed_at"] for verdict in verdicts].index(
        found["fitted_at"]
    )  # when the trainer read the store
    assert found["snapshots"] == every + newest
    assert found["loss_after"] < found["loss_before"]
    steepest = found["curves"][0]
    assert steepest["slowdown"] > 1.2
    assert steepest["least_request_rate"] < steepest["usual_request_rate"] < steepest["most_request_rate"]

    push(service, MESH, days[every + 4])
    response = service.http.post(f"{PATH}/rollback")
    assert response.status_code == 200, response.text
    back = response.json()
    assert (back["adapter"], back["former"]) == (None, None)
    assert back["rolled_back_at"] == days[every + 4].observed_at.isoformat().replace("+00:00", "Z")
    assert adapter(service) == back
    problem(service.http.post(f"{PATH}/rollback"), 409, "no-adapter")
    assert push(service, MESH, days[every + 5])["sequence"] == every + 6
