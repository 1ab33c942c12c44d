"""Series of constant rates and latencies, as the text that a real Prometheus reads as history."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path

from tests.live.history import write_lines

Labels = Mapping[str, str]

STEP, LENGTH = 15, 600  # s, of each period
SECONDS_BOUNDS = ("0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10")
MS_BOUNDS = ("5", "10", "25", "50", "100", "250", "500", "1000", "2500", "5000", "10000")


@dataclass
class Written:
    """Series of one period, by metric.

    Attributes:
        begin: Unix seconds.
        rows: labels, kind, and value or rate.
        ends: of series that end early: the second of their last sample, by metric and position in its rows.
    """

    begin: int
    rows: dict[str, list[tuple[Labels, bool, float]]] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def counter(self, metric: str, labels: Labels, rate: float) -> None:
        """A counter that grows at ``rate``, 1/s."""
        self.rows.setdefault(metric, []).append((labels, True, rate))

    def gauge(self, metric: str, labels: Labels, value: float) -> None:
        self.rows.setdefault(metric, []).append((labels, False, value))

    def histogram(self, metric: str, labels: Labels, rate: float, latency: float) -> None:
        """Durations that are all in the bucket of ``latency``, s. The metric's name says its unit."""
        in_ms = "milliseconds" in metric or metric.endswith("_rq_time")
        for bound in (*(MS_BOUNDS if in_ms else SECONDS_BOUNDS), "+Inf"):
            slower = float(bound) < latency * (1000 if in_ms else 1)
            self.counter(f"{metric}_bucket", {**labels, "le": bound}, 0.0 if slower else rate)
        self.counter(f"{metric}_count", labels, rate)
        self.counter(f"{metric}_sum", labels, rate * latency * (1000 if in_ms else 1))

    def lines(self, metric: str) -> Iterator[str]:
        for position, (labels, grows, value) in enumerate(self.rows.get(metric, ())):
            text = ",".join(f'{name}="{_quote(one)}"' for name, one in labels.items())
            for second in range(0, self.ends.get((metric, position), LENGTH) + 1, STEP):
                at = 1000 + value * second if grows else value
                yield f"{metric}{{{text}}} {at:.6f} {self.begin + second}\n"


def write(periods: Sequence[Written], file: Path) -> None:
    """Write periods as OpenMetrics text."""
    metrics = dict.fromkeys(metric for one in periods for metric in one.rows)
    write_lines({name: chain.from_iterable(map(Written.lines, periods, repeat(name))) for name in metrics}, file)


def _quote(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
