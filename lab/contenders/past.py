"""The newest samples of every series, by name. Services and calls can appear and disappear."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lab.contenders.paging import Floats


@dataclass(frozen=True, slots=True)
class Past:
    """Samples of services or calls.

    Attributes:
        length: most frames to keep.
        names: of all rows ever seen, in order of appearance; new names are appended, so older frames are shorter.
        frames: float32 ``[K_t, M]``, oldest first, NaN where not observed.
    """

    length: int
    names: tuple[str, ...] = ()
    frames: tuple[NDArray[np.float32], ...] = ()

    def with_frame(self, names: tuple[str, ...], values: Floats) -> "Past":
        """Add one sample of each series.

        Args:
            values: ``[N, M]``.
        """
        known = _extend_names(self.names, names)
        frame = np.full((len(known), values.shape[1]), np.nan, np.float32)
        frame[positions(names, known)] = values
        return replace(self, names=known, frames=(*self.frames, frame)[-self.length :])

    def without_frames(self) -> "Past":
        return replace(self, frames=())

    def cube(self) -> NDArray[np.float32]:
        """Return all samples ``[K, M, T]``."""
        whole = np.full((len(self.frames), len(self.names), self.frames[0].shape[1]), np.nan, np.float32)
        for row, frame in zip(whole, self.frames, strict=True):
            row[: len(frame)] = frame
        return np.ascontiguousarray(whole.transpose(1, 2, 0))

    def look_up(self, table: Floats, names: tuple[str, ...], missing: float = np.nan) -> Floats:
        """Return the rows of ``table`` for these names. The table has a row for each of the first of ``self.names``."""
        at = positions(names, self.names)
        known = (at >= 0) & (at < len(table))
        found = np.full((len(names), table.shape[1]), missing)
        found[known] = table[at[known]]
        return found


@lru_cache(maxsize=64)
def positions(names: tuple[str, ...], known: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the index of each name among the known ones, or -1. Cached, because contenders ask for the same names."""
    if names == known[: len(names)]:
        return np.arange(len(names))
    place = {name: i for i, name in enumerate(known)}
    return np.array([place.get(name, -1) for name in names], np.int64)


@lru_cache(maxsize=64)
def _extend_names(known: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    if names == known[: len(names)]:
        return known
    seen = set(known)
    return known + tuple(name for name in names if name not in seen)


def quantiles(cube: NDArray[np.float32], shares: Sequence[float]) -> list[Floats]:
    """Return quantiles of the observed samples of each series, with linear interpolation.

    Args:
        cube: ``[K, M, T]``, NaN where not observed.
        shares: from 0 to 1.

    Returns:
        One array ``[K, M]`` for each share, NaN where nothing was observed.
    """
    ordered = np.sort(cube, axis=2)  # NaN last
    count = np.isfinite(ordered).sum(axis=2)
    found = []
    for share in shares:
        rank = share * np.maximum(count - 1, 0)
        low = np.floor(rank).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(count - 1, 0))
        below, above = (np.take_along_axis(ordered, at[..., None], axis=2)[..., 0].astype(float) for at in (low, high))
        found.append(below + (rank - low) * (above - below))
    return found
