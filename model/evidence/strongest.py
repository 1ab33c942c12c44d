"""The strongest of several tests, less what their number explains."""

import numpy as np

from model.features import Array
from model.snapshot import IntArray


def either(*tests: Array) -> Array:
    """Return the strongest of several tests of one symptom, less ``log10`` of their number (Bonferroni)."""
    worst: Array = np.maximum(np.maximum.reduce(tests) - np.float32(np.log10(len(tests))), 0)
    return worst


def largest_of_group(values: Array, group: IntArray, count: int) -> Array:
    """Return the largest value of each group."""
    most = np.zeros(count, np.float32)
    np.maximum.at(most, group, values)
    return most


def worst_of_group(values: Array, group: IntArray, chances: Array) -> Array:
    """Return the largest value of each group, less ``chances``, the ``log10`` of its size (Bonferroni): a hub has many
    chances to deviate."""
    worst: Array = np.maximum(largest_of_group(values, group, len(chances)) - chances, 0)
    return worst
