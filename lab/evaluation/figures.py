"""Detectors' figures by name, the same in ``detection.jsonl``, in the table and in a command's JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.evaluation.measures.intervals import Estimate, per_day
from lab.evaluation.measures.located import fault_metrics
from lab.evaluation.measures.metrics import DetectorMetrics
from lab.evaluation.measures.ranking import Ranking
from lab.evaluation.measures.truth import Form
from lab.evaluation.run import Pool

Figure = tuple[str, Estimate | None]
GROSS, MODERATE = 100.0, 20.0  # minimum effects of faults, sigmas
STEP_SECONDS = 15.0  # between simulated snapshots
MAX_NOTES = 30


def figures(metrics: DetectorMetrics) -> dict[str, Estimate]:
    """Return all measured figures by name. A rate's name has its time, another name its unit; the rest are shares."""
    by_form = _by_place(metrics) if metrics.form is Form.LOCATED else _by_time(metrics)
    measures = [*by_form, *_notices(metrics), *_probability(metrics)]
    return {name: estimate for name, estimate in measures if estimate is not None and estimate.value is not None}


def rows(pools: Sequence[Pool]) -> list[dict[str, Any]]:
    """Return a row for each form, detector and figure."""
    return [
        {"part": pool.form.value, **row(measure, name, estimate)}
        for pool in pools
        for name, metrics in pool.metrics.items()
        for measure, estimate in figures(metrics).items()
    ]


def row(measure: str, detector: str, estimate: Estimate) -> dict[str, Any]:
    return {
        "measure": measure,
        "detector": detector,
        "value": _round(estimate.value),
        "low": _round(estimate.low),
        "high": _round(estimate.high),
        "n": round(estimate.n, 2),
    }


def print_figures(pools: Sequence[Pool], console: Console) -> None:
    """Print a table for each form, with a line for each figure and a column for each detector."""
    for pool in pools:
        first = next(iter(pool.metrics.values()))
        title = pool.sheets[0].name if len(pool.sheets) == 1 else f"{len(pool.sheets)} recordings"
        console.print(
            f"\n[bold]{escape(title)}[/] ({pool.form}): {first.incidents} incidents, {first.snapshots} snapshots"
        )
        for name, metrics in pool.metrics.items():
            for note in metrics.notes[:MAX_NOTES]:
                console.print(f"  [yellow]{escape(name)}: {escape(note)}[/]", soft_wrap=True)
        columns = [figures(metrics) for metrics in pool.metrics.values()]
        table = Table(box=None, pad_edge=False, show_edge=False)
        table.add_column("")
        for name in pool.metrics:
            table.add_column(escape(name), justify="right", no_wrap=True)
        for measure in dict.fromkeys(name for column in columns for name in column):
            table.add_row(f"  {measure}", *(escape(_text(column.get(measure))) for column in columns))
        console.print(table)


def _by_time(metrics: DetectorMetrics) -> Iterator[Figure]:
    if metrics.ranking is not None:
        yield from _places("", metrics.ranking)
    for symptom, ranking in metrics.by_symptom.items():
        yield from _places(f"_{symptom}", ranking)
    if metrics.form is Form.STREAM:
        yield "recall", metrics.recall
        for budget, recall in metrics.at_budget.items():
            yield f"recall_at_{budget}_false_alarms", recall
        yield "auroc", plain(metrics.auroc)
        yield "delay_snapshots", plain(metrics.delay_median)
        for kind, kind_metrics in metrics.by_kind.items():
            yield f"recall_of_{kind}", kind_metrics.recall
    if metrics.false_alarms is not None:
        yield "false_alarms_per_day", metrics.false_alarms.per_day
        yield "strict_false_alarms_per_day", metrics.false_alarms.strict_per_day
        yield "alarm_share", plain(metrics.false_alarms.alarm_share)
    if metrics.silence is not None:
        yield "false_pages_per_hour_of_silence", metrics.silence


def _by_place(metrics: DetectorMetrics) -> Iterator[Figure]:
    pages = metrics.pages
    assert pages is not None  # located incidents have them
    strong = fault_metrics([outcome for outcome in pages.outcomes if outcome.fault.effect >= MODERATE])
    gross = fault_metrics([outcome for outcome in pages.outcomes if outcome.fault.effect >= GROSS])
    yield "recall", pages.overall.recall
    for kind, kind_metrics in pages.by_kind.items():
        yield f"recall_of_{kind}", kind_metrics.recall
    yield "false_pages_per_hour", pages.false_pages_an_hour
    yield from _places("_of_true_pages", pages.overall.ranking)
    yield "top_3_of_true_pages_from_moderate", strong.ranking.top3
    yield "delay_snapshots_gross", plain(None if gross.delay_seconds is None else gross.delay_seconds / STEP_SECONDS)
    incidents = metrics.pages_and_notices
    yield "incidents_per_found_fault", plain(None if incidents is None else incidents.pages_a_found_fault)


def _places(suffix: str, ranking: Ranking) -> Iterator[Figure]:
    yield f"top_1{suffix}", ranking.top1
    yield f"top_3{suffix}", ranking.top3


def _notices(metrics: DetectorMetrics) -> Iterator[Figure]:
    if metrics.notices is None:
        return
    yield "false_notices_per_day", per_day(metrics.notices.false_pages_an_hour)
    if metrics.pages_and_notices is None:
        return
    yield "notice_recall_of_resource_faults", metrics.notices.resources_only.recall
    yield "recall_with_notices", metrics.pages_and_notices.overall.recall
    yield "false_pages_and_notices_per_hour", metrics.pages_and_notices.false_pages_an_hour


def _probability(metrics: DetectorMetrics) -> Iterator[Figure]:
    if metrics.forecast is not None and metrics.forecast.base_rate > 0:
        yield "brier", plain(metrics.forecast.brier)
        yield "brier_of_base_rate", plain(metrics.forecast.brier_of_base_rate)
    if metrics.promise is not None:
        yield "promised_pages_per_day", plain(metrics.promise.promised_per_day)
        yield "fault_free_pages_per_day", metrics.promise.observed_per_day


def plain(value: float | None) -> Estimate | None:
    """Return a value without an interval as a figure."""
    return None if value is None else Estimate(1, value, None, None)


def _text(estimate: Estimate | None) -> str:
    if estimate is None or estimate.value is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3g}"
    return f"{estimate.value:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
