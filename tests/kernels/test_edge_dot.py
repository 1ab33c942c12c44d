"""``edge_dot``: worked by hand, against a slow loop, and its gradients."""

import pytest
import torch
from torch import Tensor

import kernels
from tests.kernels.kernel_cases import DEVICES, assert_near, cast

A = [[1.0, 2.0], [3.0, 4.0]]
B = [[10.0, 1.0], [0.0, 5.0]]

# source_index, target_index, products of rows of A and B
BY_HAND = {
    "no edge": ([], [], []),
    "directed": ([0, 1], [1, 0], [10.0, 34.0]),
    "a node with itself": ([0, 1], [0, 1], [12.0, 20.0]),
    "a pair twice": ([1, 1], [0, 0], [34.0, 34.0]),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("sources", "targets", "expected"), BY_HAND.values(), ids=BY_HAND.keys())
def test_by_hand(
    sources: list[int], targets: list[int], expected: list[float], dtype: torch.dtype, device: str
) -> None:
    ends = (torch.tensor(x, dtype=torch.int64, device=device) for x in (sources, targets))
    tables = (torch.tensor(x, dtype=dtype, device=device) for x in (A, B))
    assert_near(kernels.edge_dot(*tables, *ends), torch.tensor(expected, dtype=dtype))


def pairs(edges: int, *, sources: int = 9, targets: int = 6, size: int = 64) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(edges)
    return (
        torch.randn(sources, size, generator=generator, dtype=torch.float64),
        torch.randn(targets, size, generator=generator, dtype=torch.float64),
        torch.randint(sources, (edges,), generator=generator),
        torch.randint(targets, (edges,), generator=generator),
    )


# At 64 dimensions a block holds 1,536 edges: below, at, above and well above its edge.
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("edges", [1, 7, 1535, 1536, 1537, 4000])
def test_against_the_slow_loop(edges: int, dtype: torch.dtype, device: str) -> None:
    source, target, i, j = pairs(edges)
    expected = torch.stack([source[a] @ target[b] for a, b in zip(i, j, strict=True)])
    actual = kernels.edge_dot(*cast((source / 8, target, i, j), dtype, device))
    assert_near(actual, expected / 8)


def test_gradients_across_blocks_of_edges() -> None:
    source, target, i, j = pairs(4000)
    leaves = source.requires_grad_(), target.requires_grad_()
    actual = torch.autograd.grad(kernels.edge_dot(*leaves, i, j).sin().sum(), leaves)
    expected = torch.autograd.grad((source[i] * target[j]).sum(1).sin().sum(), leaves)
    for a, b in zip(actual, expected, strict=True):
        assert_near(a, b)
