"""Exported programs as files: ``.pt2`` for torch, with our ops inside, and ``.onnx`` for an ONNX Runtime."""

import importlib.metadata
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernels import _registry as _registry  # defines torch.ops.tagae
from kernels import reference
from kernels.schemas import SCHEMAS
from lab.export.program import INPUTS, OUTPUTS, SIZES, trace
from model.checkpoint import Checkpoint
from model.features import SCHEMA

OPSET = 18  # the first ONNX opset whose scatters can reduce; needs ONNX Runtime 1.14 (February 2023) or newer
DOCUMENT = "tagae.json"  # file inside a .pt2

Run = Callable[[Sequence[NDArray[Any]]], list[NDArray[Any]]]  # from the inputs to the outputs


def write_pt2(checkpoint: Checkpoint, path: Path) -> None:
    """Write the network as an ``ExportedProgram`` of torch. Import ``kernels.ops`` before loading it, for our ops."""
    part = path.with_name(f"{path.name}.part.pt2")  # torch warns about other suffixes
    torch.export.save(trace(checkpoint.network), part, extra_files={DOCUMENT: json.dumps(describe(checkpoint))})
    part.replace(path)


def write_onnx(checkpoint: Checkpoint, path: Path) -> None:
    """Write the network as ONNX with standard operators only.

    Raises:
        ModuleNotFoundError: the extra ``export`` is not installed.
    """
    part = path.with_name(f"{path.name}.part")
    with _quiet_exporter(), torch.no_grad():
        ours = {getattr(torch.ops.tagae, op).default: getattr(reference, op) for op in SCHEMAS}
        table = {**torch.export.default_decompositions(), **ours}
        program = torch.onnx.export(
            trace(checkpoint.network).run_decompositions(table),
            (),
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamic_shapes=SIZES,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        program.model.metadata_props.update(describe(checkpoint))
        program.save(part, external_data=False)
    part.replace(path)


def open_pt2(path: Path) -> Run:
    """Open a ``.pt2`` on the CPU."""
    module = torch.export.load(path).module()

    def run(inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        with torch.inference_mode():
            return [output.numpy() for output in module(*map(torch.from_numpy, inputs))]

    return run


def open_onnx(path: Path) -> Run:
    """Open an ``.onnx`` in ONNX Runtime on the CPU, with torch's number of threads.

    Raises:
        ModuleNotFoundError: the extra ``export`` is not installed.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        outputs: list[NDArray[Any]] = session.run(list(OUTPUTS), dict(zip(INPUTS, inputs, strict=True)))
        return [np.asarray(output) for output in outputs]

    return run


def describe(checkpoint: Checkpoint) -> dict[str, str]:
    """Return a file's metadata: versions, and the sizes and channels that its inputs need."""
    return {
        "tagae_version": importlib.metadata.version("tagae"),
        "model_version": checkpoint.digest,
        "feature_schema": SCHEMA.to_json(),
        "neighbours": str(checkpoint.network.config.neighbours),
    }


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence torch's exporter's warnings about its own packages and functions."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


FORMATS: dict[str, tuple[Callable[[Checkpoint, Path], None], Callable[[Path], Run]]] = {
    "pt2": (write_pt2, open_pt2),
    "onnx": (write_onnx, open_onnx),
}
