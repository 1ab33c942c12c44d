"""The figures of detectors by name: the same in ``detection.jsonl``, in the table and in the JSON of a command."""

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
GROSS, MODERATE = 100.0, 20.0  # minimum effect of such faults, in sigmas
STEP_SECONDS = 15.0  # of the simulated meshes
MAX_NOTES = 30


def figures(one: DetectorMetrics) -> dict[str, Estimate]:
    """Return all figures that were measured, by name. Rates say over which time; all others are shares, or in the unit
    of the name."""
    found = [*(_by_place(one) if one.form is Form.LOCATED else _by_time(one)), *_notices(one), *_probability(one)]
    return {name: estimate for name, estimate in found if estimate is not None and estimate.value is not None}


def rows(found: Sequence[Pool]) -> list[dict[str, Any]]:
    """Return a row for each figure of each detector on the recordings of each form."""
    return [
        {"part": pool.form.value, **row(measure, name, estimate)}
        for pool in found
        for name, one in pool.metrics.items()
        for measure, estimate in figures(one).items()
    ]


def row(measure: str, detector: str, estimate: Estimate) -> dict[str, Any]:
    """Return a figure as a row."""
    return {
        "measure": measure,
        "detector": detector,
        "value": _round(estimate.value),
        "low": _round(estimate.low),
        "high": _round(estimate.high),
        "n": round(estimate.n, 2),
    }


def print_figures(found: Sequence[Pool], console: Console) -> None:
    """Print a table for each form: a line for each figure, a column for each detector."""
    for pool in found:
        first = next(iter(pool.metrics.values()))
        what = pool.sheets[0].name if len(pool.sheets) == 1 else f"{len(pool.sheets)} recordings"
        console.print(
            f"\n[bold]{escape(what)}[/] ({pool.form}): {first.incidents} incidents, {first.snapshots} snapshots"
        )
        for name, one in pool.metrics.items():
            for note in one.notes[:MAX_NOTES]:
                console.print(f"  [yellow]{escape(name)}: {escape(note)}[/]", soft_wrap=True)
        columns = [figures(one) for one in pool.metrics.values()]
        table = Table(box=None, pad_edge=False, show_edge=False)
        table.add_column("")
        for name in pool.metrics:
            table.add_column(escape(name), justify="right", no_wrap=True)
        for measure in dict.fromkeys(name for column in columns for name in column):
            table.add_row(f"  {measure}", *(escape(_text(column.get(measure))) for column in columns))
        console.print(table)


def _by_time(one: DetectorMetrics) -> Iterator[Figure]:
    if one.ranking is not None:
        yield from _places("", one.ranking)
    for symptom, ranked in one.by_symptom.items():
        yield from _places(f"_{symptom}", ranked)
    if one.form is Form.STREAM:
        yield "recall", one.recall
        for budget, recall in one.at_budget.items():
            yield f"recall_at_{budget}_false_alarms", recall
        yield "auroc", plain(one.auroc)
        yield "delay_snapshots", plain(one.delay_median)
        for kind, found in one.by_kind.items():
            yield f"recall_of_{kind}", found.recall
    if one.false_alarms is not None:
        yield "false_alarms_per_day", one.false_alarms.per_day
        yield "strict_false_alarms_per_day", one.false_alarms.strict_per_day
        yield "alarm_share", plain(one.false_alarms.alarm_share)
    if one.silence is not None:
        yield "false_pages_per_hour_of_silence", one.silence


def _by_place(one: DetectorMetrics) -> Iterator[Figure]:
    pages = one.pages
    assert pages is not None  # located incidents have them
    strong = fault_metrics([outcome for outcome in pages.outcomes if outcome.fault.effect >= MODERATE])
    gross = fault_metrics([outcome for outcome in pages.outcomes if outcome.fault.effect >= GROSS])
    yield "recall", pages.overall.recall
    for kind, found in pages.by_kind.items():
        yield f"recall_of_{kind}", found.recall
    yield "false_pages_per_hour", pages.false_pages_an_hour
    yield from _places("_of_true_pages", pages.overall.ranking)
    yield "top_3_of_true_pages_from_moderate", strong.ranking.top3
    yield "delay_snapshots_gross", plain(None if gross.delay_seconds is None else gross.delay_seconds / STEP_SECONDS)
    both = one.pages_and_notices
    yield "incidents_per_found_fault", plain(None if both is None else both.pages_a_found_fault)


def _places(of: str, ranked: Ranking) -> Iterator[Figure]:
    yield f"top_1{of}", ranked.top1
    yield f"top_3{of}", ranked.top3


def _notices(one: DetectorMetrics) -> Iterator[Figure]:
    if one.notices is None:
        return
    yield "false_notices_per_day", per_day(one.notices.false_pages_an_hour)
    if one.pages_and_notices is None:
        return
    yield "notice_recall_of_resource_faults", one.notices.resources_only.recall
    yield "recall_with_notices", one.pages_and_notices.overall.recall
    yield "false_pages_and_notices_per_hour", one.pages_and_notices.false_pages_an_hour


def _probability(one: DetectorMetrics) -> Iterator[Figure]:
    if one.forecast is not None and one.forecast.base_rate > 0:
        yield "brier", plain(one.forecast.brier)
        yield "brier_of_base_rate", plain(one.forecast.brier_of_base_rate)
    if one.promise is not None:
        yield "promised_pages_per_day", plain(one.promise.promised_per_day)
        yield "fault_free_pages_per_day", one.promise.observed_per_day


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
