"""The ops in torch: schemas, traces, compile, export, inference mode."""

import inspect
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import kernels
from kernels import checks, ops, reference
from kernels.schemas import SCHEMAS
from tests.kernels.kernel_cases import (
    DEVICES,
    SHAPES,
    AttendInputs,
    arguments_of,
    assert_near,
    attend_inputs,
    cast,
    differentiable,
)

INDUCTOR = [
    pytest.mark.slow,
    pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="inductor needs a C++ compiler"),
]
GRAPHS = ("no node", "one node alone", "empty graph", "isolated nodes at both ends", "ordinary")


NUMBERS = {"attend": (0.2,), "project_and_attend": (0.2,), "join_sides": (1e-5,)}


def samples(op: str, graph: str, dtype: torch.dtype) -> tuple[object, ...]:
    """Return arguments of ``torch.ops.tagae.<op>`` for one of the shared graphs."""
    return *cast(arguments_of(op, SHAPES[graph], small=True), dtype), *NUMBERS.get(op, ())


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("op", SCHEMAS)
def test_opcheck(op: str, graph: str) -> None:
    torch.library.opcheck(getattr(torch.ops.tagae, op).default, samples(op, graph, torch.float64))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("op", SCHEMAS)
def test_opcheck_with_gradients(op: str, graph: str) -> None:
    torch.library.opcheck(getattr(torch.ops.tagae, op).default, differentiable(samples(op, graph, torch.float32)))


@pytest.mark.parametrize("op", SCHEMAS)
def test_one_op_one_name_in_every_place(op: str) -> None:
    schema = getattr(torch.ops.tagae, op).default._schema
    names = [argument.name for argument in schema.arguments]
    assert str(schema) == f"tagae::{op}{SCHEMAS[op]}"
    assert list(checks.SIZES[op]) == names[: len(checks.SIZES[op])]
    for place in (reference, ops):
        assert list(inspect.signature(getattr(place, op)).parameters) == names


class Pass(torch.nn.Module):
    """Call each op once, with an ordinary torch op between them."""

    def forward(self, inputs: AttendInputs, targets: Tensor) -> Tensor:
        values, trajectories = kernels.attend(*inputs, 0.2)
        return kernels.edge_dot(values.tanh(), values, targets, inputs[6]) + trajectories.sum()


def pass_inputs(counts: list[int], device: str = "cpu") -> tuple[AttendInputs, Tensor]:
    inputs = cast(attend_inputs(counts), torch.float32, device)
    indptr = inputs[5]
    return inputs, torch.repeat_interleave(torch.arange(len(counts), device=device), indptr.diff())


@pytest.mark.parametrize("device", DEVICES)
def test_compiles_whole_and_for_every_size(device: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Pass(), fullgraph=True, dynamic=True, backend="aot_eager")
    for graph in ("ordinary", "hub"):
        arguments = pass_inputs(SHAPES[graph], device)
        assert_near(compiled(*arguments), Pass()(*arguments))
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled(*pass_inputs([4, 0, 9, 2, 2], device))


# torch 2.13's inductor imports a module of torch that uses what torch has deprecated.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=INDUCTOR)])
def test_compiled_gradients(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    # A cached graph of another version can call ops that are gone: torch does not compare how ours are differentiated.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    inputs, targets = pass_inputs(SHAPES["ordinary"])

    def gradients(function: Callable[[AttendInputs, Tensor], Tensor]) -> tuple[Tensor, ...]:
        leaves = differentiable(inputs)
        return torch.autograd.grad(function(leaves, targets).tanh().sum(), leaves[:5])

    compiled = torch.compile(Pass(), fullgraph=True, backend=backend)
    for actual, expected in zip(gradients(compiled), gradients(Pass()), strict=True):
        assert_near(actual, expected)


def test_exports_with_the_ops_by_name() -> None:
    inputs, targets = pass_inputs(SHAPES["ordinary"])
    auto = torch.export.Dim.AUTO
    moving = ({0: auto}, {0: auto}, {0: auto}, None, None, {0: auto}, {0: auto}, {0: auto})
    program = torch.export.export(Pass(), (inputs, targets), dynamic_shapes=(moving, {0: auto}))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"tagae.attend.default", "tagae.edge_dot.default"} <= called
    other = pass_inputs(SHAPES["hub"])
    assert_near(program.module()(*other), Pass()(*other))


@pytest.mark.parametrize("device", DEVICES)
def test_runs_under_inference_mode(device: str) -> None:
    arguments = pass_inputs(SHAPES["ordinary"], device)
    with torch.inference_mode():
        result = Pass()(*arguments)
    assert result.is_inference()
    assert_near(result, Pass()(*arguments))


def test_two_threads_give_the_same_bits_again() -> None:
    arguments = pass_inputs([30] * 200)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first, second = Pass()(*arguments), Pass()(*arguments)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(first, second)


@pytest.mark.parametrize("error", [kernels.InvalidArgument, kernels.UnavailableBackend])
def test_errors_survive_a_process_boundary(error: type[kernels.KernelError]) -> None:
    back = pickle.loads(pickle.dumps(error("attend: key: wrong", argument="key")))
    assert type(back) is error
    assert isinstance(back, kernels.KernelError)
    assert (str(back), back.details) == ("attend: key: wrong", {"argument": "key"})
