"""Convert the labels and buckets of instant vectors to columns of values by key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from model.names import escape_name, escape_namespace
from model.snapshot import IntArray
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.keys import Column, Key, KeyTable
from serve_app.collect.prometheus.long_requests import MIN_LONG, Border, leave_out_long
from serve_app.collect.prometheus.query import Join
from serve_app.collect.service_labels import ServiceLabels

BUCKET = "le"
OPTIONAL = "?"  # marks a label that a series may lack
VERBATIM = frozenset({BUCKET, "annotation", "value", "queue"})  # labels that are not names
_LABELS = msgspec.json.Decoder(dict[str, str | None] | None)  # some gateways write null for an empty value


def read_labels(label_set: bytes) -> dict[str, str]:
    """Return the labels of one sample that are not empty."""
    return {name: value for name, value in (_LABELS.decode(label_set) or {}).items() if value}


@dataclass(frozen=True, slots=True)
class DroppedSeries:
    """A query's series that name no service, so their values are lost."""

    count: int
    of: int  # number of the query's series
    labels: Mapping[str, str]  # labels of an example
    missing: tuple[str, ...]  # labels that it needs; `a|b` needs one of them


@dataclass(slots=True, eq=False)
class LabelReader:
    """Reads keys from label sets and caches them between polls: reading labels takes most of the time, and label sets
    rarely change. Among the labels, ``=text`` stands for that text, ``?label`` for one that may be absent, and ``a|b``
    for the first of several that is not empty. A bucket's bound is not part of its key.

    Args:
        services: reads the first ``ends`` pairs of labels, which name services.
    """

    labels: tuple[str, ...]
    keys: KeyTable = field(default_factory=KeyTable)
    services: ServiceLabels = field(default_factory=ServiceLabels)
    ends: int = 0
    _places: dict[bytes, int] = field(default_factory=dict)  # label sets
    _owners: IntArray = field(default_factory=lambda: np.empty(0, np.int64))  # of each: number of its key; -1: none
    _bounds: Numbers = field(default_factory=lambda: np.empty(0))  # of each bucket; NaN: unreadable

    def __len__(self) -> int:
        """Number of known label sets."""
        return len(self._places)

    def read(self, label_sets: Sequence[bytes]) -> "ReadLabels":
        try:
            places = self._find(label_sets)
        except KeyError:  # some are new
            self._add([label_set for label_set in dict.fromkeys(label_sets) if label_set not in self._places])
            places = self._find(label_sets)
        owners, dropped_series = self._owners[places], None
        if len(nameless := np.flatnonzero(owners < 0)):
            values = read_labels(label_sets[int(nameless[0])])
            dropped_series = DroppedSeries(len(nameless), len(owners), values, self._missing(self._key(values)))
        return ReadLabels(label_sets, self.keys, owners, self._bounds[places], dropped_series)

    def _find(self, label_sets: Sequence[bytes]) -> IntArray:
        return np.fromiter(map(self._places.__getitem__, label_sets), np.int64, len(label_sets))

    def _add(self, new_label_sets: Sequence[bytes]) -> None:
        is_bucket = self.labels[-1:] == (BUCKET,)
        keys = [self._key(_LABELS.decode(label_set) or {}) for label_set in new_label_sets]
        owners = [-1 if self._missing(key) else self.keys.number(key[:-1] if is_bucket else key) for key in keys]
        self._places |= zip(
            new_label_sets, range(len(self._places), len(self._places) + len(new_label_sets)), strict=True
        )
        self._owners = np.append(self._owners, np.array(owners, np.int64))
        self._bounds = np.append(self._bounds, [_bound(key[-1]) if is_bucket else np.nan for key in keys])

    def _missing(self, key: Key) -> tuple[str, ...]:
        """Return the labels without a value, except optional ones."""
        return tuple(
            label for label, part in zip(self.labels, key, strict=True) if not part and not label.startswith(OPTIONAL)
        )

    def _key(self, values: Mapping[str, str | None]) -> Key:
        key: Key = ()
        for place in range(0, 2 * self.ends, 2):
            namespace, name = self.labels[place : place + 2]
            is_fixed = namespace.startswith("=")
            key += self.services.read(_values(namespace, values), _values(name, values), is_fixed=is_fixed)
        other_labels = enumerate(self.labels[2 * self.ends :])
        return key + tuple(_label_value(label, values, is_namespace=not i % 2) for i, label in other_labels)


@dataclass(frozen=True, eq=False)
class ReadLabels:
    """The labels of a reply: for each series, its key's number, or -1, and its bucket's bound."""

    label_sets: Sequence[bytes]
    keys: KeyTable
    owners: IntArray
    bounds: Numbers
    dropped_series: DroppedSeries | None

    @cached_property
    def cells(self) -> tuple[NDArray[np.bool_], IntArray, Numbers, IntArray]:
        """The table of all buckets: which series are buckets, the rows' keys, the columns' bounds, and each bucket's
        cell."""
        is_bucket = (self.owners >= 0) & ~np.isnan(self.bounds)
        present, row = np.unique(self.owners[is_bucket], return_inverse=True)
        bounds, place = np.unique(self.bounds[is_bucket], return_inverse=True)
        return is_bucket, present, bounds, row * len(bounds) + place


def _values(label: str, values: Mapping[str, str | None]) -> tuple[str, ...]:
    if label.startswith("="):
        return (label[1:],)
    return tuple([values.get(name) or "" for name in label.split("|")])


def _label_value(label: str, values: Mapping[str, str | None], *, is_namespace: bool) -> str:
    """Return a label's value as part of an id. Namespaces and names alternate in keys."""
    if label.startswith("="):
        return label[1:]
    if label.startswith(OPTIONAL):
        return values.get(label[1:]) or ""
    value = next(filter(None, (values.get(name) for name in label.split("|"))), "")
    if label in VERBATIM:
        return value
    return escape_namespace(value) if is_namespace else escape_name(value)


def read_column(values: Numbers, labels: ReadLabels, joined_by: Join = "sum") -> Column:
    """Convert samples to a column.

    Queries already group by the same labels, so series with one key differ only in how a label's value is spelled.
    ``+Inf`` and ``NaN`` become NaN. Samples that lack one of the labels are left out.
    """
    numbers, values = labels.owners, np.where(np.isfinite(values), values, np.nan)
    if labels.dropped_series:
        numbers, values = numbers[numbers >= 0], values[numbers >= 0]
    return Column.join(labels.keys, numbers, values, joined_by)


def read_quantiles(
    values: Numbers, labels: ReadLabels, shares: Sequence[float], border: Border | None = None
) -> list[Column]:
    """Return the quantiles from rates of cumulative buckets, with the interpolation of ``histogram_quantile``: linear
    within a bucket, from 0 in the first one, and the highest finite bound above it. Rates with the same bound are
    added, however it is spelled: ``0.1``, ``0.10`` and ``1e-1``.

    Args:
        values: one for each key and bound.
        shares: quantiles, 0 to 1.
        border: separates long requests, which the quantiles leave out; None: they leave out nothing.

    Returns:
        A column for each share; NaN without counts. With a border, one more: the rate of long requests, where there are
        any.
    """
    is_bucket, present, distinct, cells = labels.cells
    size, rates = len(present) * len(distinct), values[is_bucket]
    is_known = np.isfinite(rates)
    counts: Numbers = np.bincount(cells[is_known], rates[is_known], size).astype(np.float64)
    counts[np.bincount(cells[is_known], minlength=size) == 0] = np.nan
    counts, more = counts.reshape(len(present), len(distinct)), []
    if border is not None:
        counts, distinct, long = leave_out_long(counts, distinct, border)
        more.append(Column(labels.keys, present, long).only(long >= MIN_LONG))
    return [*(Column(labels.keys, present, bucket_quantile(counts, distinct, share)) for share in shares), *more]


def _bound(text: str) -> float:
    """Parse a bucket's bound; NaN if it is not a number.

    Twelve digits distinguish all bounds that people choose. Further digits come from unit conversions: 0.3 s in one
    exporter is 0.30000000000000004 s in another.
    """
    try:
        return float(f"{float(text):.12g}")
    except ValueError:
        return np.nan


def bucket_quantile(counts: Numbers, bounds: Numbers, share: float) -> Numbers:
    """Return ``[R]`` from cumulative counts ``[R, B]`` at ascending bounds ``[B]``; NaN if a row does not have a
    bound."""
    if not counts.size or not np.isinf(bounds[-1]):  # without the +Inf bucket the total is unknown
        return np.full(len(counts), np.nan)
    # Each bucket's rate is rounded separately, so a higher bucket can be slightly smaller: make them cumulative again.
    monotonic = np.fmax.accumulate(np.where(np.isnan(counts), -np.inf, counts), axis=1)
    monotonic = np.maximum(monotonic, 0)
    total = np.where(np.isnan(counts[:, -1]), np.nan, monotonic[:, -1])
    rank = share * total
    with np.errstate(invalid="ignore"):
        place = (monotonic < rank[:, None]).sum(axis=1).clip(0, len(bounds) - 1)
    rows = np.arange(len(counts))
    # The nearest bounds below and above that the row has.
    has = ~np.isnan(counts)
    below = _nearest_before(has, place)
    upper = bounds[place]
    lower = np.where(below >= 0, bounds[below], 0.0)
    before = np.where(below >= 0, monotonic[rows, below], 0.0)
    within = monotonic[rows, place] - before
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = lower + (upper - lower) * np.where(within > 0, (rank - before) / within, 1.0)
    result = np.where(np.isinf(upper), lower, inside)
    return np.where((total > 0) & (np.isfinite(result)), result, np.nan)


def _nearest_before(has: NDArray[np.bool_], place: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``[R]`` the last column before ``place`` that a row has; -1 if there is none."""
    columns = np.arange(has.shape[1])
    earlier = has & (columns < place[:, None])
    return np.where(earlier.any(axis=1), has.shape[1] - 1 - np.argmax(earlier[:, ::-1], axis=1), -1)
