"""Distributions of the training meshes: an optional part of a checkpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from model.drift.energy import WIDTH, energy_distance
from model.drift.populations import BINS, POPULATIONS
from model.drift.psi import population_stability_index
from model.errors import IncompatibleWeights
from model.features import Array

PREFIX = "drift."  # of its arrays in a checkpoint
LEAST_MESHES = 3  # without, a limit would rest on a single other mesh
EMBEDDINGS_KEPT = 512


@dataclass(frozen=True, slots=True)
class TrainingReference:
    """The training meshes.

    Attributes:
        shares: float32 ``[P, BINS]`` mean of the meshes' histograms, as shares.
        limits: float32 ``[P]`` largest distance (population stability index) of a training mesh from the mean of the
            others; not a number for a population that too few meshes have.
        embeddings: float16 ``[n, WIDTH]`` projected embeddings of their services.
        embeddings_limit: largest energy distance of a training mesh from the others.
    """

    shares: Array
    limits: Array
    embeddings: NDArray[np.float16]
    embeddings_limit: float

    @classmethod
    def of_meshes(cls, shares: Sequence[Array], embeddings: Sequence[NDArray[np.float16]]) -> Self:
        """Return the reference from the normal traffic of each training mesh.

        Args:
            shares: ``[P, BINS]`` histograms of each mesh; zeros for a population without values.
            embeddings: ``[n, WIDTH]`` of each mesh.
        """
        tables = np.stack(shares)
        measured = tables.sum(axis=-1) > 0
        total, number = tables.sum(axis=0), measured.sum(axis=0)
        limits = np.full(len(POPULATIONS), np.nan, np.float32)
        for row in np.flatnonzero(number >= LEAST_MESHES):
            own = tables[measured[:, row], row]
            limits[row] = population_stability_index(own, (total[row] - own) / (number[row] - 1)).max()
        mean = (total / np.maximum(number, 1)[:, None]).astype(np.float32)
        samples = [sample for sample in embeddings if len(sample)]
        kept = [_thin(sample, -(-EMBEDDINGS_KEPT // len(samples))) for sample in samples]
        limit = float("nan")
        if len(samples) >= LEAST_MESHES:
            others = (np.concatenate([*kept[:i], *kept[i + 1 :]]) for i in range(len(kept)))
            limit = max(energy_distance(*pair) for pair in zip(samples, others, strict=True))
        return cls(mean, limits, np.concatenate([np.zeros((0, WIDTH), np.float16), *kept]), limit)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return its arrays under their names in a checkpoint."""
        arrays = {name: getattr(self, name) for name in ("shares", "limits", "embeddings")}
        limit = np.array([self.embeddings_limit])
        return {
            f"{PREFIX}{name}": np.ascontiguousarray(a) for name, a in (arrays | {"embeddings_limit": limit}).items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self | None:
        """Read the arrays of a checkpoint; None if it has no reference.

        Raises:
            IncompatibleWeights: they have other populations or bins.
        """
        own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
        if not own:
            return None
        expected = (len(POPULATIONS), BINS)
        if own["shares"].shape != expected or own["embeddings"].shape[1:] != (WIDTH,):
            raise IncompatibleWeights(
                f"weights: expected a training reference of shape {expected}, got {own['shares'].shape}; train again, "
                "or use the version that made it"
            )
        return cls(own["shares"], own["limits"], own["embeddings"], float(own["embeddings_limit"][0]))


def _thin(rows: NDArray[np.float16], most: int) -> NDArray[np.float16]:
    """Return at most this many rows, evenly spaced."""
    at = np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.int64)
    return rows[at]
