"""The rows of ``detection.jsonl``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.comparison.digest import detector_digest
from lab.comparison.parts import Part
from lab.evaluation.figures import figures, row
from lab.evaluation.measures.intervals import Estimate
from lab.evaluation.measures.thresholds import (
    LocatedVerdicts,
    false_pages_at_recall,
    recall_within,
    sweep_thresholds,
)

BUDGETS = (2.0, 15.0)  # false alerts per hour
STATIC = {"guarded": "guarded", "own limit": "own_limit"}  # rules measured once, and their names in measures
ROUNDING = 1e-4  # largest rounding error of a recorded recall


def rows(part: Part, recorded: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return all our detectors' measures on a part, with the code's digest. ``recorded`` rows have the static rules'
    recall."""
    recalls = {
        STATIC[old["detector"]]: old["value"]
        for old in recorded
        if (old["part"], old["measure"]) == (part.name, "recall") and old["detector"] in STATIC
    }
    measures = []
    for name, metrics in part.pool.metrics.items():
        estimates = [*figures(metrics).items(), *_in_hindsight(part.verdicts.get(name, ()), recalls)]
        estimates += part.notice_measures.get(name, {}).items()
        measures += [
            {"benchmark": "detection", "part": part.name, **row(measure, name, estimate), "digest": detector_digest()}
            for measure, estimate in estimates
        ]
    return measures


def _in_hindsight(verdicts: Sequence[LocatedVerdicts], recalls: Mapping[str, float]) -> Iterator[tuple[str, Estimate]]:
    if not verdicts:
        return
    swept = sweep_thresholds(verdicts)
    for budget in BUDGETS:
        if recall := recall_within(swept, budget):
            yield f"recall_at_{budget:g}_false_pages_per_hour", recall
    for rule, recall_of_rule in recalls.items():
        if false := false_pages_at_recall(swept, recall_of_rule - ROUNDING):
            yield f"false_pages_per_hour_at_recall_of_{rule}", false
