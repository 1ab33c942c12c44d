"""What the service tells Prometheus: every metric's name, meaning and labels, in this one place.

With Ray each replica counts through ``ray.serve.metrics`` (``deployments/instruments.py``); Ray exports them as
``ray_tagae_*`` with labels for application, deployment and replica. Without Ray, and on the ingress's ``/metrics``,
``prometheus_client`` carries the same names. The meshes' gauges are made from the stored verdicts at each scrape, so
that they are the same whichever replica answers and do not linger after a mesh is deleted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from model.verdict import Status
from serve_app.collecting import Collected

Family = TypeVar("Family", Counter, Gauge, Histogram)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# From a small mesh's stage to the default deadline.
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter, a histogram where it has ``buckets``, or a ``gauge``; names follow Prometheus' conventions."""

    name: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    gauge: bool = False

    @property
    def counts(self) -> bool:
        """Whether it is a counter."""
        return not self.buckets and not self.gauge


PREDICTIONS = Metric("tagae_predictions_total", "Verdicts made, by status and weights.", ("model_version", "status"))
PARTS_SCORED = Metric("tagae_parts_scored_total", "Partitions scored, by the Scorer replica that did it.", ("scorer",))
PARTS_MISSING = Metric("tagae_parts_missing_total", "Partitions without an answer in time.")
INFERENCE = Metric(
    "tagae_inference_duration_seconds",
    "One pass of the network over a batch of partitions.",
    ("model_version",),
    SECONDS,
)
STAGE = Metric("tagae_stage_seconds", "One stage of one snapshot's way to its verdict.", ("stage",), SECONDS)
REFUSALS = Metric("tagae_refusals_total", "Requests answered with an error, by the problem's code.", ("code",))
FAILED_LOGINS = Metric(
    "tagae_failed_logins_total",
    "Requests with a wrong token, by reason: malformed, unknown, expired.",
    ("reason",),
)
RETRIES = Metric("tagae_retries_total", "Calls repeated since a replica died, by its deployment.", ("callee",))
ADAPTERS = Metric(
    "tagae_adapters_total",
    "Fits of meshes' adapters, by outcome: adopted, refused (no better than the one in use), too_early (too few quiet "
    "snapshots), failed; and rolled_back.",
    ("outcome",),
)
NOTICES_SENT = Metric(
    "tagae_notices_sent_total", "Alerts and events acknowledged, by receiver: alertmanager, webhook.", ("receiver",)
)
NOTICES_FAILED = Metric(
    "tagae_notices_failed_total",
    "Attempts to tell people that failed, by receiver (alertmanager, webhook; state: the file of what was told) and "
    "reason: unreachable, late, broken, overloaded, failed, forbidden, refused, secret, unwritable.",
    ("receiver", "reason"),
)
NOTICES_DROPPED = Metric(
    "tagae_notices_dropped_total",
    "Alerts and events given up, by receiver and reason: invalid, refused, expired, full.",
    ("receiver", "reason"),
)
NOTICES_WAITING = Metric(
    "tagae_notices_waiting", "Alerts and events not acknowledged yet, by receiver.", ("receiver",), gauge=True
)
STORE_GONE = Metric(
    "tagae_store_gone", "1 while the files of the state store are gone, so that nothing is read or kept.", gauge=True
)
NOTICES = (NOTICES_SENT, NOTICES_FAILED, NOTICES_DROPPED, NOTICES_WAITING)
METRICS = (
    ADAPTERS,
    RETRIES,
    PREDICTIONS,
    PARTS_SCORED,
    PARTS_MISSING,
    INFERENCE,
    STAGE,
    REFUSALS,
    STORE_GONE,
    FAILED_LOGINS,
    *NOTICES,
)


class Instruments(Protocol):
    """Where measurements go."""

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Add one value to a histogram."""

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """Give a gauge its value."""


class PrometheusInstruments:
    """Instruments of this process, for Prometheus to read.

    Args:
        constant: labels that every metric carries here, such as the replica.
    """

    def __init__(self, **constant: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # no second series beside each counter
        self._registry = CollectorRegistry(auto_describe=False)
        self._constant = constant
        self._counters = {m.name: self._counter(m) for m in METRICS if m.counts}
        self._gauges = {m.name: self._gauge(m) for m in METRICS if m.gauge}
        self._histograms = {m.name: self._histogram(m) for m in METRICS if m.buckets}

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        self._labelled(self._counters[metric.name], labels).inc(amount)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self._labelled(self._histograms[metric.name], labels).observe(value)

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        self._labelled(self._gauges[metric.name], labels).set(value)

    def _labelled(self, family: Family, labels: Mapping[str, str]) -> Family:
        """The series of a family; one without labels is its own."""
        every = {**self._constant, **labels}
        return family.labels(**every) if every else family

    def registry(
        self, meshes: Callable[[], Iterable["MeshGauges"]], collected: Callable[[], Iterable[Collected]]
    ) -> CollectorRegistry:
        """Everything counted here, the meshes' gauges and how collecting goes; both are asked for at each scrape."""
        every = CollectorRegistry(auto_describe=False)
        every.register(self._registry)
        every.register(_MeshCollector(meshes))
        every.register(_CollectedCollector(collected))
        return every

    def text(self, meshes: Iterable["MeshGauges"] = (), collected: Iterable[Collected] = ()) -> bytes:
        """The same in Prometheus' text form (``CONTENT_TYPE``), of these meshes."""
        return generate_latest(self.registry(lambda: meshes, lambda: collected))

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.description, (*self._constant, *metric.labels), registry=self._registry)

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.description, (*self._constant, *metric.labels), registry=self._registry)

    def _histogram(self, metric: Metric) -> Histogram:
        labels = (*self._constant, *metric.labels)
        return Histogram(metric.name, metric.description, labels, registry=self._registry, buckets=metric.buckets)


@dataclass(frozen=True, slots=True)
class MeshGauges:
    """One mesh as its newest verdict shows it; the verdict's numbers are None before the first.

    Attributes:
        mesh: its name.
        services: in the newest snapshot.
        sequence: snapshots counted.
        observed_at: of the newest snapshot.
        status: of the newest verdict; ``warming_up`` before the first.
        score, threshold, probability: of the newest verdict.
        incidents: how many are open.
        mutes: how many were in force.
    """

    mesh: str
    services: int
    sequence: int
    observed_at: datetime | None
    status: str
    score: float | None = None
    threshold: float | None = None
    probability: float | None = None
    incidents: int = 0
    mutes: int = 0


class _MeshCollector(Collector):
    """Gauges of all meshes."""

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


class _CollectedCollector(Collector):
    """How collecting goes, mesh by mesh; as long as nothing is collected there is nothing of it."""

    def __init__(self, meshes: Callable[[], Iterable[Collected]]) -> None:
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


_COLLECTED: tuple[tuple[str, str, Callable[[Collected], float | None]], ...] = (
    ("snapshot_timestamp_seconds", "Time of the newest snapshot that was taken.", lambda c: c.handed_on),
    ("stale_seconds", "Age of the oldest values that stand in for a query that failed.", lambda c: c.stale_seconds),
    ("unheeded_annotations", "Annotations that say what nobody here knows.", lambda c: len(c.unheeded)),
    ("masked_queries", "Queries that the newest snapshot does without.", lambda c: len(c.masked)),
    ("services", "Services in the newest snapshot.", lambda c: c.services),
    ("calls", "Calls in the newest snapshot.", lambda c: c.calls),
    ("query_seconds", "The slowest query of the newest poll.", lambda c: c.seconds),
    (
        "events_followed",
        "1 while Events of Kubernetes are heard, 0 while they are not.",
        lambda c: float(c.events.following) if c.events else None,
    ),
    ("events", "Events of Kubernetes that may explain an incident.", lambda c: c.events.kept if c.events else None),
)
_COUNTED: tuple[tuple[str, str, str, Callable[[Collected], Mapping[str, int]]], ...] = (
    ("polls", "outcome", "Instants asked for: taken, empty, failed, refused, given_up.", lambda c: c.polls),
    ("query_failures", "why", "Queries without an answer.", lambda c: c.failures),
    (
        "event_watches",
        "outcome",
        "Requests for Events of Kubernetes: listed, watched, gone, and why they failed; unreadable: events left out.",
        lambda c: c.events.outcomes if c.events else {},
    ),
)
_GAUGES: tuple[tuple[str, str, Callable[[MeshGauges], float | None]], ...] = (
    ("score", "Strongest evidence, decades of improbability.", lambda m: m.score),
    ("threshold", "Percentile of the score over quiet history.", lambda m: m.threshold),
    ("incident_probability", "Probability that an incident is in progress.", lambda m: m.probability),
    ("incidents", "Open incidents.", lambda m: m.incidents),
    ("mutes", "Mutes in force.", lambda m: m.mutes),
    ("services", "Services in the newest snapshot.", lambda m: m.services),
    ("sequence", "Snapshots counted.", lambda m: m.sequence),
    (
        "observed_timestamp_seconds",
        "Time of the newest snapshot.",
        lambda m: m.observed_at.timestamp() if m.observed_at else None,
    ),
)
