"""The memory that a scorer holds on its GPU."""

import torch

from serve_app.metrics import GPU_MEMORY_FRAGMENTED, GPU_MEMORY_PEAK, GPU_MEMORY_RESERVED, Instruments


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
