"""The same snapshot with recording rules and without, from a Prometheus that scrapes a mesh and evaluates them."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.collect.base import Poll
from serve_app.collect.prometheus import reader
from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.combine import CALLS, SERVICES
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.rules import render_rules
from serve_app.net.endpoint import Endpoint
from serve_app.settings import CollectorSettings
from tests.live.exporter import scrape_config, start_exporter
from tests.live.monitor import Monitor
from tests.live.polls import open_source
from tests.live.programs import needs
from tests.live.series import FINE_MS

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(300),
    needs("prometheus"),
]
SCRAPE, INTERVAL, WINDOW = 2.0, 4.0, 24.0
TOLERANCE = 0.02  # a late scrape on a busy machine; two instants of a window
MADE = next(iter(Simulator(MeshSpec(services=40, calls_per_service=3.0, seed=5), snapshots=1).snapshots()))


@dataclass
class Polled:
    """One instant, polled in every way."""

    raw: Poll
    recorded: Poll
    small: Poll
    behind: Poll


@pytest.fixture(scope="module")
def polled_snapshots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Polled]:
    folder = tmp_path_factory.mktemp("rules")
    rules = folder / "recording.rules.yaml"
    rules.write_text(render_rules({"istio": KNOWN["istio"]}, INTERVAL, WINDOW))
    exporter, address = start_exporter(MADE, FINE_MS, folder)
    try:
        with Monitor(folder, [scrape_config(address, SCRAPE)], rules=[rules]) as monitor:
            full = f"min(count_over_time(istio_requests_total[{WINDOW:g}s] offset {2 * INTERVAL:g}s))"
            monitor.program.wait_until(lambda: _value(monitor.url, full) >= WINDOW / SCRAPE - 1, 200)
            now = datetime.now(UTC)
            behind = _poll(monitor.url, 10, now + timedelta(seconds=4 * INTERVAL))  # before the rules get there
            raw, recorded, small = (_poll(monitor.url, calls, now) for calls in (float("inf"), 10, MADE.num_edges + 1))
            yield Polled(raw, recorded, small, behind)
    finally:
        exporter.end()


def _value(url: str, query: str) -> float:
    with closing(Prometheus(Endpoint(url))) as client:
        answer = client.ask({"q": query}, datetime.now(UTC), 20.0)["q"]
    assert not answer.failed, answer.detail
    return float(answer.samples.values[0]) if len(answer.samples) else 0.0


def _poll(url: str, recorded_from_calls: float, at: datetime) -> Poll:
    asking = CollectorSettings(interval_seconds=INTERVAL, window_seconds=WINDOW, deadline_seconds=60.0)
    with pytest.MonkeyPatch.context() as patch, open_source(url, asking) as source:
        patch.setattr(reader, "RECORDED_FROM_CALLS", recorded_from_calls)
        poll = source.poll(at)
    assert poll.snapshot is not None, poll.why
    return poll


def _ordered(snapshot: MeshSnapshot | None) -> MeshSnapshot:
    """Sort services and calls by name."""
    assert snapshot is not None
    nodes = np.argsort(snapshot.node_ids)
    ends = [(snapshot.node_ids[a], snapshot.node_ids[b]) for a, b in snapshot.edge_index.T]
    return snapshot.take(nodes, sorted(range(len(ends)), key=lambda i: ends[i]))


def test_rules_are_read_from_a_minimum_size_while_they_are_fresh(polled_snapshots: Polled) -> None:
    polls = polled_snapshots.raw, polled_snapshots.recorded, polled_snapshots.small, polled_snapshots.behind
    assert [poll.recorded for poll in polls] == [False, True, False, False]
    for of in (SERVICES, CALLS):
        assert (of, "buckets") in polled_snapshots.raw.answers
        assert (of, "buckets") not in polled_snapshots.recorded.answers
        assert {(of, "p50"), (of, "p99")} <= polled_snapshots.recorded.answers.keys()


def test_nothing_is_missing_and_the_answers_are_smaller(polled_snapshots: Polled) -> None:
    for poll in (polled_snapshots.raw, polled_snapshots.recorded):
        assert not poll.masked
        assert {answer.detail for answer in poll.answers.values() if answer.failed} == set()
    sizes = [
        sum(len(answer.samples) for answer in poll.answers.values())
        for poll in (polled_snapshots.raw, polled_snapshots.recorded)
    ]
    assert sizes[1] < sizes[0] / 4


def test_the_snapshot_is_the_same_and_what_was_exported(polled_snapshots: Polled) -> None:
    raw, read, made = (
        _ordered(one) for one in (polled_snapshots.raw.snapshot, polled_snapshots.recorded.snapshot, MADE)
    )
    assert raw.node_ids == read.node_ids
    assert raw.edge_index.tolist() == read.edge_index.tolist()
    for side, names in (("node", NODE_METRICS), ("edge", EDGE_METRICS)):
        observed, values = f"{side}_observed", f"{side}_features"
        assert getattr(raw, observed).tolist() == getattr(read, observed).tolist()
        for i, name in enumerate(names):
            actual, expected = (getattr(one, values)[:, i] for one in (read, raw))
            np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=1e-5, err_msg=f"{side} {name}")
    busy = made.take(np.arange(made.num_nodes), np.flatnonzero(made.edge_features[:, 0] > 0))
    assert busy.node_ids == read.node_ids
    for i in (0, 1):  # rates and errors are exact; quantiles come from buckets
        np.testing.assert_allclose(read.edge_features[:, i], busy.edge_features[:, i], rtol=TOLERANCE, atol=1e-5)
    assert (read.edge_features[:, 1] > 0).any()
    resources = slice(4, 6)
    np.testing.assert_allclose(read.node_features[:, resources], busy.node_features[:, resources], rtol=TOLERANCE)
