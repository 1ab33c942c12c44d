"""Processes of the service import Serve without pandas."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.codec import ARROW, encode_snapshot
from tests.serve_app.running import Service, record_simulation
from tests.timing import PATIENCE_SECONDS

NOT_USED = ("autoscaler/_private/monitor.py", "log_monitor.py", "dashboard/dashboard.py")  # of Ray


@pytest.mark.parametrize("before", ["", "import pandas; "], ids=["first", "after pandas"])
def test_serve_is_imported_without_pandas_and_pandas_can_be_imported_later(before: str) -> None:
    code = (
        f"import sys; {before}from serve_app.runtime.worker_setup import import_serve; import_serve(); "
        "import pyarrow.compute as pc; pc.binary_join_element_wise(['a'], ['b'], '/'); "
        "print('ray.serve' in sys.modules, 'pandas' in sys.modules); "
        "import pandas; pandas.DataFrame({'a': [1]})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=2 * PATIENCE_SECONDS
    )
    assert done.stdout.split() == [str(not before), str(bool(before))]


def test_an_error_is_logged_and_serve_can_still_be_imported() -> None:
    code = (
        "import pyarrow; pyarrow.array = None; "
        "from serve_app.runtime.worker_setup import import_serve; import_serve(); "
        "import ray.serve, pandas; print('imported')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=2 * PATIENCE_SECONDS
    )
    assert done.stdout.strip() == "imported"
    assert "Ray Serve could not be imported without pandas" in done.stderr


@pytest.mark.ray
def test_a_service_runs_only_processes_that_it_uses_without_pandas(service: Service) -> None:
    for snapshot in record_simulation(MeshSpec(services=30, seed=3), 4):
        body = encode_snapshot(snapshot, ARROW)
        service.http.post("/v1/meshes/lean/snapshots", content=body, headers={"content-type": ARROW}).raise_for_status()
    replicas, others = [], set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            if command.startswith("ray::Serve"):
                replicas.append({Path(one.path).parts for one in process.memory_maps()})
            others |= {name for name in NOT_USED if name in command}
    assert others == set()
    assert replicas
    assert not any("pandas" in parts for files in replicas for parts in files)
