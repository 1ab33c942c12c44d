"""The gate of a trial: rolls a candidate back that breaks a limit, and promotes or confirms one that keeps to all.

A limit is broken only if the whole interval is beyond it, so that chance alone rarely rolls a good model back. Every
session looks at the trial; the compare-and-set of the rollout lets one of them change it.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from serve_app.api.schemas.models import (
    BlockDocument,
    ComparisonOfModels,
    MeshTrialDocument,
    RolloutDocument,
    TrialDocument,
)
from serve_app.models.comparison import compare
from serve_app.models.rollout import confirm, promote, roll_back
from serve_app.settings.models import ModelsSettings

log = logging.getLogger(__name__)
Change = Callable[[RolloutDocument], RolloutDocument]


def compare_trial(
    trial: TrialDocument,
    candidate: str,
    baseline: str,
    trials: Iterable[MeshTrialDocument],
    budget: Callable[[int], float] | None,
) -> ComparisonOfModels:
    """Compare the models of a trial since it got its share; arguments as of :func:`compare`."""

    def is_of_this_stage(block: BlockDocument) -> bool:
        return block.since == trial.since

    return compare(candidate, baseline, trials, budget, is_of_this_stage)


def broken_limit(comparison: ComparisonOfModels, limits: ModelsSettings, missed: str = "") -> str:
    """The limit that the candidate surely breaks, in words; empty if there is none, or too little is known.

    Args:
        comparison: of the candidate with its baseline.
        limits: of the settings.
        missed: a latency target that the service misses now, in words; empty: none.
    """
    if comparison.attempts >= limits.least_snapshots and (reason := _failures(comparison, limits)):
        return reason
    if comparison.snapshots < limits.least_snapshots:
        return ""
    alerts, before = comparison.candidate_alerts_per_day, comparison.baseline_alerts_per_day
    budget = comparison.budget_per_day
    if budget is not None and alerts.low is not None and before.value is not None:
        most = limits.most_alerts * budget
        if alerts.low > max(most, before.value):
            return (
                f"its alerts per day leave the budget: {alerts.value:.2g} (95% interval from {alerts.low:.2g}), at "
                f"most {most:.2g}, with the baseline {before.value:.2g}"
            )
    agreement = comparison.same_status
    if agreement.high is not None and agreement.high < limits.least_agreement:
        return (
            f"it agrees with the baseline in {agreement.value:.0%} of the snapshots (95% interval to "
            f"{agreement.high:.0%}), at least {limits.least_agreement:.0%}"
        )
    cost = comparison.cost_ratio
    if cost.low is not None and cost.low > limits.most_cost:
        return (
            f"it takes {cost.value:.2g} times as long as the baseline (95% interval from {cost.low:.2g}), at most "
            f"{limits.most_cost:.2g}"
        )
    if missed and cost.low is not None and cost.low > 1:
        return f"{missed}, and it takes {cost.value:.2g} times as long as the baseline"
    return ""


def _failures(comparison: ComparisonOfModels, limits: ModelsSettings) -> str:
    """Why the candidate fails too often, in words; empty if that is not sure, or the baseline fails as often."""
    failed, before = comparison.candidate_failed, comparison.baseline_failed.value or 0.0
    if failed.low is None or failed.low <= max(limits.most_failures, before):
        return ""
    return (
        f"it could not score {failed.value:.0%} of the snapshots (95% interval from {failed.low:.0%}), at most "
        f"{limits.most_failures:.0%}, with the baseline {before:.0%}"
    )


def next_change(
    trial: TrialDocument, comparison: ComparisonOfModels, limits: ModelsSettings, now: datetime, missed: str = ""
) -> tuple[Change, str] | None:
    """The change of the rollout that is due, with its reason; None: the trial continues. Arguments as of
    :func:`broken_limit`, and the trial."""
    if reason := broken_limit(comparison, limits, missed):
        return (lambda rollout: roll_back(rollout, reason=reason)), reason
    if comparison.snapshots < limits.least_snapshots:  # nothing is known yet in its favour
        return None
    candidate, passed = trial.candidate, now - trial.since
    if trial.share >= 1:
        if passed < timedelta(hours=limits.confirm_after_hours):
            return None
        reason = f"within all limits for {limits.confirm_after_hours:g} hours"
        return (lambda rollout: confirm(rollout, reason)), reason
    hours = limits.promote_after_hours
    if hours is None or candidate is None or trial.share <= 0 or passed < timedelta(hours=hours):
        return None
    reason = f"a canary within all limits for {hours:g} hours"
    return (lambda rollout: promote(rollout, candidate, reason=reason)), reason


def if_unchanged(trial: TrialDocument, change: Change) -> Change:
    """The change, unless the trial has changed since it was judged."""
    return lambda rollout: change(rollout) if rollout.trial == trial else rollout
