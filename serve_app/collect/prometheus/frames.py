"""From instant vectors to columns: rows by key, values as numbers, whatever Prometheus sent."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from model.snapshot import IntArray, clean_name
from serve_app.collect.prometheus.client import Numbers, Samples

Key = tuple[str, ...]
BUCKET = "le"
VERBATIM = frozenset({BUCKET, "annotation", "value"})  # labels that are no names
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Keys:
    """Keys in the order in which they were first seen. What is of the same keys is joined by their numbers: looking up
    names costs a hundred times as much."""

    seen: list[Key] = field(default_factory=list)
    number: dict[Key, int] = field(default_factory=dict)
    _parts: dict[tuple[int, int | None], IntArray] = field(default_factory=dict)

    def of(self, key: Key) -> int:
        """Its number; a new one if it was never seen."""
        number = self.number.setdefault(key, len(self.seen))
        if number == len(self.seen):
            self.seen.append(key)
        return number

    def part(self, begin: int, end: int | None, of: "Keys") -> IntArray:
        """``[len(self)]`` numbers that a part of each key has among the keys of such parts; always the same ``of``."""
        known = self._parts.get((begin, end), np.empty(0, np.int64))
        if len(known) < len(self.seen):
            new = [of.of(key[begin:end]) for key in self.seen[len(known) :]]
            known = self._parts[begin, end] = np.append(known, np.array(new, np.int64))
        return known

    def __len__(self) -> int:
        return len(self.seen)


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one query by key; a key stands once. NaN: there is a series and it says nothing.

    Attributes:
        of: the keys that numbers are of.
        numbers: int64 ``[R]``, ascending: of the key of each row.
        values: float64 ``[R]``.
    """

    of: Keys
    numbers: IntArray
    values: Numbers

    @classmethod
    def create(cls, values: dict[Key, float]) -> "Column":
        """One with keys of its own."""
        keys = Keys(list(values), {key: i for i, key in enumerate(values)})
        return cls(keys, np.arange(len(values)), np.array([*values.values()], np.float64))

    @property
    def keys(self) -> tuple[Key, ...]:
        """What each row is of."""
        seen = self.of.seen
        return tuple(seen[i] for i in self.numbers.tolist())

    def take(self, rows: NDArray[np.bool_]) -> "Column":
        """Some of the rows."""
        return Column(self.of, self.numbers[rows], self.values[rows])

    def laid(self, on: Keys, numbers: IntArray) -> Numbers:
        """``[len(numbers)]`` values on rows of these keys; NaN where there is none."""
        mine = self.numbers
        if on is not self.of:
            mine = np.fromiter((on.number.get(key, -1) for key in self.keys), np.int64, len(mine))
        by_number = np.full(len(on) + 1, np.nan)  # the last one is of keys that are not there
        by_number[mine] = self.values
        return by_number[numbers]


@dataclass(slots=True)
class Names:
    """Keys of label sets as they came, kept from poll to poll: reading labels is most of the work, and they hardly
    change. ``=text`` among the labels is that text."""

    labels: tuple[str, ...]
    keys: Keys = field(default_factory=Keys)
    known: dict[bytes, int] = field(default_factory=dict)

    def of(self, label_sets: Sequence[bytes]) -> IntArray:
        """``[R]`` numbers of their keys, -1 where a label is absent or empty."""
        found = [self.known.get(one) for one in label_sets]
        if None in found:
            found = [
                self._read(one) if number is None else number for one, number in zip(label_sets, found, strict=True)
            ]
        return np.array(found, np.int64)

    def _read(self, label_set: bytes) -> int:
        given = msgspec.json.decode(label_set, type=dict[str, str])
        key = tuple(_of_label(label, given) for label in self.labels)
        self.known[label_set] = number = self.keys.of(key) if all(key) else -1
        return number


def _of_label(label: str, given: Mapping[str, str]) -> str:
    """A label's value; that of a name has only the characters that names may have, so that services of two names may
    become one."""
    if label.startswith("="):
        return label[1:]
    value = given.get(label, "")
    if label in VERBATIM:
        return value
    name = clean_name(value)
    if name != value:
        _LOG.info("label %s: %r has characters that a name may not have; it is called %r", label, value[:80], name)
    return name


class Buckets:
    """Names of buckets: whose each is, and its bound."""

    def __init__(self, labels: tuple[str, ...], keys: Keys | None = None) -> None:
        self.names = Names((*labels, BUCKET))
        self.keys = Keys() if keys is None else keys
        self._bounds: Numbers = np.empty(0)

    def read(self, numbers: IntArray) -> tuple[IntArray, Numbers]:
        """Numbers of the keys that buckets belong to, and their bounds; NaN: none that can be read."""
        owners = self.names.keys.part(0, -1, self.keys)
        new = self.names.keys.seen[len(self._bounds) :]
        self._bounds = np.append(self._bounds, [_bound(key[-1]) for key in new])
        return owners[numbers], self._bounds[numbers]


def column(samples: Samples, names: Names) -> Column:
    """Samples by key. Two series of one key are added: what a query sums it sums by our labels, so a second one is
    another name of the same thing, as after a relabelling. ``+Inf`` and ``NaN`` become NaN; samples that lack a label
    are left out."""
    numbers, values = names.of(samples.label_sets), samples.values
    if (numbers < 0).any():
        numbers, values = numbers[numbers >= 0], values[numbers >= 0]
    distinct = np.flatnonzero(np.bincount(numbers, minlength=1))
    with np.errstate(invalid="ignore"):
        found = np.bincount(numbers, values, 1)[distinct].astype(np.float64)  # of nothing it makes integers
    found[~np.isfinite(found)] = np.nan
    return Column(names.keys, distinct, found)


def quantiles(samples: Samples, buckets: Buckets, shares: Sequence[float]) -> list[Column]:
    """A column for each share, from rates of cumulative buckets, as ``histogram_quantile`` has it: linear within a
    bucket, the first from 0, and the highest finite bound beyond it. NaN where nothing was counted.

    Args:
        samples: one for each key and bound.
        buckets: their names.
        shares: 0 to 1.
    """
    counted = column(samples, buckets.names)
    owners, bounds = buckets.read(counted.numbers)
    there = np.zeros(len(buckets.keys) + 1, bool)
    there[owners] = True
    row_of, keys = np.cumsum(there) - 1, np.flatnonzero(there)
    usable = ~np.isnan(bounds) & ~np.isnan(counted.values)
    distinct, place = np.unique(bounds[usable], return_inverse=True)
    counts = np.full((len(keys), len(distinct)), np.nan)
    counts[row_of[owners[usable]], place] = counted.values[usable]
    return [Column(buckets.keys, keys, _quantile(counts, distinct, share)) for share in shares]


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


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
