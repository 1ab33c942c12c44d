"""Distributions of the training meshes: an optional part of a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from model.drift.populations import BINS, POPULATIONS
from model.errors import IncompatibleWeights
from model.features import Array

PREFIX = "drift."  # of its arrays in a checkpoint


@dataclass(frozen=True, slots=True)
class TrainingReference:
    """The training meshes.

    Attributes:
        shares: float32 ``[P, BINS]`` mean of the meshes' histograms, as shares.
        limits: float32 ``[P]`` largest distance (population stability index) of a training mesh from the mean of the
            others; not a number for a population that too few meshes have.
    """

    shares: Array
    limits: Array

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {f"{PREFIX}{name}": np.ascontiguousarray(getattr(self, name)) for name in ("shares", "limits")}

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
        if own["shares"].shape != expected:
            raise IncompatibleWeights(
                f"weights: expected a training reference of shape {expected}, got {own['shares'].shape}; train again, "
                "or use the version that made it"
            )
        return cls(own["shares"], own["limits"])
