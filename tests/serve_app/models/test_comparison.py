"""Figures of a comparison, and the limits that end a trial."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from serve_app.api.schemas.models import (
    BlockDocument,
    ComparisonOfModels,
    IntervalDocument,
    MeshTrialDocument,
    ModelPin,
    TrialDocument,
)
from serve_app.models.admin import broken_limit
from serve_app.models.comparison import (
    SNAPSHOTS_PER_BLOCK,
    ModelOutcome,
    add_failure,
    add_snapshot,
    attempts,
    compare,
    rate,
)
from serve_app.settings.model import ModelsSettings

START = datetime(2026, 3, 1, tzinfo=UTC)
ONE, TWO = "1" * 16, "2" * 16
PIN = ModelPin(version=TWO, sha256="2" * 64)
LIMITS = ModelsSettings()
TRIAL = TrialDocument(candidate=PIN, baseline=None, share=0.1, since=START)


def outcome(alerts: Sequence[str] = (), score: float = 1.0, **changed: Any) -> ModelOutcome:
    values = {
        "is_judged": True,
        "score": score,
        "alerts": frozenset(alerts),
        "new_alerts": 0,
        "culprit": "shop/cart" if alerts else None,
        "is_whole": True,
    }
    return ModelOutcome(**{**values, **changed})


def trial_of(pairs: Sequence[tuple[ModelOutcome, ModelOutcome]]) -> MeshTrialDocument:
    """The trial of a mesh after these outcomes of candidate and baseline."""
    document = MeshTrialDocument(mesh="shop", services=50, candidate=TWO, baseline=ONE)
    for i, (candidate, baseline) in enumerate(pairs):
        at = START + timedelta(seconds=15 * i)
        empty = BlockDocument(since=START, share=0.1, began=at)
        document = add_snapshot(document, at, candidate, baseline, empty, 15.0)
    return document


def test_sums_of_blocks_give_the_figures() -> None:
    both = (outcome(["i"], 3.0), outcome(["i"], 2.5, new_alerts=1))
    other_culprit = (outcome(["i"], 3.0, culprit="shop/pay"), outcome(["i"], 2.5))
    alone = (outcome(["i"], 3.0, new_alerts=1), outcome([], 2.5))
    calm = (outcome([], 1.5), outcome([], 1.0))
    document = trial_of([alone, both, other_culprit, *[calm] * 97])
    assert [block.snapshots for block in document.blocks] == [SNAPSHOTS_PER_BLOCK] * 5
    comparison = compare(TWO, ONE, [document, document], lambda services: services / 50)
    assert (comparison.meshes, comparison.snapshots) == (2, 200)
    assert comparison.days == pytest.approx(200 * 15 / 86_400)
    assert comparison.same_status.value == pytest.approx(0.99)
    assert comparison.same_culprit.value == pytest.approx(0.5)
    assert comparison.score_difference.value == pytest.approx(0.5)
    assert comparison.candidate_alerts_per_day.value == pytest.approx(2 / comparison.days)
    assert comparison.baseline_alerts_per_day.value == pytest.approx(2 / comparison.days)
    assert comparison.budget_per_day == 1.0
    low, high = comparison.same_status.low, comparison.same_status.high
    assert low is not None
    assert high is not None
    assert low < 0.99 < high <= 1.0


def test_other_models_and_stages_are_left_out() -> None:
    document = trial_of([(outcome(), outcome())] * 60)
    assert compare(ONE, TWO, [document], None).snapshots == 0
    assert compare(TWO, ONE, [document], None, START).snapshots == 60
    assert compare(TWO, ONE, [document], None, START + timedelta(hours=1)).snapshots == 0


def test_without_snapshots_every_figure_is_unknown() -> None:
    comparison = compare(TWO, ONE, [], lambda services: 1.0)
    assert comparison.same_status == comparison.candidate_alerts_per_day == IntervalDocument()


def test_snapshots_that_a_model_did_not_judge_do_not_count() -> None:
    warming, partial = (outcome(is_judged=False), outcome()), (outcome(), outcome(is_judged=False))
    document = trial_of([warming, partial, (outcome(), outcome())])
    assert sum(block.snapshots for block in document.blocks) == 1
    assert document.newest == START + timedelta(seconds=30)


def test_snapshots_that_only_one_model_scored_are_counted_for_the_other() -> None:
    part: dict[str, Any] = {"is_judged": False, "is_whole": False}
    document = trial_of(
        [
            (outcome(**part), outcome()),
            (outcome(["i"], is_whole=False), outcome()),  # an incident is open, though parts are missing
            (outcome(), outcome(**part)),
            (outcome(**part), outcome(**part)),  # the snapshot is to blame
            (outcome(), outcome(is_judged=False)),  # telemetry is missing
            *[(outcome(), outcome())] * 57,
        ]
    )
    assert [(block.candidate_failed, block.baseline_failed) for block in document.blocks] == [(2, 1), (0, 0), (0, 0)]
    assert [attempts(block) for block in document.blocks] == [SNAPSHOTS_PER_BLOCK] * 3
    comparison = compare(TWO, ONE, [document], lambda services: 1.0)
    assert (comparison.snapshots, comparison.attempts) == (57, 60)
    assert comparison.candidate_failed.value == pytest.approx(2 / 60)
    assert comparison.baseline_failed.value == pytest.approx(1 / 60)


def test_snapshots_without_any_verdict_fill_blocks_too() -> None:
    document = MeshTrialDocument(mesh="shop", services=0, candidate=TWO, baseline=ONE)
    for _ in range(2 * SNAPSHOTS_PER_BLOCK):
        document = add_failure(document, BlockDocument(since=START, share=0.1, began=START), of_candidate=True)
    assert [block.candidate_failed for block in document.blocks] == [SNAPSHOTS_PER_BLOCK] * 2
    comparison = compare(TWO, ONE, [document], lambda services: 1.0)
    assert (comparison.snapshots, comparison.attempts, comparison.candidate_failed.value) == (0, 40, 1.0)
    assert comparison.budget_per_day is None, "of a mesh of unknown size"


def test_a_gap_counts_for_few_intervals_and_a_stage_has_blocks_of_its_own() -> None:
    document = MeshTrialDocument(mesh="shop", services=5, candidate=TWO, baseline=ONE)
    for i in range(3):
        at = START + timedelta(days=i)
        empty = BlockDocument(since=at, share=0.1, began=at)
        document = add_snapshot(document, at, outcome(), outcome(), empty, 15.0)
    assert [block.seconds for block in document.blocks] == [15.0, 60.0, 60.0]


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 3.69), (1, 0.025, 5.57), (10, 4.8, 18.4), (100, 81, 122)])
def test_rates_have_the_interval_of_a_poisson_count(count: int, low: float, high: float) -> None:
    """The exact limits are in every table of the Poisson distribution."""
    interval = rate(count, 2.0)
    assert interval.value == count / 2
    assert interval.low == pytest.approx(low / 2, rel=0.05, abs=0.02)
    assert interval.high == pytest.approx(high / 2, rel=0.05)


def test_intervals_cover_the_truth_about_as_often_as_they_promise() -> None:
    """Snapshots of a block are alike, and blocks are not: 95% intervals of the agreement, over 200 meshes."""
    generator, hits = np.random.default_rng(1), 0
    for _ in range(200):
        shares = generator.beta(8, 2, size=40)  # of a block, mean 0.8
        blocks = [
            BlockDocument(
                since=START, share=0.1, began=START, snapshots=20, same_status=int(generator.binomial(20, share))
            )
            for share in shares
        ]
        document = MeshTrialDocument(mesh="shop", services=5, candidate=TWO, baseline=ONE, blocks=blocks)
        interval = compare(TWO, ONE, [document], None).same_status
        assert interval.low is not None
        assert interval.high is not None
        hits += interval.low <= 0.8 <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def comparison(**changed: Any) -> ComparisonOfModels:
    values = {
        "candidate": TWO, "baseline": ONE, "meshes": 5, "snapshots": 1000, "attempts": 1000, "days": 1.0,
        "candidate_alerts_per_day": IntervalDocument(value=1, low=0.5, high=2),
        "baseline_alerts_per_day": IntervalDocument(value=1, low=0.5, high=2), "budget_per_day": 1.0,
        "same_status": IntervalDocument(value=0.99, low=0.98, high=1), "same_culprit": IntervalDocument(),
        "score_difference": IntervalDocument(value=0, low=-1, high=1),
    }  # fmt: skip
    return ComparisonOfModels(**{**values, **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, ""),
        ({"candidate_alerts_per_day": {"value": 9, "low": 5, "high": 15}}, "its alerts per day leave the budget: 9"),
        ({"candidate_alerts_per_day": {"value": 9, "low": 1.5, "high": 15}}, ""),  # it could be chance
        ({"candidate_alerts_per_day": {"value": 9, "low": 5, "high": 15}, "snapshots": 99}, ""),  # too early
        (  # real incidents: the baseline alerts as often
            {
                "candidate_alerts_per_day": {"value": 9, "low": 5, "high": 15},
                "baseline_alerts_per_day": {"value": 8, "low": 4, "high": 14},
            },
            "",
        ),
        ({"same_status": {"value": 0.8, "low": 0.7, "high": 0.89}}, "it agrees with the baseline in 80%"),
        ({"same_status": {"value": 0.8, "low": 0.7, "high": 0.91}}, ""),
        ({"same_status": {"value": 0.1}}, ""),  # without an interval
        ({"candidate_failed": {"value": 0.2, "low": 0.1, "high": 0.3}}, "it could not score 20% of the snapshots"),
        (  # not one snapshot to compare
            {"candidate_failed": {"value": 1, "low": 1, "high": 1}, "snapshots": 0, "attempts": 100},
            "it could not score 100% of the snapshots (95% interval from 100%), at most 5%, with the baseline 0%",
        ),
        ({"candidate_failed": {"value": 1, "low": 1, "high": 1}, "snapshots": 0, "attempts": 99}, ""),  # too early
        ({"candidate_failed": {"value": 0.2, "low": 0.04, "high": 0.3}}, ""),  # it could be chance
        (  # both fail, as while scorers are away
            {"candidate_failed": {"value": 0.2, "low": 0.1, "high": 0.3}, "baseline_failed": {"value": 0.2}},
            "",
        ),
    ],
)
def test_a_limit_is_broken_only_if_that_is_sure(changed: dict[str, Any], words: str) -> None:
    reason = broken_limit(comparison(**changed), LIMITS)
    assert reason.startswith(words)
    assert bool(reason) == bool(words)
