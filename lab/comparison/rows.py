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
STATIC = {"guarded": "guarded", "own limit": "own_limit"}  # rules that were measured once, and their names in measures
ROUNDED = 1e-4  # at most, of a recorded recall


def rows(part: Part, known: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return all measures of our detectors on a part, with the digest of the code that they measure.

    Args:
        known: recorded rows, with the recall of the static rules.
    """
    recalls = {
        STATIC[one["detector"]]: one["value"]
        for one in known
        if (one["part"], one["measure"]) == (part.name, "recall") and one["detector"] in STATIC
    }
    found = []
    for name, one in part.pool.metrics.items():
        measured = [*figures(one).items(), *_in_hindsight(part.verdicts.get(name, ()), recalls)]
        measured += part.noticed.get(name, {}).items()
        found += [
            {"benchmark": "detection", "part": part.name, **row(measure, name, estimate), "digest": detector_digest()}
            for measure, estimate in measured
        ]
    return found


def _in_hindsight(verdicts: Sequence[LocatedVerdicts], recalls: Mapping[str, float]) -> Iterator[tuple[str, Estimate]]:
    if not verdicts:
        return
    swept = sweep_thresholds(verdicts)
    for budget in BUDGETS:
        if recall := recall_within(swept, budget):
            yield f"recall_at_{budget:g}_false_pages_per_hour", recall
    for rule, recall_of_rule in recalls.items():
        if false := false_pages_at_recall(swept, recall_of_rule - ROUNDED):
            yield f"false_pages_per_hour_at_recall_of_{rule}", false
