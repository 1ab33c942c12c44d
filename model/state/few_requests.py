"""Failures among few requests.

One failure among two requests is not a share of 50%, and a second one a minute later is more than chance. So where few
requests are made, failures are counted: the failures of one, 4 and 16 snapshots are compared with the earlier ones of
the same service or call. The test is exact however few the requests are, and it needs no usual share.

The last minutes together may leave no doubt where no single snapshot does. Then they are evidence by themselves, until
too many requests have succeeded since the last failure. Failures that come together often have one cause that is soon
over. So the 16 snapshots are four groups, of each of which two failures count, or as many as the second smallest group
has: what lasts for three minutes counts in full. This also finds 4% of 60 requests a snapshot, which the filters
treat as unusual but not as improbable.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels import passes
from model.features import EDGE_CHANNELS, ERROR
from model.features import Array as Floats
from model.snapshot import BoolArray, IntArray
from model.state.filters import CLIP, ENOUGH, LONG, SEEN, TAIL_START, Deviation

CHANNEL = EDGE_CHANNELS[ERROR]  # the same for services and calls
LAST = 16
SCALES = (1, 4, LAST)  # snapshots, as of the filters
FORGET = 1 / 240  # of the usual failures and requests, per snapshot
NO_FAILURE = float(CHANNEL.forward(np.full(1, 1e-4, np.float32))[0])  # transformed share
PARTS = 256  # of a request: rates are averages, so their requests are not whole numbers
LASTING = 3.0  # sigmas over 16 snapshots, from which one without requests does not interrupt a deviation
COUNTED = 10 * ENOUGH  # requests of a snapshot; the filters describe the failures of more requests well enough
MIN_LONG = 0.5  # sigmas, average of the filters over 16 snapshots, from which failures may last
SEVERAL = 1.5  # failures; a single one is not evidence by itself
BY_CHANCE = 0.05  # that no request failed since, from which failures may continue
TOGETHER, AT_ONCE = 4, 2.0  # snapshots of a group, and how many of its failures count in any case
CERTAIN, MAX = 5.0, 8.0  # decades: less is left to the filters, and more is not given
MATERIAL = 0.02  # more of the requests
_TINY = 1e-9
_CONSTANTS = np.array(  # of the compiled pass, in the order of CountConstants in kernels/csrc/passes.h
    [
        *(ENOUGH, COUNTED, PARTS, CHANNEL.offset, NO_FAILURE, 1 - FORGET, TAIL_START, CLIP),
        *(MIN_LONG, SEVERAL, LASTING, BY_CHANCE, AT_ONCE, CERTAIN, MAX, MATERIAL),
    ],
    np.float32,
)
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Counts:
    """Failures and requests of N services or calls.

    Attributes:
        recent: uint16 ``[2, N]`` of each of the last ``LAST`` snapshots, newest first: its failures and requests in
            ``PARTS`` of one; 0 where requests were not few or not known. These arrays never change, so the next
            snapshot shares all but the oldest.
        usual: float32 ``[3, N]``: failures and requests of the hour or so before them, and the snapshots since the
            baselines were paused last. What happened shortly before, during or after a pause is not usual.
    """

    recent: tuple[NDArray[np.uint16], ...]
    usual: Floats

    @classmethod
    def none(cls, rows: int) -> "Counts":
        return cls(tuple(np.zeros((LAST, 2, rows), np.uint16)), np.zeros((3, rows), np.float32))

    def add_rows(self, rows: int) -> "Counts":
        new = Counts.none(rows)
        return Counts(
            tuple(np.concatenate(pair, axis=1) for pair in zip(self.recent, new.recent, strict=True)),
            np.concatenate([self.usual, new.usual], axis=1),
        )

    def keep_rows(self, rows: BoolArray) -> "Counts":
        return Counts(tuple(of[:, rows] for of in self.recent), self.usual[:, rows])


def count_failures(
    counts: Counts, deviation: Deviation, filters: Floats, measured: BoolArray, requests: Floats, is_paused: BoolArray
) -> tuple[Deviation, Counts, Floats]:
    """Count the failures of a snapshot, and return what they say where requests are few.

    The levels of errors come from :func:`compare_counts`, and are not higher than the filters say. With fewer than
    ``ENOUGH`` requests the filters say little about 16 snapshots, so there the counts decide alone. The value is the
    share among the last ``ENOUGH`` requests. Only levels in the tail and lasting failures are compared. A single
    failure is never in the tail by itself.

    Args:
        deviation: of services ``[N, 9]``, or of calls ``[E, 5]``; its levels, its values and what is observed change in
            place.
        filters: before the snapshot, ``[13, N, C]``.
        requests: in the snapshot, ``[N]``; many if unknown.
        is_paused: ``[N]`` rows that may be part of an incident.

    Returns:
        The deviation, the counts with this snapshot, and the surprise ``[N]`` of lasting failures that only many
        snapshots show, decades.
    """
    past, measurements = filters[LONG], filters[SEEN]
    level, value, observed = deviation.level, deviation.value, deviation.observed
    if passes.are_compiled():
        newest, usual, surprise = passes.count_failures(
            *(
                _CONSTANTS,
                counts.recent,
                counts.usual,
                past,
                measurements,
                measured,
                requests,
                is_paused,
                level,
                value,
                observed,
            )
        )
        return deviation, Counts((newest, *counts.recent[:-1]), usual), surprise
    counts = _add(counts, value[:, ERROR], measured[:, ERROR], requests, is_paused)
    surprise = np.zeros(len(value), np.float32)
    lasting = past[:, ERROR] > np.float32(MIN_LONG)
    in_question = (level[..., ERROR] > TAIL_START).any(axis=0) & (requests < COUNTED) | (lasting & (requests < ENOUGH))
    is_busy = (requests >= COUNTED) & measured[:, ERROR]
    rows = np.flatnonzero((in_question | (lasting & (counts.usual[1] > 0))) & (measurements[:, ERROR] > 0) & ~is_busy)
    is_one = (counts.recent[0][0, rows] < SEVERAL * PARTS) & ~lasting[rows]
    is_one &= level[1:, rows, ERROR].max(axis=0, initial=0) <= TAIL_START
    level[0, rows[is_one], ERROR] = np.minimum(level[0, rows[is_one], ERROR], np.float32(CLIP))
    rows = rows[~is_one]
    if len(rows):
        _compare(rows, counts, deviation, lasting, in_question, requests, surprise)
    return deviation, counts, surprise


def _add(counts: Counts, value: Floats, measured: BoolArray, requests: Floats, is_paused: BoolArray) -> Counts:
    """Count this snapshot, and let the oldest one become usual unless an incident was near."""
    is_counted = measured & (requests < COUNTED)
    request_counts = np.where(is_counted, requests, 0).astype(np.float64)
    failure_counts = np.where(is_counted & (value > np.float32(NO_FAILURE)), request_counts * CHANNEL.invert(value), 0)
    newest = np.rint(np.stack([failure_counts, request_counts]) * PARTS).astype(np.uint16)
    rest = np.where(is_paused, np.float32(0), counts.usual[2] + np.float32(1))
    oldest = counts.recent[-1].astype(np.float32) / np.float32(PARTS)
    usual_now = counts.usual[:2] * np.float32(1 - FORGET) + oldest
    usual = np.where(rest > LAST, usual_now, counts.usual[:2])
    return Counts((newest, *counts.recent[:-1]), np.concatenate([usual, rest[None]]))


def _compare(
    rows: IntArray,
    counts: Counts,
    deviation: Deviation,
    lasting: BoolArray,
    in_question: BoolArray,
    requests: Floats,
    surprise: Floats,
) -> None:
    """Set levels, values and surprise of some rows ``[k]``, in place; the other arrays are ``[N]``."""
    failure_counts, request_counts = np.stack([of[:, rows] for of in counts.recent], axis=1).astype(np.float64) / PARTS
    before, made_before, _ = counts.usual[:, rows].astype(np.float64)
    is_few, lasts = requests[rows] < ENOUGH, lasting[rows]
    is_unsure = is_few & (made_before > 0)
    failures, lately = (
        np.stack([of[:snapshots].sum(axis=0) for snapshots in SCALES]) for of in (failure_counts, request_counts)
    )
    levels_by_count, of_filters = compare_counts(failures, lately, before, made_before), deviation.level[:, rows, ERROR]
    levels = np.where(in_question[rows] & (made_before > 0), np.minimum(levels_by_count, of_filters), of_filters)
    going_on = continues(failure_counts, request_counts)
    levels[-1] = np.where(is_unsure, levels_by_count[-1] * going_on, levels[-1])
    deviation.level[:, rows, ERROR] = levels
    share, count = share_lately(failure_counts, request_counts)
    has_share = is_few & (count > 0)
    deviation.value[rows[has_share], ERROR] = CHANNEL.forward(share[has_share].astype(np.float32))
    deviation.observed[rows[is_unsure & (levels[-1] >= LASTING)], ERROR] = True
    more = failures[-1] / np.maximum(lately[-1], _TINY) - before / np.maximum(made_before, _TINY)
    matters = lasts & (lately[-1] < LAST * COUNTED) & (more >= MATERIAL)
    together = failure_counts.reshape(-1, TOGETHER, len(rows)).sum(axis=1)
    apart = np.minimum(together, np.maximum(np.sort(together, axis=0)[1], AT_ONCE)).sum(axis=0)
    rare = _decades(compare_counts(apart, lately[-1], before, made_before))
    surprise[rows] = np.where(matters & (rare >= CERTAIN), np.minimum(rare, MAX) * going_on, 0)


def compare_counts(failures: Array, requests: Array, before: Array, made_before: Array) -> Array:
    """Return by how many sigmas more of the requests fail than before; 0 if nothing is known about the time before.

    If nothing has changed, all failures are spread over both times as the requests are. So the later ones follow a
    binomial distribution, whatever the usual share is. The result is the signed root of its deviance, with half a
    failure as the correction for counts: within 0.2 sigmas of the exact quantile.
    """
    total = failures + before
    expected = total * requests / np.maximum(requests + made_before, _TINY)
    later = np.maximum(failures - 0.5, expected)
    earlier = np.maximum(total - later, _TINY)
    usual = np.maximum(total - expected, _TINY)
    ratio = np.maximum(later, _TINY) / np.maximum(expected, _TINY)
    deviance = later * np.log(ratio) + earlier * np.log(earlier / usual)
    return np.sqrt(2 * np.maximum(deviance, 0)) * (made_before > 0)


def _decades(sigmas: Array) -> Array:
    """Return how rare a deviation of this many sigmas is, ``-log10 p``."""
    more = np.maximum(sigmas, 1)
    return np.where(sigmas > 1, more**2 / 2 / np.log(10) + np.log10(more * np.sqrt(2 * np.pi)), 0)


def share_lately(failures: Array, requests: Array) -> tuple[Array, Array]:
    """Return the share of failures among the last ``ENOUGH`` requests, ``[k]``, and their number.

    Args:
        failures, requests: of each snapshot, ``[T, k]``, newest first.
    """
    newest = np.clip(ENOUGH - (requests.cumsum(axis=0) - requests), 0, requests)
    total: Array = newest.sum(axis=0)
    share: Array = (failures * newest / np.maximum(requests, _TINY)).sum(axis=0) / np.maximum(total, _TINY)
    return share, total


def continues(failures: Array, requests: Array) -> Array:
    """Return how far the failures of the last ``LAST`` snapshots may continue, ``[k]`` from 0 to 1: less than 1 if so
    many requests succeeded since the last failure that this is hardly by chance.

    The share that failed before that is of the time from the first to the last failure, less half a failure because
    both ends are failures. Requests before the first failure say nothing about it.

    Args:
        failures, requests: of each snapshot, ``[T, k]``, newest first.
    """
    until_last = np.cumsum(failures, axis=0) > 0
    from_first = np.cumsum(failures[::-1], axis=0)[::-1] > 0
    share = (failures.sum(axis=0) - 0.5) / np.maximum((requests * (until_last & from_first)).sum(axis=0), _TINY)
    since = (requests * ~until_last).sum(axis=0)
    chance: Array = np.clip(1 - share, 0, 1) ** since
    return np.clip(chance / np.float32(BY_CHANCE), 0, 1)
