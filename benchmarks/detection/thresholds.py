"""Judges the same verdicts with higher thresholds.

Budgets of false alerts are compared in hindsight, in the same way for every detector. An incident counts from the
snapshot in which its score reaches the threshold. The best threshold within the budget counts. It is not always the
lowest, because an alert that starts later can be the correct one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.evaluate.intervals import Estimate
from model.evaluate.located import LocatedRun, false_pages, outcomes, report
from model.evaluate.series import pages
from model.verdict import Verdict

TRIED = 60  # thresholds to try, as quantiles of the incidents' highest scores


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """The verdicts of a detector on one recording, and how they were judged."""

    watch: LocatedRun
    verdicts: tuple[Verdict, ...]

    def with_threshold(self, limit: float) -> LocatedRun:
        """Judge again with only those incidents whose score is at least ``limit``."""
        verdicts = [
            replace(verdict, incidents=tuple(one for one in verdict.incidents if one.score >= limit))
            for verdict in self.verdicts
        ]
        if not any(verdict.incidents for verdict in verdicts):
            return replace(self.watch, pages=())
        found = pages([(verdict.observed_at, verdict) for verdict in verdicts])
        return replace(self.watch, pages=tuple(page for page in found if page.begin >= self.watch.begin))


@dataclass(frozen=True, slots=True)
class Threshold:
    """The result of a threshold on some runs: share of faults found, and false alerts per hour."""

    watches: tuple[LocatedRun, ...]
    recall: float
    false_pages_an_hour: float


def try_thresholds(runs: Sequence[JudgedRun]) -> list[Threshold]:
    """Judge the runs with thresholds from the lowest to the highest; the first one is the default threshold."""
    highest: dict[tuple[int, str], float] = {}
    for number, run in enumerate(runs):
        for incident in (one for verdict in run.verdicts for one in verdict.incidents):
            highest[number, incident.id] = max(incident.score, highest.get((number, incident.id), 0.0))
    tried = np.quantile(list(highest.values()), np.linspace(0, 1, TRIED)) if highest else [0.0]
    return [_threshold([run.with_threshold(float(limit)) for run in runs]) for limit in np.unique([0.0, *tried])]


def recall_within(found: Sequence[Threshold], budget: float) -> Estimate | None:
    """Return the best recall with at most ``budget`` false alerts per hour, or None if no threshold allows it."""
    allowed = [one for one in found if one.false_pages_an_hour <= budget]
    kept = max(allowed, key=lambda one: one.recall, default=None)
    return report(kept.watches).overall.recall if kept else None


def false_pages_at_recall(found: Sequence[Threshold], recall: float) -> Estimate | None:
    """Return the fewest false alerts per hour at this recall or more, or None if no threshold reaches it."""
    enough = [one for one in found if one.recall >= recall]
    kept = min(enough, key=lambda one: one.false_pages_an_hour, default=None)
    return report(kept.watches).false_pages_an_hour if kept else None


def _threshold(watches: Sequence[LocatedRun]) -> Threshold:
    found = [outcome.page is not None for watch in watches for outcome in outcomes(watch)]
    hours = sum((watch.end - watch.begin).total_seconds() for watch in watches) / 3600
    false = sum(len(false_pages(watch)) for watch in watches)
    return Threshold(tuple(watches), float(np.mean(found)) if found else 0.0, false / hours if hours else 0.0)
