"""Alarm events compared with incident windows, by time."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lab.evaluation.measures.series import MERGE_GAP
from lab.evaluation.measures.truth import Flags, Floats, GroundTruth, Ints

BUDGETS = (1, 3, 6)  # strict false-alarm events allowed in the threshold sweep
THRESHOLDS = 400  # most thresholds in the sweep, besides the peaks of the incidents
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class AlarmCount:
    """False alarms in normal time.

    Attributes:
        events: alarm events that touch no incident window.
        strict: pieces of alarm events that remain outside the incident windows, so that an alarm that never clears
            counts once for each quiet stretch.
        snapshots, alarmed: of normal time, and how many of them have the alarm on.
        days: of normal time.
    """

    events: int
    strict: int
    snapshots: int
    alarmed: int
    days: float

    @classmethod
    def total(cls, counts: Iterable[Self]) -> Self:
        """Some counts together."""
        return cls(*map(sum, zip(*map(astuple, counts), strict=True)))


class Runs(NamedTuple):
    """Alarm events: indices of the first and of the last snapshot of each, ``[R]``."""

    first: Ints
    last: Ints


def runs(alarm: Flags, breaks: Flags) -> Runs:
    """Return maximal runs of alarms. Quiet gaps of at most ``MERGE_GAP`` are bridged, breaks never.

    Args:
        alarm: ``[T]``.
        breaks: ``[T]``; true if no run continues from the previous snapshot.
    """
    at = np.flatnonzero(alarm)
    if not len(at):
        return Runs(at, at)
    broken = np.diff(np.cumsum(breaks)[at]) > 0
    begins = np.concatenate([[True], (np.diff(at) - 1 > MERGE_GAP) | broken])
    return Runs(at[begins], at[np.append(begins[1:], True)])


def false_alarms(truth: GroundTruth, alarm: Flags, normal: Flags) -> AlarmCount:
    """Count alarm events outside the incidents.

    Args:
        alarm: ``[T]``.
        normal: ``[T]``; the time to count in.
    """
    wide = np.zeros(len(alarm), np.bool_)
    for window in truth.windows:
        wide[window.wide] = True
    events = runs(alarm, truth.breaks)
    before = np.concatenate([[0], np.cumsum(wide)])
    touching = before[events.last + 1] > before[events.first]
    strict = runs(alarm & normal & ~wide, truth.breaks | _changes(wide) | _changes(normal))
    return AlarmCount(
        events=int((~touching & normal[events.first]).sum()),
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
    """Return which incidents are found at the best threshold on the score with at most this many strict false-alarm
    events.

    The threshold is chosen with knowledge of the labels: an upper bound, in the same way for every detector. A
    threshold that alarms everywhere does not count, unless all scores are equal.
    """
    peaks = np.array([score[w.wide].max() if len(w.wide) else -np.inf for w in truth.windows])
    best: dict[int, Flags] = {budget: np.zeros(len(peaks), np.bool_) for budget in BUDGETS}
    for threshold in _thresholds(score, peaks):
        strict = false_alarms(truth, score >= threshold, normal).strict
        found = peaks >= threshold
        for budget in BUDGETS:
            if strict <= budget and found.sum() > best[budget].sum():
                best[budget] = found
    return {budget: tuple(found.tolist()) for budget, found in best.items()}


def _thresholds(score: Floats, peaks: Floats) -> NDArray[np.float64]:
    values = np.unique(score)
    if len(values) > THRESHOLDS:
        quantiles = np.quantile(score, np.linspace(0, 1, THRESHOLDS))
        values = np.unique(np.concatenate([quantiles, peaks[np.isfinite(peaks)]]))
    chosen = values[::-1]
    return chosen[chosen > score.min()] if len(values) > 1 else chosen


def _changes(flags: Flags) -> Flags:
    return np.concatenate([[False], flags[1:] != flags[:-1]])
