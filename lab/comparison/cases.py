"""Every second case of a recording, by time: odd cases may guide choices, even ones are for reports only.

A case is a fault and the time before it, back to the end of the previous case. Snapshots of other cases do not count.
A detector scores the whole recording in one run, so both parts have the same verdicts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lab.evaluation.load import read_verdicts
from lab.evaluation.measures.intervals import Estimate, share
from lab.evaluation.measures.recording import IncidentOutcome
from lab.evaluation.measures.truth import GUARD, UNSCORED, GroundTruth, Ints, microseconds
from model.verdict import Severity

ODD, EVEN = "odd", "even"
SPLIT: Mapping[str, tuple[str, ...]] = {"rcaeval-sockshop": (ODD, EVEN)}  # by data set


def keep_cases(truth: GroundTruth, cases: str) -> GroundTruth:
    """Return a recording's ground truth in which only the ``odd`` or the ``even`` cases count.

    Raises:
        ValueError: ``cases`` is neither.
    """
    if cases not in (ODD, EVEN):
        raise ValueError(f"cases: expected {ODD} or {EVEN}, got {cases!r}")
    first = 0 if cases == ODD else 1
    ends = np.array([microseconds(window.span.end) for window in truth.windows], np.int64)
    case_of_snapshot = np.searchsorted(ends, truth.times)
    labels = np.where(case_of_snapshot % 2 == first, truth.labels, UNSCORED)
    return replace(truth, labels=labels, windows=truth.windows[first::2])


def measure_notices(outcomes: Sequence[IncidentOutcome], verdicts: Path) -> dict[str, Estimate]:
    """Return the share of incidents with a notice, by kind of fault, and the share with a notice or an alert. Empty
    for a detector without notices."""
    if f'"{Severity.NOTICE}"' not in verdicts.read_text(encoding="utf-8"):
        return {}
    times = np.array(
        [microseconds(verdict.observed_at) for verdict in read_verdicts(verdicts) if verdict.notices], np.int64
    )
    has_notice = [_has_time(times, outcome) for outcome in outcomes]
    clusters = [outcome.cluster for outcome in outcomes]
    has_either = [hit or outcome.found for hit, outcome in zip(has_notice, outcomes, strict=True)]
    measures = {"recall_with_notices": share(has_either, clusters)}
    for kind in sorted({outcome.span.kind for outcome in outcomes}):
        of_kind = [
            (hit, outcome.cluster)
            for hit, outcome in zip(has_notice, outcomes, strict=True)
            if outcome.span.kind == kind
        ]
        measures[f"notice_recall_of_{kind}"] = share(*zip(*of_kind, strict=True))
    return measures


def _has_time(times: Ints, outcome: IncidentOutcome) -> bool:
    span = outcome.span
    return bool(((times >= microseconds(span.start)) & (times <= microseconds(span.end + GUARD))).any())
