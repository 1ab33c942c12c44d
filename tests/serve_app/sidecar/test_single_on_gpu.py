"""The service in one process on a GPU: only if the settings require it."""

from pathlib import Path

import pytest

from serve_app.errors import NoCapacity
from serve_app.runtime import replica
from serve_app.settings import Settings
from serve_app.sidecar import single
from tests.serve_app.fake_gpu import NO_DRIVER, FakeGpu, gpu

__all__ = ["gpu"]  # the fixture


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "_single", replica.Single())


def settings(folder: Path, device: str) -> Settings:
    return Settings(store={"path": folder}, scorer={"device": device})


def test_the_gpu_of_the_workload_is_left_alone(gpu: FakeGpu, tmp_path: Path) -> None:
    single.deploy_all(settings(tmp_path, "auto"))
    assert (gpu.checks, gpu.fractions) == (0, [])


def test_a_required_gpu_that_does_not_work_stops_the_start(gpu: FakeGpu, tmp_path: Path) -> None:
    gpu.failure = NO_DRIVER
    with pytest.raises(NoCapacity, match="no working GPU: no NVIDIA driver was found"):
        single.deploy_all(settings(tmp_path, "cuda"))
