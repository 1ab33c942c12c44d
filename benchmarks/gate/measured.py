"""A figure, and how results of several processes become one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

Join = Literal["sum", "max", "mean"]
JOINS: dict[Join, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max, "mean": fmean}
DIGITS = 6


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
