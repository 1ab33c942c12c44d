"""Failures among few requests.

One failure among two requests is not a share of 50%, and a second one a minute later is more than chance. So where few
requests are made, failures are counted: the failures of one, 4 and 16 snapshots are compared with the earlier ones of
the same service or call, which the mesh's state adds up. The test is exact however few the requests are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from model.features import EDGE_CHANNELS, ERROR, RATE
from model.features import Array as Floats
from model.snapshot import BoolArray, IntArray, MeshSnapshot, find_calls, find_rows
from model.state.filters import CLIP, ENOUGH, TAIL_START, Deviation

CHANNEL = EDGE_CHANNELS[ERROR]  # the same for services and calls
LAST = 16
SCALES = (1, 4, LAST)  # snapshots, as of the filters
FORGET = 1 / 240  # of the earlier failures and requests, per snapshot
NO_FAILURE = CHANNEL.forward(np.full(1, 1e-4, np.float32))[0]  # transformed share
LASTING = 3.0  # sigmas over 16 snapshots, from which one without requests does not interrupt a deviation
COUNTED = 10 * ENOUGH  # requests; the filters describe the failures of more requests well enough
LEAST_LONG = 0.5  # sigmas, average of the filters over 16 snapshots, from which failures may last
SEVERAL = 1.5  # failures; a single one is no evidence by itself
BY_CHANCE = 0.05  # that no request failed since, from which failures may continue
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures and requests of the services or calls that are worth counting.

    Attributes:
        rows: int64 ``[k]``.
        failed, made: ``[T, k]`` in each of the last snapshots, newest first.
        before, made_before: ``[k]`` in the time before them.
    """

    rows: IntArray
    failed: Array
    made: Array
    before: Array
    made_before: Array


def _none() -> Failures:
    return Failures(np.zeros(0, np.int64), *(np.zeros((1, 0)) for _ in range(2)), *(np.zeros(0) for _ in range(2)))


def count_failures(
    deviation: Deviation,
    requests: Floats,
    counts: Floats,
    window: Sequence[MeshSnapshot],
    interval_seconds: float,
    names: Sequence[str],
    calls: IntArray | None = None,
) -> tuple[Deviation, Failures]:
    """Return the deviation of services, or of their calls, in which failures among few requests are counted, and what
    was counted.

    The levels come from :func:`compare_counts`, and are not higher than the filters say. With fewer than ``ENOUGH``
    requests the filters say little about 16 snapshots, so there the counts decide alone. The value is the share among
    the last ``ENOUGH`` requests. Only levels in the tail and lasting failures are compared. A single failure is never
    in the tail by itself.

    Args:
        deviation: of services ``[N, 9]``, or of calls ``[E, 5]``; its levels change in place.
        requests: in the snapshot, ``[N]`` or ``[E]``.
        counts: ``[2, N]`` or ``[2, E]``, from :func:`add_counts`.
        window: the last snapshots, this one included, oldest first.
        interval_seconds: between snapshots, s.
        names: ids of the N services.
        calls: ``[2, E]`` rows of the services at both ends.
    """
    level, past = deviation.level[..., ERROR], deviation.past_long[:, ERROR]
    lasting, some = past > LEAST_LONG, requests < COUNTED
    compared = ((level > TAIL_START).any(axis=0) & some) | (lasting & (requests < ENOUGH))
    rows = np.flatnonzero((compared | (lasting & (counts[1] > 0))) & (deviation.seen[:, ERROR] > 0))
    if not len(rows):
        return deviation, _none()
    failures = CHANNEL.invert(deviation.value[rows, ERROR]) * requests[rows]
    is_one = (failures < SEVERAL) & (level[1:, rows].max(axis=0) <= TAIL_START) & ~lasting[rows]
    level[0, rows[is_one]] = np.minimum(level[0, rows[is_one]], np.float32(CLIP))
    rows = rows[~is_one]
    if not len(rows):
        return deviation, _none()
    ends = rows[None] if calls is None else calls[:, rows]
    failed, made = count_requests(
        window[-LAST:], [tuple(names[i] for i in pair) for pair in ends.T.tolist()], interval_seconds
    )
    before, made_before = count_before(counts[:, rows], failed[1:], made[1:])
    is_few = requests[rows] < ENOUGH
    is_unsure = is_few & (made_before > 0)
    failures, lately = (np.stack([of[:snapshots].sum(axis=0) for snapshots in SCALES]) for of in (failed, made))
    found, of_filters = compare_counts(failures, lately, before, made_before), level[:, rows]
    levels = np.where(compared[rows] & (made_before > 0), np.minimum(found, of_filters), of_filters)
    if is_unsure.any():
        levels[-1] = np.where(is_unsure, found[-1] * continues(failed, made), levels[-1])
    level[:, rows] = levels
    value, observed = deviation.value, deviation.observed
    if is_few.any():
        share, counted = share_lately(failed, made)
        known = is_few & (counted > 0)
        value = value.copy()
        value[rows[known], ERROR] = CHANNEL.forward(share[known].astype(np.float32))
    lasting = is_unsure & (levels[-1] >= LASTING)
    if lasting.any():
        observed = observed.copy()
        observed[rows[lasting], ERROR] = True
    return replace(deviation, value=value, observed=observed), Failures(rows, failed, made, before, made_before)


def add_counts(counts: Floats, value: Floats, measured: BoolArray, requests: Floats, paused: BoolArray) -> Floats:
    """Return the failures and requests ``[2, N]`` of the last hour or so, a snapshot included.

    Args:
        counts: before the snapshot.
        value, measured: of services or calls, ``[N, C]``.
        requests: in the snapshot, ``[N]``.
        paused: ``[N]`` rows whose snapshot does not count, because it may be part of an incident.
    """
    counted = (requests < COUNTED) & measured[:, ERROR] & ~paused
    rows = np.flatnonzero(counted & (value[:, ERROR] > NO_FAILURE))
    added: Floats = counts * np.where(paused, np.float32(1), np.float32(1 - FORGET))
    added[0, rows] += CHANNEL.invert(value[rows, ERROR]) * requests[rows]
    added[1] += np.where(counted, requests, np.float32(0))
    return added


def count_before(counts: Floats, failed: Array, made: Array) -> tuple[Array, Array]:
    """Return the failures and requests of k rows before the last snapshots.

    Args:
        counts: of these rows, ``[2, k]``, from :func:`add_counts`.
        failed, made: in the last of the snapshots that ``counts`` includes, ``[T, k]``.
    """
    before, made_before = np.maximum(counts - np.stack([failed.sum(axis=0), made.sum(axis=0)]), 0)
    return before, made_before


def compare_counts(failed: Array, made: Array, before: Array, made_before: Array) -> Array:
    """Return by how many sigmas more of the requests fail than before; 0 if nothing is known of the time before.

    If nothing has changed, all failures are spread over both times as the requests are. So the later ones follow a
    binomial distribution, whatever the usual share is. The result is the signed root of its deviance, with half a
    failure as the correction for counts: within 0.2 sigmas of the exact quantile.

    Args:
        failed, made: failures and requests, lately.
        before, made_before: the same in an earlier time.
    """
    total = failed + before
    expected = total * made / np.maximum(made + made_before, 1e-9)
    later = np.maximum(failed - 0.5, expected)
    earlier = np.maximum(total - later, 1e-9)
    usual = np.maximum(total - expected, 1e-9)
    deviance = later * np.log(np.maximum(later, 1e-9) / np.maximum(expected, 1e-9)) + earlier * np.log(earlier / usual)
    sigmas: Array = np.sqrt(2 * np.maximum(deviance, 0)) * (made_before > 0)
    return sigmas


def share_lately(failed: Array, made: Array) -> tuple[Array, Array]:
    """Return the share of failures among the last ``ENOUGH`` requests, ``[k]``, and their number.

    Args:
        failed, made: failures and requests in each snapshot, ``[T, k]``, newest first.
    """
    taken = np.clip(ENOUGH - (made.cumsum(axis=0) - made), 0, made)
    counted: Array = taken.sum(axis=0)
    share: Array = (failed * taken / np.maximum(made, 1e-9)).sum(axis=0) / np.maximum(counted, 1e-9)
    return share, counted


def continues(failed: Array, made: Array) -> Array:
    """Return how far the failures of the last ``LAST`` snapshots may continue, ``[k]`` from 0 to 1: less than 1 if so
    many requests succeeded since the last failure that this is hardly by chance.

    Args:
        failed, made: failures and requests in each snapshot, ``[T, k]``, newest first.
    """
    share = failed.sum(axis=0) / np.maximum(made.sum(axis=0), 1e-9)
    since = (made * (np.cumsum(failed, axis=0) <= 0)).sum(axis=0)
    chance: Array = np.clip(1 - share, 0, 1) ** since
    return np.clip(chance / BY_CHANCE, 0, 1)


def count_requests(
    window: Sequence[MeshSnapshot], wanted: Sequence[tuple[str, ...]], interval_seconds: float
) -> tuple[Array, Array]:
    """Return the failures and the requests of k services or calls, ``[len(window), k]`` each, newest first; 0 where
    they are not known."""
    names = {name for ends in wanted for name in ends}
    is_call = len(wanted[0]) == 2
    pairs = [(ends[0], ends[-1]) for ends in wanted]
    row: dict[str, int] = {}
    of: MeshSnapshot | None = None  # whose places are known; most snapshots share their arrays
    size = len(window), 2, len(wanted)  # rate and error rate
    values, known = np.zeros(size, np.float32), np.zeros(size, bool)
    for index, snapshot in enumerate(reversed(window)):
        features, observed = (
            (snapshot.edge_features, snapshot.edge_observed)
            if is_call
            else (snapshot.node_features, snapshot.node_observed)
        )
        if of is None or snapshot.node_ids is not of.node_ids or snapshot.edge_index is not of.edge_index:
            row, of = find_rows(snapshot.node_ids, names, row), snapshot
            at = find_calls(snapshot, pairs, row) if is_call else np.array([row.get(a, -1) for a, _ in pairs], np.int64)
            there = at >= 0
            places = np.where(there, at, 0) * features.shape[1] + np.array([[RATE], [ERROR]])
            is_complete = bool(there.all())
        if is_complete or there.any():
            features.take(places, out=values[index], mode="clip")
            observed.take(places, out=known[index], mode="clip")
        if not is_complete:
            known[index] &= there
    rate, share = values.astype(np.float64).swapaxes(0, 1)
    made = np.maximum(rate * interval_seconds, 1) * known.all(axis=1)
    return made * share, made
