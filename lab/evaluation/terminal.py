"""The results as tables for a terminal. The JSON document has every figure of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.evaluation.measures.intervals import Difference, Estimate, per_day
from lab.evaluation.measures.located import FaultMetrics, LocatedMetrics
from lab.evaluation.measures.metrics import DetectorMetrics
from lab.evaluation.measures.ranking import Ranking
from lab.evaluation.run import Pool

MAX_ROWS = 30  # recordings and notes
NOTHING = "–"

Rows = Iterable[tuple[str, str | None]]  # a measure of one detector, and its text; None: not measured


def print_results(found: Sequence[Pool], reference: str, console: Console) -> None:
    """Print all figures by form, then the main figures of each recording."""
    for pool in found:
        _print_pool(pool, console)
        compared = pool.compare_with(reference)
        if compared:
            _print_compared(reference, compared, console)


def _print_pool(pool: Pool, console: Console) -> None:
    first = next(iter(pool.metrics.values()))
    low, high = first.services
    what = pool.sheets[0].name if len(pool.sheets) == 1 else f"{len(pool.sheets)} recordings"
    console.print(
        f"\n[bold]{escape(what)}[/] ({pool.form}): {first.incidents} incidents, {first.snapshots} snapshots, "
        f"{low if low == high else f'{low} to {high}'} services"
    )
    for name, one in pool.metrics.items():
        console.print(f"  {escape(name)}: " + ", ".join(f"{n} {status}" for status, n in one.status.items()))
        for note in one.notes[:MAX_ROWS]:
            console.print(f"  [yellow]{escape(name)}: {escape(note)}[/]")
    table = _table(None, pool.metrics)
    for title, read in BLOCKS.items():
        _add_block(table, title, [dict(read(one)) for one in pool.metrics.values()])
    for kind in sorted({kind for one in pool.metrics.values() for kind in one.by_kind}):
        _add_block(table, f"by kind: {kind}", [dict(_of_kind(kind, one)) for one in pool.metrics.values()])
    console.print(table)
    if len(pool.sheets) > 1:
        table = _table(f"by recording: {_headline_words(first)}", pool.metrics)
        for sheet in pool.sheets[:MAX_ROWS]:
            table.add_row(f"  {escape(sheet.name)}", *(_headline(one) for one in sheet.metrics.values()))
        console.print(table)
        if len(pool.sheets) > MAX_ROWS:
            console.print(f"and {len(pool.sheets) - MAX_ROWS} more; --json has all")


def _table(title: str | None, detectors: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, show_edge=False)
    table.add_column("")
    for name in detectors:
        table.add_column(escape(name), justify="right", no_wrap=True)
    return table


def _add_block(table: Table, title: str, found: Sequence[Mapping[str, str | None]]) -> None:
    """Add the measures of each detector under a title, without those that no detector has."""
    names = [
        name for name in dict.fromkeys(name for one in found for name in one) if any(one.get(name) for one in found)
    ]
    if names:
        table.add_row(f"[dim]{escape(title)}[/]", *[""] * len(found))
    for name in names:
        table.add_row(f"  {escape(name)}", *(one.get(name) or NOTHING for one in found))


def _print_compared(reference: str, compared: dict[str, dict[str, Difference]], console: Console) -> None:
    table = _table(f"{escape(reference)} minus", ("", "difference", f"only {reference}", "only the other"))
    for other, differences in compared.items():
        for name, apart in differences.items():
            text = f"{apart.value:+.2f} [{apart.low:+.2f}, {apart.high:+.2f}]"
            measure = name.replace("top", "top-")
            table.add_row(f"  {escape(other)}", measure, escape(text), str(apart.only_first), str(apart.only_second))
    console.print(table)


def _headline(one: DetectorMetrics) -> str:
    """The main figures; :func:`_headline_words` names them."""
    if one.pages is not None:
        return f"{_bare(one.pages.overall.recall)} at {_short(one.pages.false_pages_an_hour.value)}"
    if one.false_alarms is not None and one.recall is not None:
        return f"{_bare(one.recall)} at {one.false_alarms.count.strict}"
    if one.ranking is not None:
        return f"{_bare(one.ranking.top1)} / {_bare(one.ranking.top3)}"
    return _short(one.false_alarms.per_day.value) if one.false_alarms else NOTHING


def _headline_words(one: DetectorMetrics) -> str:
    if one.pages is not None:
        return "recall at false alerts per hour"
    if one.false_alarms is not None and one.recall is not None:
        return "recall at strict false alarms, at the default threshold"
    return "culprit top-1 / top-3" if one.ranking is not None else "false alarms per day"


def _by_time(one: DetectorMetrics) -> Rows:
    yield "recall at the default threshold", _share(one.recall)
    yield "  median delay in snapshots", _number(one.delay_median)
    if one.false_alarms is not None:
        alarms = one.false_alarms
        yield "  false alarms: per day", _rate(alarms.per_day, alarms.count.events)
        yield "  strict: per day", _rate(alarms.strict_per_day, alarms.count.strict)
        yield "  normal snapshots in alarm", None if alarms.alarm_share is None else f"{alarms.alarm_share:.1%}"
    for budget, recall in one.at_budget.items():
        yield f"recall at ≤ {budget} strict false alarms, in hindsight", _share(recall)
    yield "AUROC", _number(one.auroc, 3)


def _culprits(one: DetectorMetrics) -> Rows:
    if one.ranking is not None:
        yield from _places("", one.ranking)
    for symptom, ranked in one.by_symptom.items():
        yield from _places(f"  {symptom}, ", ranked)


def _places(before: str, ranked: Ranking | FaultMetrics) -> Rows:
    yield f"{before}top-1", _share(ranked.top1)
    yield f"{before}top-3", _share(ranked.top3)


def _alerts(one: DetectorMetrics) -> Rows:
    if one.pages is not None:
        yield from _location_rows(one.pages, "false alerts: per hour", "  of all alerts")


def _notices(one: DetectorMetrics) -> Rows:
    if one.notices is not None:
        found = one.notices
        yield "recall of faults that harm resources only", _share(found.resources_only.recall)
        yield "  of all faults", _share(found.overall.recall)
        yield "false notices: per day", _rate(per_day(found.false_pages_an_hour), found.false_pages)


def _together(one: DetectorMetrics) -> Rows:
    if one.notices is not None and one.pages_and_notices is not None:
        yield from _location_rows(one.pages_and_notices, "false: per hour", "  of all")


def _location_rows(found: LocatedMetrics, false: str, all_of_them: str) -> Rows:
    yield "recall", _share(found.overall.recall)
    yield "  of faults that harm resources only", _share(found.resources_only.recall)
    yield false, _rate(found.false_pages_an_hour, found.false_pages)
    yield all_of_them, _number(found.pages, 0)
    yield "incidents per fault found; 1 is right", _number(found.pages_a_found_fault, 2)
    yield "median delay, s", _number(found.overall.delay_seconds, 0)
    yield from _places("culprit, ", found.overall)


def _silence(one: DetectorMetrics) -> Rows:
    if one.silence is not None:
        yield "hours", _number(one.silence.hours)
        yield "false alerts: per hour", _rate(one.silence.false_pages_an_hour, one.silence.false_pages)
        yield "false notices", _number(one.silence.false_notices, 0)


def _probability(one: DetectorMetrics) -> Rows:
    if one.forecast is not None:
        yield "Brier score", _number(one.forecast.brier, 4)
        yield "  of the base rate", _number(one.forecast.brier_of_base_rate, 4)
    if one.promise is not None:
        yield "alerts per day without a fault", _rate(one.promise.observed_per_day)
        yield "  budget", _number(one.promise.promised_per_day)


BLOCKS: dict[str, Callable[[DetectorMetrics], Rows]] = {
    "by time": _by_time,
    "culprit, at the highest score": _culprits,
    "alerts, by time and place": _alerts,
    "notices, by time and place": _notices,
    "alerts and notices together": _together,
    "while telemetry is missing": _silence,
    "probability and alert budget": _probability,
}


def _of_kind(kind: str, one: DetectorMetrics) -> Rows:
    if one.pages is not None and kind in one.pages.by_kind:
        found = one.pages.by_kind[kind]
        yield "recall", _share(found.recall)
        yield "median delay, s", _number(found.delay_seconds, 0)
        yield from _places("culprit ", found)
    elif kind in one.by_kind:
        yield "recall", _share(one.by_kind[kind].recall)
        yield from _places("culprit ", one.by_kind[kind].ranking)


def _share(estimate: Estimate | None) -> str | None:
    """A share, 0 to 1, with its interval."""
    if estimate is None or estimate.value is None:
        return None
    return escape(f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]")


def _rate(estimate: Estimate, events: int | None = None) -> str | None:
    """Events over time with its interval, after the number of events."""
    if estimate.value is None:
        return None
    text = f"{_short(estimate.value)} [{_short(estimate.low)}, {_short(estimate.high)}]"
    return escape(text if events is None else f"{events}: {text}")


def _number(value: float | None, digits: int = 1) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _bare(estimate: Estimate) -> str:
    return NOTHING if estimate.value is None else f"{estimate.value:.2f}"


def _short(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 or value == 0 else f"{value:.2g}"
