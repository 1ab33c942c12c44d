"""Compares an exported file with its network."""

from collections.abc import Iterator

import numpy as np
import torch

from lab.export.files import Run
from lab.export.program import OUTPUTS, FlatNetwork, inputs_of
from model.network.contract import EDGE_INPUTS, NODE_INPUTS, MeshNetwork
from model.scoring.score import PartitionTask

# Relative to 1 in asinh of sigmas and in logits. Sums of float32 in another order differ by some 1e-5.
TOLERANCE = 1e-4
SIZES = ((1, 0), (3, 2), (40, 200), (300, 3000))  # services and calls of the graphs to compare on


class DifferentOutputs(ValueError):
    """An exported file's outputs differ from its network's."""


def require_same(network: MeshNetwork, run: Run) -> float:
    """Run a file and the network on random meshes of several sizes. Some services have no callers.

    Returns:
        The largest difference between outputs, relative to the output, or to 1 for smaller outputs.

    Raises:
        DifferentOutputs: the difference is larger than ``TOLERANCE``.
    """
    flat, largest = FlatNetwork(network).eval(), 0.0
    for task in random_meshes():
        inputs = inputs_of(task)
        with torch.inference_mode():
            expected = [output.numpy() for output in flat(*inputs)]
        for name, ours, theirs in zip(OUTPUTS, expected, run([i.numpy() for i in inputs]), strict=True):
            differences = np.abs(theirs - ours) / np.maximum(np.abs(ours), 1)
            difference = float(differences.max(initial=0.0))
            if theirs.shape != ours.shape or not difference <= TOLERANCE:  # also if it is not a number
                raise DifferentOutputs(
                    f"export: {name}: expected at most {TOLERANCE} from the network, got {difference:.3g} for "
                    f"{len(task.nodes)} services; do not use the file, and report this with the versions of torch, "
                    "onnx and onnxruntime"
                )
            largest = max(largest, difference)
    return largest


def random_meshes() -> Iterator[PartitionTask]:
    """Yield random inputs of ``SIZES``, in which a third of the calls are not attended to."""
    rng = np.random.default_rng(0)
    for services, calls in SIZES:
        yield PartitionTask(
            nodes=rng.standard_normal((services, NODE_INPUTS)).astype(np.float32),
            edges=rng.standard_normal((calls, EDGE_INPUTS)).astype(np.float32),
            edge_index=rng.integers(0, services, (2, calls)).astype(np.int32),
            attended_callers=rng.random(calls) < 2 / 3,
            attended_callees=rng.random(calls) < 2 / 3,
            core=services,
            owned=calls,
            boundary=np.zeros(0, np.int64),
        )
