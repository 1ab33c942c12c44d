"""The measures by name: the rows of a table, as text with intervals."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lab.evaluation.measures.intervals import Difference, Estimate, per_day
from lab.evaluation.measures.located import FaultMetrics, LocatedMetrics
from lab.evaluation.measures.metrics import DetectorMetrics
from lab.evaluation.measures.ranking import Ranking

NOTHING = "–"
HIGHER, LOWER, NEITHER = 1, -1, 0  # is better


@dataclass(frozen=True, slots=True)
class Value:
    """A cell of a table, and its number for comparing it with other cells."""

    text: str
    number: float | None = None


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
    title: str
    rows: tuple[Row, ...]


Measured = Iterable[tuple[str, int, Value | None]]  # name, which is better, value; None: not measured


def blocks(results: Sequence[DetectorMetrics]) -> list[Block]:
    """Return all measures of several detectors on the same recordings, without empty rows and blocks."""
    titled: dict[str, Callable[[DetectorMetrics], Measured]] = {
        "by time": _by_time,
        "culprit, at the highest score": _culprits,
        "alerts, by time and place": _alerts,
        "notices, by time and place": _notices,
        "alerts and notices together": _together,
        "while telemetry is missing": _silence,
        "probability and alert budget": _probability,
    }
    return [block for title, read in titled.items() if (block := _block(title, read, results)).rows]


def by_kind(results: Sequence[DetectorMetrics]) -> list[Block]:
    kinds = sorted({kind for one in results for kind in one.by_kind})

    def of(kind: str) -> Callable[[DetectorMetrics], Measured]:
        return lambda one: _of_kind(kind, one)

    return [block for kind in kinds if (block := _block(kind, of(kind), results)).rows]


def headline(one: DetectorMetrics) -> str:
    """Return the main figures; :func:`headline_words` names them."""
    if one.pages is not None:
        return f"{_bare(one.pages.overall.recall)} at {short_number(one.pages.false_pages_an_hour.value)}"
    if one.false_alarms is not None and one.recall is not None:
        return f"{_bare(one.recall)} at {one.false_alarms.count.strict}"
    if one.ranking is not None:
        return f"{_bare(one.ranking.top1)} / {_bare(one.ranking.top3)}"
    return short_number(one.false_alarms.per_day.value) if one.false_alarms else NOTHING


def headline_words(one: DetectorMetrics) -> str:
    if one.pages is not None:
        return "recall at false alerts per hour"
    if one.false_alarms is not None and one.recall is not None:
        return "recall at strict false alarms, at the default threshold"
    return "culprit top-1 / top-3" if one.ranking is not None else "false alarms per day"


def difference(apart: Difference) -> str:
    return f"{apart.value:+.2f} [{apart.low:+.2f}, {apart.high:+.2f}]"


def short_number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 or value == 0 else f"{value:.2g}"


def _block(title: str, read: Callable[[DetectorMetrics], Measured], results: Sequence[DetectorMetrics]) -> Block:
    found = [{name: value for name, _, value in read(one)} for one in results]
    better = {name: which for one in results for name, which, _ in read(one)}
    rows = (_row(name, which, [one.get(name) for one in found]) for name, which in better.items())
    return Block(title, tuple(row for row in rows if row is not None))


def _row(name: str, better: int, values: Sequence[Value | None]) -> Row | None:
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


def _by_time(one: DetectorMetrics) -> Measured:
    yield "recall at the default threshold", HIGHER, _share(one.recall)
    yield "  median delay in snapshots", LOWER, _number(one.delay_median)
    if one.false_alarms is not None:
        alarms = one.false_alarms
        yield "  false alarms: per day", LOWER, _rate(alarms.per_day, alarms.count.events)
        yield "  strict: per day", LOWER, _rate(alarms.strict_per_day, alarms.count.strict)
        share = alarms.alarm_share
        yield "  normal snapshots in alarm", LOWER, None if share is None else Value(f"{share:.1%}", share)
    for budget, recall in one.at_budget.items():
        yield f"recall at ≤ {budget} strict false alarms, in hindsight", HIGHER, _share(recall)
    yield "AUROC", HIGHER, _number(one.auroc, 3)


def _culprits(one: DetectorMetrics) -> Measured:
    if one.ranking is not None:
        yield from _places("", one.ranking)
    for symptom, ranked in one.by_symptom.items():
        yield from _places(f"  {symptom}, ", ranked)


def _places(before: str, ranked: Ranking | FaultMetrics) -> Iterator[tuple[str, int, Value | None]]:
    yield f"{before}top-1", HIGHER, _share(ranked.top1)
    yield f"{before}top-3", HIGHER, _share(ranked.top3)


def _alerts(one: DetectorMetrics) -> Measured:
    if one.pages is not None:
        yield from _located(one.pages, "false alerts: per hour", "  of all alerts")


def _notices(one: DetectorMetrics) -> Measured:
    if one.notices is not None:
        found = one.notices
        yield "recall of faults that harm resources only", HIGHER, _share(found.resources_only.recall)
        yield "  of all faults", HIGHER, _share(found.overall.recall)
        yield "false notices: per day", LOWER, _rate(per_day(found.false_pages_an_hour), found.false_pages)


def _together(one: DetectorMetrics) -> Measured:
    if one.notices is not None and one.pages_and_notices is not None:
        yield from _located(one.pages_and_notices, "false: per hour", "  of all")


def _located(found: LocatedMetrics, false: str, all_of_them: str) -> Measured:
    yield "recall", HIGHER, _share(found.overall.recall)
    yield "  of faults that harm resources only", NEITHER, _share(found.resources_only.recall)
    yield false, LOWER, _rate(found.false_pages_an_hour, found.false_pages)
    yield all_of_them, NEITHER, _number(found.pages, 0)
    yield "incidents per fault found; 1 is right", LOWER, _number(found.pages_a_found_fault, 2)
    yield "median delay, s", LOWER, _number(found.overall.delay_seconds, 0)
    yield from _places("culprit, ", found.overall)


def _silence(one: DetectorMetrics) -> Measured:
    if one.silence is not None:
        yield "hours", NEITHER, _number(one.silence.hours)
        yield "false alerts: per hour", LOWER, _rate(one.silence.false_pages_an_hour, one.silence.false_pages)
        yield "false notices", LOWER, _number(one.silence.false_notices, 0)


def _probability(one: DetectorMetrics) -> Measured:
    if one.forecast is not None:
        yield "Brier score", LOWER, _number(one.forecast.brier, 4)
        yield "  of the base rate", NEITHER, _number(one.forecast.brier_of_base_rate, 4)
    if one.promise is not None:
        yield "alerts per day without a fault", NEITHER, _rate(one.promise.observed_per_day)
        yield "  budget", NEITHER, _number(one.promise.promised_per_day)


def _of_kind(kind: str, one: DetectorMetrics) -> Measured:
    if one.pages is not None and kind in one.pages.by_kind:
        found = one.pages.by_kind[kind]
        yield "recall", HIGHER, _share(found.recall)
        yield "median delay, s", LOWER, _number(found.delay_seconds, 0)
        yield from _places("culprit ", found)
    elif kind in one.by_kind:
        yield "recall", HIGHER, _share(one.by_kind[kind].recall)
        yield from _places("culprit ", one.by_kind[kind].ranking)


def _share(estimate: Estimate | None) -> Value | None:
    """A share, 0 to 1, with its interval."""
    if estimate is None or estimate.value is None:
        return None
    return Value(f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]", estimate.value)


def _rate(estimate: Estimate, events: int | None = None) -> Value | None:
    """Events over time with its interval, after the number of events."""
    if estimate.value is None:
        return None
    text = f"{short_number(estimate.value)} [{short_number(estimate.low)}, {short_number(estimate.high)}]"
    return Value(text if events is None else f"{events}: {text}", estimate.value)


def _number(value: float | None, digits: int = 1) -> Value | None:
    return None if value is None else Value(f"{value:.{digits}f}", value)


def _bare(estimate: Estimate) -> str:
    return NOTHING if estimate.value is None else f"{estimate.value:.2f}"
