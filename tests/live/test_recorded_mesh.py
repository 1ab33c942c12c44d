"""A simulated mesh, exported to a real Prometheus and read back, has the same values."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from lab.simulator.events.faults import Fault, candidates
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.dialects.istio import istio
from serve_app.collect.prometheus.query import QueryOptions
from serve_app.collect.prometheus.source import Poll, PrometheusSource
from serve_app.net.endpoint import Endpoint
from tests.live.history import prometheus_with_history
from tests.live.programs import needs
from tests.live.series import FINE_MS, Export

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]
INTERVAL, SNAPSHOTS = 15.0, 8
ASKING = QueryOptions(interval_seconds=INTERVAL, window_seconds=12.0, within_seconds=20.0)  # within one interval
WIDTH = FINE_MS[1] / FINE_MS[0] - 1 + 0.02  # width of a bucket, and three digits of its bounds
Recorded = tuple[list[MeshSnapshot], list[Poll]]


@pytest.fixture(scope="module")
def recorded_mesh(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The simulated snapshots, and what was read from Prometheus at the same instants."""
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(days=3)
    simulator = Simulator(MeshSpec(services=30, seed=5, start=start, latent=0.2), snapshots=SNAPSHOTS)
    victim = simulator.node_ids[candidates(simulator.mesh, "error_burst")[0]]
    simulator.schedule(Fault("error_burst", victim, 4, SNAPSHOTS, 0.9))
    sent = list(simulator.snapshots())
    folder = tmp_path_factory.mktemp("recorded")
    with prometheus_with_history(sent, folder, Export(INTERVAL, reads=3)) as monitor:
        source = PrometheusSource(Prometheus(Endpoint(monitor.url)), istio(), ASKING)
        with closing(source):
            polls = [source.poll(start + timedelta(seconds=INTERVAL * i)) for i in range(SNAPSHOTS)]
    return sent, polls


def pair_snapshots(recorded: Recorded) -> Iterator[tuple[MeshSnapshot, MeshSnapshot]]:
    """Yield the exported and the read snapshot of every instant, with rows in the same order."""
    sent, polls = recorded
    assert [poll.at for poll in polls] == [one.observed_at for one in sent]
    for one, poll in zip(sent, polls, strict=True):
        assert poll.snapshot is not None, poll.why
        busy = np.flatnonzero(one.edge_features[:, 0] > 0)  # a call without traffic does not exist
        yield one.take(np.arange(one.num_nodes), busy), _ordered(poll.snapshot, one, busy)


def _ordered(read: MeshSnapshot, sent: MeshSnapshot, calls: np.ndarray) -> MeshSnapshot:
    row = {name: i for i, name in enumerate(read.node_ids)}
    edge = {ends: i for i, ends in enumerate(zip(*_call_names(read), strict=True))}
    wanted = [(sent.node_ids[a], sent.node_ids[b]) for a, b in sent.edge_index[:, calls].T]
    assert set(row) == set(sent.node_ids)
    assert set(edge) == set(wanted)
    return read.take([row[name] for name in sent.node_ids], [edge[ends] for ends in wanted])


def _call_names(snapshot: MeshSnapshot) -> tuple[list[str], list[str]]:
    source, destination = ([snapshot.node_ids[i] for i in side] for side in snapshot.edge_index)
    return source, destination


def test_nothing_is_missing(recorded_mesh: Recorded) -> None:
    for poll in recorded_mesh[1]:
        assert not poll.masked
        assert not poll.stale_seconds
        assert not any(answer.failed or answer.warnings for answer in poll.answers.values())


def test_services_and_calls_and_their_rates(recorded_mesh: Recorded) -> None:
    for sent, read in pair_snapshots(recorded_mesh):
        seen = sent.node_observed[:, 0]
        np.testing.assert_allclose(read.node_features[seen, 0], sent.node_features[seen, 0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(read.edge_features[:, 0], sent.edge_features[:, 0], rtol=1e-4, atol=1e-5)


def test_errors_are_the_larger_of_both_views(recorded_mesh: Recorded) -> None:
    worst = 0.0
    for sent, read in pair_snapshots(recorded_mesh):
        observed = sent.edge_observed[:, 1]
        np.testing.assert_allclose(read.edge_features[observed, 1], sent.edge_features[observed, 1], atol=1e-4)
        destination, (rate, share) = read.edge_index[1], read.edge_features[:, :2].T
        called = np.bincount(destination, rate, read.num_nodes)
        of_callers = np.bincount(destination, rate * share, read.num_nodes) / np.maximum(called, 1e-12)
        own = np.where(sent.node_observed[:, 1], sent.node_features[:, 1], 0.0)
        known = sent.node_observed[:, :2].all(axis=1)
        np.testing.assert_allclose(read.node_features[known, 1], np.maximum(own, of_callers)[known], atol=1e-4)
        worst = max(worst, float(read.node_features[:, 1].max()))
    assert worst > 0.3  # the errors include the fault


def test_quantiles_lie_within_a_buckets_width(recorded_mesh: Recorded) -> None:
    for sent, read in pair_snapshots(recorded_mesh):
        for side in ("node", "edge"):
            seen = getattr(sent, f"{side}_observed")[:, [0, 2, 3]].all(axis=1)
            seen &= getattr(sent, f"{side}_features")[:, 0] > 0
            assert seen.any()
            assert getattr(read, f"{side}_observed")[seen, 2:4].all()
            wanted = np.maximum(getattr(sent, f"{side}_features")[seen, 2:4], FINE_MS[0] / 1000)
            np.testing.assert_allclose(getattr(read, f"{side}_features")[seen, 2:4], wanted, rtol=WIDTH, atol=5e-4)


def test_requests_under_way_stand_for_connections(recorded_mesh: Recorded) -> None:
    for sent, read in pair_snapshots(recorded_mesh):
        seen = sent.node_observed[:, 6]
        np.testing.assert_allclose(read.node_features[seen, 6], sent.node_features[seen, 6], rtol=1e-4, atol=1e-4)
        assert not read.node_observed[:, 4:6].any()  # processors and memory were not exported
