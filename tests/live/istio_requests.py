"""Requests as Istio's proxies count them, as text for a real Prometheus: who reports them, how long they last, how they
end."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

BOUNDS_MS = (5, 10, 25, 50, 100, 250, 1000, 10_000, 30_000, 60_000, 300_000, 3_600_000)
SCRAPE_SECONDS, SCRAPES = 15.0, 20
REQUESTS, BUCKET, SUM = (
    "istio_requests_total", "istio_request_duration_milliseconds_bucket", "istio_request_duration_milliseconds_sum",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one call that end alike.

    Attributes:
        source, destination: canonical service and Service.
        rate: 1/s.
        reporters: the proxies that report them.
        seconds: how long each lasts.
        source_workload, destination_workload: by default as the source and the destination.
        namespace: of both.
        source_namespace: another one.
        labels: ``response_code`` and the like.
    """

    source: str
    destination: str
    rate: float
    reporters: Sequence[str] = ("source", "destination")
    seconds: float = 0.02
    source_workload: str = ""
    destination_workload: str = ""
    namespace: str = "shop"
    source_namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def series(self) -> Iterator[tuple[str, str, float]]:
        """Yield metric, labels and growth in 1/s of each series."""
        for reporter in self.reporters:
            labels = {
                "reporter": reporter,
                "source_workload_namespace": self.source_namespace or self.namespace,
                "source_workload": self.source_workload or self.source,
                "source_canonical_service": self.source,
                "destination_workload_namespace": self.namespace,
                "destination_workload": self.destination_workload or self.destination,
                "destination_service_namespace": self.namespace,
                "destination_service_name": self.destination,
                "response_code": "200",
                "response_flags": "-",
                **self.labels,
            }
            text = ",".join(f'{name}="{value}"' for name, value in labels.items())
            yield REQUESTS, text, self.rate
            for bound in BOUNDS_MS:
                yield BUCKET, f'{text},le="{bound:g}"', self.rate * (bound >= self.seconds * 1000)
            yield BUCKET, f'{text},le="+Inf"', self.rate
            yield SUM, text, self.rate * self.seconds * 1000


def write_requests(requests: Sequence[Requests], file: Path, last: datetime) -> datetime:
    """Write OpenMetrics with a scrape every 15 s until ``last``, and return the time of the first one."""
    growth: dict[str, dict[str, float]] = {REQUESTS: {}, BUCKET: {}, SUM: {}}
    for one in requests:
        for metric, labels, rate in one.series():
            growth[metric][labels] = growth[metric].get(labels, 0.0) + rate
    first = last - timedelta(seconds=SCRAPE_SECONDS * SCRAPES)
    with file.open("w") as out:
        for metric, rates in growth.items():
            family = (metric.removesuffix("_total"), "counter") if metric == REQUESTS else (metric, "unknown")
            out.write("# TYPE {} {}\n".format(*family))
            for labels, rate in rates.items():
                for i in range(SCRAPES + 1):
                    value, time = 1000 + rate * SCRAPE_SECONDS * i, first.timestamp() + SCRAPE_SECONDS * i
                    out.write(f"{metric}{{{labels}}} {value:.6f} {time:.3f}\n")
        out.write("# EOF\n")
    return first
