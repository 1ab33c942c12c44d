"""``segment_mean``: worked by hand, against a slow loop, its gradients and errors."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import kernels
from tests.kernels.kernel_cases import DEVICES, SHAPES, assert_near, cast, neighbourhoods, strided

ROWS = [[1.0, 10.0], [3.0, 30.0], [8.0, -40.0]]

# indptr, indices, means of ROWS
BY_HAND = {
    "no node": ([0], [], []),
    "nobody": ([0, 0], [], [[0.0, 0.0]]),
    "one": ([0, 1], [2], [[8.0, -40.0]]),
    "two, none, three": ([0, 2, 2, 5], [0, 1, 0, 1, 2], [[2.0, 20.0], [0.0, 0.0], [4.0, 0.0]]),
    "one of them twice": ([0, 3], [0, 0, 1], [[5 / 3, 50 / 3]]),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("indptr", "indices", "expected"), BY_HAND.values(), ids=BY_HAND.keys())
def test_by_hand(
    indptr: list[int], indices: list[int], expected: list[list[float]], dtype: torch.dtype, device: str
) -> None:
    csr = (torch.tensor(x, dtype=torch.int64, device=device) for x in (indptr, indices))
    actual = kernels.segment_mean(torch.tensor(ROWS, dtype=dtype, device=device), *csr)
    assert_near(actual, torch.tensor(expected, dtype=dtype).view(-1, 2))


def graph(counts: list[int], *, rows: int = 11, size: int = 6) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(len(counts))
    return (
        torch.randn(rows, size, generator=generator, dtype=torch.float64),
        neighbourhoods(counts),
        torch.randint(rows, (sum(counts),), generator=generator),
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("counts", SHAPES.values(), ids=SHAPES.keys())
def test_against_the_slow_loop(counts: list[int], dtype: torch.dtype, device: str) -> None:
    values, indptr, indices = graph(counts)
    expected = torch.zeros(len(counts), values.shape[1], dtype=torch.float64)
    for i, (start, end) in enumerate(zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)):
        for j in indices[start:end].tolist():
            expected[i] += values[j] / (end - start)
    assert_near(kernels.segment_mean(*cast((values, indptr, indices), dtype, device)), expected)


def test_strides_do_not_matter() -> None:
    inputs = graph(SHAPES["ordinary"])
    assert_near(kernels.segment_mean(*(strided(t) for t in inputs)), kernels.segment_mean(*inputs))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("counts", [SHAPES["ordinary"], SHAPES["isolated nodes at both ends"], SHAPES["empty graph"]])
def test_gradients(counts: list[int], device: str) -> None:
    values, indptr, indices = cast(graph(counts), torch.float64, device)
    leaf = values.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: kernels.segment_mean(v, indptr, indices), leaf, nondet_tol=1e-12)


def test_a_second_derivative_is_refused() -> None:
    values, indptr, indices = graph(SHAPES["ordinary"])
    values.requires_grad_()
    mean = kernels.segment_mean(values, indptr, indices)
    (grad,) = torch.autograd.grad(mean.square().sum(), values, create_graph=True)
    with pytest.raises(kernels.NotDifferentiable):
        grad.sum().backward()


WRONG = {
    "values of one dimension": (0, lambda t: t[0], r"values: expected shape \[M, F\]"),
    "values without features": (0, lambda t: t[:, :0], r"values: expected no empty dimension"),
    "integer values": (0, lambda t: t.long(), r"values: expected float32 or float64"),
    "indptr empty": (1, lambda t: t[:0], r"indptr: expected no empty dimension"),
    "indptr too short": (1, lambda t: t[:-1], r"indptr: expected offsets from 0 to 18"),
    "indices outside": (2, lambda t: t + 11, r"indices: expected rows of values, 0 to 10"),
}


@pytest.mark.parametrize(("position", "change", "text"), WRONG.values(), ids=WRONG.keys())
def test_wrong_arguments_are_named(position: int, change: Callable[[Tensor], Tensor], text: str) -> None:
    inputs = list(graph(SHAPES["ordinary"]))
    inputs[position] = change(inputs[position])
    with pytest.raises(kernels.InvalidArgument, match=f"segment_mean: {text}"):
        kernels.segment_mean(*inputs)
