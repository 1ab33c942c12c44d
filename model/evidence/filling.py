"""Memory that was far from its limit when first seen, and is near it.

The test for a steady rise needs an hour of history. Memory can be full before that: in a mesh that has been known for
minutes, or when a leak is fast. Here the limit counts instead of the history. Caches that fill after a start slow down
before the limit, garbage collectors give memory back, and some services always use most of theirs: none of them is
about to run out.
"""

import numpy as np

from model.evidence.resources import LIMIT, NEAR_LIMIT, REACHED, Trend, forecast_limit, since_newest, utilization
from model.features import MEMORY, NODE_CHANNELS, Array
from model.state import history
from model.state.change_impact import OWN
from model.state.mesh_state import MeshState, Observation
from model.verdict import LimitForecast

AT_LIMIT = 0.95  # memory utilization, from which it is full soon, whether it still rises or not
SOON = 1200.0  # s, up to which a limit that is only near has to be reached
MIN_GAINED, MIN_MEAN_GAINED = 0.2, 0.1  # since it was first seen: now, and in the newest block
FIRST, RISING = 3, 5  # blocks: the first ones, and the newest, in which a rise is looked for
GIVEN_BACK = 0.25  # of what was gained, from which the memory goes up and down
LEVEL = 0.02  # below its highest block, from which it no longer stands there


def find_filling(state: MeshState, observation: Observation) -> tuple[Trend, ...]:
    """Return the services whose memory is at its limit, or will soon be, and was far lower when they were first seen.

    A limit that a service has reached, or where its memory stands still, has no forecast.
    """
    node = observation.node
    now = utilization(node.value, MEMORY)
    rows = np.flatnonzero(node.observed[:, MEMORY] & (now > NEAR_LIMIT) & (observation.node_exposure != OWN))
    if not len(rows):
        return ()
    past = state.node_history[:, rows, history.MEMORY].astype(np.float32)
    gained = now[rows] - np.fmin.reduce(past, axis=0) > MIN_GAINED
    block = history.block_length(state.interval_seconds) * state.interval_seconds
    found = []
    for row, series in zip(rows[gained].tolist(), past[:, gained].T, strict=True):
        trend = _fill(row, float(now[row]), series[np.isfinite(series)], block, since_newest(state))
        if trend is not None:
            found.append(trend)
    return tuple(found)


def _fill(row: int, now: float, past: Array, block: float, age: float = 0.0) -> Trend | None:
    """Return the trend of a service that is running out of memory, else None.

    Args:
        now: memory utilization, 0 to 1.
        past: of its measured blocks, oldest first.
        block: length of a block, s.
        age: how long ago the newest block ended, s.
    """
    if len(past) < FIRST + RISING:
        return None
    usual, highest = float(np.median(past[:FIRST])), float(past.max())
    gained = now - usual
    given_back = float((np.maximum.accumulate(past) - past).max())
    if gained < MIN_GAINED or past[-1] - usual < MIN_MEAN_GAINED:
        return None
    if now < highest - LEVEL or given_back > GIVEN_BACK * gained:
        return None
    forecast = _time_to_limit(now, past[-RISING:], block, age)
    is_soon = forecast is not None and forecast.seconds <= SOON
    if not is_soon and now < AT_LIMIT:
        return None
    began = len(past) - int(np.argmax(past > usual + GIVEN_BACK * gained))
    return Trend(row, NODE_CHANNELS[MEMORY].name, now, usual, began * block, forecast)


def _time_to_limit(now: float, newest: Array, block: float, age: float) -> LimitForecast | None:
    """Return when memory reaches its limit, None if its rise ends before."""
    first, second = np.triu_indices(len(newest), 1)
    slopes: Array = (newest[second] - newest[first]) / ((second - first) * np.float32(block))
    if np.median(slopes) <= 0 or (np.diff(newest[-3:]) <= 0).any():
        return None
    before, after = (float(x) for x in (newest[2] - newest[0], newest[4] - newest[2]))
    if after < before and now + after * after / (before - after) < LIMIT:  # the sum of a geometric series
        return None
    return LimitForecast(0.0, 0.0, 0.0) if now >= REACHED else forecast_limit(newest, block, age)
