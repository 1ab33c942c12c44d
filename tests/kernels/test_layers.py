"""The ops of whole layers, ``project_and_attend``, ``join_sides`` and ``perceptron``: values, gradients, errors."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import kernels
from tests.kernels.kernel_cases import (
    DEVICES,
    SHAPES,
    assert_near,
    attend_openly,
    cast,
    is_float,
    join_inputs,
    perceptron_inputs,
    projected_inputs,
)

SLOPE = 0.25
# Channels of a head and inputs below, at and above the lanes of a vector; 48 services are a block.
SIZES = [(5, 1, 1, 1), (45, 4, 32, 16), (128, 4, 16, 16), (3, 3, 20, 5), (7, 5, 24, 17)]


def call(op: str, *arguments: Any) -> Tensor:
    result: Tensor = getattr(kernels, op)(*arguments)
    return result


def attend_plainly(*inputs: Any) -> Tensor:
    x, query_weight, query_bias, key_weight, key_bias, trajectory, weight, attention, value, *slots = inputs
    query, key = functional.linear(x, query_weight, query_bias), functional.linear(x, key_weight, key_bias)
    values, sums = attend_openly(query, key, trajectory, weight, attention, *slots)
    return values + torch.einsum("nht,hct->nhc", sums, value).flatten(1)


def join_plainly(
    x: Tensor, weight: Tensor, bias: Tensor, callers: Tensor, callees: Tensor, norm_weight: Tensor, norm_bias: Tensor
) -> Tensor:
    joined = functional.linear(x, weight, bias) + callers + callees
    return functional.gelu(functional.layer_norm(joined, norm_bias.shape, norm_weight, norm_bias))


def perceptron_plainly(rows: Tensor, others: Tensor | None, positions: Tensor | None, *weights: Tensor) -> Tensor:
    if others is not None:
        rows = torch.cat([rows, others if positions is None else others[positions]], 1)
    return functional.linear(functional.gelu(functional.linear(rows, *weights[:2])), *weights[2:])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("counts", [*SHAPES.values(), [3, 0, 6, 1, 2] * 30], ids=[*SHAPES.keys(), "blocks"])
def test_project_and_attend(counts: list[int], sizes: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    names = ("inputs", "heads", "channels", "times")
    inputs = projected_inputs(counts, **dict(zip(names, sizes, strict=True)))
    result = call("project_and_attend", *cast(inputs, dtype, device), SLOPE)
    assert result.dtype == dtype
    assert result.is_contiguous()
    assert_near(result, attend_plainly(*inputs, SLOPE))
    assert result.shape == (len(counts), sizes[1] * sizes[2])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (45, 128), (128, 64), (5, 19), (33, 130)])
@pytest.mark.parametrize("nodes", [0, 1, 50, 99])
def test_join_sides(nodes: int, inputs: int, outputs: int, dtype: torch.dtype, device: str) -> None:
    arguments = join_inputs(nodes, inputs, outputs)
    arguments = (arguments[0] / inputs**0.5, *arguments[1:])
    result = call("join_sides", *cast(arguments, dtype, device))
    # One channel has no variance, and its difference from the mean is all rounding.
    assert_near(result, join_plainly(*arguments) if outputs > 1 else functional.gelu(arguments[6]).expand(nodes, 1))
    assert result.is_contiguous()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("count", "inputs", "width", "hidden", "outputs"),
    [
        (0, 3, 2, 4, 1),
        (1, 1, 1, 1, 1),
        (64, 21, 0, 32, 16),
        (65, 10, 2, 32, 2),
        (200, 10, 18, 33, 3),
        (7, 20, 128, 64, 8),
    ],
)
@pytest.mark.parametrize("kind", ["others at positions", "others in order", "no others"])
def test_perceptron(
    kind: str, count: int, inputs: int, width: int, hidden: int, outputs: int, dtype: torch.dtype, device: str
) -> None:
    arguments = perceptron_inputs(count, inputs, max(count, 1), width, hidden=hidden, outputs=outputs)
    rows, others, positions, first, *rest = cast(arguments, dtype, device)
    given: dict[str, tuple[Any, ...]] = {
        "others at positions": (rows, others, positions, first, *rest),
        "others in order": (rows, others[:count], None, first, *rest),
        "no others": (rows, None, None, first[:, :inputs], *rest),
    }
    plain = [a.double() if is_float(a) else a for a in given[kind]]
    assert_near(kernels.perceptron(*given[kind]), perceptron_plainly(*plain))


def test_a_gelu_is_exact_far_from_zero() -> None:
    x = torch.tensor([-1e30, -1e4, -100.0, -6.0, -5.7, 5.7, 6.0, 100.0, 1e4, 1e30]).unsqueeze(1)
    one, zero = torch.ones(1, 1), torch.zeros(1)
    result = kernels.perceptron(x, None, None, one, zero, one, zero)
    torch.testing.assert_close(result, functional.gelu(x.double()).float(), atol=1e-6, rtol=1e-6)


def test_what_is_not_a_number_stays_so() -> None:
    rows = torch.tensor([[1.0], [float("nan")], [3.0]])
    one, zero = torch.ones(1, 1), torch.zeros(1)
    assert kernels.perceptron(rows, None, None, one, zero, one, zero).isnan().flatten().tolist() == [False, True, False]
    inputs = cast(projected_inputs([2, 2, 2]), torch.float32)
    inputs[0][1] = float("nan")
    attended = call("project_and_attend", *inputs, SLOPE)
    expected = attend_plainly(*inputs, SLOPE)
    assert torch.equal(attended.isnan(), expected.isnan())


def test_gradients_of_a_perceptron_without_positions() -> None:
    rows, others, _, *weights = perceptron_inputs(4, 3, 4, 2)
    leaves = [t.requires_grad_() for t in (rows, others, *weights)]
    assert torch.autograd.gradcheck(lambda a, b, *rest: kernels.perceptron(a, b, None, *rest), leaves)
    first = weights[0].detach()[:, :3].clone().requires_grad_()
    leaves = [rows, first, *weights[1:]]
    assert torch.autograd.gradcheck(lambda a, *rest: kernels.perceptron(a, None, None, *rest), leaves)
