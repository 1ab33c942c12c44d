"""Requests as the service graph connector of an OpenTelemetry collector makes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

BOUNDS = (0.1, 0.2, 0.4, 0.8)  # s
BEGAN = datetime(2026, 3, 1, 3, 12, tzinfo=UTC).timestamp()
CUMULATIVE, DELTA = 2, 1
Call = tuple[str, str]  # client, server


@dataclass
class Connector:
    """The cumulative counters of one collector.

    Attributes:
        start: Unix time, s.
        more: attributes of every point.
        of_call: attributes of the points of a call.
        unit: of the histograms.
    """

    start: float = BEGAN - 3600
    more: Mapping[str, str] = field(default_factory=dict)
    unit: str = "s"
    of_call: Mapping[Call, Mapping[str, str]] = field(default_factory=dict)
    requests: dict[Call, int] = field(default_factory=dict)
    failures: dict[Call, int] = field(default_factory=dict)
    buckets: dict[Call, list[int]] = field(default_factory=dict)

    def observe(self, call: Call, requests: int, *, failures: int = 0, bucket: int = 0) -> None:
        """Count requests, all in one bucket of the latency."""
        self.requests[call] = self.requests.get(call, 0) + requests
        if failures:
            self.failures[call] = self.failures.get(call, 0) + failures
        self.buckets.setdefault(call, [0] * (len(BOUNDS) + 1))[bucket] += requests

    def flush(self, at: float) -> ExportMetricsServiceRequest:
        """Return the counters at a Unix time in s."""
        request = ExportMetricsServiceRequest()
        metrics = request.resource_metrics.add().scope_metrics.add().metrics
        for name, counts in (("total", self.requests), ("failed_total", self.failures)):
            for call, count in counts.items():
                metric = metrics.add(name=f"traces_service_graph_request_{name}")
                metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, CUMULATIVE
                self._fill(metric.sum.data_points.add(as_int=count), call, at)
        for side in ("server", "client"):
            for call, buckets in self.buckets.items():
                metric = metrics.add(name=f"traces_service_graph_request_{side}_seconds", unit=self.unit)
                metric.histogram.aggregation_temporality = CUMULATIVE
                point = metric.histogram.data_points.add(bucket_counts=buckets, count=sum(buckets))
                point.explicit_bounds.extend(BOUNDS)
                self._fill(point, call, at)
        return request

    def _fill(self, point: Any, call: Call, at: float) -> None:
        point.start_time_unix_nano, point.time_unix_nano = round(self.start * 10**9), round(at * 10**9)
        pairs = {"client": call[0], "server": call[1], "connection_type": "", **self.more, **self.of_call.get(call, {})}
        for key, text in pairs.items():
            point.attributes.add(key=key).value.string_value = text
        point.attributes.add(key="failed").value.bool_value = bool(self.failures.get(call, 0) % 2)


def as_delta(now: ExportMetricsServiceRequest, last: ExportMetricsServiceRequest) -> ExportMetricsServiceRequest:
    """Return the increase between two flushes with the same series, for an exporter with delta temporality."""
    delta = ExportMetricsServiceRequest()
    delta.CopyFrom(now)
    for metric, before in zip(_metrics(delta), _metrics(last), strict=True):
        data = getattr(metric, metric.WhichOneof("data"))
        data.aggregation_temporality = DELTA
        old = getattr(before, before.WhichOneof("data")).data_points[0]
        (point,) = data.data_points
        point.start_time_unix_nano = old.time_unix_nano
        if metric.WhichOneof("data") == "sum":
            point.as_int -= old.as_int
        else:
            point.bucket_counts[:] = [a - b for a, b in zip(point.bucket_counts, old.bucket_counts, strict=True)]
    return delta


def split(request: ExportMetricsServiceRequest, parts: int) -> Sequence[ExportMetricsServiceRequest]:
    """Split metrics into several requests, as a batch processor does."""
    found = [ExportMetricsServiceRequest() for _ in range(parts)]
    lists = [one.resource_metrics.add().scope_metrics.add().metrics for one in found]
    for i, metric in enumerate(_metrics(request)):
        lists[i % parts].add().CopyFrom(metric)
    return found


def _metrics(request: ExportMetricsServiceRequest) -> Any:
    return request.resource_metrics[0].scope_metrics[0].metrics
