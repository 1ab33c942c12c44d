"""The measures by name: the rows of a table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from lab.evaluation.measures.alarms import BUDGETS
from lab.evaluation.measures.intervals import Difference, per_day
from lab.evaluation.measures.located import FaultMetrics, LocatedMetrics
from lab.evaluation.measures.metrics import Delay, DetectorMetrics, FalseAlarms, KindMetrics, Promise, SilenceMetrics
from lab.evaluation.measures.ranking import Ranking
from lab.evaluation.report.cells import (
    NOTHING,
    Read,
    Value,
    number,
    percent,
    rate,
    series,
    share,
    share_without_interval,
    short_number,
    value_of_part,
)

HIGHER, LOWER, NEITHER = 1, -1, 0  # is better
SEVERITIES = ("minor", "major", "critical")
Measure = tuple[str, int, Read]


@dataclass(frozen=True, slots=True)
class Row:
    """One measure over several detectors.

    Attributes:
        name: of the measure; begins with two spaces if it belongs to the row above.
        cells: one for each detector.
        best: positions of the best cells; empty if all are equal or none is better.
    """

    name: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Block:
    """Measures that belong together."""

    title: str
    rows: tuple[Row, ...]


def blocks(results: Sequence[DetectorMetrics]) -> list[Block]:
    """Return all measures of several detectors on the same recordings, without empty rows and blocks."""
    titled = {
        "at the default threshold": _AT_THRESHOLD,
        "at the best threshold in hindsight": _HINDSIGHT,
        "culprit, at the highest score": _culprits(results),
        "alerts, by time and place": _pages(results),
        "notices, by time and place": _NOTICES,
        "alerts and notices together": _TOGETHER,
        "while telemetry is missing": _SILENCE,
        "probability and alert budget": _PROBABILITY,
    }
    return [block for title, measures in titled.items() if (block := _block(title, measures, results)).rows]


def by_kind(results: Sequence[DetectorMetrics]) -> list[Block]:
    """Return the measures of each kind of incident."""
    kinds = sorted({kind for one in results for kind in one.by_kind})
    measures = _of_kind if all(one.pages is None for one in results) else _pages_of_kind
    return [block for kind in kinds if (block := _block(kind, measures(kind), results)).rows]


def headline(one: DetectorMetrics) -> str:
    """Return the main figures; :func:`headline_words` names them."""
    if one.pages is not None:
        return (
            f"{share_without_interval(one.pages.overall.recall)} at {short_number(one.pages.false_pages_an_hour.value)}"
        )
    if one.false_alarms is not None and one.recall is not None:
        return f"{share_without_interval(one.recall)} at {one.false_alarms.count.strict}"
    if one.ranking is not None:
        return f"{share_without_interval(one.ranking.top1)} / {share_without_interval(one.ranking.top3)}"
    return short_number(one.false_alarms.per_day.value) if one.false_alarms else NOTHING


def headline_words(one: DetectorMetrics) -> str:
    """Return the names of the figures in :func:`headline`."""
    if one.pages is not None:
        return "recall at false alerts per hour"
    if one.false_alarms is not None and one.recall is not None:
        return "recall at strict false alarms, at the default threshold"
    return "culprit top-1 / top-3" if one.ranking is not None else "false alarms per day"


def difference(apart: Difference) -> str:
    """Return a difference with its interval."""
    return f"{apart.value:+.2f} [{apart.low:+.2f}, {apart.high:+.2f}]"


def _block(title: str, measures: Iterable[Measure], results: Sequence[DetectorMetrics]) -> Block:
    return Block(title, tuple(row for measure in measures if (row := _row(*measure, results)) is not None))


def _row(name: str, better: int, read: Read, results: Sequence[DetectorMetrics]) -> Row | None:
    values = [read(one) for one in results]
    if all(value is None for value in values):
        return None
    numbers = [None if value is None else value.number for value in values]
    known = {value for value in numbers if value is not None}
    best = better * max(better * value for value in known) if better and len(known) > 1 else None
    return Row(
        name,
        tuple(NOTHING if value is None else value.text for value in values),
        frozenset(i for i, value in enumerate(numbers) if best is not None and value == best),
    )


def _of_alarms(read: Callable[[FalseAlarms], Value | None]) -> Read:
    return value_of_part(lambda one: one.false_alarms, read)


def _of_tail(read: Callable[[FalseAlarms], Value | None]) -> Read:
    return value_of_part(lambda one: one.tail, read)


def _of_promise(read: Callable[[Promise], Value | None]) -> Read:
    return value_of_part(lambda one: one.promise, read)


def _of_report(read: Callable[[LocatedMetrics], Value | None]) -> Read:
    return value_of_part(lambda one: one.pages, read)


def _of_notices(read: Callable[[LocatedMetrics], Value | None]) -> Read:
    return value_of_part(lambda one: one.notices, read)


def _of_both(read: Callable[[LocatedMetrics], Value | None]) -> Read:
    """Of alerts and notices, if the detector has notices."""
    return value_of_part(lambda one: one.pages_and_notices if one.notices else None, read)


def _of_silence(read: Callable[[SilenceMetrics], Value | None]) -> Read:
    return value_of_part(lambda one: one.silence, read)


def _false_notices(notices: LocatedMetrics) -> Value | None:
    return rate(per_day(notices.false_pages_an_hour), notices.false_pages)


def _plain_events(alarms: FalseAlarms) -> Value | None:
    return rate(alarms.per_day, alarms.count.events)


def _strict_events(alarms: FalseAlarms) -> Value | None:
    return rate(alarms.strict_per_day, alarms.count.strict)


def _alarm_share(alarms: FalseAlarms) -> Value | None:
    return percent(alarms.alarm_share)


def _delay(delay: Delay) -> Value | None:
    return None if delay.median is None else Value(f"{delay.median:g}, {delay.p90:g}", delay.median)


def _after_warm_up(one: DetectorMetrics) -> Value | None:
    recall = share(one.recall_after_warm_up) if one.in_warm_up else None
    return recall and Value(f"{recall.text} ({one.in_warm_up} during it)", recall.number)


def _against_budget(promise: Promise) -> Value | None:
    observed = rate(promise.observed_per_day)
    return observed and Value(f"{observed.text}, budget {short_number(promise.promised_per_day)}", observed.number)


def _at_budget(budget: int, one: DetectorMetrics) -> Value | None:
    return share(one.at_budget.get(budget))


def _at_budget_with_tail(budget: int, one: DetectorMetrics) -> Value | None:
    return share(one.at_budget_with_tail.get(budget))


_AT_THRESHOLD: list[Measure] = [
    ("recall", HIGHER, lambda one: share(one.recall)),
    ("  a new alarm begins", HIGHER, lambda one: share(one.onset)),
    ("  by chance", NEITHER, lambda one: number(one.by_chance, 2)),
    ("  after the warm-up", NEITHER, _after_warm_up),
    ("delay in snapshots, median and p90", LOWER, value_of_part(lambda one: one.delay, _delay)),
    ("false alarms: per day", LOWER, _of_alarms(_plain_events)),
    ("  strict", LOWER, _of_alarms(_strict_events)),
    ("  normal snapshots in alarm", LOWER, _of_alarms(_alarm_share)),
    ("in the unlabelled tail: per day", LOWER, _of_tail(_plain_events)),
    ("  strict", LOWER, _of_tail(_strict_events)),
    ("  its snapshots in alarm", LOWER, _of_tail(_alarm_share)),
    ("alarms in normal first rows", LOWER, lambda one: share(one.first_rows)),
]
_HINDSIGHT: list[Measure] = [
    *((f"recall at ≤ {budget} strict false alarms", HIGHER, partial(_at_budget, budget)) for budget in BUDGETS),
    *((f"  ≤ {budget}, tail as normal", HIGHER, partial(_at_budget_with_tail, budget)) for budget in BUDGETS),
    ("AUROC", HIGHER, lambda one: number(one.auroc, 3)),
    ("  against the tail", HIGHER, lambda one: number(one.auroc_against_tail, 3)),
    ("average precision", HIGHER, lambda one: number(one.average_precision, 3)),
    ("VUS-PR", HIGHER, lambda one: number(one.vus_pr, 3)),
]
_NOTICES: list[Measure] = [
    ("recall of faults that harm resources only", HIGHER, _of_notices(lambda n: share(n.resources_only.recall))),
    ("  of all faults", HIGHER, _of_notices(lambda n: share(n.overall.recall))),
    ("false notices: per day", LOWER, _of_notices(_false_notices)),
    ("  of all notices", NEITHER, _of_notices(lambda n: number(n.pages, 0))),
    ("median delay, s", LOWER, _of_notices(lambda n: number(n.overall.delay_seconds, 0))),
    ("culprit of true notices, top-1", HIGHER, _of_notices(lambda n: share(n.overall.top1))),
]
_TOGETHER: list[Measure] = [
    ("recall", HIGHER, _of_both(lambda both: share(both.overall.recall))),
    ("  of faults that harm resources only", HIGHER, _of_both(lambda both: share(both.resources_only.recall))),
    ("false: per hour", LOWER, _of_both(lambda both: rate(both.false_pages_an_hour, both.false_pages))),
    ("median delay, s", LOWER, _of_both(lambda both: number(both.overall.delay_seconds, 0))),
    ("incidents per fault found; 1 is right", LOWER, _of_both(lambda both: number(both.pages_a_found_fault, 2))),
]
_SILENCE: list[Measure] = [
    ("hours", NEITHER, _of_silence(lambda silence: number(silence.hours))),
    ("false alerts: per hour", LOWER, _of_silence(lambda s: rate(s.false_pages_an_hour, s.false_pages))),
    ("false notices", LOWER, _of_silence(lambda silence: number(silence.false_notices, 0))),
]
_PROBABILITY: list[Measure] = [
    ("Brier score", LOWER, value_of_part(lambda one: one.forecast, lambda forecast: number(forecast.brier, 4))),
    (
        "  of the base rate",
        NEITHER,
        value_of_part(lambda one: one.forecast, lambda forecast: number(forecast.brier_of_base_rate, 4)),
    ),
    ("  skill over it", HIGHER, value_of_part(lambda one: one.forecast, lambda forecast: number(forecast.skill, 2))),
    ("alerts per day without a fault", NEITHER, _of_promise(_against_budget)),
    ("  share of the budget", NEITHER, _of_promise(lambda promise: number(promise.ratio, 2))),
]


def _of_kind(kind: str) -> Iterable[Measure]:
    def read(get: Callable[[KindMetrics], Value | None]) -> Read:
        return value_of_part(lambda one: one.by_kind.get(kind), get)

    yield "recall", HIGHER, read(lambda found: share(found.recall))
    yield "median delay, snapshots", LOWER, read(lambda found: number(found.delay_median))
    yield "AUROC", HIGHER, read(lambda found: number(found.auroc, 3))
    yield "culprit top-1", HIGHER, read(lambda found: share(found.ranking.top1))
    yield "culprit top-3", HIGHER, read(lambda found: share(found.ranking.top3))


def _pages_of_kind(kind: str) -> Iterable[Measure]:
    def read(get: Callable[[FaultMetrics], Value | None]) -> Read:
        return value_of_part(lambda one: one.pages.by_kind.get(kind) if one.pages else None, get)

    yield "recall", HIGHER, read(lambda found: share(found.recall))
    yield "median delay, s", LOWER, read(lambda found: number(found.delay_seconds, 0))
    yield "culprit top-1", HIGHER, read(lambda found: share(found.top1))
    yield "culprit top-3", HIGHER, read(lambda found: share(found.top3))


def _culprits(results: Sequence[DetectorMetrics]) -> Iterable[Measure]:
    yield from _places("", lambda one: one.ranking)
    yield "  by chance: top-1 / 3 / 5", NEITHER, lambda one: series(one.chance)
    for symptom in sorted({symptom for one in results for symptom in one.by_symptom}):
        yield from _places(f"  {symptom}, ", partial(_symptom, symptom))
    yield from _places("  twins merged, ", lambda one: one.twins)


def _symptom(symptom: str, one: DetectorMetrics) -> Ranking | None:
    return one.by_symptom.get(symptom)


def _places(before: str, which: Callable[[DetectorMetrics], Ranking | None]) -> Iterable[Measure]:
    yield f"{before}top-1", HIGHER, value_of_part(which, lambda ranked: share(ranked.top1))
    yield f"{before}top-3", HIGHER, value_of_part(which, lambda ranked: share(ranked.top3))
    yield f"{before}top-5", HIGHER, value_of_part(which, lambda ranked: share(ranked.top5))
    yield f"{before}mean of top-1 to top-5", HIGHER, value_of_part(which, lambda ranked: share(ranked.avg5))


def _pages(results: Sequence[DetectorMetrics]) -> Iterable[Measure]:
    yield "recall", HIGHER, _of_report(lambda pages: share(pages.overall.recall))
    for severity in sorted(_names(results, lambda pages: pages.by_severity), key=_of_severity):
        yield (
            f"  of {severity} faults",
            HIGHER,
            _of_report(partial(_recall_of, severity, lambda pages: pages.by_severity)),
        )
    yield "  of faults that harm resources only", NEITHER, _of_report(lambda pages: share(pages.resources_only.recall))
    for band in sorted(_names(results, lambda pages: pages.by_effect), key=_of_band):
        yield f"  {band} sigmas", HIGHER, _of_report(partial(_recall_of, band, lambda pages: pages.by_effect))
    yield "false alerts: per hour", LOWER, _of_report(lambda pages: rate(pages.false_pages_an_hour, pages.false_pages))
    yield "  of all alerts", NEITHER, _of_report(lambda pages: number(pages.pages, 0))
    yield (
        "  due to churn",
        LOWER,
        value_of_part(lambda one: one.churn, lambda churn: rate(churn.due_an_hour, churn.due)),
    )
    yield (
        "incidents per fault found; 1 is right",
        LOWER,
        _of_report(lambda pages: number(pages.pages_a_found_fault, 2)),
    )
    yield "median delay, s", LOWER, _of_report(lambda pages: number(pages.overall.delay_seconds, 0))
    yield "culprit of true alerts, top-1", HIGHER, _of_report(lambda pages: share(pages.overall.top1))
    yield "  top-3", HIGHER, _of_report(lambda pages: share(pages.overall.top3))
    yield "  or an indistinguishable service, top-1", HIGHER, _of_report(lambda pages: share(pages.overall.blamed1))
    yield "  top-3", HIGHER, _of_report(lambda pages: share(pages.overall.blamed3))


def _names(results: Sequence[DetectorMetrics], group: Callable[[LocatedMetrics], dict[str, FaultMetrics]]) -> set[str]:
    return {name for one in results if one.pages for name in group(one.pages) if name}


def _recall_of(
    name: str, group: Callable[[LocatedMetrics], dict[str, FaultMetrics]], pages: LocatedMetrics
) -> Value | None:
    return share(group(pages)[name].recall) if name in group(pages) else None


def _of_severity(name: str) -> tuple[int, str]:
    return SEVERITIES.index(name) if name in SEVERITIES else len(SEVERITIES), name


def _of_band(name: str) -> float:
    """``below 5``, ``5 to 20``, ``from 100``, ``unknown``."""
    numbers = [float(word) for word in name.split() if word.replace(".", "").isdigit()]
    return (numbers[0] - name.startswith("below")) if numbers else float("inf")
