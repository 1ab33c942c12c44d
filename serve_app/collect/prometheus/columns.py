"""Keeps columns between polls: labels that were read, and values that stand in for a failed query."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from serve_app.collect.base import Role
from serve_app.collect.prometheus.client import QueryAnswer, Samples
from serve_app.collect.prometheus.combine import ENDS, KUBERNETES, Levels, split_level
from serve_app.collect.prometheus.frames import (
    BUCKET,
    DroppedSeries,
    LabelReader,
    ReadLabels,
    read_column,
    read_quantiles,
)
from serve_app.collect.prometheus.keys import Column, KeyTable
from serve_app.collect.prometheus.long_requests import Border
from serve_app.collect.prometheus.query import Query
from serve_app.collect.prometheus.signals import PODS
from serve_app.collect.service_labels import ServiceLabels
from serve_app.settings.roles import SHARES

KEEP_SECONDS = 45.0  # the last values stand in for three snapshots; after that, they would hide a fault
FRESH_ONLY = {(KUBERNETES, PODS)}  # old values cannot stand in: events would count twice


class ColumnCache:
    """Reads columns. Queries that use the same labels share what is read from them. Labels are read again only when a
    query returns other series."""

    def __init__(self) -> None:
        self._keys, self._services = KeyTable(), ServiceLabels()
        self._readers: dict[tuple[int, tuple[str, ...]], LabelReader] = {}
        self._labels: dict[Role, ReadLabels] = {}  # from each query's last result
        self._newest: dict[Role, tuple[Mapping[str, Column], datetime]] = {}  # from each query's last success

    def __len__(self) -> int:
        """Number of known label sets."""
        return sum(map(len, self._readers.values()))

    def poll(
        self, queries: Mapping[Role, Query], answers: Mapping[Role, QueryAnswer], at: datetime, window_seconds: float
    ) -> tuple[Levels, dict[Role, float], tuple[Role, ...]]:
        """Return the columns of all answers. For failed queries, these are the last ones if they are at most
        :data:`KEEP_SECONDS` old.

        Returns:
            The columns; the age of values that stand in for a failed query, s; failed queries without recent values.
        """
        levels: dict[str, dict[str, Column]] = defaultdict(dict)
        stale: dict[Role, float] = {}
        masked: list[Role] = []
        for role, answer in answers.items():
            if not answer.failed:
                self._newest[role] = self.read(role, queries[role], answer.samples, window_seconds), at
            columns, read_at = self._newest.get(role, ({}, None))
            age = abs((at - read_at).total_seconds()) if read_at else float("inf")
            if age > (0.0 if role in FRESH_ONLY else KEEP_SECONDS):
                masked.append(role)
                continue
            if age:
                stale[role] = age
            levels[role[0]].update(columns)
        return levels, stale, tuple(masked)

    def seconds_since(self, role: Role, at: datetime) -> float | None:
        """Return the seconds since the last successful query; None without one."""
        newest = self._newest.get(role)
        return (at - newest[1]).total_seconds() if newest else None

    def read(self, role: Role, query: Query, samples: Samples, window_seconds: float = 0.0) -> dict[str, Column]:
        """Convert a result to columns, in our units. Latencies need the rate window."""
        is_bucket = role[1] == "buckets"
        labels = self._read_labels(role, (*query.labels, BUCKET) if is_bucket else query.labels, samples.label_sets)
        if not is_bucket:
            column = read_column(samples.values * query.unit, labels, query.joined_by)
            return {role[1]: column}
        rates = samples.values if query.is_verbatim else samples.values / window_seconds
        border = Border.of(window_seconds, query.unit)
        *columns, long = read_quantiles(rates, labels, list(SHARES.values()), border)
        in_seconds = (Column(column.table, column.numbers, column.array * query.unit) for column in columns)
        return {"long_requests": long} | dict(zip(SHARES, in_seconds, strict=True))

    def _read_labels(self, role: Role, labels: tuple[str, ...], label_sets: Sequence[bytes]) -> ReadLabels:
        if (last := self._labels.get(role)) is None or last.label_sets != label_sets:
            ends = ENDS.get(split_level(role[0])[0], 0)
            if (reader := self._readers.get((ends, labels))) is None:
                reader = self._readers[ends, labels] = LabelReader(labels, self._keys, self._services, ends)
            last = self._labels[role] = reader.read(label_sets)
        return last

    def dropped_series(self, roles: Collection[Role]) -> dict[Role, DroppedSeries]:
        """Return the series without a service name in each query's last result."""
        labels = {role: self._labels[role] for role in roles if role in self._labels}
        return {role: read.dropped_series for role, read in labels.items() if read.dropped_series is not None}

    def folded_names(self) -> dict[str, str]:
        """Return the names in labels that are not services, with their kind."""
        return dict(self._services.folded_names)
