"""The device that scores: a GPU that works, or the CPU and the reason why.

A GPU works if this build of torch has CUDA, the driver shows a GPU, and every op gives the results of its reference
there, which another process tries first (:func:`kernels.load_cuda`). With ``scorer.device = "auto"`` a GPU that does
not work is left alone, and the CPU scores. With ``cuda`` the process does not start.
"""

import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import torch

from kernels import UnavailableBackend, load_cuda
from model.network.contract import MeshNetwork
from serve_app.errors import NoCapacity
from serve_app.metrics import GPU_FALLBACKS, GPU_UNUSED, Instruments

log = logging.getLogger(__name__)
CPU = torch.device("cpu")
# Memory of a process on a GPU beside torch's tensors: CUDA's context and libraries, and the check of another process
# that starts. The share of a process is less by this much.
CONTEXT_BYTES = 768 * 2**20
LEAST_SHARE_BYTES = 256 * 2**20  # weights take 2 MB, and a pass over 2,000 services about 100 MB
T = TypeVar("T")
Kind = Literal["torch", "driver", "no_gpu", "check", "memory"]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a GPU cannot score.

    Attributes:
        kind: which part of the way to the GPU is missing; label of the metric.
        found: what was found.
        remedy: what to do.
    """

    kind: Kind
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Device:
    """Where a process scores.

    Attributes:
        torch: the device.
        obstacle: why it is the CPU although a GPU should be here; None: all is as configured.
    """

    torch: torch.device
    obstacle: Obstacle | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether passes run on a GPU."""
        return self.torch.type == "cuda"


def find_obstacle() -> Obstacle | None:
    """What keeps torch from a GPU: its build, the driver, or that there is none. None if torch sees a GPU; its ops are
    not tried."""
    if torch.version.cuda is None:
        return Obstacle("torch", f"this torch ({torch.__version__}) is built without CUDA", "install a build with CUDA")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what is returned here
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
            return _no_memory(str(error))
        return Obstacle("check", str(error), "compare driver, torch and GPU with docs/gpus.md, and report the text")
    return None


def choose_device(wanted: str, share: float, *, is_promised: bool) -> Device:
    """Choose where this process scores, and limit its share of the GPU's memory.

    Args:
        wanted: ``scorer.device``.
        share: of one GPU, 0 to 1; 0: no limit.
        is_promised: whether this process should have a GPU, so that it is worth a warning if it cannot use one.

    Raises:
        NoCapacity: ``cuda`` is wanted, and there is an obstacle.
    """
    if wanted == "cpu":
        return Device(CPU)
    obstacle = check_gpu() or limit_memory(share)
    if obstacle is None:
        return Device(torch.device("cuda"))
    return step_aside(wanted, obstacle, is_promised=is_promised)


def step_aside(wanted: str, obstacle: Obstacle, *, is_promised: bool = True) -> Device:
    """The CPU in place of a GPU; arguments as of :func:`choose_device`.

    Raises:
        NoCapacity: ``cuda`` is wanted.
    """
    if wanted == "cuda":
        raise refusal(obstacle)
    if not is_promised:
        return Device(CPU)
    log.warning("the GPU is not used, and the CPU scores: %s", obstacle)
    return Device(CPU, obstacle)


def refusal(obstacle: Obstacle) -> NoCapacity:
    """The error of a process that must not start without a GPU."""
    return NoCapacity(f"scorer.device: expected a GPU that works, got none: {obstacle}, or set it to cpu or auto")


def place_weights(wanted: str, device: Device, place: Callable[[torch.device], T]) -> tuple[T, Device]:
    """Call ``place`` for a device: it loads weights there and tries them. If the GPU fails, call it for the CPU.

    Returns:
        Its result, and the device.

    Raises:
        NoCapacity: ``cuda`` is wanted, and the GPU fails.
    """
    try:
        return place(device.torch), device
    except RuntimeError as error:  # torch's errors of a GPU
        if not device.is_gpu:
            raise
        failure = f"{error}".splitlines()[0]
        obstacle = _no_memory(failure) if isinstance(error, torch.OutOfMemoryError) else _failed(failure)
    instead = step_aside(wanted, obstacle)
    return place(instead.torch), instead


def limit_memory(share: float) -> Obstacle | None:
    """Limit what torch allocates on the GPU to a share of its memory, 0 to 1, less what CUDA itself needs; 0: no limit.
    Beyond it, torch reports a lack of memory, and others who share the GPU keep theirs."""
    if share == 0:
        return None
    total = torch.cuda.get_device_properties(torch.device("cuda")).total_memory
    limit = share * total - CONTEXT_BYTES
    if limit < LEAST_SHARE_BYTES:
        least = (LEAST_SHARE_BYTES + CONTEXT_BYTES) / 2**20
        return Obstacle(
            "memory",
            f"scorer.num_gpus: expected at least {least:,.0f} MiB for each process, got {share:g} of "
            f"{total / 2**20:,.0f} MiB",
            "set a larger share, and fewer replicas",
        )
    torch.cuda.set_per_process_memory_fraction(limit / total)
    return None


def report(device: Device, instruments: Instruments) -> None:
    """Export why the GPU is not used, if it is not."""
    if device.obstacle is not None:
        instruments.set(GPU_UNUSED, 1.0, reason=device.obstacle.kind)


def is_here() -> bool:
    """Whether the driver of a GPU has made its files on this machine, even if torch cannot use it."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def on_cpu(network: MeshNetwork) -> MeshNetwork:
    """A copy of a network on the CPU, for a pass that the GPU could not run. It needs no memory of the GPU."""
    copy: MeshNetwork = type(network)(network.config)
    copy.load_state_dict({name: tensor.cpu() for name, tensor in network.state_dict().items()})
    copy.eval()
    return copy


def score_on_cpu(
    run: Callable[[MeshNetwork], T], network: MeshNetwork, error: Exception, instruments: Instruments
) -> T | Exception:
    """Repeat a pass that failed on a GPU on the CPU; log and count it.

    Args:
        run: the pass; it gets a network.
        network: on the GPU.
        error: of the pass there.
        instruments: count it.

    Returns:
        What ``run`` returns, or its error.
    """
    try:
        found = run(on_cpu(network))
    except Exception as again:  # the input is to blame, or the GPU is beyond use
        return again
    reason = "memory" if isinstance(error, torch.OutOfMemoryError) else "error"
    instruments.count(GPU_FALLBACKS, reason=reason)
    log.warning("a pass was repeated on the CPU, since it failed on the GPU: %s", f"{error}".partition("\n")[0])
    return found


def _explain(text: str) -> Obstacle:
    """The obstacle behind an error of ``torch.cuda.init``."""
    update = "install NVIDIA driver 580 or newer, or a torch for an older CUDA (docs/gpus.md)"
    needs = f"this torch needs CUDA {torch.version.cuda}"
    if "Found no NVIDIA driver" in text:
        return Obstacle("driver", "no NVIDIA driver was found", update)
    if too_old := re.search(r"too old \(found version (\d+)\)", text):
        version = int(too_old[1])
        found = f"the NVIDIA driver is too old: it has CUDA {version // 1000}.{version % 1000 // 10}, and {needs}"
        return Obstacle("driver", found, update)
    if "No CUDA GPUs are available" in text:
        remedy = "give this process a GPU: scorer.num_gpus above 0, CUDA_VISIBLE_DEVICES, nvidia.com/gpu of its pod"
        return Obstacle("no_gpu", "the driver shows no GPU to this process", remedy)
    return Obstacle("driver", f"CUDA does not start: {text.partition(chr(10))[0]}", update)


def _no_memory(text: str) -> Obstacle:
    return Obstacle("memory", f"the GPU has too little free memory: {text}", "end other programs that use it")


def _failed(text: str) -> Obstacle:
    return Obstacle("check", f"the first pass on the GPU failed: {text}", "report the text")
