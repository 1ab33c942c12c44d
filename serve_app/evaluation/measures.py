"""The measures by name: what a table has in its rows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from model.evaluate.alarms import BUDGETS
from model.evaluate.figures import Delay, FalseAlarms, Figures, KindFigures, Promise
from model.evaluate.intervals import Difference
from model.evaluate.located import Report, Summary
from model.evaluate.ranking import Ranking
from serve_app.evaluation.words import NOTHING, Read, Value, bare, number, percent, rate, series, share, short, via

HIGHER, LOWER, NEITHER = 1, -1, 0  # is better
SEVERITIES = ("minor", "major", "critical")
Measure = tuple[str, int, Read]


@dataclass(frozen=True, slots=True)
class Row:
    """One measure over several detectors.

    Attributes:
        name: of the measure; begins with two spaces where it belongs to the one above.
        cells: one a detector.
        best: positions of the best ones; empty where they are all alike or nothing is better.
    """

    name: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Block:
    """Measures that belong together."""

    title: str
    rows: tuple[Row, ...]


def blocks(told: Sequence[Figures]) -> list[Block]:
    """All measures of several detectors on the same recordings; rows and blocks that are empty are left out."""
    titled = {
        "as emitted": _EMITTED,
        "threshold in hindsight": _HINDSIGHT,
        "culprit, where the score is highest": _culprits(told),
        "pages, by time and place": _pages(told),
        "probability and promise": _PROMISES,
    }
    return [block for title, measures in titled.items() if (block := _block(title, measures, told)).rows]


def by_kind(told: Sequence[Figures]) -> list[Block]:
    """The measures of each kind of incident."""
    kinds = sorted({kind for one in told for kind in one.by_kind})
    measures = _of_kind if all(one.pages is None for one in told) else _pages_of_kind
    return [block for kind in kinds if (block := _block(kind, measures(kind), told)).rows]


def headline(one: Figures) -> str:
    """What one looks at first; :func:`headline_words` says what it is."""
    if one.pages is not None:
        return f"{bare(one.pages.overall.recall)} at {short(one.pages.false_pages_an_hour.value)}"
    if one.false_alarms is not None and one.recall is not None:
        return f"{bare(one.recall)} at {one.false_alarms.count.strict}"
    if one.ranking is not None:
        return f"{bare(one.ranking.top1)} / {bare(one.ranking.top3)}"
    return short(one.false_alarms.per_day.value) if one.false_alarms else NOTHING


def headline_words(one: Figures) -> str:
    """What a headline says."""
    if one.pages is not None:
        return "recall at false pages an hour"
    if one.false_alarms is not None and one.recall is not None:
        return "recall at strict false-alarm events, as emitted"
    return "culprit top-1 / top-3" if one.ranking is not None else "false-alarm events a day"


def difference(apart: Difference) -> str:
    """With its interval."""
    return f"{apart.value:+.2f} [{apart.low:+.2f}, {apart.high:+.2f}]"


def _block(title: str, measures: Iterable[Measure], told: Sequence[Figures]) -> Block:
    return Block(title, tuple(row for measure in measures if (row := _row(*measure, told)) is not None))


def _row(name: str, better: int, read: Read, told: Sequence[Figures]) -> Row | None:
    values = [read(one) for one in told]
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
    return via(lambda one: one.false_alarms, read)


def _of_tail(read: Callable[[FalseAlarms], Value | None]) -> Read:
    return via(lambda one: one.tail, read)


def _of_promise(read: Callable[[Promise], Value | None]) -> Read:
    return via(lambda one: one.promise, read)


def _of_report(read: Callable[[Report], Value | None]) -> Read:
    return via(lambda one: one.pages, read)


def _plain_events(alarms: FalseAlarms) -> Value | None:
    return rate(alarms.per_day, alarms.count.events)


def _strict_events(alarms: FalseAlarms) -> Value | None:
    return rate(alarms.strict_per_day, alarms.count.strict)


def _alarm_share(alarms: FalseAlarms) -> Value | None:
    return percent(alarms.alarm_share)


def _delay(told: Delay) -> Value | None:
    return None if told.median is None else Value(f"{told.median:g}, {told.p90:g}", told.median)


def _after_warm_up(one: Figures) -> Value | None:
    told = share(one.recall_after_warm_up) if one.in_warm_up else None
    return told and Value(f"{told.text} ({one.in_warm_up} in it)", told.number)


def _promised(told: Promise) -> Value | None:
    observed = rate(told.observed_per_day)
    return observed and Value(f"{observed.text}, promised {short(told.promised_per_day)}", observed.number)


def _at_budget(budget: int, one: Figures) -> Value | None:
    return share(one.at_budget.get(budget))


def _at_budget_with_tail(budget: int, one: Figures) -> Value | None:
    return share(one.at_budget_with_tail.get(budget))


_EMITTED: list[Measure] = [
    ("recall", HIGHER, lambda one: share(one.recall)),
    ("  a new alarm begins", HIGHER, lambda one: share(one.onset)),
    ("  by chance", NEITHER, lambda one: number(one.by_chance, 2)),
    ("  after the warm-up", NEITHER, _after_warm_up),
    ("delay in snapshots, median and p90", LOWER, via(lambda one: one.delay, _delay)),
    ("false-alarm events: a day", LOWER, _of_alarms(_plain_events)),
    ("  strict", LOWER, _of_alarms(_strict_events)),
    ("  normal snapshots in alarm", LOWER, _of_alarms(_alarm_share)),
    ("in the unlabelled tail: a day", LOWER, _of_tail(_plain_events)),
    ("  strict", LOWER, _of_tail(_strict_events)),
    ("  its snapshots in alarm", LOWER, _of_tail(_alarm_share)),
    ("alarms on normal first rows", LOWER, lambda one: share(one.first_rows)),
]
_HINDSIGHT: list[Measure] = [
    *((f"recall at ≤ {budget} strict false alarms", HIGHER, partial(_at_budget, budget)) for budget in BUDGETS),
    *((f"  ≤ {budget}, tail as normal", HIGHER, partial(_at_budget_with_tail, budget)) for budget in BUDGETS),
    ("AUROC", HIGHER, lambda one: number(one.auroc, 3)),
    ("  against the tail", HIGHER, lambda one: number(one.auroc_against_tail, 3)),
    ("average precision", HIGHER, lambda one: number(one.average_precision, 3)),
    ("VUS-PR", HIGHER, lambda one: number(one.vus_pr, 3)),
]
_PROMISES: list[Measure] = [
    ("Brier score", LOWER, via(lambda one: one.forecast, lambda told: number(told.brier, 4))),
    ("  of the base rate", NEITHER, via(lambda one: one.forecast, lambda told: number(told.brier_of_base_rate, 4))),
    ("  skill over it", HIGHER, via(lambda one: one.forecast, lambda told: number(told.skill, 2))),
    ("pages a day where nothing is wrong", NEITHER, _of_promise(_promised)),
    ("  observed over promised", NEITHER, _of_promise(lambda told: number(told.ratio, 2))),
]


def _of_kind(kind: str) -> Iterable[Measure]:
    def read(get: Callable[[KindFigures], Value | None]) -> Read:
        return via(lambda one: one.by_kind.get(kind), get)

    yield "recall", HIGHER, read(lambda told: share(told.recall))
    yield "median delay, snapshots", LOWER, read(lambda told: number(told.delay_median))
    yield "AUROC", HIGHER, read(lambda told: number(told.auroc, 3))
    yield "culprit top-1", HIGHER, read(lambda told: share(told.ranking.top1))
    yield "culprit top-3", HIGHER, read(lambda told: share(told.ranking.top3))


def _pages_of_kind(kind: str) -> Iterable[Measure]:
    def read(get: Callable[[Summary], Value | None]) -> Read:
        return via(lambda one: one.pages.by_kind.get(kind) if one.pages else None, get)

    yield "recall", HIGHER, read(lambda told: share(told.recall))
    yield "median delay, s", LOWER, read(lambda told: number(told.delay_seconds, 0))
    yield "culprit top-1", HIGHER, read(lambda told: share(told.top1))
    yield "culprit top-3", HIGHER, read(lambda told: share(told.top3))


def _culprits(told: Sequence[Figures]) -> Iterable[Measure]:
    yield from _places("", lambda one: one.ranking)
    yield "  by chance: top-1 / 3 / 5", NEITHER, lambda one: series(one.chance)
    for symptom in sorted({symptom for one in told for symptom in one.by_symptom}):
        yield from _places(f"  {symptom}, ", partial(_symptom, symptom))
    yield from _places("  twins merged, ", lambda one: one.twins)


def _symptom(symptom: str, one: Figures) -> Ranking | None:
    return one.by_symptom.get(symptom)


def _places(before: str, which: Callable[[Figures], Ranking | None]) -> Iterable[Measure]:
    yield f"{before}top-1", HIGHER, via(which, lambda ranked: share(ranked.top1))
    yield f"{before}top-3", HIGHER, via(which, lambda ranked: share(ranked.top3))
    yield f"{before}top-5", HIGHER, via(which, lambda ranked: share(ranked.top5))
    yield f"{before}mean of top-1 to top-5", HIGHER, via(which, lambda ranked: share(ranked.avg5))


def _pages(told: Sequence[Figures]) -> Iterable[Measure]:
    yield "recall", HIGHER, _of_report(lambda pages: share(pages.overall.recall))
    for severity in sorted(_named(told, lambda pages: pages.by_severity), key=_of_severity):
        yield (
            f"  of {severity} faults",
            HIGHER,
            _of_report(partial(_recall_of, severity, lambda pages: pages.by_severity)),
        )
    for band in sorted(_named(told, lambda pages: pages.by_effect), key=_of_band):
        yield f"  {band} sigmas", HIGHER, _of_report(partial(_recall_of, band, lambda pages: pages.by_effect))
    yield "false pages: an hour", LOWER, _of_report(lambda pages: rate(pages.false_pages_an_hour, pages.false_pages))
    yield "  of all pages", NEITHER, _of_report(lambda pages: number(pages.pages, 0))
    yield "  due to churn", LOWER, via(lambda one: one.churn, lambda churn: rate(churn.due_an_hour, churn.due))
    yield "median delay, s", LOWER, _of_report(lambda pages: number(pages.overall.delay_seconds, 0))
    yield "culprit of true pages, top-1", HIGHER, _of_report(lambda pages: share(pages.overall.top1))
    yield "  top-3", HIGHER, _of_report(lambda pages: share(pages.overall.top3))
    yield "  or who cannot be told from it, top-1", HIGHER, _of_report(lambda pages: share(pages.overall.blamed1))
    yield "  top-3", HIGHER, _of_report(lambda pages: share(pages.overall.blamed3))


def _named(told: Sequence[Figures], group: Callable[[Report], dict[str, Summary]]) -> set[str]:
    return {name for one in told if one.pages for name in group(one.pages) if name}


def _recall_of(name: str, group: Callable[[Report], dict[str, Summary]], pages: Report) -> Value | None:
    return share(group(pages)[name].recall) if name in group(pages) else None


def _of_severity(name: str) -> tuple[int, str]:
    return SEVERITIES.index(name) if name in SEVERITIES else len(SEVERITIES), name


def _of_band(name: str) -> float:
    """``below 5``, ``5 to 20``, ``from 100``, ``unknown``."""
    numbers = [float(word) for word in name.split() if word.replace(".", "").isdigit()]
    return (numbers[0] - name.startswith("below")) if numbers else float("inf")
