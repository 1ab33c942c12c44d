"""Numbers as text for people, the same in verdicts, reports, messages and on the command line.

The page formats the points of its charts by the same rules, in ``numbers.js``, with the units of :func:`page_numbers`.
"""

import math
from dataclasses import dataclass

MIN_SCORE = 0.01  # smaller scores are written as below it


@dataclass(frozen=True, slots=True)
class Unit:
    """The form of a quantity: ``round(value * factor)`` to multiples of ``step`` (a power of ten), then ``text``.

    Numbers have two digits, but are never finer than ``step``: smaller differences do not matter on call.
    """

    factor: float
    text: str
    step: float

    def round_value(self, value: float) -> float:
        """The number written for a value, in this unit; NaN if there is none."""
        if not math.isfinite(value):
            return math.nan
        quantity = value * self.factor
        return round(quantity, self._digits(quantity)) + 0.0  # no negative zero

    def words(self, value: float) -> str:
        """``1.2 s``, ``below 0.1%``, ``not observed``."""
        number = self.round_value(value)
        if math.isnan(number):
            return "not observed"
        if number == 0 < value:
            return f"below {self.step:g}{self.text}"
        digits = 0 if number.is_integer() else self._digits(number)
        return f"{number:,.{digits}f}{self.text}"

    @property
    def digits(self) -> int:
        """The maximum number of digits after the point."""
        return round(-math.log10(self.step))

    def _digits(self, quantity: float) -> int:
        return 0 if quantity >= 10 else min(self.digits, 1) if quantity >= 1 else self.digits


PERCENT = Unit(100.0, "%", 0.1)
SECONDS = Unit(1.0, " s", 0.01)
MILLISECONDS = Unit(1000.0, " ms", 0.1)
PER_SECOND = Unit(1.0, "/s", 0.1)
COUNT = Unit(1.0, "", 1.0)
MINUTES = Unit(1 / 60, "", 1.0)
HOURS = Unit(1 / 3600, "", 0.1)


def score_text(score: float) -> str:
    """``0.97``, ``below 0.01``: the score of a suspect, 0 to 1."""
    return f"below {MIN_SCORE}" if 0 < score < MIN_SCORE / 2 else f"{score:.2f}"


def anomaly_text(score: float) -> str:
    """``5.8``: an anomaly score, in decades of improbability."""
    return f"{score:.1f}"


def share_text(share: float) -> str:
    """``12%``, ``below 1%``, ``above 99%``: a probability or share, 0 to 1. Only 1 is 100%."""
    if 0 < share < 0.01:
        return "below 1%"
    return "above 99%" if 0.99 < share < 1 else f"{share:.0%}"


def span_text(seconds: float) -> str:
    """``40 s``, ``4 min``, ``2 h 10 min``, ``3 h``, ``3 days``."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    if seconds < 2 * 86400:
        return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
    return f"{seconds / 86400:.0f} days"


def times_text(ratio: float) -> str:
    """``1.8``, ``12``: how many times the usual."""
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
