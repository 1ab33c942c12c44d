"""The weights of all meshes. A mesh can have weights of its own; equal files are loaded once and shared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from model.checkpoint import Checkpoint, load, load_or_shipped
from model.errors import IncompatibleWeights


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights that are in memory.

    Attributes:
        refused: for each configured file that is not in use, a sentence that says why, and what is in use.
    """

    default: Checkpoint
    by_mesh: Mapping[str, Checkpoint] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def of(self, mesh: str) -> Checkpoint:
        return self.by_mesh.get(mesh, self.default)

    def distinct(self) -> tuple[Checkpoint, ...]:
        """Each of the weights once, the default ones first."""
        return tuple({checkpoint.digest: checkpoint for checkpoint in (self.default, *self.by_mesh.values())}.values())

    def size_bytes(self) -> int:
        """Return the parameters' memory; shared weights count once."""
        modules = (module for checkpoint in self.distinct() for module in (checkpoint.network, checkpoint.meta))
        return sum(p.numel() * p.element_size() for module in modules for p in module.parameters())


def load_weights(
    default: Path | None, by_mesh: Mapping[str, Path], device: torch.device | None = None, network: str | None = None
) -> Weights:
    """Load the weights of all meshes.

    A mesh whose weights are refused has the default ones, because a detector with other weights is better than none.

    Args:
        default: file for meshes without a file of their own; None: the shipped weights.
        by_mesh: files of the others, by the name of the mesh.
        network: class that the files may name, see :func:`model.checkpoint.load`.

    Raises:
        IncompatibleWeights: not even the shipped weights can be read.
    """
    default_weights = load_or_shipped(default, device, network)
    refusals: list[str] = []
    if default_weights.refused:
        refusals.append(f"model.weights: refused, and the shipped weights are in use: {default_weights.refused}")
    by_file: dict[Path, Checkpoint] = {}
    by_digest = {default_weights.digest: default_weights}
    checkpoints: dict[str, Checkpoint] = {}
    for mesh, path in by_mesh.items():
        try:
            checkpoint = by_file.get(path) or load(path, device, network)
        except IncompatibleWeights as error:
            refusals.append(f"meshes.{mesh}.weights: refused, and the weights of other meshes are in use: {error}")
        else:
            by_file[path] = checkpoints[mesh] = by_digest.setdefault(checkpoint.digest, checkpoint)
    return Weights(default_weights, checkpoints, tuple(refusals))
