"""Evaluation by time: a worked example, then each rule by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from lab.evaluation.measures.alarms import runs
from lab.evaluation.measures.curves import auroc, forecast
from lab.evaluation.measures.intervals import bursty_rate, rate, share, wilson
from lab.evaluation.measures.metrics import DetectorMetrics, compute_metrics
from lab.evaluation.measures.recording import RecordingResult, evaluate_recording
from lab.evaluation.measures.series import align_verdicts
from lab.evaluation.measures.truth import FAULT, GUARD, Form, GroundTruth, Span, ground_truth
from model.verdict import Severity, Status, Suspect, Verdict
from tests.builders import incident, verdict

TEN = datetime(2026, 1, 1, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def at(minutes: float) -> datetime:
    return TEN + minutes * MINUTE


def span(start: float, end: float, culprit: str | None = "shop/cart", kind: str = "latency") -> Span:
    return Span(at(start), at(end), kind, culprit)


def stream(*spans: Span, last: int = 20, unscored: Sequence[tuple[float, float]] = ()) -> GroundTruth:
    """Return the truth of a recording with a snapshot a minute, from ten o'clock."""
    times = [at(i) for i in range(last + 1)]
    doubt = [(at(a), at(b)) for a, b in unscored]
    form = Form.STREAM if spans else Form.NORMAL
    return ground_truth("shop", form, times, MINUTE, ["shop/cart", "shop/web"], spans, guard=GUARD, unscored=doubt)


def verdicts(
    truth: GroundTruth,
    alarms: Sequence[int],
    scores: Mapping[int, float] | None = None,
    warm_up: int = 0,
    suspects: Mapping[int, Sequence[str]] | None = None,
) -> list[Verdict]:
    verdict_list = []
    for i in range(len(truth.times)):
        status = Status.WARMING_UP if i < warm_up else Status.ANOMALOUS if i in alarms else Status.NORMAL
        score = (scores or {}).get(i, 5.0 if i in alarms else 1.0)
        named_suspects = tuple(Suspect(name, 0.1) for name in (suspects or {}).get(i, ("shop/web",)))
        fields = {"status": status, "mesh_score": score, "suspects": named_suspects}
        verdict_list.append(verdict(observed_at=truth.instant(i), probability=0.1, **fields))
    return verdict_list


def evaluate_verdicts(truth: GroundTruth, lines: Sequence[Verdict]) -> RecordingResult:
    return evaluate_recording(truth, align_verdicts(lines, truth), pages_per_day=1.0)


def of(truth: GroundTruth, lines: Sequence[Verdict]) -> DetectorMetrics:
    return compute_metrics([evaluate_verdicts(truth, lines)])


def test_the_worked_example() -> None:
    truth = stream(span(0, 3), span(9, 12))
    metrics = of(truth, verdicts(truth, [2, 3, 6, 7, 20]))
    assert metrics.recall is not None
    assert metrics.recall.value == 0.5
    assert _events([2, 3, 6, 7, 20]) == ([2, 20], [7, 20])
    assert metrics.false_alarms is not None
    assert (metrics.false_alarms.count.events, metrics.false_alarms.count.strict) == (0, 1), (
        "the last alarm is in the tail"
    )
    assert metrics.delay_median == 2.0


def _events(alarms: Sequence[int], breaks: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    flags = np.isin(np.arange(21), alarms)
    events = runs(flags, np.isin(np.arange(21), breaks))
    return events.first.tolist(), events.last.tolist()


def test_alarm_events() -> None:
    assert _events([]) == ([], [])
    assert _events([1, 4]) == ([1], [4]), "a gap of two is bridged"
    assert _events([1, 5]) == ([1, 5], [1, 5]), "a gap of three is not"
    assert _events([1, 4], breaks=[3]) == ([1, 4], [1, 4]), "nor is a break in time"


def test_an_alarm_that_never_clears_finds_all_faults_and_is_false_elsewhere() -> None:
    truth = stream(span(3, 5), span(12, 14))
    metrics = of(truth, verdicts(truth, range(21), {20: 6.0}))
    assert metrics.recall is not None
    assert metrics.false_alarms is not None
    assert metrics.recall.value == 1.0
    assert metrics.false_alarms.count.events == 0
    assert metrics.false_alarms.count.strict == 2, "false before the first incident and between the two"
    assert metrics.at_budget[6].value == 0.0, "a threshold with an alarm on every snapshot does not count"


def test_an_alarm_in_the_guard_is_not_false_and_the_guard_ends_at_the_next_incident() -> None:
    truth = stream(span(3, 5), span(6, 8))
    assert truth.labels[:12].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1, -1, -1, -2]
    metrics = of(truth, verdicts(truth, [10]))
    assert metrics.recall is not None
    assert metrics.recall.value == 0.5
    assert metrics.false_alarms is not None
    assert metrics.false_alarms.count.strict == 0


def test_doubtful_spans_are_not_counted() -> None:
    truth = stream(span(9, 12), unscored=[(2, 4), (11, 15)])
    metrics = of(truth, verdicts(truth, [3, 15]))
    assert metrics.false_alarms is not None
    assert (metrics.false_alarms.count.snapshots, metrics.false_alarms.count.strict) == (6, 0)
    assert (truth.labels == FAULT).sum() == 4, "the doubtful part of an incident still counts as faulty"


def test_recall_at_a_budget_is_the_best_threshold_in_hindsight() -> None:
    truth = stream(span(5, 6), span(13, 14), last=18)
    scores = {0: 9.0, 5: 8.0, 10: 7.0, 14: 6.0, 18: 9.5}
    metrics = of(truth, verdicts(truth, [], scores))
    assert {budget: recall.value for budget, recall in metrics.at_budget.items()} == {1: 0.5, 3: 1.0, 6: 1.0}


def test_the_culprit_is_taken_from_the_snapshot_with_the_highest_score() -> None:
    truth = stream(span(5, 7), span(13, 14, culprit=None))
    suspects = {5: ["shop/cart"], 6: ["shop/web", "shop/cart"], 8: ["shop/cart"]}
    metrics = of(truth, verdicts(truth, [], {5: 2.0, 6: 3.0, 8: 9.0}, suspects=suspects))
    assert metrics.ranking is not None
    assert (metrics.ranking.top1.value, metrics.ranking.top3.value) == (0.0, 0.5)


def test_warming_up_is_a_miss_and_no_evidence() -> None:
    truth = stream(span(1, 2), span(9, 10))
    metrics = of(truth, verdicts(truth, [9], warm_up=6))
    assert metrics.recall is not None
    assert metrics.recall.value == 0.5
    assert metrics.forecast is not None
    assert metrics.forecast.snapshots == 5, "snapshots 6 to 8 are normal, 9 and 10 have the fault"


def test_normal_recordings_count_the_time_on_duty() -> None:
    truth = stream(last=1440)
    metrics = of(truth, verdicts(truth, [700, 701, 900], warm_up=721))
    assert metrics.false_alarms is not None
    assert (metrics.false_alarms.count.events, metrics.false_alarms.count.days) == (1, 0.5)
    assert metrics.promise is not None
    assert (metrics.promise.observed_per_day.n, metrics.promise.promised_per_day) == (0.5, 1.0)


def test_segments() -> None:
    times = [at(i * 5 + gap) for gap in (0, 600) for i in range(5)]
    pieces = [
        Span(at(8 + gap), at(22 + gap), kind, "shop/cart", symptom, (at(gap), at(20 + gap)))
        for gap, kind, symptom in ((0, "delay", "latency"), (600, "fail", "availability"))
    ]
    truth = ground_truth("pets", Form.SEGMENTS, times, 5 * MINUTE, ["shop/cart"], pieces)
    assert truth.labels.tolist() == [0, -1, 1, 1, 1] * 2
    lines = verdicts(truth, [4, 5], {0: 3.0, 4: 4.0, 5: 5.0, 9: 4.5}, suspects={4: ["shop/cart"]})
    metrics = of(truth, lines)
    assert metrics.recall is not None
    assert metrics.recall.value == 0.5
    assert {symptom: ranking.top1.value for symptom, ranking in metrics.by_symptom.items()} == {
        "availability": 0.0,
        "latency": 1.0,
    }
    assert metrics.false_alarms is metrics.forecast is metrics.promise is None, "segments are only for ranking"
    alike = of(truth, verdicts(truth, [2], {2: 9.0}))
    assert alike.auroc is None
    assert any("all alike" in note for note in alike.notes)


def test_verdicts_are_placed_on_the_nearest_snapshot() -> None:
    truth = stream(last=3)
    lines = verdicts(truth, [1, 2])

    def move(line: Verdict, seconds: float) -> Verdict:
        return replace(line, observed_at=line.observed_at + timedelta(seconds=seconds))

    series = align_verdicts([move(lines[1], 20), move(lines[2], -31), move(lines[3], 0), move(lines[2], 1000)], truth)
    assert series.status == ("missing", "anomalous", "missing", "normal")
    assert series.unplaced == 2
    assert [page.begin for page in series.pages] == [at(1)]


def verdict_at(i: int, *incidents: tuple[str, float, str], **severities: Severity) -> Verdict:
    """Return a verdict at a minute with these incidents: id, score and suspect; or severities by id."""
    rows = [(*row, Severity.MINOR) for row in incidents]
    rows += [(name, 3.0, "a/b", severity) for name, severity in severities.items()]
    return verdict(
        *(
            incident(suspect, id=name, since=at(i), severity=severity, score=score, suspects=(Suspect(suspect, 1.0),))
            for name, score, suspect, severity in rows
        ),
        observed_at=at(i),
    )


def test_an_incident_is_one_alert_with_its_first_and_its_strongest_ranking() -> None:
    lines = [
        verdict_at(0),
        verdict_at(1, ("x", 2, "a/b")),
        verdict_at(2, ("x", 5, "a/c"), ("y", 1, "b/b")),
        verdict_at(3, ("x", 5, "a/d")),
    ]
    x, y = align_verdicts(lines, stream(last=4)).pages
    assert (x.id, x.begin, x.suspects, x.affected) == ("x", at(1), ("a/c",), {"a/c"})
    assert (y.id, y.begin) == ("y", at(2))


def test_an_incident_is_a_notice_until_it_raises_an_alert() -> None:
    truth = stream(last=4)
    lines = [
        verdict_at(0, low=Severity.NOTICE),
        verdict_at(1, low=Severity.NOTICE, rises=Severity.NOTICE),
        verdict_at(2, low=Severity.NOTICE, rises=Severity.MAJOR),
    ]
    series = align_verdicts(lines, truth)
    assert [(notice.id, notice.begin) for notice in series.notices] == [("low", at(0)), ("rises", at(1))]
    assert [(page.id, page.begin) for page in series.pages] == [("rises", at(2))]
    only_notices = align_verdicts(lines[:1], truth)
    assert only_notices.pages == (), "the status alone raises no alert if the detector has incidents"


def test_alerts_while_telemetry_is_missing_are_counted_apart() -> None:
    """Telemetry is missing from minute 2 to 4, and two minutes of grace follow: snapshots 2 to 5."""
    times = [at(i) for i in range(10)]
    truth = ground_truth("quiet", Form.NORMAL, times, MINUTE, {"a/b"}, silences=[(at(2), at(4))])
    lines = [
        *verdicts(truth, []),
        verdict_at(1, before=Severity.MINOR),
        verdict_at(2, during=Severity.MINOR),
        verdict_at(3, noticed=Severity.NOTICE),
        verdict_at(5, grace=Severity.MINOR),
        verdict_at(6, after=Severity.MINOR),
    ]
    result = evaluate_recording(truth, align_verdicts(lines, truth), 1.0)
    metrics = compute_metrics([result])
    assert metrics.silence is not None
    assert (metrics.silence.n, metrics.silence.value) == (4 / 60, pytest.approx(30.0))
    assert metrics.notices is not None
    assert metrics.notices.false_pages == 1
    assert (metrics.pages, metrics.pages_and_notices) == (None, None), "the recording has no fault"
    assert metrics.promise is not None
    assert metrics.promise.observed_per_day.value == pytest.approx(4 / (10 / 1440))


def test_curves() -> None:
    high, none = np.array([3.0, 2.0, 2.0]), np.array([2.0, 1.0])
    assert auroc(high, none) == pytest.approx((6 - 2 * 0.5) / 6)
    assert auroc(high, none[:0]) is None


def test_probabilities_are_judged_against_the_base_rate() -> None:
    incident = np.array([True] * 5 + [False] * 15)
    sure = forecast(np.where(incident, 0.9, 0.1), incident)
    assert sure is not None
    assert (sure.base_rate, sure.brier, sure.brier_of_base_rate) == pytest.approx((0.25, 0.01, 0.1875))
    assert forecast(np.empty(0), np.empty(0, np.bool_)) is None


def test_intervals() -> None:
    assert share([]).value is None
    sure = share([True] * 10, range(10))
    assert (sure.value, sure.low, sure.high) == (1.0, pytest.approx(0.722, abs=0.001), 1.0)
    hits = [True] * 20 + [False] * 20
    alone, together = share(hits, range(40)), share(hits, [i // 20 for i in range(40)])
    assert alone.value == together.value == 0.5
    assert alone.low == pytest.approx(0.35, abs=0.03)
    assert (together.low, together.high, together.clustered) == (0.0, 1.0, True)
    assert wilson(0, 10) == pytest.approx((0.0, 0.278), abs=0.001)
    estimate = rate(4, 2.0)  # exact limits of 4: 1.09 and 10.24
    assert (estimate.value, estimate.low, estimate.high) == (
        2.0,
        pytest.approx(0.545, abs=0.01),
        pytest.approx(5.12, abs=0.01),
    )
    quiet = rate(0, 1.0)
    assert (quiet.low, quiet.high) == (0.0, pytest.approx(3.69, abs=0.04))
    assert bursty_rate(np.zeros(4), np.ones(4)) == rate(0, 4.0)
    assert rate(0, 0.0).value is None


def test_recordings_are_pooled_by_incident() -> None:
    short, long = stream(span(5, 6)), stream(span(5, 6, "shop/web"), span(13, 14))
    good = [evaluate_verdicts(short, verdicts(short, [5])), evaluate_verdicts(long, verdicts(long, [5, 13]))]
    metrics = compute_metrics(good)
    assert metrics.recall is not None
    assert metrics.false_alarms is not None
    assert (metrics.recall.value, metrics.recall.n, metrics.incidents) == (1.0, 3, 3)
    assert metrics.false_alarms.count.snapshots == 5 + 9
