"""The resources that a service used in the last eighty minutes, as means over two minutes.

Filters follow a slow rise within minutes, so a leak never deviates from them. This history does not forget.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.snapshot import IntArray, MeshSnapshot, NodeMetric

History = NDArray[np.float16]  # half precision, since every write of a state writes it

BLOCK_SECONDS = 120.0
BLOCKS = 40
METRICS = (NodeMetric.REQUEST_RATE, NodeMetric.MEMORY_UTILIZATION, NodeMetric.ACTIVE_CONNECTIONS)
MAX = 60_000.0  # requests/s or connections; half precision ends soon after
INFINITY_BITS = np.uint16(0x7C00)  # of half precision; above it are the bits of NaN
REQUESTS, MEMORY, CONNECTIONS = range(len(METRICS))


def new_history(count: int) -> History:
    """Return the history of new services: ``[BLOCKS, count, 3]``, not a number where nothing was measured."""
    return np.full((BLOCKS, count, len(METRICS)), np.nan, np.float16)


def block_length(interval_seconds: float) -> int:
    return max(1, round(BLOCK_SECONDS / interval_seconds))


def skip_blocks(history: History, seconds: float) -> History:
    """Return the history ``[BLOCKS, N, 3]`` after a time without measurements, s; blocks of it have no value."""
    missing = int(min(seconds / BLOCK_SECONDS, BLOCKS))
    return np.concatenate([history[missing:], np.full_like(history[:missing], np.nan)])


def highest(blocks: History) -> History:
    """Return the largest value of each series, ``[...]`` of ``[blocks, ...]``; not a number where none was measured.

    Values from 0 up have the order of their bits, and to compare these is far faster in half precision. A shift that
    makes infinity the largest number of 16 bits moves what is not a number beyond it, to the smallest ones.
    """
    shift = np.uint16(0xFFFF) - INFINITY_BITS
    bits = (blocks.view(np.uint16) & np.uint16(0x7FFF)) + shift  # without the sign of a zero
    largest = bits.max(axis=0, initial=0)
    return np.where(largest < shift, np.float16(np.nan), (largest - shift).view(np.float16))


def append_block(history: History, node_ids: Sequence[str], snapshots: Sequence[MeshSnapshot]) -> History:
    """Return the history ``[BLOCKS, N, 3]`` with one block more, and without the oldest."""
    total = np.zeros(history.shape[1:])
    counts = np.zeros(history.shape[1:])
    row_of = {name: row for row, name in enumerate(node_ids)}
    rows: dict[int, IntArray] = {}  # consecutive snapshots often share one tuple of names
    for snapshot in snapshots:
        key = id(snapshot.node_ids)
        if key not in rows:
            rows[key] = np.fromiter((row_of.get(n, -1) for n in snapshot.node_ids), np.int64, snapshot.num_nodes)
        is_known = rows[key] >= 0
        at, observed = rows[key][is_known], snapshot.node_observed[is_known][:, METRICS]
        total[at] += np.where(observed, snapshot.node_features[is_known][:, METRICS], 0)
        counts[at] += observed
    block = np.where(counts > 0, np.minimum(total / np.maximum(counts, 1), MAX), np.nan)
    return np.concatenate([history[1:], block[None].astype(np.float16)])
