"""The interval between snapshots, and the effects of a gap."""

from dataclasses import replace

import numpy as np

from model.snapshot import MeshSnapshot
from model.state.filters import LONG, LONG_RATE, SHORT, SHORT_RATE
from model.state.history import skip_blocks
from model.state.mesh_state import MeshState

GAP_INTERVALS = 3.0  # a longer silence is a gap


def update_interval(state: MeshState, snapshot: MeshSnapshot, longest_gap: float) -> MeshState:
    """Update the interval, and what a gap before the snapshot makes old.

    Trajectories fade as if the missing snapshots had been usual, histories have blocks without a value, and planned
    changes age. Open incidents are kept, because nothing says that they are over, unless the gap is longer than
    ``longest_gap``, s.
    """
    if state.learned_at is None:
        return state
    elapsed = (snapshot.observed_at - state.learned_at).total_seconds()
    interval = state.interval_seconds
    if elapsed > 0 and (state.learned == 1 or elapsed < interval / 3):
        interval = elapsed
    elif 0 < elapsed <= GAP_INTERVALS * interval:
        interval += 0.1 * (elapsed - interval)
    if 0 < elapsed <= GAP_INTERVALS * interval:
        return replace(state, interval_seconds=interval)
    missing = elapsed / interval - 1 if elapsed > 0 else np.inf
    if elapsed > 0 and _is_second_gap(state):
        interval = min(elapsed, 2 * interval)  # the interval has changed; a longer one is reached in a few steps
    node_filters, edge_filters = state.node_filters.copy(), state.edge_filters.copy()
    for filters in (node_filters, edge_filters):
        for slot, forgets in ((SHORT, SHORT_RATE), (LONG, LONG_RATE)):
            filters[slot] *= np.float32((1 - forgets) ** missing)
    is_long = not 0 < elapsed <= max(longest_gap, GAP_INTERVALS * interval)
    memory = state.memory.forget_incidents() if is_long else state.memory.pass_gap(round(missing))
    return replace(
        state,
        interval_seconds=interval,
        node_filters=node_filters,
        edge_filters=edge_filters,
        node_history=skip_blocks(state.node_history, max(elapsed, 0) or np.inf),
        memory=memory,
    )


def _is_second_gap(state: MeshState) -> bool:
    """Return whether a gap also came before the newest snapshot; or, without counted snapshots, whether none did."""
    if len(state.window) < 2:
        return True
    last, before = state.window[-1].observed_at, state.window[-2].observed_at
    return (last - before).total_seconds() > GAP_INTERVALS / 2 * state.interval_seconds
