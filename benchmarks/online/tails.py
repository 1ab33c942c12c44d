"""Tails of one mesh: the shipped ones, moved towards the exceedances of its own calm snapshots."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.online.archive import CalmMoment
from lab.training.dataset import SETTLE
from model.checkpoint import Checkpoint
from model.features import EDGE_CHANNELS, NODE_CHANNELS
from model.scoring.calibration import Tail, TailCounts
from model.state.change_impact import ABOVE, BEGUN, EXCESS, SEEN, UNEXPOSED

RATE_WEIGHT = 20_000.0  # weight of the shipped rate, values
SCALE_WEIGHT = 200.0  # weight of the shipped mean excess, exceedances


def fit_tails(checkpoint: Checkpoint, archive: Sequence[CalmMoment]) -> Checkpoint:
    """Return the checkpoint with tails of the mesh. Only rates and mean excesses away from planned changes differ: the
    state of a mesh already learns what changes do in it, and shapes need more data than one mesh has."""
    node, edge = TailCounts(len(NODE_CHANNELS)), TailCounts(len(EDGE_CHANNELS))
    for moment in archive:
        seen = moment.observation
        node.add(seen.node, seen.node_exposure, seen.node.seen.max(axis=1, initial=0) > SETTLE)
        edge.add(seen.edge, seen.edge_exposure, seen.edge.seen.max(axis=1, initial=0) > SETTLE)
    return replace(
        checkpoint,
        node_tail=_move(checkpoint.node_tail, node),
        edge_tail=_move(checkpoint.edge_tail, edge),
    )


def _move(shipped: Tail, counts: TailCounts) -> Tail:
    tally = counts.tally[:, UNEXPOSED]
    rate, mean = shipped.rate.copy(), shipped.mean_excess.copy()
    rate[UNEXPOSED] = (tally[BEGUN] + RATE_WEIGHT * rate[UNEXPOSED]) / (tally[SEEN] + RATE_WEIGHT)
    mean[UNEXPOSED] = (tally[EXCESS] + SCALE_WEIGHT * mean[UNEXPOSED]) / (tally[ABOVE] + SCALE_WEIGHT)
    return replace(shipped, rate=rate.astype(np.float32), mean_excess=mean.astype(np.float32))
