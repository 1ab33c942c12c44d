"""Counters that grow steadily, as text for a real Prometheus, and what a poll reads of them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import TypeVar

import numpy as np
import pytest

from model.snapshot import NODE_METRICS, MeshSnapshot
from serve_app.collect.base import Poll
from serve_app.collect.prometheus import source as source_module
from serve_app.collect.prometheus.client import Prometheus, QueryAnswer
from serve_app.collect.prometheus.dialects.known import KNOWN
from serve_app.collect.prometheus.rules import recording_rules
from serve_app.collect.prometheus.source import PrometheusSource
from serve_app.net.endpoint import Endpoint
from serve_app.settings import CollectorSettings, MeshSettings
from tests.live.history import prometheus_with_text, write_lines
from tests.live.series import Export

SCRAPE_SECONDS, SCRAPES, WINDOW_SECONDS = 15.0, 20, 60.0
BOUNDS = (5, 10, 50, 100, 500)
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter that grows by ``rate`` each second."""

    metric: str
    labels: Mapping[str, str]
    rate: float


def histogram(
    metric: str, labels: Mapping[str, str], rate: float, value: float, unit: float = 1.0
) -> Iterator[Counter]:
    """Yield the buckets of requests that all take ``value`` times ``unit``."""
    for bound in BOUNDS:
        yield Counter(metric, {**labels, "le": f"{bound * unit:g}"}, rate * (bound >= value))
    yield Counter(metric, {**labels, "le": "+Inf"}, rate)


class Recorded(Prometheus):
    """A Prometheus that has evaluated the recording rules of a dialect: a recorded series is its expression's value."""

    dialect = ""

    def ask(self, queries: Mapping[K, str], at: datetime, within: float) -> dict[K, QueryAnswer]:
        rules = recording_rules(KNOWN[self.dialect], SCRAPE_SECONDS, WINDOW_SECONDS).rules
        for rule in reversed(rules):
            queries = {name: text.replace(rule.record, f"({rule.expr})") for name, text in queries.items()}
        return super().ask(queries, at, within)


def poll_counters(counters: Iterable[Counter], folder: Path, dialect: str, *, recorded: bool = False) -> Poll:
    """Fill a real Prometheus with the counters, and poll it once: the series, or recorded ones."""
    at = datetime.fromtimestamp(time() // 15 * 15, UTC)
    first = at - timedelta(seconds=SCRAPE_SECONDS * SCRAPES)
    growth: dict[str, dict[str, float]] = {}
    for one in counters:
        labels = ",".join(f'{name}="{_quote(value)}"' for name, value in one.labels.items())
        rates = growth.setdefault(one.metric, {})
        rates[labels] = rates.get(labels, 0.0) + one.rate
    passed = [SCRAPE_SECONDS * i for i in range(SCRAPES + 1)]
    lines = {
        metric: [
            f"{metric}{{{labels}}} {1000 + rate * seconds:.6f} {first.timestamp() + seconds:.3f}\n"
            for labels, rate in rates.items()
            for seconds in passed
        ]
        for metric, rates in growth.items()
    }
    text = folder / "text"
    write_lines(lines, text)
    collector = CollectorSettings(deadline_seconds=60.0, window_seconds=WINDOW_SECONDS)
    with prometheus_with_text(text, folder, first, Export()) as monitor, pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "RECORDED_FROM_CALLS", 1 if recorded else np.inf)
        client = (Recorded if recorded else Prometheus)(Endpoint(monitor.url))
        if isinstance(client, Recorded):
            client.dialect = dialect
        with closing(
            PrometheusSource(client, KNOWN[dialect], MeshSettings(prometheus=monitor.url), collector)
        ) as source:
            poll = source.poll(at)
    assert poll.snapshot is not None, poll.why
    assert poll.recorded == recorded
    assert not [(role, answer.detail) for role, answer in poll.answers.items() if answer.failed]
    return poll


def rates_of_calls(mesh: MeshSnapshot) -> dict[tuple[str, str], float]:
    """Return the requests of each call, 1/s."""
    ends = ((mesh.node_ids[a], mesh.node_ids[b]) for a, b in mesh.edge_index.T.tolist())
    return dict(zip(ends, (round(rate, 3) for rate in mesh.edge_features[:, 0].tolist()), strict=True))


def value_of(mesh: MeshSnapshot, service: str, metric: str) -> float | None:
    """Return a metric of a service; None if it was not observed."""
    row, column = mesh.node_ids.index(service), NODE_METRICS.index(metric)
    return float(mesh.node_features[row, column]) if mesh.node_observed[row, column] else None


def _quote(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
