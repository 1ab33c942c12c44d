"""Thresholds on the score of incidents, applied in hindsight: which alerts remain if only stronger incidents raise one.

Budgets of false alerts are compared in the same way for every detector. An incident raises an alert once its score
reaches the threshold. The best threshold within the budget counts. That is not always the lowest one, because a later
alert of the same incident may name the right services.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.evaluation.measures.intervals import Estimate
from lab.evaluation.measures.located import LocatedRun, false_pages, fault_outcomes, located_metrics
from lab.evaluation.measures.series import alert_records
from model.verdict import Verdict

TRIED = 60  # thresholds to try, as quantiles of the incidents' highest scores


@dataclass(frozen=True, slots=True)
class LocatedVerdicts:
    """One run under one detector: its alerts and faults, and the verdicts that the alerts come from."""

    run: LocatedRun
    verdicts: tuple[Verdict, ...]

    def with_threshold(self, threshold: float) -> LocatedRun:
        """The run if only incidents with at least this score raise alerts."""
        verdicts = [
            replace(verdict, incidents=tuple(one for one in verdict.alerts if one.score >= threshold))
            for verdict in self.verdicts
        ]
        if not any(verdict.incidents for verdict in verdicts):
            return replace(self.run, pages=())
        records = alert_records([(verdict.observed_at, verdict) for verdict in verdicts])
        return replace(self.run, pages=tuple(page for page in records if page.begin >= self.run.begin))


@dataclass(frozen=True, slots=True)
class ThresholdResult:
    """The result of a threshold on some runs: share of faults found, false alerts per hour."""

    runs: tuple[LocatedRun, ...]
    recall: float
    false_pages_an_hour: float


def sweep_thresholds(runs: Sequence[LocatedVerdicts]) -> list[ThresholdResult]:
    """Results from the lowest to the highest threshold. The lowest threshold keeps all incidents."""
    highest: dict[tuple[int, str], float] = {}
    for number, run in enumerate(runs):
        for incident in (one for verdict in run.verdicts for one in verdict.alerts):
            highest[number, incident.id] = max(incident.score, highest.get((number, incident.id), 0.0))
    quantiles = np.quantile(list(highest.values()), np.linspace(0, 1, TRIED)) if highest else [0.0]
    return [
        _threshold_result([run.with_threshold(float(threshold)) for run in runs])
        for threshold in np.unique([0.0, *quantiles])
    ]


def recall_within(results: Sequence[ThresholdResult], budget: float) -> Estimate | None:
    """Best recall with at most ``budget`` false alerts per hour. None if no threshold keeps the budget."""
    allowed = [one for one in results if one.false_pages_an_hour <= budget]
    best = max(allowed, key=lambda one: one.recall, default=None)
    return located_metrics(best.runs).overall.recall if best else None


def false_pages_at_recall(results: Sequence[ThresholdResult], recall: float) -> Estimate | None:
    """Fewest false alerts per hour with at least this recall. None if no threshold reaches it."""
    enough = [one for one in results if one.recall >= recall]
    best = min(enough, key=lambda one: one.false_pages_an_hour, default=None)
    return located_metrics(best.runs).false_pages_an_hour if best else None


def _threshold_result(runs: Sequence[LocatedRun]) -> ThresholdResult:
    found = [outcome.page is not None for run in runs for outcome in fault_outcomes(run)]
    hours = sum((run.end - run.begin).total_seconds() for run in runs) / 3600
    false = sum(len(false_pages(run)) for run in runs)
    return ThresholdResult(tuple(runs), float(np.mean(found)) if found else 0.0, false / hours if hours else 0.0)
