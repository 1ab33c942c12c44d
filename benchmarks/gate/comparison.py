"""Figures compared with the recorded ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.gate.measured import Measured
from benchmarks.gate.recorded import Recorded

ROUNDING = 1e-5  # a difference that rounding explains


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
    return "\n".join(_aligned(row, widths).rstrip() for row in rows)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    figure, *numbers, result = row
    aligned = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
    return "  ".join((figure.ljust(widths[0]), *aligned, result))


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".rstrip("0").rstrip(".")
