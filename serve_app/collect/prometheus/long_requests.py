"""Requests that are longer than the rate window: streams, websockets, downloads.

A request is counted when it ends. One that ends after an hour says nothing about the last minute, so latencies leave
out requests that lasted longer than the window. Histograms rarely have a bound at the window's length, so the smallest
bound of at least ``MIN_BORDER`` windows is the border, and longer requests are left out. If the highest finite bound is
lower, there is no border, and nothing is left out: a service that hangs must not look healthy.

:func:`leave_out_long` cuts polled buckets, the PromQL of :func:`without_long` recorded ones.
"""

import math
from dataclasses import dataclass

import numpy as np

from serve_app.collect.prometheus.client import Numbers

MIN_BORDER = 0.8  # share of the window: Linkerd's highest bound, 50 s, is close enough to a window of 60 s
MIN_LONG = 1e-4  # 1/s; smaller rates are rounding errors, since one request in an hour's window is more
_INFINITE = "[+]?[Ii]nf"


@dataclass(frozen=True, slots=True)
class Border:
    """The histogram bounds that matter for a rate window, in the bounds' unit.

    Both have at most two significant digits, which keeps their regular expressions short.

    Attributes:
        first_long: the smallest bound from here on is the border.
        first_above: bounds from here on are longer than the window, so no latency is read from them.
    """

    first_long: int
    first_above: int

    @classmethod
    def of(cls, window_seconds: float, unit: float) -> "Border":
        """Return the border for a rate window.

        Args:
            unit: factor that converts a bound to s.
        """
        window = window_seconds / unit
        first_long = max(math.floor(_round_down(MIN_BORDER * window + 1e-6)), 1)
        above = _round_down(window + 1e-6)
        return cls(first_long, math.floor(above + 10.0 ** max(math.floor(math.log10(above)) - 1, 0)))


def leave_out_long(counts: Numbers, bounds: Numbers, border: Border) -> tuple[Numbers, Numbers, Numbers]:
    """Leave out long requests.

    Args:
        counts: ``[R, B]`` rates of cumulative buckets; NaN where a row does not have the bound.
        bounds: ``[B]`` ascending.

    Returns:
        ``[R, C]`` rates without long requests, their bounds ``[C]`` with ``+Inf`` at the end, and ``[R]`` the rate of
        long requests; NaN if it is unknown.
    """
    total = np.full(len(counts), np.nan)
    if counts.size:
        long_counts = np.where(np.isnan(counts), np.inf, counts)[:, bounds >= border.first_long]
        total = long_counts.min(axis=1, initial=np.inf)  # buckets are cumulative: the smallest bound has the fewest
        total[np.isinf(total)] = np.nan
    is_short = bounds < border.first_above
    all_requests = counts[:, -1] if len(bounds) and np.isinf(bounds[-1]) else np.full(len(counts), np.nan)
    short_counts = np.column_stack([counts[:, is_short], total])
    # A bound between the border and the window counts requests that are left out.
    short_counts = np.where(short_counts > total[:, None], total[:, None], short_counts)
    return short_counts, np.append(bounds[is_short], np.inf), all_requests - total


def short_bounds(border: Border) -> str:
    """Return the matcher for buckets from which latencies are read."""
    return f'le!~"{numerals_from(border.first_above)}"'


def long_bounds(border: Border) -> str:
    """Return the matcher for the border and all higher bounds."""
    return f'le=~"{numerals_from(border.first_long)}"'


def without_long(short: str, long: str, keys: str) -> str:
    """Return PromQL for cumulative buckets without long requests.

    Args:
        short, long: rates of buckets with :func:`short_bounds` and :func:`long_bounds`, by ``le`` and ``keys``.
        keys: labels of a ``by`` clause, without ``le``.
    """
    return f'{short} or label_replace(min by ({keys}) ({long}), "le", "+Inf", "", "")'


def long_requests(infinite: str, long: str, keys: str) -> str:
    """Return PromQL for the rate of long requests, where there are any; arguments as in :func:`without_long`, and
    ``infinite`` with the bound ``+Inf`` alone."""
    return f"sum by ({keys}) ({infinite}) - min by ({keys}) ({long}) > {MIN_LONG:.4f}"


def infinite_bound() -> str:
    """Return the matcher for the bucket that counts all requests."""
    return f'le=~"{_INFINITE}"'


def numerals_from(minimum: int) -> str:
    """Return a regular expression for numbers that are not less than ``minimum``, in all spellings, such as ``6e+04``
    and ``+Inf``.

    Args:
        minimum: at least 1, with at most two significant digits.
    """
    first, second, remaining_digits = f"{minimum}0"[0], f"{minimum}0"[1], len(str(minimum)) - 2
    larger = [f"[{int(first) + 1}-9]"] if first != "9" else []
    digits = f"[{second}-9]"
    if remaining_digits < 0:
        integers = [f"[{first}-9]"]
    else:
        integers = [
            *(f"{prefix}[0-9]{{{remaining_digits + 1}}}" for prefix in larger),
            f"{first}{digits}" + f"[0-9]{{{remaining_digits}}}" * (remaining_digits > 0),
        ]
    decimal = f"(?:{'|'.join(integers)}|[1-9][0-9]{{{remaining_digits + 2},}})(?:[.][0-9]*)?"
    mantissas = [*(f"{prefix}(?:[.][0-9]*)?" for prefix in larger), f"{first}[.]{digits}[0-9]*"]
    if second == "0":
        mantissas.append(f"{first}[.]?")
    exponent = remaining_digits + 1
    more = f"(?:[{exponent + 1}-9]|[1-9][0-9])"  # no duration has a larger exponent than 9
    scientific = f"(?:(?:{'|'.join(mantissas)})[eE][+]?0*{exponent}|[1-9](?:[.][0-9]*)?[eE][+]?0*{more})"
    return f"{decimal}|{scientific}|{_INFINITE}"


def _round_down(value: float) -> float:
    """Return two significant digits, or fewer for numbers below 10."""
    step = 10.0 ** max(math.floor(math.log10(value)) - 1, 0) if value >= 1 else 1.0
    return max(math.floor(value / step + 1e-9) * step, 1.0)
