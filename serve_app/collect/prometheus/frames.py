"""Convert instant vectors to columns: values by key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from model.names import escape_name, escape_namespace
from model.snapshot import IntArray
from serve_app.collect.prometheus.client import Numbers, Samples
from serve_app.collect.prometheus.long_requests import MIN_LONG, Border, leave_out_long
from serve_app.collect.prometheus.query import Join
from serve_app.collect.service_labels import ServiceLabels

Key = tuple[str, ...]
Column = dict[Key, float]  # values of one query; not a number: a series without a usable value
Columns = Mapping[str, Column]  # by role
BUCKET = "le"
OPTIONAL = "?"  # before a label that a series may lack
VERBATIM = frozenset({BUCKET, "annotation", "value", "queue"})  # labels that are not names
_LABELS = msgspec.json.Decoder(dict[str, str | None] | None)  # some gateways write null for what is empty


def read_labels(label_set: bytes) -> dict[str, str]:
    """The labels of one sample that are not empty."""
    return {name: value for name, value in (_LABELS.decode(label_set) or {}).items() if value}


@dataclass(frozen=True, slots=True)
class DroppedSeries:
    """Series of a query that name no service, so their values are lost."""

    count: int
    of: int  # all series of the query
    labels: Mapping[str, str]  # of one of them
    missing: tuple[str, ...]  # labels that it needs; `a|b` needs one of them


@dataclass(slots=True, eq=False)
class LabelReader:
    """Reads keys from label sets and caches them between polls: reading labels is most of the work, and label sets
    rarely change. Among the labels, ``=text`` stands for that text, ``?label`` for one that may be absent, and ``a|b``
    for the first of several that is not empty.

    Args:
        services: reads the first ``ends`` pairs of labels, which name services of a mesh.
    """

    labels: tuple[str, ...]
    services: ServiceLabels = field(default_factory=ServiceLabels)
    ends: int = 0
    known: dict[bytes, Key] = field(default_factory=dict)  # by label set
    dropped: DroppedSeries | None = None  # of the last reading
    _services: list[tuple[tuple[str, ...], tuple[str, ...], str]] = field(default_factory=list)  # labels, and constants

    def __post_init__(self) -> None:
        names = self.labels[: 2 * self.ends]
        self._services = [
            (tuple(of.split("|")), tuple(name.split("|")), of[1:] if of.startswith("=") else "")
            for of, name in zip(names[::2], names[1::2], strict=True)
        ]

    def read(self, label_sets: Sequence[bytes]) -> list[Key]:
        """The key of each label set; empty if a label that is not optional is absent or empty."""
        keys = [self.known.get(label_set) or self._read(label_set) for label_set in label_sets]
        nameless = [label_set for label_set, key in zip(label_sets, keys, strict=True) if not key]
        self.dropped = None
        if nameless:
            values = read_labels(nameless[0])
            self.dropped = DroppedSeries(len(nameless), len(keys), values, self._missing(self._key(values)))
        return keys

    def _read(self, label_set: bytes) -> Key:
        key = self._key(_LABELS.decode(label_set) or {})
        if self._missing(key):
            return ()
        self.known[label_set] = key
        return key

    def _missing(self, key: Key) -> tuple[str, ...]:
        """Labels without a value, except optional ones."""
        return tuple(
            label for label, part in zip(self.labels, key, strict=True) if not part and not label.startswith(OPTIONAL)
        )

    def _key(self, values: Mapping[str, str | None]) -> Key:
        key: Key = ()
        for namespaces, names, constant in self._services:
            of = (constant,) if constant else _values(namespaces, values)
            key += self.services.read(of, _values(names, values), is_fixed=bool(constant))
        others = enumerate(self.labels[2 * self.ends :])
        return key + tuple(_label_value(label, values, is_namespace=not i % 2) for i, label in others)


def _values(labels: tuple[str, ...], values: Mapping[str, str | None]) -> tuple[str, ...]:
    if len(labels) == 1:
        return (values.get(labels[0]) or "",)
    return tuple([values.get(label) or "" for label in labels])


def _label_value(label: str, values: Mapping[str, str | None], *, is_namespace: bool) -> str:
    """The value of a label, as a part of an id. Namespaces and names alternate in keys."""
    if label.startswith("="):
        return label[1:]
    if label.startswith(OPTIONAL):
        return values.get(label[1:]) or ""
    value = next(filter(None, (values.get(name) for name in label.split("|"))), "")
    if label in VERBATIM:
        return value
    return escape_namespace(value) if is_namespace else escape_name(value)


class BucketReader:
    """Reads the owner and the bound of histogram buckets from their labels.

    Attributes:
        owners: keys without the bound.
    """

    def __init__(self, labels: tuple[str, ...], services: ServiceLabels | None = None, ends: int = 0) -> None:
        self.labels = LabelReader((*labels, BUCKET), services or ServiceLabels(), ends)
        self.owners: list[Key] = []
        self._owner_numbers: dict[Key, int] = {}
        self._numbers: dict[bytes, int] = {}  # of buckets, by label set
        self._buckets: tuple[IntArray, Numbers] = np.empty(0, np.int64), np.empty(0)  # owner and bound of each

    def read(self, label_sets: Sequence[bytes]) -> tuple[IntArray, Numbers]:
        """``[R]`` number of each bucket's owner in ``owners``, and ``[R]`` its bound; NaN if either is unreadable."""
        try:
            numbers = self._find(label_sets)
        except KeyError:  # some are new
            self._add([label_set for label_set in label_sets if label_set not in self._numbers])
            numbers = self._find(label_sets)
        return self._buckets[0][numbers], self._buckets[1][numbers]

    def _find(self, label_sets: Sequence[bytes]) -> IntArray:
        return np.fromiter(map(self._numbers.__getitem__, label_sets), np.int64, len(label_sets))

    def _add(self, new: Sequence[bytes]) -> None:
        places = [self._place(key) for key in self.labels.read(new)]
        self._numbers |= zip(new, range(len(self._numbers), len(self._numbers) + len(new)), strict=True)
        owners, bounds = self._buckets
        self._buckets = (
            np.append(owners, np.array([owner for owner, _ in places], np.int64)),
            np.append(bounds, [bound for _, bound in places]),
        )

    def _place(self, key: Key) -> tuple[int, float]:
        if not key:
            return 0, np.nan
        number = self._owner_numbers.setdefault(key[:-1], len(self.owners))
        if number == len(self.owners):
            self.owners.append(key[:-1])
        return number, _bound(key[-1])


def read_column(samples: Samples, reader: LabelReader, joined_by: Join = "sum") -> Column:
    """Convert samples to a column.

    Queries group by the same labels already, so several series with one key differ in the spelling of a label's value.
    ``+Inf`` and ``NaN`` become NaN. Samples without one of the labels are left out.

    Args:
        joined_by: how the values of one key are joined. A sum with NaN is NaN; the largest value ignores NaN.
    """
    column: Column = {}
    values = np.where(np.isfinite(samples.values), samples.values, np.nan).tolist()
    for key, value in zip(reader.read(samples.label_sets), values, strict=True):
        before = column.get(key)
        if before is None:
            column[key] = value
        else:
            column[key] = before + value if joined_by == "sum" else float(np.fmax(before, value))
    column.pop((), None)
    return column


def read_quantiles(
    samples: Samples, reader: BucketReader, shares: Sequence[float], border: Border | None = None
) -> list[Column]:
    """Quantiles from rates of cumulative buckets, with the interpolation of ``histogram_quantile``: linear within a
    bucket, from 0 in the first one, and the highest finite bound above it. Rates of one bound are added, however it is
    spelled: ``0.1``, ``0.10`` and ``1e-1``.

    Args:
        samples: one for each key and bound.
        shares: quantiles, 0 to 1.
        border: from which requests are long, and left out of the quantiles; None: none is left out.

    Returns:
        A column for each share; NaN without counts. With a border one more: the rate of long requests, where there are
        any.
    """
    owners, bounds = reader.read(samples.label_sets)
    is_bucket = ~np.isnan(bounds)
    present, row = np.unique(owners[is_bucket], return_inverse=True)
    distinct, place = np.unique(bounds[is_bucket], return_inverse=True)
    cells, size = row * len(distinct) + place, len(present) * len(distinct)
    rates = samples.values[is_bucket]
    is_known = np.isfinite(rates)
    counts: Numbers = np.bincount(cells[is_known], rates[is_known], size).astype(np.float64)
    counts[np.bincount(cells[is_known], minlength=size) == 0] = np.nan
    counts = counts.reshape(len(present), len(distinct))
    owners_of, more = [reader.owners[number] for number in present.tolist()], []
    if border is not None:
        counts, distinct, long = leave_out_long(counts, distinct, border)
        some = np.flatnonzero(long >= MIN_LONG)
        more.append({owners_of[row]: rate for row, rate in zip(some.tolist(), long[some].tolist(), strict=True)})
    quantiles = (bucket_quantile(counts, distinct, share) for share in shares)
    return [*(dict(zip(owners_of, values.tolist(), strict=True)) for values in quantiles), *more]


def _bound(text: str) -> float:
    """The number of a bucket's bound; NaN if it is not a number.

    Twelve digits distinguish all bounds that people choose. Further ones come from conversions of a unit: 0.3 s of one
    exporter is 0.30000000000000004 s of another.
    """
    try:
        return float(f"{float(text):.12g}")
    except ValueError:
        return np.nan


def bucket_quantile(counts: Numbers, bounds: Numbers, share: float) -> Numbers:
    """``[R]`` from cumulative counts ``[R, B]`` at ascending bounds ``[B]``; NaN if a row does not have a bound."""
    if not counts.size or not np.isinf(bounds[-1]):  # without the +Inf bucket the total is unknown
        return np.full(len(counts), np.nan)
    # Each bucket's rate is rounded separately, so a higher bucket can be slightly smaller: make them cumulative again.
    filled = np.fmax.accumulate(np.where(np.isnan(counts), -np.inf, counts), axis=1)
    filled = np.maximum(filled, 0)
    total = np.where(np.isnan(counts[:, -1]), np.nan, filled[:, -1])
    rank = share * total
    with np.errstate(invalid="ignore"):
        place = (filled < rank[:, None]).sum(axis=1).clip(0, len(bounds) - 1)
    rows = np.arange(len(counts))
    # The nearest bounds below and above that the row has.
    has = ~np.isnan(counts)
    below = _nearest_before(has, place)
    upper = bounds[place]
    lower = np.where(below >= 0, bounds[below], 0.0)
    before = np.where(below >= 0, filled[rows, below], 0.0)
    within = filled[rows, place] - before
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = lower + (upper - lower) * np.where(within > 0, (rank - before) / within, 1.0)
    result = np.where(np.isinf(upper), lower, inside)
    return np.where((total > 0) & (np.isfinite(result)), result, np.nan)


def _nearest_before(has: NDArray[np.bool_], place: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[R]`` the last column before ``place`` that a row has; -1 if there is none."""
    columns = np.arange(has.shape[1])
    earlier = has & (columns < place[:, None])
    return np.where(earlier.any(axis=1), has.shape[1] - 1 - np.argmax(earlier[:, ::-1], axis=1), -1)
