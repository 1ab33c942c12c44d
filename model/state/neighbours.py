"""The calls that a service attends to: the ones with most traffic, a few on each side."""

import numpy as np

from model.features import Array
from model.ordering import descending_order, stable_order
from model.snapshot import BoolArray, IntArray


def sample_neighbours(traffic: Array, listener: IntArray, foreign: BoolArray, most: int) -> BoolArray:
    """Select the calls that each service attends to on one side: those with most traffic and, if there are more than
    ``most``, at most one from another namespace.

    The limit is a property of the model. It is applied when the topology changes, and is the same for a whole mesh and
    for its parts. Without the rule for namespaces, every part of a cut mesh would read all callers of the shared
    services (figures in docs/research-log.md).

    Args:
        traffic: ``[E]``.
        listener: ``[E]`` row of the service at this side of each call.
        foreign: ``[E]`` whether the call crosses namespaces.
        most: most calls per service.
    """
    marked = strongest(traffic, listener, most)
    crowded = np.bincount(listener, minlength=1)[listener] > most
    rows = np.flatnonzero(foreign)
    first_foreign = np.zeros(len(listener), bool)
    first_foreign[rows] = strongest(traffic[rows], listener[rows], 1)
    return marked & (~crowded | ~foreign | first_foreign)


def strongest(traffic: Array, group: IntArray, most: int) -> BoolArray:
    """Mark, in each group, the ``most`` rows with most traffic (ties: the earlier row)."""
    marked = np.ones(len(group), bool)
    sizes = np.bincount(group) if len(group) else np.zeros(0, np.int64)
    if not len(sizes) or sizes.max() <= most:
        return marked
    order = descending_order(traffic)
    order = order[stable_order(group[order], len(sizes))]
    start = np.cumsum(sizes) - sizes
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - start[group[order]]
    return rank < most
