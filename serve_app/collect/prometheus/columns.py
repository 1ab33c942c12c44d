"""Columns of queries between polls: what is known of labels, and the values that stand in for a failed query."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime

from serve_app.collect.base import Role
from serve_app.collect.prometheus.client import QueryAnswer, Samples
from serve_app.collect.prometheus.combine import ENDS, KUBERNETES, Levels, split_level
from serve_app.collect.prometheus.frames import (
    BucketReader,
    Column,
    DroppedSeries,
    LabelReader,
    read_column,
    read_quantiles,
)
from serve_app.collect.prometheus.long_requests import Border
from serve_app.collect.prometheus.query import Query
from serve_app.collect.prometheus.signals import PODS
from serve_app.collect.service_labels import ServiceLabels
from serve_app.settings.roles import SHARES

KEEP_SECONDS = 45.0  # three snapshots, for which the last values stand in; after that, they would hide a fault
FRESH_ONLY = {(KUBERNETES, PODS)}  # old values cannot stand in: events would count twice


class ColumnCache:
    """Reads columns. The labels of queries with the same labels are read once."""

    def __init__(self) -> None:
        self._services = ServiceLabels()
        self._readers: dict[tuple[int, tuple[str, ...]], LabelReader] = {}
        self._buckets: dict[tuple[int, tuple[str, ...]], BucketReader] = {}
        self._dropped: dict[Role, DroppedSeries | None] = {}
        self._newest: dict[Role, tuple[Mapping[str, Column], datetime]] = {}  # of the last successful query

    def __len__(self) -> int:
        """Number of label sets that are known."""
        readers = (*self._readers.values(), *(bucket.labels for bucket in self._buckets.values()))
        return sum(len(reader.known) for reader in readers)

    def poll(
        self,
        queries: Mapping[Role, Query],
        answers: Mapping[Role, QueryAnswer],
        at: datetime,
        window_seconds: float,
    ) -> tuple[Levels, dict[Role, float], tuple[Role, ...]]:
        """Columns of all answers; for failed queries the last ones while they are not older than :data:`KEEP_SECONDS`.

        Returns:
            The columns; the age of values that stand in for a failed query, s; failed queries without recent values.
        """
        found: dict[str, dict[str, Column]] = defaultdict(dict)
        stale: dict[Role, float] = {}
        masked: list[Role] = []
        for role, answer in answers.items():
            if not answer.failed:
                self._newest[role] = self.read(role, queries[role], answer.samples, window_seconds), at
            columns, of = self._newest.get(role, ({}, None))
            age = abs((at - of).total_seconds()) if of else float("inf")
            if age > (0.0 if role in FRESH_ONLY else KEEP_SECONDS):
                masked.append(role)
                continue
            if age:
                stale[role] = age
            found[role[0]].update(columns)
        return found, stale, tuple(masked)

    def seconds_since(self, role: Role, at: datetime) -> float | None:
        """Seconds since the last successful query; None without one."""
        known = self._newest.get(role)
        return (at - known[1]).total_seconds() if known else None

    def read(self, role: Role, query: Query, samples: Samples, window_seconds: float = 0.0) -> dict[str, Column]:
        """Convert a result to columns, in our units. Latencies need the rate window."""
        ends = ENDS.get(split_level(role[0])[0], 0)
        which = ends, query.labels
        if role[1] != "buckets":
            reader = self._readers.setdefault(which, LabelReader(query.labels, self._services, ends))
            column = read_column(samples, reader, query.joined_by)
            self._dropped[role] = reader.dropped
            return {role[1]: _convert_unit(column, query)}
        if not query.is_verbatim:
            samples = Samples(samples.label_sets, samples.values / window_seconds)
        buckets = self._buckets.setdefault(which, BucketReader(query.labels, self._services, ends))
        border = Border.of(window_seconds, query.unit)
        *columns, long = read_quantiles(samples, buckets, list(SHARES.values()), border)
        self._dropped[role] = buckets.labels.dropped
        found: dict[str, Column] = {"long_requests": long}
        return found | {share: _convert_unit(one, query) for share, one in zip(SHARES, columns, strict=True)}

    def dropped_series(self, roles: Collection[Role]) -> dict[Role, DroppedSeries]:
        """Series of the last result of each query that name no service."""
        return {role: found for role in roles if (found := self._dropped.get(role)) is not None}

    def folded(self) -> dict[str, str]:
        """Names in labels that are no services, with their kind."""
        return dict(self._services.folded)


def _convert_unit(found: Column, query: Query) -> Column:
    return found if query.unit == 1 else {key: value * query.unit for key, value in found.items()}
