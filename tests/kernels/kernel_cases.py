"""Inputs, the slow reference and the tolerances that all tests of the ops use."""

import math
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

AttendInputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
T = TypeVar("T", bound=tuple[Any, ...])
DEVICES = ["cpu", *([pytest.param("cuda", marks=pytest.mark.gpu)] if torch.cuda.is_available() else [])]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest accepted ``|a - b|``: ``absolute + relative * |b|``."""

    relative: float
    absolute: float
    reason: str


TOLERANCES = {
    torch.float64: Tolerance(1e-10, 1e-12, "the same sums in another order, at most some hundred terms of order 1"),
    torch.float32: Tolerance(1e-5, 5e-6, "rounding of the same sums: 2^-24 times some ten to hundred terms of order 1"),
}


def assert_near(actual: Tensor, expected: Tensor) -> None:
    """Check that ``actual`` is ``expected`` within the tolerance of its type, and that shapes are equal."""
    tolerance = TOLERANCES[actual.dtype]
    torch.testing.assert_close(
        actual.cpu(), expected.to(actual.dtype).cpu(), rtol=tolerance.relative, atol=tolerance.absolute
    )


def neighbourhoods(counts: list[int]) -> Tensor:
    """Return ``indptr`` of nodes with these numbers of slots."""
    return torch.tensor([0, *counts]).cumsum(0)


# Slots per node, in shapes that a mesh can have. The hub has more slots than one block of edges at 128 channels.
SHAPES = {
    "no node": [],
    "one node alone": [0],
    "one node calling itself": [1],
    "empty graph": [0, 0, 0, 0],
    "isolated nodes at both ends": [0, 2, 0, 3, 0],
    "ordinary": [1, 3, 2, 4, 1, 2, 5],
    "hub": [1, 900, 0, 2],
}


def attend_inputs(
    counts: list[int], *, heads: int = 4, channels: int = 8, times: int = 5, spare: int = 3, seed: int = 0
) -> AttendInputs:
    """Return random float64 arguments of ``attend`` without the slope.

    There are as many neighbours as targets, and ``spare`` unused edges.
    """
    generator = torch.Generator().manual_seed(seed)
    nodes, slots, width = len(counts), sum(counts), heads * channels

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return (
        normal(nodes, width),
        normal(nodes, width),
        normal(slots + spare, times),
        normal(width, times) / math.sqrt(times),
        normal(heads, channels) / math.sqrt(channels),
        neighbourhoods(counts),
        torch.randint(max(nodes, 1), (slots,), generator=generator),
        torch.randperm(slots + spare, generator=generator)[:slots],
    )


def projected_inputs(
    counts: list[int], *, inputs: int = 5, heads: int = 4, channels: int = 8, times: int = 5, seed: int = 0
) -> tuple[Tensor, ...]:
    """Return random float64 arguments of ``project_and_attend`` without the slope."""
    generator = torch.Generator().manual_seed(seed + 1)
    attended = attend_inputs(counts, heads=heads, channels=channels, times=times, seed=seed)
    _, _, *slots, indptr, indices, edges = attended

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) / math.sqrt(shape[-1])

    width = heads * channels
    projections = normal(width, inputs), normal(width), normal(width, inputs), normal(width)
    return (
        normal(len(counts), inputs),
        *projections,
        *slots,
        normal(heads, channels, times),
        indptr,
        indices,
        edges,
    )


def join_inputs(nodes: int, inputs: int, outputs: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Return random float64 arguments of ``join_sides`` without eps."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (nodes, inputs), (outputs, inputs), (outputs,), (nodes, outputs), (nodes, outputs), (outputs,), (outputs,)
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)


def perceptron_inputs(
    count: int, inputs: int, others: int, width: int, *, hidden: int = 7, outputs: int = 3, seed: int = 0
) -> tuple[Tensor, ...]:
    """Return random float64 arguments of ``perceptron`` for ``count`` rows, with ``others`` rows to choose from."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (hidden, inputs + width), (hidden,), (outputs, hidden), (outputs,)
    return (
        torch.randn(count, inputs, generator=generator, dtype=torch.float64),
        torch.randn(others, width, generator=generator, dtype=torch.float64),
        torch.randint(max(others, 1), (count,), generator=generator),
        *(torch.randn(*shape, generator=generator, dtype=torch.float64) / math.sqrt(shape[-1]) for shape in shapes),
    )


def arguments_of(op: str, counts: list[int] | None = None, *, small: bool = False) -> tuple[Tensor, ...]:
    """Return random float64 arguments of an op, without the number at its end."""
    sizes = {"heads": 2, "channels": 3, "times": 2} if small else {}
    if op == "join_sides":
        return join_inputs(9 if counts is None else len(counts), 4, 5 if small else 40)
    if op == "perceptron":
        return perceptron_inputs(50, 3, 5, 4) if counts is None else perceptron_inputs(sum(counts), 3, len(counts), 4)
    counts = SHAPES["ordinary"] if counts is None else counts
    if op == "project_and_attend":
        return projected_inputs(counts, **sizes)
    attended = attend_inputs(counts, **sizes)
    if op == "attend":
        return attended
    query, key, *_, indptr, indices, _ = attended
    return query, key, torch.repeat_interleave(torch.arange(len(query)), indptr.diff()), indices


def cast(tensors: T, dtype: torch.dtype, device: str = "cpu") -> T:
    """Move tensors to ``device`` and convert float tensors to ``dtype``."""
    return typing.cast(T, tuple(t.to(device, dtype if t.is_floating_point() else t.dtype) for t in tensors))


def differentiable(arguments: T) -> T:
    """Copy the float tensors so that they require gradients. Keep the other arguments."""
    return typing.cast(T, tuple(a.detach().clone().requires_grad_() if is_float(a) else a for a in arguments))


def is_float(argument: object) -> bool:
    return isinstance(argument, Tensor) and argument.is_floating_point()


def as_tuple(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def with_double_strides(tensor: Tensor) -> Tensor:
    """Return the same values with every stride doubled."""
    wide = tensor.new_zeros([2 * size for size in tensor.shape])
    view = wide[tuple(slice(None, None, 2) for _ in tensor.shape)]
    view.copy_(tensor)
    return view


def attend_openly(
    query: Tensor,
    key: Tensor,
    trajectory: Tensor,
    trajectory_weight: Tensor,
    attention: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
    negative_slope: float,
) -> tuple[Tensor, Tensor]:
    """Follow the docstring of ``kernels.attend`` in differentiable torch, one node at a time."""
    heads, channels = attention.shape
    values, trajectories = [query[:0]], [query.new_zeros(0, heads, trajectory.shape[1])]
    for i in range(len(query)):
        slots = slice(int(indptr[i]), int(indptr[i + 1]))
        neighbour, time = key[indices[slots]], trajectory[edges[slots]]
        u = (query[i] + neighbour + time @ trajectory_weight.t()).view(-1, heads, channels)
        logits = (torch.nn.functional.leaky_relu(u, negative_slope) * attention).sum(2)
        alpha = logits.softmax(0)
        values.append((alpha.unsqueeze(2) * neighbour.view(-1, heads, channels)).sum(0).view(1, -1))
        trajectories.append((alpha.t() @ time).unsqueeze(0))
    return torch.cat(values), torch.cat(trajectories)
