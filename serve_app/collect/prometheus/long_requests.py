"""Requests that last longer than the rate window: streams, websockets, downloads.

A request is counted when it ends. One that ends after an hour says nothing about the last minute, so latencies leave
out requests that lasted longer than the window. Histograms have no bound at the window's length in general: the
smallest bound of at least ``NEAR`` windows is the border, and all requests that took longer are left out. Where the
highest finite bound is lower, no border is known, and none is left out: a service that hangs must not look healthy.

Values of polled buckets are cut by :func:`leave_out_long`, recorded ones by the PromQL of :func:`without_long`.
"""

import math
from dataclasses import dataclass

import numpy as np

from serve_app.collect.prometheus.client import Numbers

NEAR = 0.8  # of the window: Linkerd's highest bound, 50 s, is near enough to a window of 60 s
LEAST_LONG = 1e-4  # 1/s; less is rounding, since one request in an hour's window is more
_INFINITE = "[+]?[Ii]nf"


@dataclass(frozen=True, slots=True)
class Border:
    """The bounds of a histogram that matter for a rate window.

    Attributes:
        first_long: the smallest bound of at least this value is the border; unit of the bounds.
        first_above: bounds from here on are longer than the window, so no latency is read from them.
    """

    first_long: int
    first_above: int

    @classmethod
    def of(cls, window_seconds: float, unit: float) -> "Border":
        """The border for a rate window.

        Args:
            window_seconds: rate window, s.
            unit: factor that converts a bound to s.
        """
        window = window_seconds / unit
        return cls(max(math.ceil(NEAR * window - 1e-6), 1), math.floor(window + 1e-6) + 1)


def leave_out_long(counts: Numbers, bounds: Numbers, border: Border) -> tuple[Numbers, Numbers, Numbers]:
    """Leave out long requests.

    Args:
        counts: ``[R, B]`` rates of cumulative buckets; NaN where a row does not have the bound.
        bounds: ``[B]`` ascending.
        border: of the rate window.

    Returns:
        ``[R, C]`` rates without long requests, their bounds ``[C]`` with ``+Inf`` at the end, and ``[R]`` the rate of
        long requests; NaN if it is unknown.
    """
    total = np.full(len(counts), np.nan)
    if counts.size:
        beyond = np.where(np.isnan(counts), np.inf, counts)[:, bounds >= border.first_long]
        total = beyond.min(axis=1, initial=np.inf)  # buckets are cumulative: the least is that of the smallest bound
        total[np.isinf(total)] = np.nan
    is_kept = bounds < border.first_above
    all_requests = counts[:, -1] if len(bounds) and np.isinf(bounds[-1]) else np.full(len(counts), np.nan)
    kept = np.column_stack([counts[:, is_kept], total])
    # A bound between the border and the window counts requests that are left out.
    kept = np.where(kept > total[:, None], total[:, None], kept)
    return kept, np.append(bounds[is_kept], np.inf), all_requests - total


def short_bounds(border: Border) -> str:
    """The matcher of buckets from which latencies are read."""
    return f'le!~"{numerals_from(border.first_above)}"'


def long_bounds(border: Border) -> str:
    """The matcher of the border and of all higher bounds."""
    return f'le=~"{numerals_from(border.first_long)}"'


def without_long(short: str, long: str, keys: str) -> str:
    """PromQL for cumulative buckets without long requests.

    Args:
        short, long: rates of buckets with :func:`short_bounds` and :func:`long_bounds`, by ``le`` and ``keys``.
        keys: labels of a ``by`` clause, without ``le``.
    """
    return f'{short} or label_replace(min by ({keys}) ({long}), "le", "+Inf", "", "")'


def long_requests(infinite: str, long: str, keys: str) -> str:
    """PromQL for the rate of long requests, where there are any; arguments as of :func:`without_long`, and ``infinite``
    with the bound ``+Inf`` alone."""
    return f"sum by ({keys}) ({infinite}) - min by ({keys}) ({long}) > {LEAST_LONG:.4f}"


def infinite_bound() -> str:
    """The matcher of the bucket of all requests."""
    return f'le=~"{_INFINITE}"'


def numerals_from(least: int) -> str:
    """A regular expression for all spellings of numbers of at least ``least``, also ``6e+04`` and ``+Inf``."""
    digits = str(least)
    length = len(digits)
    larger = [
        f"{digits[:i]}[{int(digit) + 1}-9]" + f"[0-9]{{{length - i - 1}}}" * (i < length - 1)
        for i, digit in enumerate(digits)
        if digit != "9"
    ]
    decimal = f"(?:{'|'.join((*larger, digits, f'[1-9][0-9]{{{length},}}'))})(?:[.][0-9]*)?"
    return f"{decimal}|{_scientific(digits)}|{_INFINITE}"


def _scientific(digits: str) -> str:
    """Numbers from ``digits`` on, as mantissa and exponent."""
    exponent = len(digits) - 1
    significant = digits.rstrip("0")
    mantissas = []
    for i, digit in enumerate(significant):
        before = significant[:i] if i < 2 else f"{significant[0]}[.]{significant[1:i]}"
        point = "[.]" if i == 1 else ""
        if digit != "9":
            mantissas.append(f"{before}{point}[{int(digit) + 1}-9]" + ("(?:[.][0-9]*)?" if i == 0 else "[0-9]*"))
    rest = significant[1:]
    mantissas.append(f"{significant[0]}[.]{rest}[0-9]*" if rest else f"{significant[0]}(?:[.][0-9]*)?")
    here = f"(?:{'|'.join(mantissas)})[eE][+]?0*{exponent}"
    return f"{here}|[1-9](?:[.][0-9]*)?[eE][+]?0*{_integers_from(exponent + 1)}"


def _integers_from(least: int) -> str:
    """Exponents of one or two digits from ``least`` on."""
    if least > 9:
        return f"(?:{'|'.join(str(number) for number in range(least, 24))})"
    return f"(?:[{least}-9]|[1-9][0-9])"
