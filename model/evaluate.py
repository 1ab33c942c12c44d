"""Judging pages against faults whose place is known: large or simulated meshes, where many things go on at once.

A page is true if it begins within ``[start - one step, recovered + 2 minutes]`` of a fault and names a service that the
fault touched; every other page is false. By time alone any alarm in a large mesh would look right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

AFTERWARDS = timedelta(minutes=2)
RESAMPLES = 2000  # of the bootstrap


@dataclass(frozen=True, slots=True)
class Page:
    """One page: one incident id.

    Attributes:
        begin: time of the snapshot in which it opened.
        suspects: services, best first, as it opened.
        affected: services that were part of it.
    """

    begin: datetime
    suspects: tuple[str, ...]
    affected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocatedFault:
    """Ground truth.

    Attributes:
        start, end, recovered: first snapshot with it, first without it, first without its symptoms.
        culprit: where it is.
        touched: services it affected, and those that may rightly be named.
        kind: of fault.
        severity: level that was set.
        sigmas: its largest effect against the same run without it.
    """

    start: datetime
    end: datetime
    recovered: datetime
    culprit: str
    touched: frozenset[str]
    kind: str
    severity: str
    sigmas: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fault; ``delay_seconds`` is None where no page found it, ``rank`` (from 1) where the page did
    not name the culprit among its suspects."""

    fault: LocatedFault
    delay_seconds: float | None
    rank: int | None

    @property
    def found(self) -> bool:
        """Whether a true page named it."""
        return self.delay_seconds is not None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of one detector on one or several runs.

    Attributes:
        outcomes: one a fault.
        pages, false_pages: how many.
        hours: judged.
    """

    outcomes: tuple[Outcome, ...]
    pages: int
    false_pages: int
    hours: float

    def __add__(self, other: "Judgement") -> "Judgement":
        return Judgement(
            self.outcomes + other.outcomes,
            self.pages + other.pages,
            self.false_pages + other.false_pages,
            self.hours + other.hours,
        )

    @property
    def false_pages_per_hour(self) -> float:
        """Pages that no fault explains."""
        return self.false_pages / self.hours

    def recall(self, chosen: Callable[[LocatedFault], bool] = lambda _: True) -> float:
        """Share of the chosen faults that were found; NaN where there are none."""
        found = [outcome.found for outcome in self.outcomes if chosen(outcome.fault)]
        return float(np.mean(found)) if found else float("nan")

    def top(self, k: int) -> float:
        """Share of the found faults whose culprit is among the first k suspects; NaN where none was found."""
        ranks = [outcome.rank for outcome in self.outcomes if outcome.found]
        return float(np.mean([rank is not None and rank <= k for rank in ranks])) if ranks else float("nan")

    def median_delay_seconds(self) -> float:
        """From a fault's start to its page; NaN where none was found."""
        delays = [outcome.delay_seconds for outcome in self.outcomes if outcome.delay_seconds is not None]
        return float(np.median(delays)) if delays else float("nan")

    def recall_interval(self, seed: int = 0, level: float = 0.95) -> tuple[float, float]:
        """Bootstrap interval of :meth:`recall`: over faults, and over clusters of one culprit and kind; the wider."""
        alone = np.arange(len(self.outcomes))
        keys = [(outcome.fault.culprit, outcome.fault.kind) for outcome in self.outcomes]
        clusters = np.array([sorted(set(keys)).index(key) for key in keys], dtype=np.int64)
        intervals = [self._interval(groups, seed, level) for groups in (alone, clusters)]
        return max(intervals, key=lambda interval: interval[1] - interval[0])

    def _interval(
        self, groups: np.ndarray[tuple[int], np.dtype[np.int64]], seed: int, level: float
    ) -> tuple[float, float]:
        if not len(groups):
            return float("nan"), float("nan")
        found = np.array([outcome.found for outcome in self.outcomes], float)
        hits, sizes = np.bincount(groups, found), np.bincount(groups)
        drawn = np.random.default_rng(seed).integers(0, len(sizes), (RESAMPLES, len(sizes)))
        recalls = hits[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
        low, high = np.quantile(recalls, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)


def judge(pages: Sequence[Page], faults: Sequence[LocatedFault], step: timedelta, hours: float) -> Judgement:
    """Match pages and faults.

    Args:
        pages: of one run.
        faults: of the same run.
        step: between two snapshots.
        hours: judged, without the warm-up.
    """
    explains = [[_true(page, fault, step) for fault in faults] for page in pages]
    outcomes = []
    for i, fault in enumerate(faults):
        matched = sorted((page for page, row in zip(pages, explains, strict=True) if row[i]), key=lambda p: p.begin)
        if not matched:
            outcomes.append(Outcome(fault, None, None))
            continue
        first = matched[0]
        named = first.suspects.index(fault.culprit) + 1 if fault.culprit in first.suspects else None
        outcomes.append(Outcome(fault, max(0.0, (first.begin - fault.start).total_seconds()), named))
    return Judgement(tuple(outcomes), len(pages), sum(not any(row) for row in explains), hours)


def _true(page: Page, fault: LocatedFault, step: timedelta) -> bool:
    in_time = fault.start - step <= page.begin <= fault.recovered + AFTERWARDS
    return in_time and not fault.touched.isdisjoint({*page.suspects, *page.affected})
