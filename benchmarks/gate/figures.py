"""Figures: measured, recorded in ``results/gate.json``, and compared."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

RESULTS = Path("benchmarks/results/gate.json")
Join = Literal["sum", "max", "mean"]
JOINS: dict[Join, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max, "mean": fmean}
DIGITS = 6
ROUNDING = 1e-5  # a difference that rounding explains


@dataclass(frozen=True, slots=True)
class MeasuredFigure:
    """A figure.

    Attributes:
        noise: effect of one incident or one false alarm; None: known only from other seeds.
        join: how values from several pieces become one.
    """

    name: str
    value: float
    is_higher_better: bool = False
    noise: float | None = None
    join: Join = "sum"


def join(figures: Iterable[MeasuredFigure]) -> list[MeasuredFigure]:
    """Return one entry for each name, in the order of first appearance, with rounded numbers."""
    by_figure: dict[str, list[MeasuredFigure]] = {}
    for figure in figures:
        by_figure.setdefault(figure.name, []).append(figure)
    return [_one_of(group) for group in by_figure.values()]


def _one_of(values: Sequence[MeasuredFigure]) -> MeasuredFigure:
    first = values[0]
    noise = None if first.noise is None else round(first.noise, DIGITS)
    return replace(first, value=round(JOINS[first.join]([figure.value for figure in values]), DIGITS), noise=noise)


@dataclass(frozen=True, slots=True)
class RecordedFigure:
    """A recorded figure.

    Attributes:
        value: None: only the noise has been measured.
        noise: a change that chance explains, in the value's unit.
        detector: the detector's digest.
        seeds: values with other seeds, from which the noise comes; empty for recordings.
    """

    name: str
    value: float | None
    noise: float
    is_higher_better: bool
    detector: str = ""
    seeds: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the file's entry, without the name."""
        better = "higher" if self.is_higher_better else "lower"
        entry = {"value": self.value, "noise": self.noise, "better": better, "detector": self.detector}
        return entry | ({"seeds": list(self.seeds)} if self.seeds else {})


def read(path: Path = RESULTS) -> dict[str, RecordedFigure]:
    """Return the recorded figures by name; empty if there is no file."""
    if not path.exists():
        return {}
    return {
        figure: RecordedFigure(
            figure,
            entry["value"],
            entry["noise"],
            entry["better"] == "higher",
            entry["detector"],
            tuple(entry.get("seeds", ())),
        )
        for figure, entry in json.loads(path.read_text(encoding="utf-8")).items()
    }


def write(figures: Mapping[str, RecordedFigure], path: Path = RESULTS) -> None:
    entries = {figure: entry.to_json() for figure, entry in figures.items()}
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def record(
    before: Mapping[str, RecordedFigure], figures: Sequence[MeasuredFigure], detector: str
) -> dict[str, RecordedFigure]:
    """Return the recorded figures with new values and their detector's digest. Other figures stay, and so does noise
    that comes from seeds."""
    after = dict(before)
    for figure in figures:
        seeds = before[figure.name].seeds if figure.name in before else ()
        noise = figure.noise if figure.noise is not None else noise_of(seeds)
        after[figure.name] = RecordedFigure(figure.name, figure.value, noise, figure.is_higher_better, detector, seeds)
    return after


def record_noise(
    before: Mapping[str, RecordedFigure], draws: Sequence[Sequence[MeasuredFigure]]
) -> dict[str, RecordedFigure]:
    """Return the recorded figures with new noise; ``draws`` are the figures with each other seed."""
    after = dict(before)
    for figure in draws[0]:
        seeds = tuple(value.value for draw in draws for value in draw if value.name == figure.name)
        old = before.get(figure.name, RecordedFigure(figure.name, None, 0.0, figure.is_higher_better))
        after[figure.name] = RecordedFigure(
            figure.name, old.value, noise_of(seeds), old.is_higher_better, old.detector, seeds
        )
    return after


def noise_of(seeds: Sequence[float]) -> float:
    """Return the standard deviation over seeds; 0 for fewer than two."""
    return round(stdev(seeds), DIGITS) if len(seeds) > 1 else 0.0


class Result(StrEnum):
    """A figure's comparison with the recorded one."""

    OK = "ok"  # within its noise
    FELL = "FELL"  # worse by more than its noise
    ROSE = "rose"  # better by more than its noise
    NEW = "new"  # not recorded yet
    SKIPPED = "not measured"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure, as recorded and now; None where it is unknown."""

    name: str
    recorded: float | None
    now: float | None
    noise: float | None
    result: Result

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts for a table's row."""
        return (self.name, *(_text(number) for number in (self.recorded, self.now, self.noise)), self.result)


def compare(recorded: Mapping[str, RecordedFigure], figures: Sequence[MeasuredFigure]) -> list[Comparison]:
    """Compare all recorded or measured figures, in their order."""
    measured = {figure.name: figure for figure in figures}
    names = dict.fromkeys((*recorded, *measured))
    return [_compare(name, recorded.get(name), measured.get(name)) for name in names]


def _compare(figure: str, before: RecordedFigure | None, measured: MeasuredFigure | None) -> Comparison:
    value = measured.value if measured else None
    if before is None or before.value is None:
        return Comparison(figure, None, value, None, Result.NEW)
    if value is None:
        return Comparison(figure, before.value, None, before.noise, Result.SKIPPED)
    better = value - before.value if before.is_higher_better else before.value - value
    result = Result.OK
    if abs(better) > before.noise + ROUNDING:
        result = Result.ROSE if better > 0 else Result.FELL
    return Comparison(figure, before.value, value, before.noise, result)


def has_fallen(comparisons: Sequence[Comparison]) -> bool:
    return any(comparison.result is Result.FELL for comparison in comparisons)


def table(comparisons: Sequence[Comparison]) -> str:
    """Return the comparison for people, with aligned columns."""
    rows = [("figure", "recorded", "now", "noise", ""), *(comparison.cells for comparison in comparisons)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(_align(row, widths).rstrip() for row in rows)


def _align(row: Sequence[str], widths: Sequence[int]) -> str:
    figure, *numbers, result = row
    cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
    return "  ".join((figure.ljust(widths[0]), *cells, result))


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".rstrip("0").rstrip(".")
