"""Resources that are running out: evidence for notices, since users may not be affected yet.

Some shortages are sudden: memory, CPU or connections are far above usual, CPU is beyond everything in the window, or no
CPU is left. Others are slow: memory or connections grow steadily beyond everything in the history, as in a leak. A slow
rise is tested with the Theil-Sen slope and Kendall's tau (Sen 1968).

That test needs an hour of history. Memory can be full before that: in a mesh that has been known for minutes, or when a
leak is fast. Memory that was far from its limit when first seen, and is near it, therefore counts without a history.
Caches that fill after a start slow down before the limit, garbage collectors give memory back, and some services always
use most of theirs: none of them is about to run out.
"""

from dataclasses import dataclass

import numpy as np

from model.evidence.busy_cpu import busy_cpu
from model.evidence.kinds import EVENT_SURPRISE
from model.features import CONNECTIONS, CPU, CPU_PER_REQUEST, MEMORY, NODE_CHANNELS, Array
from model.snapshot import SCALINGS, BoolArray, IntArray
from model.state import history
from model.state.change_impact import OWN
from model.state.mesh_state import MeshState, Observation
from model.verdict import LimitForecast

CHANNEL = {history.MEMORY: MEMORY, history.CONNECTIONS: CONNECTIONS}
RECENT = (10, 16)  # blocks in which a rise is looked for
MIN_OLDER = 12  # measured blocks before them
MIN_TAU = 0.7  # Kendall's tau of the rise
STILL_RISING = 0.3  # of the slope, in the newer half
STEADILY = 0.5  # of the rise, that does not come at once: a new version needs more memory than the last one
NEW_HIGH = {history.MEMORY: 0.02, history.CONNECTIONS: 0.2}  # above the highest older block
MIN_RISE = {history.MEMORY: 0.08, history.CONNECTIONS: 0.8}  # above the median older block
FULL_CPU, USUAL_CPU = 0.95, 0.7  # CPU utilization from which no CPU is left, and up to which this is unusual
FAR_ABOVE = 0.05, 0.1  # of memory above the highest block: from, and in full
NEAR_LIMIT, MIN_OLDER_NEAR = 0.85, 5  # memory utilization near the limit, and the measured blocks before that
LIMIT = 1.0  # of the memory utilization
REACHED = 0.995  # of it, from which people read 100%
NOISE_SIGMAS, MIN_WIDE, FARTHEST_BEND = 3.0, 0.2, 3.0  # of a forecast: so that four of five intervals hold the truth
FARTHEST = 4 * 3600.0  # s; a limit that is farther away is not worth a notice


@dataclass(frozen=True, slots=True)
class Trend:
    """A resource of a service that rises steadily.

    Attributes:
        observed, usual: now, and the median before the rise; in the metric's unit.
        seconds: since the rise began.
        forecast: when the memory reaches its limit; None for connections, which have no known limit.
    """

    row: int
    metric: str
    observed: float
    usual: float
    seconds: float
    forecast: LimitForecast | None


def shortage(state: MeshState, observation: Observation, surprise: Array) -> Array:
    """Return the surprise ``[N]`` of the resource that is farthest above its usual use.

    Args:
        surprise: ``[N, 9]`` after subtracting what the neighbours explain.
    """
    node = observation.node
    cpu = surprise[:, CPU]
    per_request = node.observed[:, CPU_PER_REQUEST]
    cpu = np.where(per_request, np.minimum(cpu, surprise[:, CPU_PER_REQUEST]), cpu)  # more requests need more CPU
    above = (utilization(node.value, c) - utilization(node.expected, c) for c in (CPU, MEMORY))
    share_cpu, share_memory = (np.clip((more - 0.05) / 0.05, 0, 1) for more in above)
    connections = np.clip((node.value[:, CONNECTIONS] - node.expected[:, CONNECTIONS] - 0.4) / 0.3, 0, 1)
    tests = (cpu * share_cpu, surprise[:, MEMORY] * share_memory, surprise[:, CONNECTIONS] * connections)
    strongest: Array = np.maximum.reduce(tests) - np.float32(np.log10(len(tests)))
    far = np.maximum.reduce(
        [_far_above_history(state, observation), _is_saturated(observation), busy_cpu(state, observation)]
    )
    return np.maximum(strongest, np.float32(EVENT_SURPRISE) * far).clip(0)


def cpu_use(observation: Observation) -> tuple[Array, Array, BoolArray]:
    """Return the CPU utilization of services now and expected, 0 to 1, and whether it was measured, ``[N]`` each."""
    node = observation.node
    return utilization(node.value, CPU), utilization(node.expected, CPU), node.observed[:, CPU]


def utilization(values: Array, channel: int) -> Array:
    """Return CPU or memory ``[N]`` in 0..1 from transformed channels ``[N, 9]``."""
    return np.exp(values[:, channel]) - np.float32(NODE_CHANNELS[channel].offset)


def trends(state: MeshState) -> tuple[Trend, ...]:
    """Return the steady rises of memory and connections in a mesh, the newest of each series.

    Each new replica opens connections, so they say nothing after a planned scaling.
    """
    block = history.block_length(state.interval_seconds) * state.interval_seconds
    by_series: dict[tuple[int, int], Trend] = {}
    scaled_services = {
        change.service for snapshot in state.window for change in snapshot.changes if change.kind in SCALINGS
    }
    highest = [history.highest(state.node_history[:-recent]) for recent in RECENT]
    for metric in (history.MEMORY, history.CONNECTIONS):
        newest = state.node_history[-1, :, metric].astype(np.float32)
        series_of_row: dict[int, Array] = {}  # series of a row, the same for all of RECENT
        for recent, older in zip(RECENT, highest, strict=True):
            for row in _new_highs(older[:, metric].astype(np.float32), newest, metric).tolist():
                if metric == history.CONNECTIONS and state.node_ids[row] in scaled_services:
                    continue
                if (row, metric) in by_series:
                    continue
                past = state.node_history[:, row].astype(np.float32)
                if row not in series_of_row:
                    series_of_row[row] = _series_to_test(past, metric)
                if _rises(series_of_row[row][:-recent], series_of_row[row][-recent:], metric, block):
                    usual, newer = float(np.nanmedian(past[:-recent, metric])), past[-recent:, metric]
                    age = since_newest(state)
                    forecast = forecast_limit(newer, block, age) if metric == history.MEMORY else None
                    name = NODE_CHANNELS[CHANNEL[metric]].name
                    by_series[row, metric] = Trend(row, name, float(past[-1, metric]), usual, recent * block, forecast)
    return tuple(by_series.values())


def _new_highs(highest: Array, newest: Array, metric: int) -> IntArray:
    """Return the rows whose newest block is a new high above the highest of the older blocks, ``[N]`` each.

    Few are, and only these are tested further.
    """
    rows: IntArray = np.flatnonzero(newest > highest)
    if metric == history.CONNECTIONS:
        highest, newest = np.log(highest[rows] + 1), np.log(newest[rows] + 1)
    else:
        highest, newest = highest[rows], newest[rows]
    return rows[newest > highest + NEW_HIGH[metric]]


def _series_to_test(past: Array, metric: int) -> Array:
    """Return the series ``[BLOCKS]`` to test of one service's history ``[BLOCKS, 3]``.

    More requests need more connections, so connections count relative to the requests above their median.
    """
    if metric == history.MEMORY:
        return past[:, metric]
    requests = np.log(past[:, history.REQUESTS] + 0.05)
    if np.isfinite(requests).any():
        requests -= np.nanmedian(requests)
    return np.asarray(np.log(past[:, metric] + 1) - np.nan_to_num(requests).clip(0), np.float32)


def _is_saturated(observation: Observation) -> BoolArray:
    """Return which services ``[N]`` use all of their CPU, unlike usual and not because of a planned change."""
    node = observation.node
    unusual = node.observed[:, CPU] & (observation.node_exposure != OWN)
    unusual &= utilization(node.expected, CPU) < USUAL_CPU
    return unusual & (utilization(node.value, CPU) >= FULL_CPU)


def _far_above_history(state: MeshState, observation: Observation) -> Array:
    """Return how far the memory of each service is above everything in its history, ``[N]`` from 0 to 1.

    Memory that varies much never deviates by many sigmas, yet this is a new high. It counts sooner near the limit.
    """
    node = observation.node
    start, full = FAR_ABOVE
    value, expected = utilization(node.value, MEMORY), utilization(node.expected, MEMORY)
    risen = node.observed[:, MEMORY] & (value - expected > start) & (observation.node_exposure != OWN)
    rows = np.flatnonzero(risen)
    past = state.node_history[:, rows, history.MEMORY].astype(np.float32)
    highest = np.fmax.reduce(past, axis=0, initial=0)
    far = np.zeros(len(value), np.float32)
    far[rows] = np.clip((value[rows] - highest - start) / (full - start), 0, 1)
    far[rows] *= np.isfinite(past).sum(axis=0) >= np.where(value[rows] > NEAR_LIMIT, MIN_OLDER_NEAR, MIN_OLDER)
    return far


def _rises(older: Array, newer: Array, metric: int, block: float) -> bool:
    """Return whether the newer blocks rise steadily, and farther than they went up and down before."""
    if np.isfinite(older).sum() < MIN_OLDER or not np.isfinite(newer[[0, -1]]).all():
        return False
    highest, lowest = float(np.nanmax(older)), float(np.nanmin(older))
    min_rise = max(NEW_HIGH[metric], highest - lowest)  # a heap fills, is collected, and fills again
    is_high = newer[-1] > highest + min_rise and newer[-1] > np.nanmedian(older) + MIN_RISE[metric]
    if not is_high:
        return False
    first, second = np.triu_indices(len(newer), 1)
    is_known = np.isfinite(newer[first]) & np.isfinite(newer[second])
    first, second = first[is_known], second[is_known]
    slopes: Array = ((newer[second] - newer[first]) / (second - first)).astype(np.float32)
    slope, half = float(np.median(slopes)), len(newer) // 2
    late_slopes = slopes[first >= half]
    is_steady = (
        np.sign(slopes).mean() >= MIN_TAU
        and slope * len(newer) >= MIN_RISE[metric]
        and len(late_slopes) > 0
        and np.median(late_slopes) >= STILL_RISING * slope
        and not _is_step(newer)
    )
    is_near = metric != history.MEMORY or (LIMIT - newer[-1]) / max(slope, 1e-9) * block <= FARTHEST
    return bool(is_steady and is_near)


def _is_step(series: Array) -> bool:
    """Return whether most of a rise came at once, in two blocks at most."""
    values = series[np.isfinite(series)]
    at_once = (values[2:] - values[:-2]).max(initial=0)
    return bool(values[-1] - values[0] - at_once < STEADILY * (values[-1] - values[0]))


def since_newest(state: MeshState) -> float:
    """Return how long ago the newest block of the history ended, s."""
    return state.sequence % history.block_length(state.interval_seconds) * state.interval_seconds


def forecast_limit(newest: Array, block: float, age: float) -> LimitForecast | None:
    """Return when the memory reaches its limit; None if it does not rise.

    The rise may bend: it is faster with more traffic, and the less memory is left, the less is given back. So the
    interval covers a bend as large as the one seen, continued up to the limit, and a share of the rise.

    Args:
        newest: memory utilization of the newest blocks ``[n]``, oldest first; not a number where it is not known.
        block: length of a block, s.
        age: how long ago the newest block ended, s.
    """
    count, last = len(newest), float(newest[-1])
    if last >= REACHED:
        return LimitForecast(0.0, 0.0, 0.0)
    first, second = np.triu_indices(count, 1)
    slopes = (newest[second] - newest[first]) / ((second - first) * block)
    is_known = np.isfinite(slopes)
    first, second, slopes = first[is_known], second[is_known], slopes[is_known].astype(np.float64)
    half = count // 2
    is_newer, is_older = first >= count - 1 - half, second <= half
    whole = float(np.median(slopes))
    newer, older = (float(np.median(slopes[part])) if part.any() else whole for part in (is_newer, is_older))
    rise, room = (whole + newer) / 2, LIMIT - last
    if rise <= 0:
        return None
    residual = newest - whole * block * np.arange(count)
    noise = 1.4826 * float(np.nanmedian(np.abs(residual - np.nanmedian(residual))))
    error = NOISE_SIGMAS * noise * np.sqrt(12 / count**3) / block
    horizon = min(1 + room / rise / (2 * count * block), FARTHEST_BEND)
    wide = float(np.sqrt(error**2 + ((newer - older) * horizon) ** 2 + (MIN_WIDE * rise) ** 2))
    delay = block / 2 + age  # a block has the value of its middle
    return LimitForecast(
        *(max(room / r - delay, 1.0) if r > 0 else float("inf") for r in (rise, rise + wide, rise - wide))
    )


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
    has_gained = now[rows] - np.fmin.reduce(past, axis=0) > MIN_GAINED
    block = history.block_length(state.interval_seconds) * state.interval_seconds
    filling = []
    for row, series in zip(rows[has_gained].tolist(), past[:, has_gained].T, strict=True):
        trend = _fill(row, float(now[row]), series[np.isfinite(series)], block, since_newest(state))
        if trend is not None:
            filling.append(trend)
    return tuple(filling)


def _fill(row: int, now: float, past: Array, block: float, age: float = 0.0) -> Trend | None:
    """Return the trend of a service that is running out of memory, else None.

    Args:
        now: memory utilization, 0 to 1.
        age: how long ago the newest block ended, s.
    """
    if len(past) < FIRST + RISING:
        return None
    usual, highest = float(np.median(past[:FIRST])), float(past.max())
    gain = now - usual
    given_back = float((np.maximum.accumulate(past) - past).max())
    if gain < MIN_GAINED or past[-1] - usual < MIN_MEAN_GAINED:
        return None
    if now < highest - LEVEL or given_back > GIVEN_BACK * gain:
        return None
    forecast = _time_to_limit(now, past[-RISING:], block, age)
    is_soon = forecast is not None and forecast.seconds <= SOON
    if not is_soon and now < AT_LIMIT:
        return None
    began = len(past) - int(np.argmax(past > usual + GIVEN_BACK * gain))
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
