"""The service's metrics inside a Serve replica: Ray exports them with application, deployment and replica labels."""

from typing import Any

from ray.serve import metrics as ray_metrics

from serve_app.metrics import METRICS, Metric


class RayInstruments:
    """:class:`serve_app.metrics.Instruments` that Ray's metrics agent exports as ``ray_tagae_*``."""

    def __init__(self) -> None:
        self._open: dict[str, Any] = {metric.name: _create(metric) for metric in METRICS}

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        if amount > 0:  # Ray refuses to add nothing
            self._open[metric.name].inc(amount, tags=labels)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self._open[metric.name].observe(value, tags=labels)

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        self._open[metric.name].set(value, tags=labels)


def _create(metric: Metric) -> ray_metrics.Counter | ray_metrics.Gauge | ray_metrics.Histogram:
    options: dict[str, Any] = {"description": metric.description, "tag_keys": metric.labels}
    if metric.buckets:
        return ray_metrics.Histogram(metric.name, boundaries=list(metric.buckets), **options)
    return (ray_metrics.Gauge if metric.gauge else ray_metrics.Counter)(metric.name, **options)
