"""DetectorMetrics as text: short, with their intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lab.evaluation.measures.intervals import Estimate
from lab.evaluation.measures.metrics import DetectorMetrics

NOTHING = "–"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Value:
    """A cell of a table, and its number for comparing it with other cells."""

    text: str
    number: float | None = None


Read = Callable[[DetectorMetrics], Value | None]


def value_of_part(get: Callable[[DetectorMetrics], T | None], read: Callable[[T], Value | None]) -> Read:
    """Read a value of a part of the figures; None if there is no such part."""

    def read_part(one: DetectorMetrics) -> Value | None:
        part = get(one)
        return None if part is None else read(part)

    return read_part


def share(estimate: Estimate | None) -> Value | None:
    """A share, 0 to 1, with its interval."""
    if estimate is None or estimate.value is None:
        return None
    return Value(f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]", estimate.value)


def rate(estimate: Estimate, events: int | None = None) -> Value | None:
    """Events over time with its interval, after the number of events."""
    if estimate.value is None:
        return None
    text = f"{short_number(estimate.value)} [{short_number(estimate.low)}, {short_number(estimate.high)}]"
    return Value(text if events is None else f"{events}: {text}", estimate.value)


def number(value: float | None, digits: int = 1) -> Value | None:
    """A number with this many digits after the decimal point."""
    return None if value is None else Value(f"{value:.{digits}f}", value)


def percent(value: float | None) -> Value | None:
    """A share in per cent."""
    return None if value is None else Value(f"{value:.1%}", value)


def series(values: Sequence[float]) -> Value | None:
    """Several numbers in one cell."""
    return Value(" / ".join(f"{value:.2f}" for value in values)) if values else None


def short_number(value: float | None) -> str:
    """A number with two significant digits."""
    if value is None:
        return NOTHING
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 or value == 0 else f"{value:.2g}"


def share_without_interval(estimate: Estimate | None) -> str:
    """A share without its interval."""
    return NOTHING if estimate is None or estimate.value is None else f"{estimate.value:.2f}"
