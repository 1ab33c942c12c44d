"""The check of a GPU: torch's build, the driver, and every op on it.

A GPU works if this build of torch has CUDA, the driver shows a GPU, and every op gives the results of its reference
there, which another process tries first (:func:`kernels.load_cuda`).
"""

import re
import warnings
from dataclasses import dataclass
from typing import Literal

import torch

from kernels._registry import load_cuda
from kernels.errors import UnavailableBackend

Kind = Literal["torch", "driver", "no_gpu", "check", "memory"]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a GPU cannot score.

    Attributes:
        kind: which part of the way to the GPU is missing; label of the metric.
        remedy: what to do.
    """

    kind: Kind
    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.cause}; {self.remedy}"


def find_obstacle() -> Obstacle | None:
    """Return what keeps torch from a GPU: its build, the driver, or that there is none. None if torch sees one; its ops
    are not tried."""
    if torch.version.cuda is None:
        return Obstacle("torch", f"this torch ({torch.__version__}) is built without CUDA", "install a build with CUDA")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the obstacle that is returned says the same
        if torch.cuda.is_available():
            return None
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except Exception as error:
        return _explain(str(error))
    return Obstacle("no_gpu", "the driver shows no GPU to this process", "unset CUDA_VISIBLE_DEVICES")


def check_gpu() -> Obstacle | None:
    """As :func:`find_obstacle`, and then try every op on the GPU, which takes some seconds when it is first called."""
    obstacle = find_obstacle()
    if obstacle is not None:
        return obstacle
    # TF32 keeps 10 bits of each factor. A verdict near a threshold would then depend on the device that scored it.
    torch.set_float32_matmul_precision("highest")
    try:
        load_cuda()
    except UnavailableBackend as error:
        if "out of memory" in str(error):
            return lack_of_memory(str(error))
        return Obstacle("check", str(error), "compare driver, torch and GPU with docs/gpus.md, and report the text")
    return None


def _explain(text: str) -> Obstacle:
    """Return the obstacle behind an error of ``torch.cuda.init``."""
    update = "install NVIDIA driver 580 or newer, or a torch for an older CUDA (docs/gpus.md)"
    needs = f"this torch needs CUDA {torch.version.cuda}"
    if "Found no NVIDIA driver" in text:
        return Obstacle("driver", "no NVIDIA driver was found", update)
    if too_old := re.search(r"too old \(found version (\d+)\)", text):
        version = int(too_old[1])
        cause = f"the NVIDIA driver is too old: it has CUDA {version // 1000}.{version % 1000 // 10}, and {needs}"
        return Obstacle("driver", cause, update)
    if "No CUDA GPUs are available" in text:
        remedy = "give this process a GPU: scorer.num_gpus above 0, CUDA_VISIBLE_DEVICES, nvidia.com/gpu of its pod"
        return Obstacle("no_gpu", "the driver shows no GPU to this process", remedy)
    return Obstacle("driver", f"CUDA does not start: {text.partition(chr(10))[0]}", update)


def lack_of_memory(text: str) -> Obstacle:
    """Return the obstacle behind an error of torch about memory."""
    return Obstacle("memory", f"the GPU has too little free memory: {text}", "end other programs that use it")
