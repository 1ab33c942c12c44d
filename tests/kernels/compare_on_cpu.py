"""Compares the kernels for a GPU, which ``cuda_on_cpu.h`` runs on a CPU, with the reference.

    python -m tests.kernels.compare_on_cpu LIBRARY

A process of its own, because the sanitizers have to be loaded before Python.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels import _registry as _registry  # defines torch.ops.tagae
from kernels import reference
from kernels.library import register_unchecked
from tests.kernels.kernel_cases import (
    SHAPES,
    as_tuple,
    assert_near,
    attend_inputs,
    cast,
    is_float,
    join_inputs,
    perceptron_inputs,
    projected_inputs,
    with_double_strides,
)

# Inputs, heads, channels and times below, at and above a warp; more channels than threads of a block.
SIZES = [(5, 1, 1, 1), (45, 4, 32, 16), (3, 3, 33, 5), (7, 1, 300, 40)]
HUB = [0, 4000, 1, 0]
BAD = [-1, 2**63 - 1, -(2**63), 10**6]
SLOPE = 0.2
# 2^-9 for each of a handful of roundings: of projections, hidden layers and results.
BFLOAT16_ERROR = 0.02


def cases() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield ops and arguments, float64."""
    for sizes in SIZES:
        of = dict(zip(("heads", "channels", "times"), sizes[1:], strict=True))
        for name, counts in SHAPES.items():
            if name != "hub":
                yield "attend", (*attend_inputs(counts, **of), SLOPE)
                yield "project_and_attend", (*projected_inputs(counts, inputs=sizes[0], **of), SLOPE)
    yield "project_and_attend", (*projected_inputs(HUB, inputs=5, heads=2, channels=3, times=2), SLOPE)
    for nodes, inputs, outputs in [(0, 3, 4), (1, 1, 2), (9, 4, 31), (20, 33, 130)]:
        yield "join_sides", (*join_inputs(nodes, inputs, outputs), 1e-5)
    for count, inputs, others, width, hidden in [
        (0, 3, 2, 4, 1),
        (70, 3, 5, 4, 33),
        (300, 1, 1, 1, 5),
        (4, 3, 2, 0, 2),
    ]:
        rows, beside, positions, *layers = perceptron_inputs(count, inputs, others, width, hidden=hidden)
        yield "perceptron", (rows, beside, positions, *layers)
        first = layers[0][:, :inputs]
        yield "perceptron", (rows, None, None, first, *layers[1:])
        if others >= count:
            yield "perceptron", (rows, beside[:count], None, *layers)
    query, key, _, _, _, indptr, indices, _ = attend_inputs([3, 0, 2, 60], heads=3, channels=11)
    targets = torch.repeat_interleave(torch.arange(len(query)), indptr.diff())
    yield "edge_dot", (query, key, targets, indices)
    yield "edge_dot", (query, key, targets[:0], indices[:0])


def call(op: str, arguments: tuple[Any, ...], dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Call the compiled body."""
    given = (cast((a,), dtype)[0] if isinstance(a, Tensor) else a for a in arguments)
    return as_tuple(getattr(torch.ops.tagae, op)(*given))


def check_values() -> None:
    """Results are near the reference, in both types and for any strides, and have the same bits each time."""
    for op, arguments in cases():
        expected = as_tuple(getattr(reference, op)(*arguments))
        apart = tuple(with_double_strides(a) if isinstance(a, Tensor) else a for a in arguments)
        ours = [call(op, arguments), call(op, arguments, torch.float32), call(op, apart)]
        for results in ours:
            for came, wanted in zip(results, expected, strict=True):
                assert came.is_contiguous()
                assert_near(came, wanted)
        again = call(op, arguments, torch.float32)
        assert all(torch.equal(a, b) for a, b in zip(again, ours[1], strict=True)), op


def check_bfloat16() -> None:
    """Numbers of 16 bits are near the reference in float64 with the same numbers; sums are float32."""
    for op, arguments in cases():
        rounded = tuple(a.bfloat16().double() if is_float(a) else a for a in arguments)
        expected = as_tuple(getattr(reference, op)(*rounded))
        for came, wanted in zip(call(op, arguments, torch.bfloat16), expected, strict=True):
            assert came.dtype == torch.bfloat16
            if wanted.numel():
                error = (came.double() - wanted).abs().max() / wanted.abs().max().clamp_min(1)
                assert float(error) <= BFLOAT16_ERROR, f"{op}: {float(error)}"


def check_bad_indices() -> None:
    """A result that needs a wrong index is not a number, and the others are as before. Nothing else is read."""
    counts = [3, 0, 20, 1]
    arguments = (*projected_inputs(counts), SLOPE)
    indptr, indices, edges = 9, 10, 11
    for bad in BAD:
        for argument in (indices, edges):
            check_rows("project_and_attend", arguments, argument, 7, bad, {2})
        check_rows("project_and_attend", arguments, indptr, 4, bad, {3})
        check_rows("project_and_attend", arguments, indptr, 2, bad, {1, 2})
        layers = perceptron_inputs(40, 3, 5, 4)
        check_rows("perceptron", layers, 2, 6, bad, {6})
        rows = layers[0]
        ends = torch.arange(40), torch.arange(40).flip(0)
        for argument in (2, 3):
            check_rows("edge_dot", (rows, rows, *ends), argument, 17, bad, {17})
    empty = (*perceptron_inputs(3, 2, 0, 4)[:2], torch.zeros(3, dtype=torch.int64), *perceptron_inputs(3, 2, 0, 4)[3:])
    assert bool(call("perceptron", empty)[0].isnan().all())


def check_rows(op: str, arguments: tuple[Any, ...], argument: int, at: int, bad: int, affected: set[int]) -> None:
    """Put ``bad`` into an index tensor. The rows ``affected`` of the result become NaN."""
    (before,) = call(op, arguments)
    spoiled = arguments[argument].clone()
    spoiled[at] = bad
    (after,) = call(op, (*arguments[:argument], spoiled, *arguments[argument + 1 :]))
    rows = {row for row in range(len(after)) if bool(after[row].isnan().any())}
    assert rows == affected, f"{op}, argument {argument}, {bad}: expected NaN in {affected}, got {rows}"
    assert all(bool(after[row].isnan().all()) for row in rows)
    others = [row for row in range(len(after)) if row not in affected]
    assert torch.equal(after[others], before[others])


if __name__ == "__main__":
    register_unchecked(Path(sys.argv[1]))
    check_values()
    check_bfloat16()
    check_bad_indices()
    print("compared")
