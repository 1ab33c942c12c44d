"""A service on one machine runs only what it uses."""

from contextlib import suppress

import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.codec import ARROW, encode_snapshot
from tests.serve_app.running import Service, record_simulation

NOT_USED = ("autoscaler/_private/monitor.py", "log_monitor.py", "dashboard/dashboard.py")  # of Ray


@pytest.mark.ray
def test_a_service_runs_only_processes_that_it_uses(service: Service) -> None:
    for snapshot in record_simulation(MeshSpec(services=30, seed=3), 4):
        body = encode_snapshot(snapshot, ARROW)
        service.http.post("/v1/meshes/lean/snapshots", content=body, headers={"content-type": ARROW}).raise_for_status()
    replicas, others = 0, set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            replicas += command.startswith("ray::Serve")
            others |= {name for name in NOT_USED if name in command}
    assert others == set()
    assert replicas
