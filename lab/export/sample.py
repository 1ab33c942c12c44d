"""One snapshot's inputs and outputs as JSON, for tests of programs in other languages."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from lab.export.files import describe
from lab.export.program import INPUTS, OUTPUTS, FlatNetwork, inputs_of
from model.checkpoint import Checkpoint
from model.features import NODE_CHANNELS
from model.scoring.score import whole_mesh
from model.snapshot import MeshSnapshot
from model.state.mesh_state import MeshState
from model.state.observe import observe

WINDOW = 120  # snapshots in the ring


def write_sample(checkpoint: Checkpoint, snapshots: Iterable[MeshSnapshot], path: Path) -> None:
    """Write the last snapshot's inputs and outputs; all others are its past.

    Raises:
        ValueError: there are no snapshots.
    """
    state, observation = MeshState(), None
    for snapshot in snapshots:
        observation, state = observe(
            state, snapshot, window_size=WINDOW, neighbours=checkpoint.network.config.neighbours
        )
    if observation is None:
        raise ValueError("expected a recording with at least one snapshot, got an empty one")
    inputs = inputs_of(whole_mesh(state, observation))
    with torch.inference_mode():
        outputs: Sequence[torch.Tensor] = FlatNetwork(checkpoint.network).eval()(*inputs)
    document = {
        **describe(checkpoint),
        "services": list(state.node_ids),
        "channels": [channel.name for channel in NODE_CHANNELS],
        "inputs": {name: _describe(tensor) for name, tensor in zip(INPUTS, inputs, strict=True)},
        "outputs": {name: _describe(tensor) for name, tensor in zip(OUTPUTS, outputs, strict=True)},
    }
    path.write_text(json.dumps(document), encoding="utf-8")


def _describe(tensor: torch.Tensor) -> dict[str, Any]:
    """Describe a tensor by type, shape and values in row-major order."""
    kind = {torch.float32: "float32", torch.int64: "int64", torch.bool: "bool"}[tensor.dtype]
    return {"type": kind, "shape": list(tensor.shape), "data": tensor.flatten().tolist()}
