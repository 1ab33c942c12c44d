"""Compares two models by snapshots that both scored: alerts, culprits, scores and cost, with 95% intervals.

Consecutive snapshots resemble each other, so single ones would make every interval too narrow. They are summed in
blocks, and blocks are drawn with replacement (the bootstrap of Efron, "Bootstrap Methods: Another Look at the
Jackknife", Annals of Statistics 7, 1979, with blocks as in Künsch, Annals of Statistics 17, 1989). Alerts are rare, so
their rates have Byar's interval of a Poisson count (Breslow and Day, "Statistical Methods in Cancer Research", volume
II, 1987).
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from model.verdict import Status, Verdict
from serve_app.api.schemas.models import (
    BlockDocument,
    ComparisonOfModels,
    IntervalDocument,
    MeshTrialDocument,
    OutcomeDocument,
    PairDocument,
)

SNAPSHOTS_OF_A_BLOCK = 20  # five minutes, at one snapshot each 15 s
Z = 1.96  # of a 95% interval
DAY = 86_400.0
DRAWS = 1000
LEAST_BLOCKS = 3  # for an interval
Sums = NDArray[np.float64]


def outcome_of(verdict: Verdict, seconds: float) -> OutcomeDocument:
    """What a model made of a snapshot; ``seconds`` is the duration of its pass."""
    strongest = max(verdict.alerts, key=lambda one: one.score, default=None)
    culprit = strongest.suspects[0].service if strongest is not None and strongest.suspects else None
    return OutcomeDocument(
        model=verdict.model_digest,
        status=verdict.status.value,
        mesh_score=round(verdict.mesh_score, 4),
        alerts=[one.id for one in verdict.alerts],
        culprit=culprit,
        seconds=round(seconds, 6),
        coverage=verdict.coverage,
    )


def is_comparable(pair: PairDocument) -> bool:
    """Whether both models judged the snapshot: neither warms up, or lacks parts of it."""
    judged, outcomes = {Status.NORMAL.value, Status.ANOMALOUS.value}, (pair.candidate, pair.baseline)
    return all(one.status in judged and one.coverage >= 1 for one in outcomes)


def attempts(block: BlockDocument) -> int:
    """The snapshots of a block that both models, or one of them, scored."""
    return block.snapshots + block.candidate_failed + block.baseline_failed


def add_failure(block: BlockDocument, *, of_candidate: bool) -> BlockDocument:
    """Add a snapshot that only one of both models scored in full."""
    if of_candidate:
        return block.model_copy(update={"candidate_failed": block.candidate_failed + 1})
    return block.model_copy(update={"baseline_failed": block.baseline_failed + 1})


def add_pair(
    block: BlockDocument, pair: PairDocument, seconds: float, candidate_alerts: int, baseline_alerts: int
) -> BlockDocument:
    """Add a snapshot to the sums of a block.

    Args:
        block: with the snapshots before it.
        pair: what both models made of it.
        seconds: that it covers: since the snapshot before it.
        candidate_alerts, baseline_alerts: that began with it.
    """
    first, second = pair.candidate, pair.baseline
    both = bool(first.alerts) and bool(second.alerts)
    return block.model_copy(
        update={
            "snapshots": block.snapshots + 1,
            "seconds": block.seconds + seconds,
            "same_status": block.same_status + (bool(first.alerts) == bool(second.alerts)),
            "both_alert": block.both_alert + both,
            "same_culprit": block.same_culprit + (both and first.culprit == second.culprit),
            "candidate_alerts": block.candidate_alerts + candidate_alerts,
            "baseline_alerts": block.baseline_alerts + baseline_alerts,
            "score_difference": block.score_difference + first.mesh_score - second.mesh_score,
            "candidate_seconds": block.candidate_seconds + first.seconds,
            "baseline_seconds": block.baseline_seconds + second.seconds,
        }
    )


def compare(
    candidate: str,
    baseline: str,
    trials: Iterable[MeshTrialDocument],
    budget: Callable[[int], float] | None,
    is_wanted: Callable[[BlockDocument], bool] = lambda block: True,
) -> ComparisonOfModels:
    """Compare two models by their trials in some meshes.

    Args:
        candidate, baseline: versions.
        trials: of these two; others are left out.
        budget: of alerts per day, by services of a mesh; None: unknown.
        is_wanted: whether a block counts.
    """
    found = [one for one in trials if (one.candidate, one.baseline) == (candidate, baseline)]
    blocks = [block for one in found for block in one.blocks if attempts(block) and is_wanted(block)]
    budgets = [] if budget is None else [budget(one.services) for one in found if one.services]
    days = sum(block.seconds for block in blocks) / DAY
    return ComparisonOfModels(
        candidate=candidate,
        baseline=baseline,
        meshes=len(found),
        snapshots=sum(block.snapshots for block in blocks),
        attempts=sum(map(attempts, blocks)),
        days=days,
        candidate_alerts_per_day=rate(sum(block.candidate_alerts for block in blocks), days),
        baseline_alerts_per_day=rate(sum(block.baseline_alerts for block in blocks), days),
        budget_per_day=sum(budgets) / len(budgets) if budgets else None,
        same_status=_ratio(blocks, lambda block: block.same_status, lambda block: block.snapshots),
        same_culprit=_ratio(blocks, lambda block: block.same_culprit, lambda block: block.both_alert),
        score_difference=_ratio(blocks, lambda block: block.score_difference, lambda block: block.snapshots),
        cost_ratio=_ratio(blocks, lambda block: block.candidate_seconds, lambda block: block.baseline_seconds),
        candidate_failed=_ratio(blocks, lambda block: block.candidate_failed, attempts),
        baseline_failed=_ratio(blocks, lambda block: block.baseline_failed, attempts),
    )


def rate(count: int, days: float) -> IntervalDocument:
    """Events per day with Byar's interval; unknown without any time."""
    if days <= 0:
        return IntervalDocument()
    low = count * max(0.0, 1 - 1 / (9 * count) - Z / (3 * math.sqrt(count))) ** 3 if count else 0.0
    more = count + 1
    high = more * (1 - 1 / (9 * more) + Z / (3 * math.sqrt(more))) ** 3
    return IntervalDocument(value=count / days, low=low / days, high=high / days)


def _ratio(
    blocks: Sequence[BlockDocument], above: Callable[[BlockDocument], float], below: Callable[[BlockDocument], float]
) -> IntervalDocument:
    """The ratio of two sums over blocks, with the interval of the bootstrap; without one if there are few blocks."""
    numerator: Sums = np.array([above(block) for block in blocks], np.float64)
    denominator: Sums = np.array([below(block) for block in blocks], np.float64)
    if not denominator.sum() > 0:
        return IntervalDocument()
    value = float(numerator.sum() / denominator.sum())
    if len(blocks) < LEAST_BLOCKS:
        return IntervalDocument(value=value)
    draws = np.random.default_rng(0).integers(len(blocks), size=(DRAWS, len(blocks)))
    sums = denominator[draws].sum(axis=1)
    ratios = numerator[draws].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.percentile(ratios, [2.5, 97.5])
    return IntervalDocument(value=value, low=float(low), high=float(high))
