"""How a checkpoint was made, for its metadata."""

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

from lab.training.meshes import TrainingMeshes
from lab.training.train import TrainingOptions


def provenance(meshes: TrainingMeshes, options: TrainingOptions, recordings: Sequence[Path]) -> dict[str, str]:
    """How a checkpoint was made, for its metadata."""
    return {
        "seed": str(options.seed),
        "simulated": f"{meshes.count} meshes of {meshes.snapshots} snapshots",
        "recorded": ", ".join(path.name for path in recordings),
        "steps": f"{options.steps} autoencoder, {options.meta_steps} meta-model",
        "versions": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("tagae", "torch", "numpy")),
    }
