"""A GPU as torch and the driver would show it, on a machine that has none. Its tensors are on the CPU."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import kernels.gpu
import kernels.gpu_files
from model import mesh_weights
from model.mesh_weights import Weights

GIB = 2**30
NO_DRIVER = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver."
OLD_DRIVER = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver."
NO_GPU = "No CUDA GPUs are available"
NO_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity of 16.00 GiB"


class FakeGpu:
    """What torch says of a GPU; change it before the code under test asks.

    Attributes:
        failure: error of the driver; None: there is a GPU.
        total_bytes: memory of the GPU.
        check: what the check of the ops finds; None: all pass.
        fractions: shares of the memory that were set.
        checks: number of checks.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failure: str | None = None
        self.total_bytes = 16 * GIB
        self.check: str | None = None
        self.fractions: list[float] = []
        self.checks = 0
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        self._monkeypatch = monkeypatch
        for name, fake in {
            "is_available": lambda: self.failure is None,
            "init": self._init,
            "get_device_properties": lambda device: SimpleNamespace(total_memory=self.total_bytes),
            "set_per_process_memory_fraction": self.fractions.append,
            "memory_stats": lambda device: {"allocated_bytes.all.peak": 7},
            "get_device_name": lambda: "NVIDIA Fake",
        }.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.setattr(kernels.gpu, "load_cuda", self._load_cuda)
        monkeypatch.setattr(kernels.gpu_files, "is_here", lambda: True)

    def build_without_cuda(self) -> None:
        """Install the CPU build of torch."""
        self._monkeypatch.setattr(torch.version, "cuda", None)

    def _init(self) -> None:
        if self.failure is not None:
            raise RuntimeError(self.failure)

    def _load_cuda(self) -> None:
        self.checks += 1
        if self.check is not None:
            raise kernels.UnavailableBackend(self.check)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return FakeGpu(monkeypatch)


def load_weights_anywhere(
    default: Path | None, by_mesh: dict[str, Path], device: torch.device, network: str | None
) -> Weights:
    """Load the weights for a fake GPU: onto the CPU."""
    return mesh_weights.load_weights(default, by_mesh, torch.device("cpu"), network)
