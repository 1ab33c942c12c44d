"""Thresholds on incidents' scores, applied in hindsight, to compare detectors at the same budget of false alerts.

An incident raises an alert once its score reaches the threshold. The best threshold within the budget counts. It is not
always the lowest one, because an incident's later alert may name the right services.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.evaluation.measures.intervals import Estimate
from lab.evaluation.measures.located import LocatedRun, false_pages, fault_outcomes, located_metrics
from lab.evaluation.measures.series import alert_records
from model.verdict import Verdict

THRESHOLDS = 60  # in a sweep, as quantiles of the incidents' highest scores


@dataclass(frozen=True, slots=True)
class LocatedVerdicts:
    """A run under one detector, with the verdicts behind its alerts."""

    run: LocatedRun
    verdicts: tuple[Verdict, ...]

    def with_threshold(self, threshold: float) -> LocatedRun:
        """Return the run in which only incidents with at least this score raise alerts."""
        verdicts = [
            replace(verdict, incidents=tuple(incident for incident in verdict.alerts if incident.score >= threshold))
            for verdict in self.verdicts
        ]
        if not any(verdict.incidents for verdict in verdicts):
            return replace(self.run, pages=())
        records = alert_records([(verdict.observed_at, verdict) for verdict in verdicts])
        return replace(self.run, pages=tuple(page for page in records if page.begin >= self.run.begin))


@dataclass(frozen=True, slots=True)
class ThresholdResult:
    """A threshold's result on some runs: share of faults found, false alerts per hour."""

    runs: tuple[LocatedRun, ...]
    recall: float
    false_pages_an_hour: float


def sweep_thresholds(runs: Sequence[LocatedVerdicts]) -> list[ThresholdResult]:
    """Return the results from the lowest threshold, which keeps all incidents, to the highest."""
    highest: dict[tuple[int, str], float] = {}
    for number, run in enumerate(runs):
        for incident in (incident for verdict in run.verdicts for incident in verdict.alerts):
            highest[number, incident.id] = max(incident.score, highest.get((number, incident.id), 0.0))
    quantiles = np.quantile(list(highest.values()), np.linspace(0, 1, THRESHOLDS)) if highest else [0.0]
    return [
        _threshold_result([run.with_threshold(float(threshold)) for run in runs])
        for threshold in np.unique([0.0, *quantiles])
    ]


def recall_within(results: Sequence[ThresholdResult], budget: float) -> Estimate | None:
    """Return the best recall with at most ``budget`` false alerts per hour; None if no threshold keeps the budget."""
    results_within = [result for result in results if result.false_pages_an_hour <= budget]
    best = max(results_within, key=lambda result: result.recall, default=None)
    return located_metrics(best.runs).overall.recall if best else None


def false_pages_at_recall(results: Sequence[ThresholdResult], recall: float) -> Estimate | None:
    """Return the fewest false alerts per hour with at least this recall; None if no threshold reaches it."""
    results_above = [result for result in results if result.recall >= recall]
    best = min(results_above, key=lambda result: result.false_pages_an_hour, default=None)
    return located_metrics(best.runs).false_pages_an_hour if best else None


def _threshold_result(runs: Sequence[LocatedRun]) -> ThresholdResult:
    is_found = [outcome.page is not None for run in runs for outcome in fault_outcomes(run)]
    hours = sum((run.end - run.begin).total_seconds() for run in runs) / 3600
    false_count = sum(len(false_pages(run)) for run in runs)
    return ThresholdResult(
        tuple(runs), float(np.mean(is_found)) if is_found else 0.0, false_count / hours if hours else 0.0
    )
