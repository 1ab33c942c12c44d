"""Reasons in words, for whoever is on call.

Numbers are shown to two figures and never finer than ``Unit.step``: what differs by less is no news at night.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from model.snapshot import RATIOS
from model.verdict import Reason

_NAMES = {
    "cpu_utilization": "CPU utilization",
    "cpu_per_request": "CPU time per request",
    "own_time": "own time without callees",
    "requests_per_second": "request rate",
}
_TRAFFIC = frozenset({"request_rate", "requests_per_second"})
_TIMES = frozenset({"p50_latency", "p99_latency", "own_time", "cpu_per_request"})


@dataclass(frozen=True, slots=True)
class Unit:
    """How a quantity is shown: ``round(value * factor)`` to multiples of ``step`` (a power of ten), then ``text``."""

    factor: float
    text: str
    step: float

    def rounded(self, value: float) -> float:
        """The number shown for a value, in this unit; NaN where there is none."""
        if not math.isfinite(value):
            return math.nan
        scaled = value * self.factor
        return round(scaled, self._digits(scaled))

    def words(self, value: float) -> str:
        """``1.2 s``, ``below 0.1%``, ``not observed``."""
        shown = self.rounded(value)
        if math.isnan(shown):
            return "not observed"
        if shown == 0 < value:
            return f"below {self.step:g}{self.text}"
        digits = 0 if shown.is_integer() else self._digits(shown)
        return f"{shown:,.{digits}f}{self.text}"

    def _digits(self, scaled: float) -> int:
        finest = round(-math.log10(self.step))
        return 0 if scaled >= 10 else min(finest, 1) if scaled >= 1 else finest


PERCENT = Unit(100.0, "%", 0.1)
SECONDS = Unit(1.0, " s", 0.01)
MILLISECONDS = Unit(1000.0, " ms", 0.1)
PER_SECOND = Unit(1.0, "/s", 0.1)
COUNT = Unit(1.0, "", 1.0)


def reason_text(reason: Reason, observed_at: datetime) -> str:
    """``p99 latency of calls from shop/web 1.2 s, expected 0.08 s, since 03:12 UTC``.

    A number by itself is read as "too high"; a fall is therefore called one, and traffic, which goes either way,
    always says where it went.
    """
    since = _since(reason.since, observed_at)
    if reason.metric == "structure":
        what = f"calls from {reason.source}" if reason.source else "calls"
        return f"{what} that do not belong here, {since}"
    name, unit = _NAMES.get(reason.metric, reason.metric.replace("_", " ")), _unit(reason)
    what = f"{name} of calls from {reason.source}" if reason.source else name
    observed = f"{_direction(reason)}{unit.words(reason.observed)}"
    return f"{what} {observed}, expected {unit.words(reason.expected)}, {since}"


def reads_as_expected(reason: Reason) -> bool:
    """Whether observed and expected are the same at the precision shown, so that its text would say nothing."""
    if reason.metric == "structure":
        return False
    unit = _unit(reason)
    observed, expected = unit.rounded(reason.observed), unit.rounded(reason.expected)
    return observed == expected or (math.isnan(observed) and math.isnan(expected))


def _direction(reason: Reason) -> str:
    if reason.observed < reason.expected:
        return "fell to "
    return "rose to " if reason.metric in _TRAFFIC and reason.observed > reason.expected else ""


def _unit(reason: Reason) -> Unit:
    """One unit for both values of a reason, so that they can be compared at a glance."""
    if reason.metric in RATIOS:
        return PERCENT
    if reason.metric in _TIMES:
        largest = max(filter(math.isfinite, (reason.observed, reason.expected)), default=0.0)
        return SECONDS if largest >= 1.0 else MILLISECONDS
    return PER_SECOND if reason.metric in _TRAFFIC else COUNT


def _since(since: datetime, observed_at: datetime) -> str:
    recent = observed_at - since < timedelta(hours=24)
    return f"since {since:%H:%M} UTC" if recent else f"since {since:%Y-%m-%d %H:%M} UTC"
