"""Every second case of a recording, by time: odd cases may be used for choosing, even ones are for reporting only.

A case is its fault and the time before it, back to the end of the case before. Snapshots of other cases count neither
way. A detector scores the whole recording in one run, so both parts have the same verdicts.
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
    """The ground truth of a recording in which only the odd or the even cases count.

    Raises:
        ValueError: for other parts than ``odd`` and ``even``.
    """
    if cases not in (ODD, EVEN):
        raise ValueError(f"cases: expected {ODD} or {EVEN}, got {cases!r}")
    first = 0 if cases == ODD else 1
    ends = np.array([microseconds(window.span.end) for window in truth.windows], np.int64)
    case = np.searchsorted(ends, truth.times)  # of each snapshot
    labels = np.where(case % 2 == first, truth.labels, UNSCORED)
    return replace(truth, labels=labels, windows=truth.windows[first::2])


def found_with_notices(outcomes: Sequence[IncidentOutcome], verdicts: Path) -> dict[str, Estimate]:
    """Measures of a detector that has notices: by kind of fault the share of incidents with a notice, and of all
    incidents the share with a notice or an alert. Empty if the detector has no notices.
    """
    if f'"{Severity.NOTICE}"' not in verdicts.read_text(encoding="utf-8"):
        return {}
    times = np.array([microseconds(one.observed_at) for one in read_verdicts(verdicts) if one.notices], np.int64)
    noticed = [_has_time(times, outcome) for outcome in outcomes]
    clusters = [outcome.cluster for outcome in outcomes]
    either = [hit or outcome.found for hit, outcome in zip(noticed, outcomes, strict=True)]
    found = {"recall_with_notices": share(either, clusters)}
    for kind in sorted({outcome.span.kind for outcome in outcomes}):
        of_kind = [(hit, one.cluster) for hit, one in zip(noticed, outcomes, strict=True) if one.span.kind == kind]
        found[f"notice_recall_of_{kind}"] = share(*zip(*of_kind, strict=True))
    return found


def _has_time(times: Ints, outcome: IncidentOutcome) -> bool:
    span = outcome.span
    return bool(((times >= microseconds(span.start)) & (times <= microseconds(span.end + GUARD))).any())
