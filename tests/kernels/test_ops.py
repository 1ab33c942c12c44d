"""What holds for every op: strides, bits, derivatives, errors. ``test_layers.py`` has their values."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import kernels
from tests.kernels.kernel_cases import (
    DEVICES,
    SHAPES,
    arguments_of,
    as_tuple,
    assert_near,
    cast,
    differentiable,
    with_double_strides,
)

OPS = ["attend", "project_and_attend", "join_sides", "perceptron", "edge_dot"]
each_op = pytest.mark.parametrize("op", OPS)


def call(op: str, *arguments: Any) -> tuple[Tensor, ...]:
    return as_tuple(getattr(kernels, op)(*arguments))


def gradients(op: str, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    leaves = differentiable(inputs)
    total = sum(result.square().sum() for result in call(op, *leaves))
    found = torch.autograd.grad(total, [t for t in leaves if t.requires_grad])  # type: ignore[arg-type]
    return tuple(found)


@pytest.mark.parametrize("device", DEVICES)
@each_op
def test_strides_do_not_matter(op: str, device: str) -> None:
    inputs = cast(arguments_of(op), torch.float64, device)
    apart = tuple(with_double_strides(t) for t in inputs)
    assert not any(t.is_contiguous() for t in apart)
    for actual, truth in zip(call(op, *apart), call(op, *inputs), strict=True):
        assert_near(actual, truth)


@pytest.mark.parametrize("compute", [call, gradients], ids=["inference", "gradients"])
@each_op
def test_same_input_same_bits(op: str, compute: Callable[..., tuple[Tensor, ...]]) -> None:
    inputs = cast(arguments_of(op, [40] * 60), torch.float32)
    kept = tuple(t.clone() for t in inputs)
    with torch.inference_mode(compute is call):
        first, second = ((call(op, *inputs) if compute is call else gradients(op, inputs)) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(inputs, kept, strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("graph", ["ordinary", "isolated nodes at both ends", "empty graph"])
@each_op
def test_gradients(op: str, graph: str, device: str) -> None:
    leaves = differentiable(cast(arguments_of(op, SHAPES[graph], small=True), torch.float64, device))
    assert torch.autograd.gradcheck(getattr(kernels, op), leaves, nondet_tol=1e-12)


@each_op
def test_second_derivatives(op: str) -> None:
    leaves = differentiable(arguments_of(op, small=True))
    assert torch.autograd.gradgradcheck(getattr(kernels, op), leaves, nondet_tol=1e-10)


# op, argument, its wrong value, text that the message must contain
WRONG = {
    "query narrow": ("attend", "query", lambda t: t[:, 1:], r"query: expected size 32 .*H\*C of att.*\[7, 31\]"),
    "key too narrow": ("attend", "key", lambda t: t[:, 1:], r"key: expected size 32"),
    "key of another type": ("attend", "key", lambda t: t.float(), r"key: expected torch.float64 as query has"),
    "half precision": ("attend", "query", lambda t: t.half(), r"query: expected float32 or float64, got torch.float16"),
    "trajectory too wide": ("attend", "trajectory", lambda t: torch.cat([t, t], 1), r"trajectory: expected size 5"),
    "weight transposed": ("attend", "trajectory_weight", lambda t: t.t(), r"trajectory_weight: expected size 32"),
    "attention with a leading 1": ("attend", "attention", lambda t: t[None], r"attention: expected shape \[H, C\]"),
    "attention without heads": ("attend", "attention", lambda t: t[:0], r"attention: expected no empty dimension"),
    "indptr of another graph": ("attend", "indptr", lambda t: t[:-1], r"indptr: expected size 8 .*N \+ 1"),
    "indptr int32": ("attend", "indptr", lambda t: t.int(), r"indptr: expected int64, got torch.int32"),
    "indptr not from 0": ("attend", "indptr", lambda t: t + 1, r"indptr: expected offsets from 0 to 18"),
    "indptr not to E": ("attend", "indptr", lambda t: t.clamp(max=17), r"indptr: expected offsets from 0 to 18"),
    "indptr falls": ("attend", "indptr", lambda t: t[[0, 2, 1, 3, 4, 5, 6, 7]], "indptr: .*never fall, got 4 before 1"),
    "indices as columns": ("attend", "indices", lambda t: t[:, None], r"indices: expected one dimension"),
    "indices outside": (
        "attend",
        "indices",
        lambda t: t + 7,
        r"indices: expected rows of key, 0 to 6, got \d+ at s.* 0",
    ),
    "indices just outside": (
        "attend",
        "indices",
        lambda t: torch.full_like(t, 7),
        "indices: .* 0 to 6, got 7 at slot 0",
    ),
    "indices negative": ("attend", "indices", lambda t: t - 7, r"indices: expected rows of key"),
    "edges too few": ("attend", "edges", lambda t: t[1:], r"edges: expected size 18"),
    "edges outside": ("attend", "edges", lambda t: t + 21, r"edges: expected rows of trajectory, 0 to 20"),
    "weight of other inputs": (
        "project_and_attend",
        "query_weight",
        lambda t: t[:, 1:],
        "query_weight: expected size 5",
    ),
    "bias too short": ("project_and_attend", "key_bias", lambda t: t[1:], "key_bias: expected size 32"),
    "value transposed": ("project_and_attend", "trajectory_value", lambda t: t.mT, "trajectory_value: expected size 8"),
    "value of two dimensions": (
        "project_and_attend",
        "trajectory_value",
        lambda t: t[0],
        r"trajectory_value: expected shape \[H, C, T\]",
    ),
    "targets of another graph": ("project_and_attend", "x", lambda t: t[1:], "indptr: expected size 7"),
    "neighbours outside": ("project_and_attend", "indices", lambda t: t + 7, "indices: expected rows of x, 0 to 6"),
    "calls outside": ("project_and_attend", "edges", lambda t: t - 99, "edges: expected rows of trajectory"),
    "offsets falling": ("project_and_attend", "indptr", lambda t: t[[0, 2, 1, 3, 4, 5, 6, 7]], "indptr: .*never fall"),
    "a side too short": ("join_sides", "callees", lambda t: t[1:], "callees: expected size 9 in dimension 0"),
    "own weight of other outputs": ("join_sides", "weight", lambda t: t[1:], "weight: expected size 40"),
    "norm of other outputs": ("join_sides", "norm_bias", lambda t: t[1:], "norm_bias: expected size 40"),
    "positions outside": ("perceptron", "positions", lambda t: t + 5, "positions: expected rows of others, 0 to 4"),
    "positions too few": ("perceptron", "positions", lambda t: t[1:], "positions: expected size 50"),
    "hidden of other inputs": ("perceptron", "hidden_weight", lambda t: t[:, 1:], "hidden_weight: expected size 7"),
    "output of other hidden": ("perceptron", "weight", lambda t: t[:, 1:], "weight: expected size 7"),
    "others of another type": ("perceptron", "others", lambda t: t.float(), "others: expected torch.float64"),
    "sizes differ": ("edge_dot", "target", lambda t: t[:, 1:], r"target: expected size 32 .*D of source"),
    "types differ": ("edge_dot", "target", lambda t: t.float(), r"target: expected torch.float64 as source has"),
    "source of one dimension": ("edge_dot", "source", lambda t: t[0], r"source: expected shape \[N, D\]"),
    "an end missing": ("edge_dot", "target_index", lambda t: t[1:], r"target_index: expected size 18"),
    "source outside": ("edge_dot", "source_index", lambda t: t + 7, r"source_index: expected rows of source, 0 to 6"),
    "target negative": ("edge_dot", "target_index", lambda t: t - 7, r"target_index: expected rows of target, 0 to 6"),
}


@pytest.mark.parametrize(("op", "argument", "change", "text"), WRONG.values(), ids=WRONG.keys())
def test_wrong_arguments_are_named(op: str, argument: str, change: Callable[[Tensor], Tensor], text: str) -> None:
    function = getattr(kernels, op)
    arguments: dict[str, Any] = dict(zip(inspect.signature(function).parameters, arguments_of(op), strict=False))
    arguments[argument] = change(arguments[argument])
    with pytest.raises(kernels.InvalidArgument, match=f"{op}: {text}") as caught:
        function(**arguments)
    assert caught.value.details == {"argument": text.partition(":")[0]}
