"""Updates of a state's drift sketch: a snapshot is counted, and a complete block is judged."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from model.drift.call_sample import BLOCK_SECONDS, SLOTS, hash_ends
from model.drift.measures import (
    LIMITS,
    ROWS,
    Kind,
    Reference,
    least_moved,
    moved_share,
    no_distances,
    population_stability_index,
)
from model.drift.populations import ARE_CALLS, CHANNELS, ValueCounts, count_values, no_values
from model.drift.reference import TrainingReference
from model.drift.sketch import DriftSketch
from model.features import Array
from model.state.change_impact import UNEXPOSED
from model.state.filters import EXCEED_COUNT, SEEN, TAIL_MEMORY
from model.state.mesh_state import MeshState, Observation

F = TypeVar("F", np.float16, np.float32)

SAMPLE_SECONDS = 300.0  # between two snapshots that are counted
MADE_SECONDS = 1800.0  # before its end, in which the calls of a block are made
DAYS = 7  # over which a week is averaged
MIN_DAYS = 5  # of a slot, before blocks are compared with it
NEW_BLOCKS = SLOTS * (MIN_DAYS - 1)  # a call is new for four days; by the fifth, the first calls are not
MOVED_BESIDE = 0.5  # of the services and calls beside one that left; chosen on simulated meshes
MIN_SAMPLES = 24  # of a block: a third of it; with fewer, its hours are not known
STAYS = np.float32(0.8)  # times the limit: above it, drift continues, so that a distance at its limit is reported once
TAIL_WEIGHT = 5.0  # exceedances, observed and expected, that are added: few exceedances say little


@dataclass(frozen=True, slots=True)
class Trained:
    """The part of the weights that describes training.

    Attributes:
        node_rate, edge_rate: float32 ``[exposures, scales, channels]``, how often a channel enters its shipped tail.
    """

    node_rate: Array
    edge_rate: Array
    reference: TrainingReference | None


def is_due(sequence: int, interval_seconds: float, seconds: float) -> bool:
    """Return whether something that happens every so many seconds is due after a snapshot."""
    return sequence % max(1, round(seconds / interval_seconds)) == 0


def observe_drift(state: MeshState, observation: Observation, at: datetime, training: Trained) -> MeshState:
    """Return the state after a snapshot with the snapshot in its sketch."""
    if not is_due(state.sequence, state.interval_seconds, SAMPLE_SECONDS):
        return state
    sketch, block = state.drift, int(at.timestamp() // BLOCK_SECONDS)
    if block != sketch.block:
        if sketch.samples >= MIN_SAMPLES:
            sketch = _judge(sketch, state, training)
        sketch = replace(sketch, counts=no_values(), samples=0, block=block)
    counts = sketch.counts + count_snapshot(state, observation)
    return replace(state, drift=replace(sketch, counts=counts, samples=sketch.samples + 1))


def count_snapshot(state: MeshState, observation: Observation) -> ValueCounts:
    nodes, edges = observation.node_present, observation.edge_present
    source, destination = state.edge_index[:, edges]
    degrees = np.stack([np.bincount(end, minlength=len(nodes)) for end in (destination, source)], axis=1)
    return count_values(
        (observation.node.value[nodes], observation.node.observed[nodes]),
        (observation.edge.value[edges], observation.edge.observed[edges]),
        degrees[nodes],
    )


def limits_of(reference: TrainingReference | None) -> Array:
    """Return the limit of each measure, ``[MEASURES]``; not a number for those that need a reference without one."""
    limits = LIMITS.copy()
    limits[ROWS[Reference.TRAINING, Kind.VALUES]] *= np.nan if reference is None else reference.limits
    return limits


def tail_decades(state: MeshState, training: Trained) -> Array:
    """Return how much more often than in training each channel enters its tail, ``[CHANNELS]``, decades."""
    tables = ((state.node_filters, training.node_rate), (state.edge_filters, training.edge_rate))
    decades = []
    for filters, rate in tables:
        snapshots = np.minimum(filters[SEEN], TAIL_MEMORY).sum(axis=0)
        expected = (rate[UNEXPOSED] * snapshots).sum(axis=0)
        exceedances = filters[EXCEED_COUNT].sum(axis=(0, 1))
        decades.append(np.log10((exceedances + TAIL_WEIGHT) / (expected + TAIL_WEIGHT)))
    return np.concatenate(decades).astype(np.float32)


def _judge(sketch: DriftSketch, state: MeshState, training: Trained) -> DriftSketch:
    """Compare the block that is complete with its references, and add it to the week."""
    slot = sketch.block % SLOTS
    counts = sketch.counts
    measured = counts.values.sum(axis=1)
    shares = counts.values / np.maximum(measured, np.float32(1e-6))[:, None]
    missing = (counts.missing / np.maximum(counts.possible, 1)).astype(np.float32)
    tails = tail_decades(state, training)
    is_made = state.edge_absent * state.interval_seconds <= MADE_SECONDS
    ends = hash_ends(state.node_ids, state.edge_index[:, is_made])
    calls = sketch.calls.add(ends, sketch.block, sketch.block - SLOTS * DAYS)
    recent, blocks = sketch.recent.copy(), sketch.recent_blocks.copy()
    recent[slot], blocks[slot] = shares, sketch.block
    distances, moved_shares, limits = no_distances(), no_distances(), limits_of(training.reference)

    def compare(reference: Reference, p: Array, q: Array) -> None:
        rows, is_known = ROWS[reference, Kind.VALUES], (p.sum(axis=1) > 0) & (q.sum(axis=1) > 0)
        distances[rows] = np.where(is_known, population_stability_index(p, q), np.nan)
        moved_shares[rows] = np.where(is_known, moved_share(p, q), np.nan)

    if training.reference is not None and (blocks > sketch.block - SLOTS).all():
        compare(Reference.TRAINING, recent.astype(np.float32).mean(axis=0), training.reference.shares)
    distances[ROWS[Reference.TRAINING, Kind.TAILS]] = tails
    if sketch.days[slot] >= MIN_DAYS:
        compare(Reference.WEEK, shares, sketch.week[slot].astype(np.float32))
        churn_shares = calls.changed_shares(sketch.block, SLOTS * DAYS)
        rows = ROWS[Reference.WEEK, Kind.VALUES]
        moved_shares[rows] = np.maximum(
            moved_shares[rows] - MOVED_BESIDE * np.where(ARE_CALLS, churn_shares[1], churn_shares[0]), 0
        )
        distances[ROWS[Reference.WEEK, Kind.TAILS]] = tails - sketch.week_tails[slot]
        distances[ROWS[Reference.WEEK, Kind.MISSING]] = (missing - sketch.week_missing[slot])[:CHANNELS]
        distances[ROWS[Reference.WEEK, Kind.CALLS]] = calls.new_share(sketch.block, sketch.block - NEW_BLOCKS + 1)
    above = distances > limits * np.where(sketch.since > 0, STAYS, np.float32(1))
    began = np.where(sketch.since > 0, sketch.since, float(sketch.block * BLOCK_SECONDS))
    # A channel without values has no shares. Its average is kept for the day on which it is measured again.
    usual = np.where(measured[:, None] > 0, shares, sketch.week[slot].astype(np.float32))
    days = sketch.days.copy()
    days[slot] = min(days[slot] + 1, DAYS)
    return replace(
        sketch,
        recent=recent,
        recent_blocks=blocks,
        week=_averaged(sketch.week, slot, usual, int(days[slot])),
        week_missing=_averaged(sketch.week_missing, slot, missing, int(days[slot])),
        week_tails=_averaged(sketch.week_tails, slot, tails, int(days[slot])),
        days=days,
        calls=calls,
        distances=distances,
        ratios=distances / limits,
        moved=moved_shares,
        since=np.where(above & ~(moved_shares < least_moved(len(state.node_ids))), began, 0.0),
        judged=sketch.block,
    )


def _averaged(week: NDArray[F], slot: int, block: Array, days: int) -> NDArray[F]:
    """Return the averages of the days with one block more in a slot."""
    after, before = week.copy(), week[slot].astype(np.float32)
    after[slot] = before + (block - before) / days
    return after
