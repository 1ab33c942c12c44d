"""The full network in fewer bits: bf16 in torch, and INT8 in ONNX Runtime.

Our compiled ops compute in float32. So both forms run the network in standard operators, and are compared with the
same operators in float32 as well. Structure between the parts of a cut mesh stays in float32.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lab.export.files import Run, open_onnx, write_onnx
from lab.export.program import INPUTS, FlatNetwork, inputs_of, trace
from lab.export.standard import DECOMPOSITIONS
from model.checkpoint import Checkpoint
from model.network.contract import Decoding, MeshGraph, MeshNetwork
from model.scoring.score import PartitionTask


class Lowered(nn.Module):
    """A network whose passes run elsewhere."""

    Config: ClassVar = None

    def __init__(self, network: MeshNetwork, run: Run) -> None:
        super().__init__()
        self.config, self.run = network.config, run
        self.add_module("full", network)  # type: ignore[arg-type]

    def forward(self, graph: MeshGraph) -> Decoding:
        """Run one pass."""
        attended = [torch.zeros(len(graph.edges), dtype=torch.bool) for _ in range(2)]
        for mask, side in zip(attended, (graph.callers, graph.callees), strict=True):
            mask[side.edges] = True
        inputs = graph.nodes, graph.edges, graph.edge_index, *attended
        return Decoding(*map(torch.from_numpy, self.run([tensor.numpy() for tensor in inputs])))

    def structure(self, z_source: Tensor, z_target: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """As of the full network."""
        logits: Tensor = self.full.structure(z_source, z_target, source, target)  # type: ignore[operator, union-attr]
        return logits


def in_python(network: MeshNetwork) -> Run:
    """Return a network's pass without any change."""
    flat = FlatNetwork(network).eval()

    def run(inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        with torch.inference_mode():
            return [output.numpy() for output in flat(*map(torch.from_numpy, inputs))]

    return run


def in_torch(network: MeshNetwork, *, bf16: bool) -> Run:
    """Return the network's pass in standard operators of torch: in float32, or with products in bf16 (autocast)."""
    table = torch.export.default_decompositions()
    table.update(DECOMPOSITIONS)  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)  # torch uses what it deprecates
        module = trace(network).run_decompositions(table).module()

    def run(inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            outputs = module(*map(torch.from_numpy, inputs))
        return [one.float().numpy() for one in outputs]

    return run


def in_onnx(checkpoint: Checkpoint, folder: Path) -> tuple[Run, Path]:
    """Return the network's pass in ONNX Runtime, in float32, and its file."""
    path = folder / "float32.onnx"
    write_onnx(checkpoint, path)
    return open_onnx(path), path


def quantise(source: Path, tasks: Iterable[PartitionTask] | None) -> tuple[Run, Path]:
    """Return a pass in INT8, and its file.

    Args:
        source: the network as ONNX, in float32.
        tasks: inputs from which the ranges of all values are taken (static); None: taken in each pass (dynamic).
    """
    import onnx
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, feeds: Iterator[dict[str, NDArray[Any]]]) -> None:
            self.feeds = feeds

        def get_next(self) -> dict[str, NDArray[Any]] | None:
            return next(self.feeds, None)

    target = source.with_name("dynamic.onnx" if tasks is None else "static.onnx")
    # Products of batches of matrices, which are few here, cannot have a scale for each channel.
    of_batches = [node.name for node in onnx.load(source).graph.node if node.op_type == "MatMul" and "bmm" in node.name]
    if tasks is None:
        quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True, nodes_to_exclude=of_batches)
    else:
        feeds = (dict(zip(INPUTS, (one.numpy() for one in inputs_of(task)), strict=True)) for task in tasks)
        quantize_static(
            source,
            target,
            Reader(feeds),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul", "Gemm"],
            nodes_to_exclude=of_batches,
        )
    return open_onnx(target), target


def differences(run: Run, reference: Run, task: PartitionTask) -> float:
    """Return the largest difference of an output, relative to 1 or to the output if that is larger."""
    inputs = [tensor.numpy() for tensor in inputs_of(task)]
    pairs = list(zip(run(inputs), reference(inputs), strict=True))[1:]  # embeddings of a student have another width
    return max(float((np.abs(a - b) / np.maximum(np.abs(b), 1)).max(initial=0.0)) for a, b in pairs)
