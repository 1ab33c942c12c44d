"""What a scorer on a GPU does beside scoring: prepare the GPU, and measure its memory."""

import torch

from kernels import load_cuda
from serve_app.metrics import GPU_MEMORY_FRAGMENTED, GPU_MEMORY_PEAK, GPU_MEMORY_RESERVED, Instruments


def prepare_gpu(device: torch.device) -> None:
    """Choose how this process computes on a GPU; does nothing for a CPU."""
    if device.type != "cuda":
        return
    # TF32 keeps 10 bits of each factor. A verdict near a threshold would then depend on the device that scored it.
    torch.set_float32_matmul_precision("highest")
    load_cuda()


def measure_memory(device: torch.device, instruments: Instruments) -> None:
    """Export the memory that torch holds on a GPU; does nothing for a CPU."""
    if device.type != "cuda":
        return
    stats = torch.cuda.memory_stats(device)
    reserved = stats.get("reserved_bytes.all.current", 0)
    unused = stats.get("inactive_split_bytes.all.current", 0)
    instruments.set(GPU_MEMORY_PEAK, stats.get("allocated_bytes.all.peak", 0), device=str(device))
    instruments.set(GPU_MEMORY_RESERVED, reserved, device=str(device))
    instruments.set(GPU_MEMORY_FRAGMENTED, unused / reserved if reserved else 0.0, device=str(device))
