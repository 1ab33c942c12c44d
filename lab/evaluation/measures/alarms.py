"""Compares alarm events with incident windows, by time."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lab.evaluation.measures.series import MERGE_GAP
from lab.evaluation.measures.truth import Flags, Floats, GroundTruth, Ints

BUDGETS = (1, 3, 6)  # strict false-alarm events allowed in the threshold sweep
THRESHOLDS = 400  # maximum in the sweep, besides the incidents' peaks
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class AlarmCount:
    """False alarms in normal time.

    Attributes:
        events: alarm events that touch no incident window.
        strict: pieces of alarm events outside the incident windows: an alarm that never clears counts once for each
            quiet stretch.
        snapshots, days: of normal time.
        alarmed: normal snapshots with an alarm.
    """

    events: int
    strict: int
    snapshots: int
    alarmed: int
    days: float

    @classmethod
    def total(cls, counts: Iterable[Self]) -> Self:
        """Return the sum of counts."""
        return cls(*map(sum, zip(*map(astuple, counts), strict=True)))


class Runs(NamedTuple):
    """Alarm events, each by the indices of its first and last snapshot, ``[R]``."""

    first: Ints
    last: Ints


def runs(alarm: Flags, breaks: Flags) -> Runs:
    """Return maximal runs of alarms. Runs bridge quiet gaps up to ``MERGE_GAP``, but no breaks.

    Args:
        alarm: ``[T]``.
        breaks: ``[T]``; true if no run continues from the previous snapshot.
    """
    at = np.flatnonzero(alarm)
    if not len(at):
        return Runs(at, at)
    is_broken = np.diff(np.cumsum(breaks)[at]) > 0
    begins = np.concatenate([[True], (np.diff(at) - 1 > MERGE_GAP) | is_broken])
    return Runs(at[begins], at[np.append(begins[1:], True)])


def false_alarms(truth: GroundTruth, alarm: Flags, normal: Flags) -> AlarmCount:
    """Count alarm events outside the incidents.

    Args:
        alarm: ``[T]``.
        normal: ``[T]``; the time to count in.
    """
    is_near = np.zeros(len(alarm), np.bool_)
    for window in truth.windows:
        is_near[window.wide] = True
    events = runs(alarm, truth.breaks)
    before = np.concatenate([[0], np.cumsum(is_near)])
    is_touching = before[events.last + 1] > before[events.first]
    strict = runs(alarm & normal & ~is_near, truth.breaks | _changes(is_near) | _changes(normal))
    return AlarmCount(
        events=int((~is_touching & normal[events.first]).sum()),
        strict=len(strict.first),
        snapshots=int(normal.sum()),
        alarmed=int(alarm[normal].sum()),
        days=float(normal.sum()) * truth.step.total_seconds() / SECONDS_PER_DAY,
    )


def delays(truth: GroundTruth, alarm: Flags) -> tuple[int | None, ...]:
    """Return the snapshots from each incident's first one to the first alarm in its window; None: not found."""
    firsts = (window.wide[alarm[window.wide]][:1] - window.wide[:1] for window in truth.windows)
    return tuple(int(first[0]) if len(first) else None for first in firsts)


def found_at_budgets(truth: GroundTruth, score: Floats, normal: Flags) -> Mapping[int, tuple[bool, ...]]:
    """Return whether each incident is found at the best threshold, by budget of strict false-alarm events.

    The threshold is chosen with knowledge of the labels, as an upper bound for every detector. A threshold that alarms
    everywhere does not count, unless all scores are equal.
    """
    peaks = np.array([score[w.wide].max() if len(w.wide) else -np.inf for w in truth.windows])
    best: dict[int, Flags] = {budget: np.zeros(len(peaks), np.bool_) for budget in BUDGETS}
    for threshold in _thresholds(score, peaks):
        false_events = false_alarms(truth, score >= threshold, normal).strict
        is_found = peaks >= threshold
        for budget in BUDGETS:
            if false_events <= budget and is_found.sum() > best[budget].sum():
                best[budget] = is_found
    return {budget: tuple(is_found.tolist()) for budget, is_found in best.items()}


def _thresholds(score: Floats, peaks: Floats) -> NDArray[np.float64]:
    values = np.unique(score)
    if len(values) > THRESHOLDS:
        quantiles = np.quantile(score, np.linspace(0, 1, THRESHOLDS))
        values = np.unique(np.concatenate([quantiles, peaks[np.isfinite(peaks)]]))
    thresholds = values[::-1]
    return thresholds[thresholds > score.min()] if len(values) > 1 else thresholds


def _changes(flags: Flags) -> Flags:
    return np.concatenate([[False], flags[1:] != flags[:-1]])
