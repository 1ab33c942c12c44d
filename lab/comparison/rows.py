"""The rows of ``detection.jsonl``."""

from collections.abc import Iterator
from typing import Any

from lab.comparison.digest import detector_digest
from lab.comparison.parts import Part
from lab.comparison.plan import LOUD, OURS
from lab.contenders import NAMES, contender
from lab.evaluation.measures.intervals import Estimate, per_day
from lab.evaluation.measures.located import fault_metrics
from lab.evaluation.measures.metrics import DetectorMetrics
from lab.evaluation.measures.thresholds import ThresholdResult, false_pages_at_recall, recall_within, sweep_thresholds
from lab.evaluation.measures.truth import Form

Measured = tuple[str, Estimate | None]
BUDGETS = (2.0, 15.0)  # false alerts per hour
STATIC = ("guarded", "own_limit")
GROSS, MODERATE = 100.0, 20.0  # least effect of such faults, in sigmas
STEP_SECONDS = 15.0  # of the simulated meshes


def label(name: str) -> str:
    return contender(name).LABEL if name in NAMES else name


def rows(part: Part) -> list[dict[str, Any]]:
    """Return all measures of all detectors on a part. Ours also have the digest of the code that they measure."""
    found = []
    swept = {name: sweep_thresholds(verdicts) for name, verdicts in part.verdicts.items()}
    for name, one in part.pool.metrics.items():
        measured = list(_by_time(one) if one.form is not Form.LOCATED else _by_place(name, one, swept))
        measured += part.noticed.get(name, {}).items()
        digest = {"digest": detector_digest()} if name in (OURS, LOUD) else {}
        found += [
            _row(part.name, measure, label(name), estimate) | digest
            for measure, estimate in measured
            if estimate is not None
        ]
    return found


def _by_time(one: DetectorMetrics) -> Iterator[Measured]:
    if one.ranking is not None:
        yield "top_1", one.ranking.top1
        yield "top_3", one.ranking.top3
    for symptom, ranked in one.by_symptom.items():
        yield f"top_1_{symptom}", ranked.top1
    if one.form is Form.STREAM:
        yield "recall", one.recall
        for budget, recall in one.at_budget.items():
            yield f"recall_at_{budget}_false_alarms", recall
        yield "auroc", _plain(one.auroc)
        for kind, found in one.by_kind.items():
            yield f"recall_of_{kind}", found.recall
    if one.false_alarms is not None:
        yield "false_alarms_per_day", one.false_alarms.per_day
        yield "alarm_share", _plain(one.false_alarms.alarm_share)
    if one.silence is not None:
        yield "false_pages_per_hour_of_silence", one.silence.false_pages_an_hour
    yield from _notices(one)
    yield from _probability(one)


def _by_place(name: str, one: DetectorMetrics, swept: dict[str, list[ThresholdResult]]) -> Iterator[Measured]:
    pages = one.pages
    if pages is None:
        return
    strong = fault_metrics([outcome for outcome in pages.outcomes if outcome.fault.effect >= MODERATE])
    gross = fault_metrics([outcome for outcome in pages.outcomes if outcome.fault.effect >= GROSS])
    yield "recall", pages.overall.recall
    yield "false_pages_per_hour", pages.false_pages_an_hour
    yield "top_3_of_true_pages_from_moderate", strong.top3
    yield "delay_snapshots_gross", _plain(None if gross.delay_seconds is None else gross.delay_seconds / STEP_SECONDS)
    yield "incidents_per_found_fault", _plain(_incidents_per_fault(one))
    yield from _notices(one)
    for budget in BUDGETS:
        yield f"recall_at_{budget:g}_false_pages_per_hour", recall_within(swept[name], budget)
    for rule in (rule for rule in STATIC if rule in swept and rule != name):
        yield f"false_pages_per_hour_at_recall_of_{rule}", false_pages_at_recall(swept[name], swept[rule][0].recall)
    yield from _probability(one)


def _incidents_per_fault(one: DetectorMetrics) -> float | None:
    return one.pages_and_notices.pages_a_found_fault if one.pages_and_notices else None


def _notices(one: DetectorMetrics) -> Iterator[Measured]:
    if one.notices is None:
        return
    yield "false_notices_per_day", per_day(one.notices.false_pages_an_hour)
    if one.pages_and_notices is None:
        return
    yield "notice_recall_of_resource_faults", one.notices.resources_only.recall
    yield "recall_with_notices", one.pages_and_notices.overall.recall
    yield "false_pages_and_notices_per_hour", one.pages_and_notices.false_pages_an_hour


def _probability(one: DetectorMetrics) -> Iterator[Measured]:
    if one.forecast is not None and one.forecast.base_rate > 0:
        yield "brier", _plain(one.forecast.brier)
        yield "brier_of_base_rate", _plain(one.forecast.brier_of_base_rate)
    if one.promise is not None:
        yield "promised_pages_per_day", _plain(one.promise.promised_per_day)
        yield "fault_free_pages_per_day", one.promise.observed_per_day


def _row(part: str, measure: str, detector: str, estimate: Estimate) -> dict[str, Any]:
    return {
        "benchmark": "detection",
        "part": part,
        "measure": measure,
        "detector": detector,
        "value": _round(estimate.value),
        "low": _round(estimate.low),
        "high": _round(estimate.high),
        "n": round(estimate.n, 2),
    }


def _plain(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(1, value, None, None)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
