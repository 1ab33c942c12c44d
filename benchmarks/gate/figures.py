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
class Measured:
    """A figure.

    Attributes:
        figure: its name.
        value: of the figure.
        is_higher_better: its direction.
        noise: what one incident or one false alarm changes in it; None: known only from other seeds.
        join: how values of the same figure from several pieces become one.
    """

    figure: str
    value: float
    is_higher_better: bool = False
    noise: float | None = None
    join: Join = "sum"


def join(found: Iterable[Measured]) -> list[Measured]:
    """One entry for each figure, in the order of the first appearance, with rounded numbers."""
    by_figure: dict[str, list[Measured]] = {}
    for one in found:
        by_figure.setdefault(one.figure, []).append(one)
    return [_one_of(same) for same in by_figure.values()]


def _one_of(same: Sequence[Measured]) -> Measured:
    first = same[0]
    noise = None if first.noise is None else round(first.noise, DIGITS)
    return replace(first, value=round(JOINS[first.join]([one.value for one in same]), DIGITS), noise=noise)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded figure.

    Attributes:
        figure: its name.
        value: of the figure; None: only its noise has been measured.
        noise: a change that chance explains, in the unit of the value.
        is_higher_better: its direction.
        detector: digest of the detector.
        seeds: values with other seeds, from which the noise comes; empty for recordings.
    """

    figure: str
    value: float | None
    noise: float
    is_higher_better: bool
    detector: str = ""
    seeds: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The entry in the file, without the name."""
        better = "higher" if self.is_higher_better else "lower"
        found = {"value": self.value, "noise": self.noise, "better": better, "detector": self.detector}
        return found | ({"seeds": list(self.seeds)} if self.seeds else {})


def read(path: Path = RESULTS) -> dict[str, Recorded]:
    """The recorded figures by name; empty if there is no file."""
    if not path.exists():
        return {}
    return {
        figure: Recorded(
            figure,
            one["value"],
            one["noise"],
            one["better"] == "higher",
            one["detector"],
            tuple(one.get("seeds", ())),
        )
        for figure, one in json.loads(path.read_text(encoding="utf-8")).items()
    }


def write(figures: Mapping[str, Recorded], path: Path = RESULTS) -> None:
    entries = {figure: one.to_json() for figure, one in figures.items()}
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def record(before: Mapping[str, Recorded], found: Sequence[Measured], detector: str) -> dict[str, Recorded]:
    """The recorded figures with new values. Other figures stay, and so does noise that comes from seeds.

    Args:
        before: recorded so far.
        found: the new values.
        detector: digest of the detector that they are of.
    """
    after = dict(before)
    for one in found:
        seeds = before[one.figure].seeds if one.figure in before else ()
        noise = one.noise if one.noise is not None else noise_of(seeds)
        after[one.figure] = Recorded(one.figure, one.value, noise, one.is_higher_better, detector, seeds)
    return after


def record_noise(before: Mapping[str, Recorded], draws: Sequence[Sequence[Measured]]) -> dict[str, Recorded]:
    """The recorded figures with new noise.

    Args:
        before: recorded so far.
        draws: the figures with each of the other seeds.
    """
    after = dict(before)
    for one in draws[0]:
        seeds = tuple(other.value for draw in draws for other in draw if other.figure == one.figure)
        known = before.get(one.figure, Recorded(one.figure, None, 0.0, one.is_higher_better))
        after[one.figure] = Recorded(
            one.figure, known.value, noise_of(seeds), known.is_higher_better, known.detector, seeds
        )
    return after


def noise_of(seeds: Sequence[float]) -> float:
    """Standard deviation over seeds; 0 if there are fewer than two."""
    return round(stdev(seeds), DIGITS) if len(seeds) > 1 else 0.0


class Result(StrEnum):
    """How a figure compares with the recorded one."""

    OK = "ok"  # within its noise
    FELL = "FELL"  # worse by more than its noise
    ROSE = "rose"  # better by more than its noise
    NEW = "new"  # not recorded yet
    SKIPPED = "not measured"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure, as recorded and now; None where it is unknown."""

    figure: str
    recorded: float | None
    now: float | None
    noise: float | None
    result: Result

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts of a row of the table."""
        return (self.figure, *(_text(one) for one in (self.recorded, self.now, self.noise)), self.result)


def compare(recorded: Mapping[str, Recorded], found: Sequence[Measured]) -> list[Comparison]:
    """Compare all figures that are recorded or measured, in their order."""
    now = {one.figure: one for one in found}
    names = dict.fromkeys((*recorded, *now))
    return [_compare(name, recorded.get(name), now.get(name)) for name in names]


def _compare(figure: str, before: Recorded | None, now: Measured | None) -> Comparison:
    value = now.value if now else None
    if before is None or before.value is None:
        return Comparison(figure, None, value, None, Result.NEW)
    if value is None:
        return Comparison(figure, before.value, None, before.noise, Result.SKIPPED)
    better = value - before.value if before.is_higher_better else before.value - value
    result = Result.OK
    if abs(better) > before.noise + ROUNDING:
        result = Result.ROSE if better > 0 else Result.FELL
    return Comparison(figure, before.value, value, before.noise, result)


def has_fallen(compared: Sequence[Comparison]) -> bool:
    """Whether any figure is worse by more than its noise."""
    return any(one.result is Result.FELL for one in compared)


def table(compared: Sequence[Comparison]) -> str:
    """The comparison for people, with aligned columns."""
    rows = [("figure", "recorded", "now", "noise", ""), *(one.cells for one in compared)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(_align(row, widths).rstrip() for row in rows)


def _align(row: Sequence[str], widths: Sequence[int]) -> str:
    figure, *numbers, result = row
    aligned = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
    return "  ".join((figure.ljust(widths[0]), *aligned, result))


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".rstrip("0").rstrip(".")
