"""Counters that grow steadily, in a real Prometheus that is polled."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import TypeVar

import numpy as np
import pytest

from serve_app.collect.base import Poll
from serve_app.collect.prometheus import reader
from serve_app.collect.prometheus.client import Prometheus, QueryAnswer
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.rules import recording_rules
from serve_app.settings import CollectorSettings
from tests.live import polls
from tests.live.history import prometheus_with_text
from tests.live.series import Export
from tests.live.written import LENGTH, STEP, Written, write

WINDOW_SECONDS = 60.0
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
        rules = recording_rules(KNOWN[self.dialect], STEP, WINDOW_SECONDS).rules
        for rule in reversed(rules):
            queries = {name: text.replace(rule.record, f"({rule.expr})") for name, text in queries.items()}
        return super().ask(queries, at, within)


def poll_counters(counters: Iterable[Counter], folder: Path, dialect: str, *, recorded: bool = False) -> Poll:
    """Fill a real Prometheus with the counters, and poll it once: the series, or recorded ones."""
    at = datetime.fromtimestamp(time() // STEP * STEP, UTC)
    rates: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for one in counters:
        series = one.metric, tuple(one.labels.items())
        rates[series] = rates.get(series, 0.0) + one.rate
    out = Written(int(at.timestamp()) - LENGTH)
    for (metric, labels), rate in rates.items():
        out.counter(metric, dict(labels), rate)
    write([out], folder / "text")
    collector = CollectorSettings(deadline_seconds=60.0, window_seconds=WINDOW_SECONDS)
    first = at - timedelta(seconds=LENGTH)
    with (
        prometheus_with_text(folder / "text", folder, first, Export()) as monitor,
        pytest.MonkeyPatch.context() as patch,
    ):
        if recorded:
            patch.setattr(Recorded, "dialect", dialect)
            patch.setattr(polls, "Prometheus", Recorded)
        patch.setattr(reader, "RECORDED_FROM_CALLS", 1 if recorded else np.inf)
        with polls.open_source(monitor.url, collector, dialect) as source:
            poll = source.poll(at)
    assert poll.snapshot is not None, poll.why
    assert poll.recorded == recorded
    assert not [(role, answer.detail) for role, answer in poll.answers.items() if answer.failed]
    return poll
