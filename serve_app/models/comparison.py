"""Compares two models on snapshots that both scored: alerts, culprits and scores, with 95% intervals.

Consecutive snapshots resemble each other, so drawing single ones would make every interval too narrow. They are summed
in blocks, which are drawn with replacement (the bootstrap of Efron, "Bootstrap Methods: Another Look at the Jackknife",
Annals of Statistics 7, 1979, with blocks as in Künsch, Annals of Statistics 17, 1989). Alerts are rare, so their rates
get Byar's interval for a Poisson count (Breslow and Day, "Statistical Methods in Cancer Research", volume II, 1987).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from model.verdict import Status, Verdict
from serve_app.api.schemas.models import BlockDocument, ComparisonOfModels, IntervalDocument, MeshTrialDocument

SNAPSHOTS_PER_BLOCK = 20  # five minutes, at one snapshot each 15 s
MAX_GAP_INTERVALS = 4.0  # a longer gap between two snapshots counts as this many intervals
Z = 1.96  # for a 95% interval
DAY = 86_400.0
DRAWS = 1000
MIN_BLOCKS = 3  # for an interval
Sums = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutcome:
    """A model's result for a snapshot.

    Attributes:
        is_judged: whether the status is normal or anomalous.
        score: strongest evidence, decades of improbability.
        alerts, new_alerts: number of incidents that raise an alert, and number that began with this snapshot.
        culprit: the strongest incident's first suspect; None: there is none.
    """

    is_judged: bool
    score: float
    alerts: frozenset[str]
    new_alerts: int
    culprit: str | None
    is_whole: bool


def outcome_of(verdict: Verdict, earlier_alerts: frozenset[str]) -> ModelOutcome:
    """Return a model's result for a snapshot."""
    strongest = max(verdict.alerts, key=lambda incident: incident.score, default=None)
    alerts = frozenset(incident.id for incident in verdict.alerts)
    return ModelOutcome(
        is_judged=verdict.status in (Status.NORMAL, Status.ANOMALOUS),
        score=verdict.mesh_score,
        alerts=alerts,
        new_alerts=len(alerts - earlier_alerts),
        culprit=strongest.suspects[0].service if strongest is not None and strongest.suspects else None,
        is_whole=verdict.coverage >= 1,
    )


def add_snapshot(
    trial: MeshTrialDocument,
    at: datetime,
    candidate: ModelOutcome,
    baseline: ModelOutcome,
    empty: BlockDocument,
    interval: float,
) -> MeshTrialDocument:
    """Add a snapshot to a mesh's trial. It counts if both models judged it, or if only one scored all of it.

    Args:
        empty: an empty block that begins with this snapshot.
        interval: usual time between two snapshots, s.
    """
    seconds = interval if trial.newest is None else (at - trial.newest).total_seconds()
    trial = trial.model_copy(update={"newest": at})
    if candidate.is_judged and baseline.is_judged and candidate.is_whole and baseline.is_whole:
        return _with_block(trial, empty, _sums_of(candidate, baseline, seconds, interval))
    if candidate.is_whole != baseline.is_whole:
        return add_failure(trial, empty, of_candidate=baseline.is_whole)
    return trial


def add_failure(trial: MeshTrialDocument, empty: BlockDocument, *, of_candidate: bool) -> MeshTrialDocument:
    """Add a snapshot that only one model scored; ``empty`` is an empty block that begins with this snapshot."""
    return _with_block(trial, empty, {"candidate_failed" if of_candidate else "baseline_failed": 1})


def _sums_of(candidate: ModelOutcome, baseline: ModelOutcome, seconds: float, interval: float) -> dict[str, float]:
    both_alert = bool(candidate.alerts) and bool(baseline.alerts)
    return {
        "snapshots": 1,
        "seconds": min(max(seconds, 0.0), MAX_GAP_INTERVALS * interval),
        "same_status": bool(candidate.alerts) == bool(baseline.alerts),
        "both_alert": both_alert,
        "same_culprit": both_alert and candidate.culprit == baseline.culprit,
        "candidate_alerts": candidate.new_alerts,
        "baseline_alerts": baseline.new_alerts,
        "score_difference": round(candidate.score, 4) - round(baseline.score, 4),
    }


def _with_block(trial: MeshTrialDocument, empty: BlockDocument, sums: dict[str, float]) -> MeshTrialDocument:
    """Add sums to a trial's last block, or to a new one if that is full or belongs to another stage."""
    blocks, block = trial.blocks, empty
    if blocks and attempts(blocks[-1]) < SNAPSHOTS_PER_BLOCK:
        last = blocks[-1]
        if (last.since, last.share) == (empty.since, empty.share):
            blocks, block = blocks[:-1], last
    block = block.model_copy(update={name: getattr(block, name) + value for name, value in sums.items()})
    return trial.model_copy(update={"blocks": [*blocks, block]})


def attempts(block: BlockDocument) -> int:
    """Return the number of a block's snapshots that at least one model scored."""
    return block.snapshots + block.candidate_failed + block.baseline_failed


def compare(
    candidate: str,
    baseline: str,
    trials: Iterable[MeshTrialDocument],
    budget: Callable[[int], float] | None,
    since: datetime | None = None,
) -> ComparisonOfModels:
    """Compare two models using their trials in some meshes.

    Args:
        trials: trials of these two; others are ignored.
        budget: alerts per day for a mesh's number of services; None: unknown.
        since: when the trial got its share; None: all stages count.
    """
    matches = [trial for trial in trials if (trial.candidate, trial.baseline) == (candidate, baseline)]
    blocks = [block for trial in matches for block in trial.blocks if attempts(block) and since in (None, block.since)]
    budgets = [] if budget is None else [budget(trial.services) for trial in matches if trial.services]
    days = sum(block.seconds for block in blocks) / DAY
    return ComparisonOfModels(
        candidate=candidate,
        baseline=baseline,
        meshes=len(matches),
        snapshots=sum(block.snapshots for block in blocks),
        attempts=sum(map(attempts, blocks)),
        days=days,
        candidate_alerts_per_day=rate(sum(block.candidate_alerts for block in blocks), days),
        baseline_alerts_per_day=rate(sum(block.baseline_alerts for block in blocks), days),
        budget_per_day=sum(budgets) / len(budgets) if budgets else None,
        same_status=_ratio(blocks, lambda block: block.same_status, lambda block: block.snapshots),
        same_culprit=_ratio(blocks, lambda block: block.same_culprit, lambda block: block.both_alert),
        score_difference=_ratio(blocks, lambda block: block.score_difference, lambda block: block.snapshots),
        candidate_failed=_ratio(blocks, lambda block: block.candidate_failed, attempts),
        baseline_failed=_ratio(blocks, lambda block: block.baseline_failed, attempts),
    )


def rate(count: int, days: float) -> IntervalDocument:
    """Return events per day with Byar's interval; unknown without observed time."""
    if days <= 0:
        return IntervalDocument()
    low = count * max(0.0, 1 - 1 / (9 * count) - Z / (3 * math.sqrt(count))) ** 3 if count else 0.0
    more = count + 1
    high = more * (1 - 1 / (9 * more) + Z / (3 * math.sqrt(more))) ** 3
    return IntervalDocument(value=count / days, low=low / days, high=high / days)


def _ratio(
    blocks: Sequence[BlockDocument], above: Callable[[BlockDocument], float], below: Callable[[BlockDocument], float]
) -> IntervalDocument:
    """Return the ratio of two sums over blocks, with the bootstrap interval unless there are few blocks."""
    numerator: Sums = np.array([above(block) for block in blocks], np.float64)
    denominator: Sums = np.array([below(block) for block in blocks], np.float64)
    if not denominator.sum() > 0:
        return IntervalDocument()
    value = float(numerator.sum() / denominator.sum())
    if len(blocks) < MIN_BLOCKS:
        return IntervalDocument(value=value)
    draws = np.random.default_rng(0).integers(len(blocks), size=(DRAWS, len(blocks)))
    sums = denominator[draws].sum(axis=1)
    ratios = numerator[draws].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.percentile(ratios, [2.5, 97.5])
    return IntervalDocument(value=value, low=float(low), high=float(high))
