"""Copies between the CPU and a GPU that do not wait for each other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the CPU to ``device``. A GPU reads it from pinned memory, while this thread continues."""
    return tensor.to(device) if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def to_arrays(tensors: Sequence[Tensor]) -> list[NDArray[Any]]:
    """Return tensors of one device as numpy arrays. For a GPU, wait once, for all of them."""
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return [tensor.numpy() for tensor in tensors]
    copies = [torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in tensors]
    for copy, tensor in zip(copies, tensors, strict=True):
        copy.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(tensors[0].device).synchronize()
    # Copied again, because pinned memory is scarce, and scores may be kept for long.
    return [np.array(copy.numpy()) for copy in copies]
