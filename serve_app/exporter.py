"""The metrics endpoint: counters of this process, gauges of meshes, and the state of collectors."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
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
        """The series of a metric with these labels."""
        family, every = self._families[metric.name], {**self._constant, **labels}
        return family.labels(**every) if every else family

    def _family(self, metric: Metric) -> Any:
        about = metric.name, metric.description, (*self._constant, *metric.labels)
        if metric.buckets:
            return Histogram(*about, registry=self._registry, buckets=metric.buckets)
        return (Gauge if metric.gauge else Counter)(*about, registry=self._registry)

    def registry(
        self, meshes: Callable[[], Iterable["MeshGauges"]], collected: Callable[[], Iterable[CollectorState]]
    ) -> CollectorRegistry:
        """All metrics. Each scrape calls both functions."""
        every = CollectorRegistry(auto_describe=False)
        every.register(self._registry)
        every.register(_MeshCollector(meshes))
        every.register(_CollectorMetrics(collected))
        return every

    def text(self, meshes: Iterable["MeshGauges"] = (), collected: Iterable[CollectorState] = ()) -> bytes:
        """All metrics in Prometheus' text format (``CONTENT_TYPE``)."""
        return generate_latest(self.registry(lambda: meshes, lambda: collected))


class _MeshCollector(Collector):
    """The gauges of all meshes."""

    def __init__(self, meshes: Callable[[], Iterable[MeshGauges]]) -> None:
        self._meshes = meshes

    def collect(self) -> Iterator[GaugeMetricFamily]:
        meshes = tuple(self._meshes())
        for name, description, value in _GAUGES:
            family = GaugeMetricFamily(f"tagae_mesh_{name}", description, labels=("mesh",))
            for m in meshes:
                if (measured := value(m)) is not None:
                    family.add_metric((m.mesh,), measured)
            yield family
        status = GaugeMetricFamily(
            "tagae_mesh_status", "1 for the status of the newest verdict.", labels=("mesh", "status")
        )
        for m in meshes:
            for known in Status:
                status.add_metric((m.mesh, known.value), float(m.status == known.value))
        yield status
        yield from _drift(meshes)


def _drift(meshes: Iterable[MeshGauges]) -> Iterator[GaugeMetricFamily]:
    """How far the meshes have drifted."""
    ratio = GaugeMetricFamily(
        "tagae_mesh_drift_ratio",
        "Distance of a mesh from a reference, relative to its limit: drift if it is above 1 for twelve hours.",
        labels=("mesh", "reference", "kind", "channel"),
    )
    drifting = GaugeMetricFamily(
        "tagae_mesh_drifting", "Measures of a mesh that are above their limits for twelve hours.", labels=("mesh",)
    )
    for mesh in meshes:
        if mesh.drift is None:
            continue
        drifting.add_metric((mesh.mesh,), mesh.drift.drifting)
        for measure, value in zip(MEASURES, mesh.drift.ratios, strict=True):
            if value is not None:
                ratio.add_metric((mesh.mesh, measure.reference, measure.kind, measure.channel), value)
    yield ratio
    yield drifting


class _CollectorMetrics(Collector):
    """The state of each mesh's collector; no metrics if there is no collector."""

    def __init__(self, meshes: Callable[[], Iterable[CollectorState]]) -> None:
        self._meshes = meshes

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        meshes = tuple(self._meshes())
        for name, description, value in _COLLECTED if meshes else ():
            gauge = GaugeMetricFamily(f"tagae_collector_{name}", description, labels=("mesh",))
            for m in meshes:
                if (measured := value(m)) is not None:
                    gauge.add_metric((m.mesh,), measured)
            yield gauge
        for name, label, description, counts in _COUNTED if meshes else ():
            counter = CounterMetricFamily(f"tagae_collector_{name}", description, labels=("mesh", label))
            for m in meshes:
                for kind, count in counts(m).items():
                    counter.add_metric((m.mesh, kind), count)
            yield counter


_COLLECTED: tuple[tuple[str, str, Callable[[CollectorState], float | None]], ...] = (
    ("snapshot_timestamp_seconds", "Time of the newest collected snapshot.", lambda c: c.handed_on),
    ("stale_seconds", "Age of the oldest values used in place of a failed query.", lambda c: c.stale_seconds),
    ("unheeded_annotations", "Annotations with an unknown name or value.", lambda c: len(c.ignored_annotations)),
    ("masked_queries", "Queries without a result in the newest snapshot.", lambda c: len(c.masked)),
    ("services", "Services in the newest snapshot.", lambda c: c.services),
    ("calls", "Calls in the newest snapshot.", lambda c: c.calls),
    ("query_seconds", "Duration of the slowest query of the newest poll.", lambda c: c.seconds),
    (
        "events_followed",
        "1 while the watch for Kubernetes Events works, else 0.",
        lambda c: float(c.events.following) if c.events else None,
    ),
    ("events", "Kubernetes Events that may explain an incident.", lambda c: c.events.kept if c.events else None),
    (
        "replayed",
        "How much of the past of a mesh that is new has been read, 0 to 1; absent after it.",
        lambda c: c.replayed,
    ),
)
_COUNTED: tuple[tuple[str, str, str, Callable[[CollectorState], Mapping[str, int]]], ...] = (
    ("polls", "outcome", "Polls, by outcome: taken, empty, failed, refused, given_up.", lambda c: c.polls),
    ("query_failures", "why", "Failed queries, by reason.", lambda c: c.failures),
    (
        "event_watches",
        "outcome",
        "Watches of Kubernetes Events: started (watched), or why they failed; unreadable: skipped events.",
        lambda c: c.events.outcomes if c.events else {},
    ),
)
_GAUGES: tuple[tuple[str, str, Callable[[MeshGauges], float | None]], ...] = (
    ("score", "Strongest evidence, in decades of improbability.", lambda m: m.score),
    ("threshold", "Score that opens an alert.", lambda m: m.threshold),
    ("reconstruction_loss", "Reconstruction loss of the mesh as a whole, 0 to 1.", lambda m: m.reconstruction_loss),
    (
        "reconstruction_loss_threshold",
        "Percentile of the reconstruction loss over history without incidents.",
        lambda m: m.loss_threshold,
    ),
    (
        "embedding_drift",
        "Distance of the mean embedding from its mean over the window, in standard deviations.",
        lambda m: m.embedding_displacement,
    ),
    (
        "embedding_drift_threshold",
        "1.5 times the percentile of the embedding displacement over history without incidents.",
        lambda m: m.displacement_threshold,
    ),
    (
        "reconstruction_exceeded",
        "1 while loss or displacement is above its threshold in most of the last snapshots, else 0.",
        lambda m: None if m.exceeded is None else float(m.exceeded),
    ),
    ("incident_probability", "Probability that an incident is in progress.", lambda m: m.probability),
    ("incidents", "Open incidents, without notices.", lambda m: m.incidents),
    ("notices", "Open notices: resources that are running out.", lambda m: m.notices),
    ("mutes", "Mutes in force.", lambda m: m.mutes),
    ("services", "Services in the newest snapshot.", lambda m: m.services),
    ("silent_services", "Services whose telemetry is missing.", lambda m: m.silent),
    ("sequence", "Snapshots counted.", lambda m: m.sequence),
    (
        "observed_timestamp_seconds",
        "Time of the newest snapshot.",
        lambda m: m.observed_at.timestamp() if m.observed_at else None,
    ),
)
