"""A sample of the calls of a mesh over a week, to see how many of them are new.

Every call has a hash, and the sample has the calls with the smallest hashes (bottom-k sampling: Cohen and Kaplan 2007).
It is a random sample, and it consists of the same calls each time, so what is new in it is what is new in the mesh.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from model.snapshot import IntArray

MOST_CALLS = 256
Hashes = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class CallSample:
    """The sampled calls.

    Attributes:
        hashes: uint32, in ascending order.
        first, seen: int32, blocks in which each was first and last seen.
        bound: hashes up to this one are in the sample if their calls were seen in a week.
    """

    hashes: Hashes = field(default_factory=lambda: np.zeros(0, np.uint32))
    first: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    seen: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    bound: int = 0xFFFFFFFF

    def add(self, calls: Hashes, block: int, oldest: int) -> CallSample:
        """Return the sample with the calls of a block.

        Args:
            calls: their hashes.
            block: its number.
            oldest: calls that were last seen before this block leave the sample.
        """
        calls = np.unique(calls[calls <= self.bound])
        is_known = np.isin(calls, self.hashes)
        first = np.full(len(calls), block, np.int32)
        first[is_known] = self.first[np.searchsorted(self.hashes, calls[is_known])]
        stays = (self.seen >= oldest) & ~np.isin(self.hashes, calls)
        hashes = np.concatenate([self.hashes[stays], calls])
        seen = np.concatenate([self.seen[stays], np.full(len(calls), block, np.int32)])
        order = np.argsort(hashes)[:MOST_CALLS]
        bound = int(hashes[order[-1]]) if len(hashes) > MOST_CALLS else self.bound
        return CallSample(hashes[order], np.concatenate([self.first[stays], first])[order], seen[order], bound)

    def new_share(self, block: int, since: int) -> float:
        """Return the share of the calls of a block that were first seen in block ``since`` or later; not a number
        without calls."""
        now = self.seen == block
        return float((self.first[now] >= since).mean()) if now.any() else float("nan")


def hash_calls(node_ids: Sequence[str], edge_index: IntArray) -> Hashes:
    """Return a hash of each call, ``[E]``, of the names of its two services; the same on every machine."""
    names = np.fromiter((crc32(name.encode()) for name in node_ids), np.uint64, len(node_ids))
    source, destination = names[edge_index]
    mixed = (source * np.uint64(0x9E3779B97F4A7C15)) ^ (destination * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes: Hashes = (mixed >> np.uint64(32)).astype(np.uint32)
    return hashes
