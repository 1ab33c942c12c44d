"""Orders and maxima of many numbers, with numpy's fast paths.

numpy sorts plain integers with vector instructions, ten times faster than a stable argsort, so a number and its
position are packed into one integer.
"""

import numpy as np
from numpy.typing import NDArray

from model.features import Array
from model.snapshot import IntArray


def stable_order(keys: NDArray[np.integer], bound: int) -> IntArray:
    """``np.argsort(keys, kind="stable")`` of integers ``[n]`` from 0 to below ``bound``."""
    bits = len(keys).bit_length()
    if bound.bit_length() + bits > 63:
        return np.argsort(keys, kind="stable")
    codes = np.sort((keys.astype(np.int64) << bits) | np.arange(len(keys), dtype=np.int64))
    return codes & ((1 << bits) - 1)


def largest_of_rows(table: Array) -> Array:
    """``table.max(axis=1)`` of a table ``[n, C]`` with few columns, at least one. numpy reduces short rows one by one,
    ten times slower than whole columns."""
    return table.T.copy().max(axis=0)


def descending_order(values: Array) -> IntArray:
    """``np.argsort(-values, kind="stable")`` of float32 ``[n]`` without NaN: the largest first, of equal ones the
    earlier."""
    bits = (0 - values.astype(np.float32)).view(np.int32).astype(np.int64)  # 0 - x: zeros have one sign
    rising = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits) + 2**31  # the bits of negative numbers fall
    return stable_order(rising, 2**32)


def either(*tests: Array) -> Array:
    """Return the strongest of several tests of one symptom, less ``log10`` of their number (Bonferroni)."""
    return np.maximum(np.maximum.reduce(tests) - np.float32(np.log10(len(tests))), 0)


def largest_of_group(values: Array, group: IntArray, count: int) -> Array:
    largest = np.zeros(count, np.float32)
    np.maximum.at(largest, group, values)
    return largest


def worst_of_group(values: Array, group: IntArray, chances: Array) -> Array:
    """Return the largest value of each group, less ``chances``, the ``log10`` of its size (Bonferroni): a hub has many
    chances to deviate."""
    return np.maximum(largest_of_group(values, group, len(chances)) - chances, 0)
