"""``attend``: worked by hand, against a loop over the nodes, against PyTorch Geometric, and its gradients."""

import math

import pytest
import torch
from torch import Tensor

import kernels
from tests.kernels.kernel_cases import (
    DEVICES,
    SHAPES,
    assert_near,
    attend_inputs,
    attend_openly,
    cast,
    differentiable,
    neighbourhoods,
)

SLOPE = 0.25

# One head of one channel, attention 1, trajectories of one number with weight 1: u = query + key + trajectory.
# name: query, key, trajectory, indptr, indices, edges, values, trajectories
BY_HAND = {
    "one slot has weight 1": ([1.0], [7.0], [3.0], [0, 1], [0], [0], [7.0], [3.0]),
    "no slot gives zeros": ([1.0], [7.0], [3.0], [0, 0], [], [], [0.0], [0.0]),
    # logits 1 + 1 and 1 + 1
    "equal logits share": ([1.0], [1.0, 1.0], [0.0, 0.0], [0, 2], [0, 1], [0, 1], [1.0], [0.0]),
    # logits 0 and ln 3: weights 1/4 and 3/4
    "weights one to three": ([0.0], [0.0, math.log(3)], [0.0], [0, 2], [0, 1], [0, 0], [0.75 * math.log(3)], [0.0]),
    # keys equal, trajectories 0 and ln 3: weights 1/4 and 3/4 from the trajectory alone
    "the trajectory decides": ([0.0], [2.0], [0.0, math.log(3)], [0, 2], [0, 0], [0, 1], [2.0], [0.75 * math.log(3)]),
    # u = 0 and -4 ln 3; the slope 1/4 makes the logits 0 and -ln 3: weights 3/4 and 1/4
    "below zero the slope counts": (
        [0.0],
        [0.0, -4 * math.log(3)],
        [0.0],
        [0, 2],
        [0, 1],
        [0, 0],
        [-math.log(3)],
        [0.0],
    ),
    # edges name rows 2 and 0 of the trajectories, no edge names row 1
    "edges choose rows": ([0.0, 0.0], [5.0, 6.0], [1.0, 99.0, 2.0], [0, 1, 2], [1, 0], [2, 0], [6.0, 5.0], [2.0, 1.0]),
    # logits 0, 0 and ln 2: weights 1/4, 1/4 and 1/2
    "a repeated slot counts again": (
        [0.0],
        [0.0, math.log(2)],
        [0.0],
        [0, 3],
        [0, 0, 1],
        [0, 0, 0],
        [math.log(2) / 2],
        [0.0],
    ),
    # logits of a thousand do not overflow
    "large logits": (
        [0.0],
        [1000.0, 1000.0 - math.log(3)],
        [0.0],
        [0, 2],
        [0, 1],
        [0, 0],
        [1000 - math.log(3) / 4],
        [0.0],
    ),
    # logits of minus two thousand do not vanish either
    "large negative logits": ([-8000.0], [2.0, 2.0], [1.0], [0, 2], [0, 1], [0, 0], [2.0], [1.0]),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", BY_HAND.values(), ids=BY_HAND.keys())
def test_by_hand(case: tuple[list[float], ...], dtype: torch.dtype, device: str) -> None:
    query, key, trajectory, indptr, indices, edges, values, trajectories = case

    def column(numbers: list[float]) -> Tensor:
        return torch.tensor(numbers, dtype=dtype, device=device).view(-1, 1)

    def positions(numbers: list[float]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=device)

    one = torch.ones(1, 1, dtype=dtype, device=device)
    result = kernels.attend(
        column(query),
        column(key),
        column(trajectory),
        one,
        one,
        positions(indptr),
        positions(indices),
        positions(edges),
        SLOPE,
    )
    assert_near(result[0], column(values))
    assert_near(result[1], column(trajectories).unsqueeze(2))


def test_heads_do_not_mix() -> None:
    # Two heads of two channels: head 0 uses its first channel, head 1 has zero weights and shares equally.
    key = torch.tensor([[0.0, 10.0, 1.0, 2.0], [math.log(3), 20.0, 3.0, 4.0]])
    query, trajectory, weight = torch.zeros(1, 4), torch.tensor([[4.0], [8.0]]), torch.zeros(4, 1)
    attention = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    slots = torch.tensor([0, 1])
    values, trajectories = kernels.attend(query, key, trajectory, weight, attention, torch.tensor([0, 2]), slots, slots)
    assert_near(values, torch.tensor([[0.75 * math.log(3), 17.5, 2.0, 3.0]]))
    assert_near(trajectories, torch.tensor([[[7.0], [6.0]]]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("counts", SHAPES.values(), ids=SHAPES.keys())
def test_against_the_slow_loop(counts: list[int], dtype: torch.dtype, device: str) -> None:
    inputs = attend_inputs(counts)
    expected = attend_openly(*inputs, SLOPE)
    result = kernels.attend(*cast(inputs, dtype, device), SLOPE)
    for actual, truth in zip(result, expected, strict=True):
        assert actual.dtype == dtype
        assert actual.is_contiguous()
        assert_near(actual, truth)


def test_more_neighbours_than_targets_and_a_hub_across_blocks_of_edges() -> None:
    query, key, trajectory, weight, attention, indptr, indices, edges = attend_inputs(SHAPES["ordinary"])
    slots = int(indptr[3])
    few = (query[:3], key, trajectory, weight, attention, indptr[:4], indices[:slots], edges[:slots])
    for inputs in (few, attend_inputs([3, 1800, 5], heads=4, channels=32, times=16)):
        for actual, truth in zip(kernels.attend(*inputs, SLOPE), attend_openly(*inputs, SLOPE), strict=True):
            assert_near(actual, truth)


def test_relabelling_permutes_and_changes_nothing_else() -> None:
    query, key, trajectory, weight, attention, indptr, indices, edges = attend_inputs(SHAPES["ordinary"])
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    new_name = order.argsort()
    slots = torch.cat([torch.arange(int(indptr[i]), int(indptr[i + 1])) for i in order])
    relabelled = neighbourhoods(indptr.diff()[order].tolist())
    result = kernels.attend(
        query[order], key[order], trajectory, weight, attention, relabelled, new_name[indices[slots]], edges[slots]
    )
    whole = kernels.attend(query, key, trajectory, weight, attention, indptr, indices, edges)
    for actual, truth in zip(result, whole, strict=True):
        assert_near(actual, truth[order])


def test_gradients_across_blocks_of_edges() -> None:
    inputs = attend_inputs([3, 1800, 5], heads=4, channels=32, times=16)
    leaves, plain = differentiable(inputs), differentiable(inputs)
    weights = torch.randn(3, 128, dtype=torch.float64), torch.randn(3, 4, 16, dtype=torch.float64)
    grads = [
        torch.autograd.grad([(w * x).sum() for w, x in zip(weights, result, strict=True)], variables[:5])
        for result, variables in (
            (kernels.attend(*leaves, SLOPE), leaves),
            (attend_openly(*plain, SLOPE), plain),
        )
    ]
    for actual, truth in zip(*grads, strict=True):
        assert_near(actual, truth)
