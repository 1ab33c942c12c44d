"""Services with few requests of which more fail than before.

Two failures in a snapshot of three requests are no evidence, and none in the next snapshot is no evidence against them.
Together the last minutes may leave no doubt: their failures are compared with the failures of the time before, which
needs no filter and no usual share. They are over when too many requests have succeeded since the last failure. Failures
of one snapshot often have one cause, so two of them count at most.
"""

import numpy as np

from model.features import ERROR, Array
from model.snapshot import IntArray
from model.state.few_requests import LAST, LEAST_LONG, compare_counts, continues, count_before, count_requests
from model.state.filters import ENOUGH, Deviation
from model.state.mesh_state import MeshState, Observation

AT_ONCE = 2.0  # failures of one snapshot that count
CERTAIN, MOST = 5.0, 8.0  # decades: less is left to the filters, and more is not given
MATERIAL = 0.02  # more of the requests


def rare_failures(state: MeshState, observation: Observation) -> tuple[Array, Array]:
    """Return the surprise of services ``[N]`` and of calls ``[E]`` that fail more often than before.

    Args:
        state: of the mesh, including the snapshot.
        observation: of the snapshot.
    """
    nodes = _surprise(state, observation.node, state.node_counts, np.arange(len(state.node_ids))[None])
    return nodes, _surprise(state, observation.edge, state.edge_counts, state.edge_index)


def _surprise(state: MeshState, deviation: Deviation, counts: Array, ends: IntArray) -> Array:
    """Return the surprise of services or calls, ``ends`` ``[1, N]`` or ``[2, E]``."""
    surprise = np.zeros(ends.shape[1], np.float32)
    rows = np.flatnonzero(deviation.past_long[:, ERROR] > LEAST_LONG)
    if not len(rows) or not state.window:
        return surprise
    wanted = [tuple(state.node_ids[i] for i in pair) for pair in ends[:, rows].T.tolist()]
    failed, made = count_requests(state.window[-LAST:], wanted, state.interval_seconds)
    lately = made.sum(axis=0)
    before, made_before = count_before(counts[:, rows], failed, made)
    sigmas = compare_counts(np.minimum(failed, AT_ONCE).sum(axis=0), lately, before, made_before)
    decades = np.where(sigmas > 1, sigmas**2 / 2 / np.log(10) + np.log10(np.maximum(sigmas, 1) * np.sqrt(2 * np.pi)), 0)
    share = failed.sum(axis=0) / np.maximum(lately, 1e-9)
    usual = before / np.maximum(made_before, 1e-9)
    is_certain = (decades >= CERTAIN) & (share - usual >= MATERIAL) & (lately < LAST * ENOUGH)
    surprise[rows] = np.where(is_certain, np.minimum(decades, MOST) * continues(failed, made), 0)
    return surprise
