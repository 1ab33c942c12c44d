"""The service's metrics inside a Serve replica: Ray exports them with application, deployment and replica labels."""

from ray.serve import metrics as ray_metrics

from serve_app.metrics import METRICS, Metric


class RayInstruments:
    """:class:`serve_app.metrics.Instruments` that Ray's metrics agent exports as ``ray_tagae_*``."""

    def __init__(self) -> None:
        self._counters = {
            m.name: ray_metrics.Counter(m.name, description=m.description, tag_keys=m.labels)
            for m in METRICS
            if m.is_counter
        }
        self._gauges = {
            m.name: ray_metrics.Gauge(m.name, description=m.description, tag_keys=m.labels) for m in METRICS if m.gauge
        }
        self._histograms = {
            m.name: ray_metrics.Histogram(
                m.name, description=m.description, boundaries=list(m.buckets), tag_keys=m.labels
            )
            for m in METRICS
            if m.buckets
        }

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        if amount > 0:  # Ray refuses to add nothing
            self._counters[metric.name].inc(amount, tags=labels)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self._histograms[metric.name].observe(value, tags=labels)

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        self._gauges[metric.name].set(value, tags=labels)
