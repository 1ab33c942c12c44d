"""The metrics endpoint: counters of this process, gauges of meshes, and the state of collectors."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, get_type_hints

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from model.drift.measures import MEASURES
from model.verdict import Status
from serve_app.collect.loop import CollectorState
from serve_app.metrics import METRICS, MeshGauges, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class PrometheusInstruments:
    """Instruments of this process for Prometheus.

    Args:
        constant: labels of every metric, such as the replica.
    """

    def __init__(self, **constant: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # no additional series for each counter
        self._registry = CollectorRegistry(auto_describe=False)
        self._constant = constant
        self._families = {metric.name: self._family(metric) for metric in METRICS}

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        self._series(metric, labels).inc(amount)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self._series(metric, labels).observe(value)

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        self._series(metric, labels).set(value)

    def _series(self, metric: Metric, labels: Mapping[str, str]) -> Any:
        family, all_labels = self._families[metric.name], {**self._constant, **labels}
        return family.labels(**all_labels) if all_labels else family

    def _family(self, metric: Metric) -> Any:
        arguments = metric.name, metric.description, (*self._constant, *metric.labels)
        if metric.buckets:
            return Histogram(*arguments, registry=self._registry, buckets=metric.buckets)
        return (Gauge if metric.gauge else Counter)(*arguments, registry=self._registry)

    def text(self, meshes: Sequence[MeshGauges] = (), collectors: Sequence[CollectorState] = ()) -> bytes:
        """All metrics in Prometheus' text format (``CONTENT_TYPE``)."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._registry)
        registry.register(_Families(read_families(meshes, collectors)))
        return generate_latest(registry)


def read_families(meshes: Sequence[MeshGauges], collectors: Sequence[CollectorState]) -> list[Family]:
    return [*_mesh_families(meshes), *_drift_families(meshes), *_collector_families(collectors)]


class _Families(Collector):
    """Metrics that were read for one scrape."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _mesh_families(meshes: Sequence[MeshGauges]) -> Iterator[Family]:
    for field, metric in _MESH_GAUGES:
        yield _gauge(metric.name, metric.description, ((mesh.mesh, getattr(mesh, field)) for mesh in meshes))
    status = GaugeMetricFamily(
        "tagae_mesh_status", "1 for the status of the newest verdict.", labels=("mesh", "status")
    )
    for mesh in meshes:
        for value in Status:
            status.add_metric((mesh.mesh, value), float(mesh.status == value))
    yield status


def _drift_families(meshes: Sequence[MeshGauges]) -> Iterator[Family]:
    ratio = GaugeMetricFamily(
        "tagae_mesh_drift_ratio",
        "Distance of a mesh from a reference, relative to its limit: drift if it is above 1 for twelve hours.",
        labels=("mesh", "reference", "kind", "channel"),
    )
    drifts = [(mesh.mesh, mesh.drift) for mesh in meshes if mesh.drift is not None]
    for mesh, drift in drifts:
        for measure, value in zip(MEASURES, drift.ratios, strict=True):
            if value is not None:
                ratio.add_metric((mesh, measure.reference, measure.kind, measure.channel), value)
    yield ratio
    description = "Measures of a mesh that are above their limits for twelve hours."
    yield _gauge("tagae_mesh_drifting", description, ((mesh, drift.drifting) for mesh, drift in drifts))


def _collector_families(states: Sequence[CollectorState]) -> Iterator[Family]:
    """No metrics if there is no collector."""
    for name, description, value in _COLLECTOR_GAUGES if states else ():
        yield _gauge(f"tagae_collector_{name}", description, ((state.mesh, value(state)) for state in states))
    for name, label, description, counts in _COLLECTOR_COUNTERS if states else ():
        counter = CounterMetricFamily(f"tagae_collector_{name}", description, labels=("mesh", label))
        for state in states:
            for kind, count in counts(state).items():
                counter.add_metric((state.mesh, kind), count)
        yield counter


def _gauge(name: str, description: str, values: Iterable[tuple[str, float | datetime | None]]) -> Family:
    """A gauge by mesh; a mesh without a value has none."""
    gauge = GaugeMetricFamily(name, description, labels=("mesh",))
    for mesh, value in values:
        if value is not None:
            gauge.add_metric((mesh,), value.timestamp() if isinstance(value, datetime) else value)
    return gauge


_MESH_GAUGES = [
    (field, metric)
    for field, hint in get_type_hints(MeshGauges, include_extras=True).items()
    for metric in getattr(hint, "__metadata__", ())
]
_COLLECTOR_GAUGES: tuple[tuple[str, str, Callable[[CollectorState], float | None]], ...] = (
    ("snapshot_timestamp_seconds", "Time of the newest collected snapshot.", lambda c: c.handed_on),
    ("stale_seconds", "Age of the oldest values used in place of a failed query.", lambda c: c.stale_seconds),
    ("unheeded_annotations", "Annotations with an unknown name or value.", lambda c: len(c.ignored_annotations)),
    ("masked_queries", "Queries without a result in the newest snapshot.", lambda c: len(c.masked)),
    ("services", "Services in the newest snapshot.", lambda c: c.services),
    ("calls", "Calls in the newest snapshot.", lambda c: c.calls),
    ("query_seconds", "Duration of the newest poll's slowest query.", lambda c: c.seconds),
    (
        "events_followed",
        "1 while the watch for Kubernetes Events works, else 0.",
        lambda c: float(c.events.following) if c.events else None,
    ),
    (
        "events",
        "Kubernetes Events that may explain an incident.",
        lambda c: c.events.stored_events if c.events else None,
    ),
    (
        "replayed",
        "Share of a new mesh's past that has been read, 0 to 1; absent afterwards.",
        lambda c: c.replayed_share,
    ),
)
_COLLECTOR_COUNTERS: tuple[tuple[str, str, str, Callable[[CollectorState], Mapping[str, int]]], ...] = (
    ("polls", "outcome", "Polls, by outcome: taken, empty, failed, refused, given_up.", lambda c: c.polls),
    ("query_failures", "why", "Failed queries, by reason.", lambda c: c.failures),
    (
        "event_watches",
        "outcome",
        "Watches of Kubernetes Events: started (watched), or why they failed; unreadable: skipped events.",
        lambda c: c.events.outcomes if c.events else {},
    ),
)
