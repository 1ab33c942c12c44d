"""The device that scores: a working GPU (:mod:`kernels.gpu`), or the CPU and the reason for it.

If the GPU does not work, the CPU scores with ``scorer.device = "auto"``; with ``cuda``, the process does not start.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from kernels.gpu import Obstacle, check_gpu, lack_of_memory
from model.network.contract import MeshNetwork
from serve_app.errors import NoCapacity
from serve_app.metrics import GPU_FALLBACKS, GPU_UNUSED, Instruments

log = logging.getLogger(__name__)
CPU = torch.device("cpu")
# GPU memory that a process needs beside torch's tensors: CUDA's context and libraries, and the check of another process
# that starts. It is subtracted from each process's share.
CONTEXT_BYTES = 768 * 2**20
MIN_SHARE_BYTES = 256 * 2**20  # weights take 2 MB, and a pass over 2,000 services about 100 MB
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Device:
    """Where a process scores.

    Attributes:
        obstacle: why the CPU scores although a GPU is expected; None: as configured.
    """

    torch: torch.device
    obstacle: Obstacle | None = None

    @property
    def is_gpu(self) -> bool:
        return self.torch.type == "cuda"


def choose_device(setting: str, share: float, *, is_promised: bool) -> Device:
    """Choose where this process scores, and limit its share of the GPU's memory.

    Args:
        share: share of one GPU, 0 to 1; 0: no limit.
        is_promised: whether this process should have a GPU, so that a missing one is logged as a warning.

    Raises:
        NoCapacity: the setting is ``cuda``, and there is an obstacle.
    """
    if setting == "cpu":
        return Device(CPU)
    obstacle = check_gpu() or limit_memory(share)
    if obstacle is None:
        return Device(torch.device("cuda"))
    return step_aside(setting, obstacle, is_promised=is_promised)


def step_aside(setting: str, obstacle: Obstacle, *, is_promised: bool = True) -> Device:
    """Use the CPU in place of a GPU; for the arguments, see :func:`choose_device`.

    Raises:
        NoCapacity: the setting is ``cuda``.
    """
    if setting == "cuda":
        raise refusal(obstacle)
    if not is_promised:
        return Device(CPU)
    log.warning("the GPU is not used, and the CPU scores: %s", obstacle)
    return Device(CPU, obstacle)


def refusal(obstacle: Obstacle) -> NoCapacity:
    """The error for a process that must not start without a GPU."""
    return NoCapacity(f"scorer.device: no working GPU: {obstacle}, or set it to cpu or auto")


def place_weights(setting: str, device: Device, place: Callable[[torch.device], T]) -> tuple[T, Device]:
    """Call ``place``, which loads and tries weights on a device. If the GPU fails, call it for the CPU.

    Returns:
        Its result, and the device.

    Raises:
        NoCapacity: the setting is ``cuda``, and the GPU fails.
    """
    try:
        return place(device.torch), device
    except RuntimeError as error:  # torch's GPU errors
        if not device.is_gpu:
            raise
        failure = f"{error}".splitlines()[0]
        obstacle = Obstacle("check", f"the first pass on the GPU failed: {failure}", "report the text")
        if isinstance(error, torch.OutOfMemoryError):
            obstacle = lack_of_memory(failure)
    fallback = step_aside(setting, obstacle)
    return place(fallback.torch), fallback


def limit_memory(share: float) -> Obstacle | None:
    """Limit torch's GPU memory to a share, 0 to 1, minus CUDA's own needs; 0: no limit. Beyond it, torch runs out of
    memory, but other users of the GPU keep theirs."""
    if share == 0:
        return None
    total = torch.cuda.get_device_properties(torch.device("cuda")).total_memory
    limit = share * total - CONTEXT_BYTES
    if limit < MIN_SHARE_BYTES:
        minimum = (MIN_SHARE_BYTES + CONTEXT_BYTES) / 2**20
        return Obstacle(
            "memory",
            f"scorer.num_gpus: expected at least {minimum:,.0f} MiB for each process, got {share:g} of "
            f"{total / 2**20:,.0f} MiB",
            "set a larger share, and fewer replicas",
        )
    torch.cuda.set_per_process_memory_fraction(limit / total)
    return None


def report(device: Device, instruments: Instruments) -> None:
    """If the GPU is not used, set the gauge that says why. Call it every few seconds, because Ray drops a gauge that is
    not set again."""
    if device.obstacle is not None:
        instruments.set(GPU_UNUSED, 1.0, reason=device.obstacle.kind)


def on_cpu(network: MeshNetwork) -> MeshNetwork:
    """Copy a network to the CPU for a pass that the GPU could not run. It needs no GPU memory."""
    copy: MeshNetwork = type(network)(network.config)
    copy.load_state_dict({name: tensor.cpu() for name, tensor in network.state_dict().items()})
    copy.eval()
    return copy


def score_on_cpu(
    run: Callable[[MeshNetwork], T], network: MeshNetwork, error: Exception, instruments: Instruments
) -> T | Exception:
    """Repeat on the CPU a pass that failed on a GPU; log and count it.

    Returns:
        What ``run`` returns, or its error.
    """
    try:
        result = run(on_cpu(network))
    except Exception as second_error:  # the input is wrong, or the GPU is unusable
        return second_error
    reason = "memory" if isinstance(error, torch.OutOfMemoryError) else "error"
    instruments.count(GPU_FALLBACKS, reason=reason)
    log.warning("a pass was repeated on the CPU, since it failed on the GPU: %s", f"{error}".partition("\n")[0])
    return result
