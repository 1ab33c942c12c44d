"""The compiled bodies on a GPU, against the reference in float64 on the CPU."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import kernels
from kernels import reference
from kernels.library import CUDA_FILE
from kernels.selfcheck import random_cases
from tests.kernels.kernel_cases import arguments_of, as_tuple, assert_near, is_float

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@pytest.fixture
def bodies() -> None:
    """Load them, or skip where they are not built."""
    kernels.load_cuda()
    if not CUDA_FILE.exists():
        pytest.skip("the library is not built here")
    assert kernels.backend("cuda") == "cuda", kernels.backend_reason("cuda")


@pytest.mark.usefixtures("bodies")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("op", ["attend", "project_and_attend", "join_sides", "perceptron", "edge_dot"])
def test_values_and_gradients(op: str, dtype: torch.dtype) -> None:
    arguments = tuple(a.to(dtype).double() if is_float(a) else a for a in arguments_of(op, [3, 0, 40, 1, 7]))
    expected, wanted = with_gradients(op, arguments, torch.float64, "cpu")
    came, gradients = with_gradients(op, arguments, dtype, "cuda")
    # bfloat16 has 8 bits, and gradients are products of several rounded numbers.
    allowed = 0.1 if dtype == torch.bfloat16 else 1e-4
    for ours, theirs in zip([*came, *gradients], [*expected, *wanted], strict=True):
        assert ours.is_contiguous()
        error = (ours.cpu().double() - theirs).abs().max() / theirs.abs().max().clamp_min(1)
        assert float(error) <= allowed


@pytest.mark.usefixtures("bodies")
def test_large_graphs() -> None:
    for case in random_cases():
        given = [a.cuda() if isinstance(a, Tensor) else a for a in case.arguments]
        came = getattr(torch.ops.tagae, case.op)(*given)
        expected = getattr(reference, case.op)(*case.arguments)
        for ours, theirs in zip(as_tuple(came), as_tuple(expected), strict=True):
            assert_near(ours, theirs)


@pytest.mark.usefixtures("bodies")
def test_same_input_same_bits() -> None:
    for case in random_cases():
        given = [a.cuda() if isinstance(a, Tensor) else a for a in case.arguments]
        first, second = (as_tuple(getattr(torch.ops.tagae, case.op)(*given)) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.usefixtures("bodies")
def test_a_wrong_index_spoils_only_its_row() -> None:
    source = torch.ones(3, 4, device="cuda")
    result = kernels.edge_dot(source, source, torch.tensor([0, 7, 2]).cuda(), torch.tensor([0, 1, -1]).cuda())
    assert result.isnan().tolist() == [False, True, True]


@pytest.mark.usefixtures("bodies")
def test_tensors_of_another_device_are_named() -> None:
    source, index = torch.ones(3, 4, device="cuda"), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(kernels.InvalidArgument, match="source_index: expected device cuda:0"):
        kernels.edge_dot(source, source, index, index.cuda())


@pytest.mark.usefixtures("bodies")
def test_another_stream() -> None:
    """The bodies run on torch's current stream."""
    source, index = torch.randn(1000, 64, device="cuda"), torch.arange(1000, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        result = kernels.edge_dot(source * 2, source, index, index)
    stream.synchronize()
    assert_near(result, 2 * source.double().square().sum(1))


def test_a_process_that_uses_the_cpu_leaves_the_gpu_alone() -> None:
    code = (
        "import torch\n"
        "from model.checkpoint import load\n"
        "from model.scoring.score import score\n"
        "from serve_app.deployments.scoring.passes import probe\n"
        "checkpoint = load()\n"
        "score(checkpoint.network, probe(checkpoint))\n"
        "print(torch.cuda.is_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def with_gradients(
    op: str, arguments: tuple[Any, ...], dtype: torch.dtype, device: str
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the results, and the gradients of the sum of their squares."""
    given = [
        a.to(device, dtype if a.is_floating_point() else a.dtype) if isinstance(a, Tensor) else a for a in arguments
    ]
    leaves = [a.requires_grad_() for a in given if is_float(a)]
    results = as_tuple(getattr(kernels, op)(*given))
    total = torch.stack([result.square().sum() for result in results]).sum()
    return tuple(r.detach() for r in results), torch.autograd.grad(total, leaves)
