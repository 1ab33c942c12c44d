"""The newest samples of every series, by name; services and calls come and go."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders.paging import Floats


@dataclass(frozen=True, slots=True)
class Past:
    """Samples of services or calls.

    Attributes:
        length: frames kept.
        names: of all rows ever seen, as they came; only ever added to, so older frames are shorter.
        frames: float32 ``[K_t, M]``, oldest first, NaN where not observed.
    """

    length: int
    names: tuple[str, ...] = ()
    frames: tuple[NDArray[np.float32], ...] = ()

    def with_frame(self, names: tuple[str, ...], values: Floats) -> "Past":
        """One sample of each series on.

        Args:
            names: of the rows.
            values: ``[N, M]``.
        """
        known = _grown(self.names, names)
        frame = np.full((len(known), values.shape[1]), np.nan, np.float32)
        frame[places(names, known)] = values
        return replace(self, names=known, frames=(*self.frames, frame)[-self.length :])

    def without_frames(self) -> "Past":
        """The names alone."""
        return replace(self, frames=())

    def cube(self) -> NDArray[np.float32]:
        """All samples ``[K, M, T]``."""
        whole = np.full((len(self.frames), len(self.names), self.frames[0].shape[1]), np.nan, np.float32)
        for row, frame in zip(whole, self.frames, strict=True):
            row[: len(frame)] = frame
        return np.ascontiguousarray(whole.transpose(1, 2, 0))

    def looked_up(self, table: Floats, names: tuple[str, ...], missing: float = np.nan) -> Floats:
        """Rows of ``table``, which is in the order of ``self.names`` or of the first of them, for these names."""
        at = places(names, self.names)
        known = (at >= 0) & (at < len(table))
        found = np.full((len(names), table.shape[1]), missing)
        found[known] = table[at[known]]
        return found


@lru_cache(maxsize=64)
def places(names: tuple[str, ...], known: tuple[str, ...]) -> NDArray[np.int64]:
    """Place of each name among the known ones, -1 where it is not. Contenders that saw the same ask the same."""
    if names == known[: len(names)]:
        return np.arange(len(names))
    place = {name: i for i, name in enumerate(known)}
    return np.array([place.get(name, -1) for name in names], np.int64)


@lru_cache(maxsize=64)
def _grown(known: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """With the names that are new at the end."""
    if names == known[: len(names)]:
        return known
    seen = set(known)
    return known + tuple(name for name in names if name not in seen)


def quantiles(cube: NDArray[np.float32], shares: Sequence[float]) -> list[Floats]:
    """Of each series over its observed samples, by linear interpolation.

    Args:
        cube: ``[K, M, T]``, NaN where not observed.
        shares: 0..1.

    Returns:
        For each share ``[K, M]``, NaN where nothing was observed.
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
