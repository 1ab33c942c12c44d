"""From instant vectors to columns: rows by key, values as numbers, whatever Prometheus sent."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.sources.prometheus.client import Sample

Key = tuple[str, ...]
Numbers = NDArray[np.float64]

BUCKET = "le"


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one query by key; a key stands once. NaN: there is a series and it says nothing.

    Attributes:
        keys: what each row is of.
        values: float64, one a key.
        repeated: samples whose key was there before; they were added to it.
        unnamed: samples that lack one of the labels, and are left out.
    """

    keys: tuple[Key, ...]
    values: Numbers
    repeated: int = 0
    unnamed: int = 0


@dataclass(slots=True)
class Names:
    """Keys of label sets as they came, kept from poll to poll: reading labels is most of the work, and they hardly
    change. Bounded: beyond ``most`` it starts anew. ``=text`` among the labels is that text."""

    labels: tuple[str, ...]
    most: int = 500_000
    known: dict[bytes, Key | None] = field(default_factory=dict)

    def of(self, metric: msgspec.Raw) -> Key | None:
        """The values of the labels, None where one is absent or empty."""
        raw = bytes(metric)
        if raw in self.known:
            return self.known[raw]
        if len(self.known) >= self.most:
            self.known.clear()
        given = msgspec.json.decode(raw, type=dict[str, str])
        key = tuple(label[1:] if label.startswith("=") else given.get(label, "") for label in self.labels)
        self.known[raw] = found = key if all(key) else None
        return found


def column(samples: Sequence[Sample], names: Names) -> Column:
    """Samples by key. Two series of one key are added: what a query sums it sums by our labels, so a second one is
    another name of the same thing, as after a relabelling. ``+Inf`` and ``NaN`` become NaN."""
    row_of: dict[Key, int] = {}
    values: list[float] = []
    repeated = unnamed = 0
    for sample in samples:
        key = names.of(sample.metric)
        if key is None:
            unnamed += 1
            continue
        value = float(sample.value[1])
        row = row_of.setdefault(key, len(values))
        if row == len(values):
            values.append(value)
        else:
            repeated += 1
            values[row] += value
    found = np.array(values, np.float64)
    found[~np.isfinite(found)] = np.nan
    return Column(tuple(row_of), found, repeated, unnamed)


def quantiles(samples: Sequence[Sample], names: Names, shares: Sequence[float]) -> list[Column]:
    """A column for each share, from rates of cumulative buckets, as ``histogram_quantile`` has it: linear within a
    bucket, the first from 0, and the highest finite bound beyond it. NaN where nothing was counted.

    Args:
        samples: one for each key and bound; the last label of ``names`` is ``le``.
        names: the key's labels, then ``le``.
        shares: 0 to 1.
    """
    buckets = column(samples, names)
    row_of: dict[Key, int] = {}
    rows = np.fromiter((row_of.setdefault(key[:-1], len(row_of)) for key in buckets.keys), np.int64, len(buckets.keys))
    place_of: dict[str, float] = {}
    bounds = np.fromiter((_bound(key[-1], place_of) for key in buckets.keys), np.float64, len(buckets.keys))
    usable = ~np.isnan(bounds) & ~np.isnan(buckets.values)
    distinct = np.unique(bounds[usable])
    counts = np.full((len(row_of), len(distinct)), np.nan)
    counts[rows[usable], np.searchsorted(distinct, bounds[usable])] = buckets.values[usable]
    keys = tuple(row_of)
    return [Column(keys, _quantile(counts, distinct, share), buckets.repeated, buckets.unnamed) for share in shares]


def _bound(text: str, known: dict[str, float]) -> float:
    if text not in known:
        try:
            known[text] = float(text)
        except ValueError:
            known[text] = np.nan
    return known[text]


def _quantile(counts: Numbers, bounds: Numbers, share: float) -> Numbers:
    """``[R]`` from cumulative counts ``[R, B]`` at ascending bounds ``[B]``; NaN: a bound that a row does not have."""
    if not counts.size or not np.isinf(bounds[-1]):  # without +Inf nobody knows how many there are
        return np.full(len(counts), np.nan)
    # Rates of buckets are computed one by one and may fall by a rounding: cumulative again.
    filled = np.fmax.accumulate(np.where(np.isnan(counts), -np.inf, counts), axis=1)
    filled = np.maximum(filled, 0)
    total = np.where(np.isnan(counts[:, -1]), np.nan, filled[:, -1])
    wanted = share * total
    with np.errstate(invalid="ignore"):
        place = (filled < wanted[:, None]).sum(axis=1).clip(0, len(bounds) - 1)
    rows = np.arange(len(counts))
    # A row's own bounds: the nearest ones below and above that it has.
    has = ~np.isnan(counts)
    below = _nearest_before(has, place)
    upper = bounds[place]
    lower = np.where(below >= 0, bounds[below], 0.0)
    before = np.where(below >= 0, filled[rows, below], 0.0)
    within = filled[rows, place] - before
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = lower + (upper - lower) * np.where(within > 0, (wanted - before) / within, 1.0)
    result = np.where(np.isinf(upper), lower, inside)
    return np.where((total > 0) & (np.isfinite(result)), result, np.nan)


def _nearest_before(has: NDArray[np.bool_], place: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[R]`` the last column before ``place`` that a row has, -1: none."""
    columns = np.arange(has.shape[1])
    earlier = has & (columns < place[:, None])
    return np.where(earlier.any(axis=1), has.shape[1] - 1 - np.argmax(earlier[:, ::-1], axis=1), -1)
