"""The sidecar on a GPU: only if the settings require it, and with the CPU for what finds no memory there."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.network.contract import MeshNetwork
from model.scoring.score import PartitionScore
from serve_app.errors import NoCapacity
from serve_app.pipeline import PreparedSnapshot, score_whole
from serve_app.settings import Settings
from serve_app.sidecar import detector
from serve_app.sidecar.detector import Detector
from tests.serve_app.fake_gpu import NO_DRIVER, NO_MEMORY, FakeGpu, gpu, load_weights_anywhere

__all__ = ["gpu"]  # the fixture

SNAPSHOTS = list(Simulator(MeshSpec(services=20, calls_per_service=3.0, seed=4), snapshots=3).snapshots())


def settings(folder: Path, device: str) -> Settings:
    return Settings(store={"path": folder}, scorer={"device": device})


async def test_the_sidecar_leaves_the_gpu_of_its_workload_alone(gpu: FakeGpu, tmp_path: Path) -> None:
    mesh = Detector("shop", settings(tmp_path, "auto"))
    await mesh.close()
    assert (gpu.checks, gpu.fractions) == (0, [])


async def test_a_required_gpu_that_does_not_work_stops_the_start(gpu: FakeGpu, tmp_path: Path) -> None:
    gpu.failure = NO_DRIVER
    with pytest.raises(NoCapacity, match="expected a GPU that works, got none: no NVIDIA driver was found"):
        Detector("shop", settings(tmp_path, "cuda"))


async def test_a_pass_that_finds_no_memory_is_scored_on_the_cpu(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[MeshNetwork] = []

    def fail_on_gpu(network: MeshNetwork, prepared: PreparedSnapshot) -> Sequence[PartitionScore]:
        used.append(network)
        if network is used[0] and len(used) < 4:  # the third snapshot has room
            raise torch.OutOfMemoryError(NO_MEMORY)
        return score_whole(network, prepared)

    monkeypatch.setattr(detector, "load_weights", load_weights_anywhere)
    monkeypatch.setattr("serve_app.pipeline.score_whole", fail_on_gpu)
    monkeypatch.setattr(detector, "score_whole", fail_on_gpu)
    mesh = Detector("shop", settings(tmp_path, "cuda"))
    sequences = [msgspec.json.decode(await mesh.push(snapshot))["sequence"] for snapshot in SNAPSHOTS]
    await mesh.close()
    assert sequences == [1, 2, 3]
    on_gpu = [network is used[0] for network in used]
    assert on_gpu == [True, False, True, False, True], "two passes are repeated on the CPU, the third is not"
    assert b'tagae_gpu_fallbacks_total{reason="memory"} 2.0' in mesh.instruments.text()
    assert len(gpu.fractions) == 1
