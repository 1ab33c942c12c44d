"""A scorer whose GPU runs out of memory, at the start and later: the CPU takes its place."""

from collections.abc import Sequence

import numpy as np
import pytest
import ray
import torch

from model.mesh_weights import load_weights
from model.network.contract import MeshNetwork
from model.scoring.score import PartitionScore, PartitionTask, score
from serve_app.deployments.scoring import passes, scorer
from serve_app.deployments.scoring.passes import probe
from serve_app.deployments.scoring.queue import ScoredGroup, WaitingGroup
from serve_app.deployments.scoring.scorer import Scorer
from serve_app.errors import NoCapacity
from serve_app.exporter import PrometheusInstruments
from serve_app.runtime.rpc import Deadline
from serve_app.settings import Settings
from tests.builders import allow_deployments
from tests.serve_app.fake_gpu import NO_MEMORY, FakeGpu, gpu, load_weights_anywhere
from tests.timing import PATIENCE_SECONDS

__all__ = ["gpu"]  # the fixture

GROUP = probe(load_weights(None, {}).default)
EXPECTED = score(load_weights(None, {}).default.network, GROUP)


class Memory:
    """Room for the parts of one pass on the GPU. The weights are on it only by name, so the network that was loaded
    first is treated as the one on the GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most_parts = 100
        self.passes: list[tuple[str, int]] = []  # device, parts
        self._on_gpu: MeshNetwork | None = None
        monkeypatch.setattr(scorer, "score", self._score)
        monkeypatch.setattr(passes, "score_joined", self._score)

    def _score(self, network: MeshNetwork, tasks: Sequence[PartitionTask]) -> list[PartitionScore]:
        self._on_gpu = self._on_gpu or network
        device = "cuda" if network is self._on_gpu else "cpu"
        self.passes.append((device, len(tasks)))
        if device == "cuda" and len(tasks) > self.most_parts:
            raise torch.OutOfMemoryError(NO_MEMORY)
        return score(network, tasks)


@pytest.fixture(autouse=True)
def replica(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process to which Ray has given a GPU."""
    allow_deployments(monkeypatch)
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: [0])
    monkeypatch.setattr(scorer, "open_instruments", PrometheusInstruments)
    monkeypatch.setattr(scorer, "load_weights", load_weights_anywhere)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    return Memory(monkeypatch)


def metrics(replica: Scorer) -> bytes:
    instruments = replica._instruments
    assert isinstance(instruments, PrometheusInstruments)
    return instruments.text()


async def submit(replica: Scorer) -> ScoredGroup:
    return await replica.score(GROUP, Deadline.after(PATIENCE_SECONDS), "shop")


def assert_scores(found: ScoredGroup) -> None:
    for ours, theirs in zip(found.scores, EXPECTED, strict=True):
        np.testing.assert_allclose(ours.node_expected, theirs.node_expected, atol=1e-6)


async def test_a_batch_that_finds_no_memory_is_halved_and_what_is_left_goes_to_the_cpu(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Scorer(Settings(), "auto")
    assert (await replica.info()).device == "cuda"
    memory.passes.clear()
    memory.most_parts = 0
    requests = [WaitingGroup(GROUP, Deadline.after(PATIENCE_SECONDS), replica._checkpoint) for _ in "abcd"]
    for found in await replica._score_batch(requests):
        assert isinstance(found, ScoredGroup)
        assert_scores(found)
    gpu_passes = [size for device, size in memory.passes if device == "cuda"]
    assert gpu_passes == [4, 2, 1, 1, 2, 1, 1], "halved down to each group"
    assert [one for one in memory.passes if one[0] == "cpu"] == [("cpu", 1)] * 4
    assert b'tagae_gpu_fallbacks_total{reason="memory"} 4.0' in metrics(replica)
    assert "a pass was repeated on the CPU, since it failed on the GPU: CUDA out of memory" in caplog.text

    memory.passes.clear()
    memory.most_parts = 2  # others have left the GPU
    for found in await replica._score_batch(requests):
        assert isinstance(found, ScoredGroup)
    assert memory.passes == [("cuda", 4), ("cuda", 2), ("cuda", 2)], "the GPU is used again"


async def test_a_batch_with_memory_never_leaves_the_gpu(memory: Memory) -> None:
    replica = Scorer(Settings(), "auto")
    memory.passes.clear()
    assert_scores(await submit(replica))
    assert memory.passes == [("cuda", 1)]
    await replica.check_health()
    text = metrics(replica)
    assert b"tagae_gpu_fallbacks_total{" not in text
    assert b"tagae_gpu_unused{" not in text


async def test_a_lack_of_memory_does_not_end_the_replica(memory: Memory) -> None:
    replica = Scorer(Settings(), "auto")
    memory.most_parts = 0
    await replica.check_health()


async def test_weights_without_room_on_the_gpu_go_to_the_cpu(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    memory.most_parts = 0
    replica = Scorer(Settings(), "auto")
    info = await replica.info()
    assert (info.device, info.kernels != "cuda") == ("cpu", True)
    assert_scores(await submit(replica))
    await replica.check_health()
    assert b'tagae_gpu_unused{reason="memory"} 1.0' in metrics(replica)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("the GPU is not used, and the CPU scores: the GPU has too little free memory: CUDA out of")


async def test_a_required_gpu_without_room_for_the_weights_stops_the_start(memory: Memory) -> None:
    memory.most_parts = 0
    with pytest.raises(NoCapacity, match="too little free memory"):
        Scorer(Settings(), "cuda")


async def test_a_replica_without_a_gpu_of_its_own_warns_no_one(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: [])
    gpu.failure = "No CUDA GPUs are available"
    replica = Scorer(Settings(), "auto")
    assert (await replica.info()).device == "cpu"
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
