"""The limits of a trial. A candidate that breaks one is rolled back; people promote one that keeps to all.

A limit is broken only if the whole interval is beyond it, so that chance alone rarely rolls a good model back.
"""

from serve_app.api.schemas.models import ComparisonOfModels
from serve_app.settings.model import ModelsSettings

MIN_SNAPSHOTS = 100  # that both models scored before a limit counts; for failures, one of them
MAX_FAILURES = 0.05  # share of the snapshots that the candidate cannot score, or not in time


def broken_limit(comparison: ComparisonOfModels, limits: ModelsSettings) -> str:
    """The limit that the candidate surely breaks, in words; empty if there is none, or too little is known."""
    failed, before = comparison.candidate_failed, comparison.baseline_failed.value or 0.0
    if comparison.attempts >= MIN_SNAPSHOTS and failed.low is not None and failed.low > max(MAX_FAILURES, before):
        return (
            f"it could not score {failed.value:.0%} of the snapshots (95% interval from {failed.low:.0%}), at most "
            f"{MAX_FAILURES:.0%}, with the baseline {before:.0%}"
        )
    if comparison.snapshots < MIN_SNAPSHOTS:
        return ""
    alerts, others = comparison.candidate_alerts_per_day, comparison.baseline_alerts_per_day
    if comparison.budget_per_day is not None and alerts.low is not None and others.value is not None:
        most = limits.max_alerts * comparison.budget_per_day
        if alerts.low > max(most, others.value):
            return (
                f"its alerts per day leave the budget: {alerts.value:.2g} (95% interval from {alerts.low:.2g}), at "
                f"most {most:.2g}, with the baseline {others.value:.2g}"
            )
    agreement = comparison.same_status
    if agreement.high is not None and agreement.high < limits.min_agreement:
        return (
            f"it agrees with the baseline in {agreement.value:.0%} of the snapshots (95% interval to "
            f"{agreement.high:.0%}), at least {limits.min_agreement:.0%}"
        )
    return ""
