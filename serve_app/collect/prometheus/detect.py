"""From settings to a source; where nobody says which kind of mesh it is, by asking which metrics are there."""

from collections.abc import Mapping
from datetime import datetime

from serve_app.collect.prometheus.client import Prometheus, QueryAnswer
from serve_app.collect.prometheus.dialects import KNOWN, Dialect, Query
from serve_app.collect.prometheus.source import Poll, PrometheusSource, QueryOptions, Role
from serve_app.collect.prometheus.workloads import Served
from serve_app.settings import CollectorSettings, GenericSettings, MeshSettings

DETECTION = ("detection", "metrics")


class MeshSource:
    """The snapshots of one configured mesh."""

    def __init__(self, mesh: MeshSettings, collector: CollectorSettings) -> None:
        endpoint = mesh.endpoint(mesh.prometheus)
        self._prometheus = Prometheus(endpoint, collector.queries_at_once, compressed=mesh.compressed)
        self._asking = _asking(collector)
        dialect = generic(mesh.generic) if mesh.generic else KNOWN.get(mesh.source)
        self._source = PrometheusSource(self._prometheus, dialect, self._asking) if dialect else None

    def poll(self, at: datetime) -> Poll:
        """The snapshot of one instant; without one, why."""
        if self._source is None:
            dialect, answers = detected(self._prometheus, at, self._asking.within_seconds)
            if dialect is None:
                return Poll(at, None, answers, why=_nothing_found(answers))
            self._source = PrometheusSource(self._prometheus, dialect, self._asking)
        return self._source.poll(at)

    @property
    def serves(self) -> Served:
        """Services of each workload, as far as it is known."""
        return self._source.serves if self._source else {}

    def close(self) -> None:
        """Give up what still runs."""
        self._prometheus.close()


def generic(told: GenericSettings) -> Dialect:
    """What somebody configured."""
    services, calls = (
        {role: Query(query.promql, labels, query.unit) for role, query in queries.items()}
        for queries, labels in ((told.services, told.service_labels), (told.calls, told.call_labels))
    )
    return Dialect("generic", services, calls, (), frozenset(told.external))


def detected(prometheus: Prometheus, at: datetime, within: float) -> tuple[Dialect | None, Mapping[Role, QueryAnswer]]:
    """The first known dialect that the mesh speaks, and what it answered."""
    said = prometheus.ask({name: _signature(one) for name, one in KNOWN.items()}, at, within)
    spoken = (one for name, one in KNOWN.items() if len(said[name].samples))
    return next(spoken, None), {(DETECTION[0], name): answer for name, answer in said.items()}


def _signature(dialect: Dialect) -> str:
    return " or ".join(f"count({series})" for series in dialect.signature)


def _nothing_found(answers: Mapping[Role, QueryAnswer]) -> str:
    failed = [f"{answer.failed} ({answer.detail})" for answer in answers.values() if answer.failed]
    if failed:
        return f"which kind of mesh this is could not be asked: {failed[0]}"
    looked = ", ".join(series for one in KNOWN.values() for series in one.signature)
    return (
        f"expected the metrics of a mesh, found none of {looked}; is this the Prometheus that scrapes it? For another "
        "kind of mesh set source = generic and its queries"
    )


def _asking(collector: CollectorSettings) -> QueryOptions:
    return QueryOptions(
        collector.interval_seconds,
        collector.window_seconds,
        collector.deadline_seconds,
        collector.keep_seconds,
        collector.recorded_from_calls,
    )
