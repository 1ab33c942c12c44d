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
        by_mesh: of the others, by name.
        refused: for each configured file that is not in use, a sentence that says why, and what is in use.
    """

    default: Checkpoint
    by_mesh: Mapping[str, Checkpoint] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def of(self, mesh: str) -> Checkpoint:
        """The weights of a mesh."""
        return self.by_mesh.get(mesh, self.default)

    def distinct(self) -> tuple[Checkpoint, ...]:
        """Each of the weights once, the default ones first."""
        return tuple({one.digest: one for one in (self.default, *self.by_mesh.values())}.values())

    def size_bytes(self) -> int:
        """Memory of the parameters of all weights; shared ones count once."""
        modules = (module for one in self.distinct() for module in (one.network, one.meta))
        return sum(p.numel() * p.element_size() for module in modules for p in module.parameters())


def load_weights(
    default: Path | None, by_mesh: Mapping[str, Path], device: torch.device | None = None, network: str | None = None
) -> Weights:
    """Load the weights of all meshes.

    A mesh whose weights are refused has the default ones, because a detector with other weights is better than none.

    Args:
        default: file for meshes without a file of their own; None: the shipped weights.
        by_mesh: files of the others, by the name of the mesh.
        device: for the networks; the CPU by default.
        network: class that the files may name, see :func:`model.checkpoint.load`.

    Raises:
        IncompatibleWeights: not even the shipped weights can be read.
    """
    shared = load_or_shipped(default, device, network)
    refused: list[str] = []
    if shared.refused:
        refused.append(f"model.weights: refused, and the shipped weights are in use: {shared.refused}")
    by_file: dict[Path, Checkpoint] = {}
    by_digest = {shared.digest: shared}
    loaded: dict[str, Checkpoint] = {}
    for mesh, path in by_mesh.items():
        try:
            found = by_file.get(path) or load(path, device, network)
        except IncompatibleWeights as error:
            refused.append(f"meshes.{mesh}.weights: refused, and the weights of other meshes are in use: {error}")
        else:
            by_file[path] = loaded[mesh] = by_digest.setdefault(found.digest, found)
    return Weights(shared, loaded, tuple(refused))
