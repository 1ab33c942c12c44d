"""Tries the ops on a device, in a process of its own that may crash. See :mod:`kernels.library`.

    python -m kernels.selfcheck DEVICE [LIBRARY]

compares every op with its reference in float64 on the CPU, over a random graph: the compiled bodies of LIBRARY, or the
PyTorch form without one. It ends with status 0 if all are near. Otherwise it says why not, in its last line.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels import _registry as _registry  # defines torch.ops.tagae
from kernels import reference
from kernels.errors import UnavailableBackend
from kernels.library import register_unchecked

# Nodes without slots, with one, with more than the warps of a block, and a hub.
COUNTS = [0, 1, 2, 3, 9, 33, 0, 1500, 8, 4] * 5
INPUTS, HEADS, CHANNELS, TIMES, HIDDEN, OUTPUTS = 37, 4, 20, 13, 33, 3
SLOPE, EPS = 0.2, 1e-5
# Rounding of float32: 2^-24 times the root of a thousand terms near 1, and ten times that.
LARGEST_ERROR = 1e-4


@dataclass(frozen=True, slots=True)
class Case:
    """One call of an op: its float tensors are float64 on the CPU."""

    op: str
    arguments: tuple[Any, ...]


def random_cases() -> Iterator[Case]:
    """Yield a call of each op on one graph."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) / math.sqrt(shape[-1])

    def rows(count: int, size: int) -> Tensor:
        return torch.randint(count, (size,), generator=generator)

    nodes, slots, width = len(COUNTS), sum(COUNTS), HEADS * CHANNELS
    indptr = torch.tensor([0, *COUNTS]).cumsum(0)
    graph = indptr, rows(nodes, slots), torch.randperm(slots, generator=generator)
    times, weight, attention = normal(slots, TIMES), normal(width, TIMES), normal(HEADS, CHANNELS)
    x, key = normal(nodes, INPUTS), normal(nodes, width)
    projections = normal(width, INPUTS), normal(width), normal(width, INPUTS), normal(width)
    value = normal(HEADS, CHANNELS, TIMES)
    yield Case("attend", (normal(nodes, width), key, times, weight, attention, *graph, SLOPE))
    yield Case("project_and_attend", (x, *projections, times, weight, attention, value, *graph, SLOPE))
    sides = normal(nodes, width), normal(nodes, width), normal(width), normal(width)
    yield Case("join_sides", (x, normal(width, INPUTS), normal(width), *sides, EPS))
    layers = normal(HIDDEN, INPUTS + TIMES), normal(HIDDEN), normal(OUTPUTS, HIDDEN), normal(OUTPUTS)
    yield Case("perceptron", (times, x, rows(nodes, slots), *layers))
    yield Case("edge_dot", (x, normal(nodes, INPUTS), rows(nodes, slots), rows(nodes, slots)))


def find_difference(device: torch.device) -> str | None:
    """Compare all ops on ``device``, in float32, with the reference in float64. Return the first difference."""
    for case in random_cases():
        expected = getattr(reference, case.op)(*case.arguments)
        arguments = [
            a.to(device, torch.float32 if a.is_floating_point() else a.dtype) if isinstance(a, Tensor) else a
            for a in case.arguments
        ]
        came = getattr(torch.ops.tagae, case.op)(*arguments)
        pairs = zip(came, expected, strict=True) if case.op == "attend" else [(came, expected)]
        for ours, theirs in pairs:
            error = float((ours.cpu().double() - theirs).abs().max())
            if not error <= LARGEST_ERROR:  # true if it is not a number, too
                return f"{case.op}: expected at most {LARGEST_ERROR} from the reference, got {error:.3g}"
    return None


def main(device: torch.device, library: Path | None = None) -> None:
    """Register the bodies of a library, if one is given, and compare.

    Raises:
        SystemExit: with the reason why the ops cannot be used.
    """
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU")
    if library is not None:
        try:
            register_unchecked(library)
        except UnavailableBackend as error:
            raise SystemExit(error.message) from None
    try:
        difference = find_difference(device)
    except RuntimeError as error:  # further lines of torch's errors on a GPU are advice for debugging
        raise SystemExit(f"{error}".partition("\n")[0]) from None
    if difference:
        raise SystemExit(difference)


if __name__ == "__main__":
    main(torch.device(sys.argv[1]), *map(Path, sys.argv[2:]))
