"""A sample of a mesh's calls over a week: how many of them are new, and which services joined or left.

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

BLOCK_SECONDS = 21_600  # of a block, which is compared with the same hours of the days before
SLOTS = 4  # blocks of a day


MAX_CALLS = 256
Hashes = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class CallSample:
    """The sampled calls, in ascending order of their hashes.

    Attributes:
        ends: uint32 ``[2, n]``, hashed names of caller and callee, see :func:`hash_ends`.
        first, seen: int32, blocks in which each was first and last seen.
        hours: uint8, the slots of the day in which each was seen, as bits. A nightly job makes no calls by day.
        bound: hashes up to this one are in the sample if their calls were seen in a week.
    """

    ends: Hashes = field(default_factory=lambda: np.zeros((2, 0), np.uint32))
    first: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    seen: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    hours: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    bound: int = 0xFFFFFFFF

    def add(self, ends: Hashes, block: int, oldest: int) -> CallSample:
        """Return the sample with the calls of a block.

        Args:
            ends: ``[2, E]``, hashes of their callers and callees.
            oldest: calls that were last seen before this block leave the sample.
        """
        hashes, unique = np.unique(_hash_calls(ends), return_index=True)
        within = hashes <= self.bound
        hashes, ends = hashes[within], ends[:, unique[within]]
        own = _hash_calls(self.ends)
        is_known = np.isin(hashes, own)
        row = np.searchsorted(own, hashes[is_known])
        first, hours = np.full(len(hashes), block, np.int32), np.full(len(hashes), 1 << block % SLOTS, np.uint8)
        first[is_known] = self.first[row]
        hours[is_known] |= self.hours[row]
        stays = (self.seen >= oldest) & ~np.isin(own, hashes)
        every = np.concatenate([own[stays], hashes])
        order = np.argsort(every)[:MAX_CALLS]
        last_seen = np.concatenate([self.seen[stays], np.full(len(hashes), block, np.int32)])
        return CallSample(
            np.concatenate([self.ends[:, stays], ends], axis=1)[:, order],
            np.concatenate([self.first[stays], first])[order],
            last_seen[order],
            np.concatenate([self.hours[stays], hours])[order],
            int(every[order[-1]]) if len(every) > MAX_CALLS else self.bound,
        )

    def new_share(self, block: int, since: int) -> float:
        """Return the share of a block's calls that were first seen in block ``since`` or later, without the calls
        of the service that has most of them: a single new service is no drift. Not a number without calls."""
        now = self.seen == block
        if not now.any():
            return float("nan")
        new = self.ends[:, now & (self.first >= since)]
        max_calls = np.unique(new.T.ravel(), return_counts=True)[1].max() if new.size else 0
        return float((new.shape[1] - max_calls) / np.count_nonzero(now))

    def changed_shares(self, block: int, week: int) -> tuple[float, float]:
        """Return the shares of the services and of the calls that joining and leaving services can have moved away from
        their average over the week before a block.

        A call has ended if it is not made at hours at which it was. It has moved its ends, the calls that its caller
        answers, by their latency, and those that its callee makes, by their rate. A new call has moved itself alone,
        and a service that has no other calls. A change counts for the part of the week before it.
        """
        now = self.seen == block
        is_usual = now | ((self.hours & (1 << block % SLOTS)) > 0)
        now, ends = now[is_usual], self.ends[:, is_usual]
        start = max(block - week, int(self.first.min(initial=block)))
        begin, end = ((of[is_usual] - start).clip(0) / max(block - start, 1) for of in (self.first, self.seen))
        ended_part = np.where(now, 0.0, end - begin)
        names, row = np.unique(ends, return_inverse=True)
        caller, callee = row.reshape(ends.shape)
        left_callee, left_caller, joining = np.zeros(len(names)), np.zeros(len(names)), np.ones(len(names))
        np.maximum.at(left_callee, caller, ended_part)
        np.maximum.at(left_caller, callee, ended_part)
        np.minimum.at(joining, caller, begin)
        np.minimum.at(joining, callee, begin)
        services = np.maximum(np.maximum(left_callee, left_caller), joining)
        calls = np.max([ended_part, np.where(now, begin, 0), left_callee[callee], left_caller[caller]], axis=0)
        return _mean(services), _mean(calls)


def hash_ends(node_ids: Sequence[str], edge_index: IntArray) -> Hashes:
    """Return the hashed names of each call's caller and callee, ``[2, E]``; the same on every machine."""
    names = np.fromiter((crc32(name.encode()) for name in node_ids), np.uint32, len(node_ids))
    return names[edge_index]


def _hash_calls(ends: Hashes) -> Hashes:
    source, destination = ends.astype(np.uint64)
    mix = (source * np.uint64(0x9E3779B97F4A7C15)) ^ (destination * np.uint64(0xC2B2AE3D27D4EB4F))
    mix = (mix ^ (mix >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return (mix >> np.uint64(32)).astype(np.uint32)


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0
