"""Services with few requests of which more fail than before.

Two failures in a snapshot of three requests are no evidence, and none in the next snapshot is no evidence against them.
Together the last minutes may leave no doubt: their failures are compared with the failures of the time before, which
needs no filter and no usual share. They are over when too many requests have succeeded since the last failure. Failures
of one snapshot often have one cause, so two of them count at most.
"""

import numpy as np

from model.features import ERROR, Array
from model.state.few_requests import LAST, LEAST_LONG, Failures, compare_counts, continues
from model.state.filters import ENOUGH, Deviation
from model.state.mesh_state import Observation

AT_ONCE = 2.0  # failures of one snapshot that count
CERTAIN, MOST = 5.0, 8.0  # decades: less is left to the filters, and more is not given
MATERIAL = 0.02  # more of the requests


def rare_failures(observation: Observation) -> tuple[Array, Array]:
    """Return the surprise of services ``[N]`` and of calls ``[E]`` that fail more often than before."""
    node, edge = observation.node, observation.edge
    return _surprise(node, observation.node_failures), _surprise(edge, observation.edge_failures)


def _surprise(deviation: Deviation, counted: Failures) -> Array:
    surprise = np.zeros(len(deviation.now), np.float32)
    failed, made, before, made_before = counted.failed, counted.made, counted.before, counted.made_before
    lately = made.sum(axis=0)
    share, usual = failed.sum(axis=0) / np.maximum(lately, 1e-9), before / np.maximum(made_before, 1e-9)
    matters = (share - usual >= MATERIAL) & (lately < LAST * ENOUGH)
    matters &= deviation.past_long[counted.rows, ERROR] > LEAST_LONG
    if not matters.any():
        return surprise
    sigmas = compare_counts(np.minimum(failed, AT_ONCE).sum(axis=0), lately, before, made_before)
    decades = np.where(sigmas > 1, sigmas**2 / 2 / np.log(10) + np.log10(np.maximum(sigmas, 1) * np.sqrt(2 * np.pi)), 0)
    is_certain = matters & (decades >= CERTAIN)
    if is_certain.any():
        surprise[counted.rows] = np.where(is_certain, np.minimum(decades, MOST) * continues(failed, made), 0)
    return surprise
