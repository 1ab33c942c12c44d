"""Each op in standard operators gives the result of its reference."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import reference
from kernels.selfcheck import Case, random_cases
from lab.export import standard
from lab.export.standard import DECOMPOSITIONS

CASES = {case.op: case for case in random_cases()}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_an_op_is_its_reference(case: Case) -> None:
    ours, expected = getattr(standard, case.op)(*case.arguments), getattr(reference, case.op)(*case.arguments)
    for one, other in zip(tensors(ours), tensors(expected), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_rows_without_others_are_alone() -> None:
    rows, _, _, hidden_weight, *others = CASES["perceptron"].arguments
    arguments = rows, None, None, hidden_weight[:, : rows.shape[1]], *others
    torch.testing.assert_close(standard.perceptron(*arguments), reference.perceptron(*arguments))


def test_every_op_that_a_network_calls_has_one() -> None:
    assert {str(op) for op in DECOMPOSITIONS} == {f"tagae.{op}.default" for op in CASES}


def tensors(result: Any) -> Sequence[Tensor]:
    return (result,) if isinstance(result, Tensor) else result
