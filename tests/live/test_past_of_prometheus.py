"""The past of a mesh from range queries of a real Prometheus."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot, NodeMetric
from serve_app.collect.prometheus.past import PastReader
from serve_app.errors import NoTelemetry
from serve_app.settings import CollectorSettings, MeshSettings
from tests.live.history import prometheus_with_history
from tests.live.monitor import Monitor
from tests.live.programs import needs
from tests.live.series import Export
from tests.timing import TIME_FACTOR

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]
MESH, SNAPSHOTS = "shop", 121  # half an hour


@pytest.fixture(scope="module")
def snapshots() -> list[MeshSnapshot]:
    start = datetime.fromtimestamp(time.time() // 600 * 600, UTC) - timedelta(days=3)
    return list(
        Simulator(MeshSpec(services=20, calls_per_service=2.0, seed=7, start=start), snapshots=SNAPSHOTS).snapshots()
    )


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, snapshots: list[MeshSnapshot]) -> Iterator[Monitor]:
    with prometheus_with_history(snapshots, tmp_path_factory.mktemp("past"), Export()) as monitor:
        yield monitor


@pytest.fixture
def reader(prometheus: Monitor) -> PastReader:
    settings = MeshSettings.model_validate({"prometheus": prometheus.url, "source": "istio"})
    return PastReader({MESH: settings}, CollectorSettings())


def until() -> float:
    """A deadline for one request."""
    return time.monotonic() + 60 * TIME_FACTOR


def test_a_period_has_the_rates_of_its_snapshots(reader: PastReader, snapshots: list[MeshSnapshot]) -> None:
    begin, end = snapshots[20].observed_at, snapshots[-1].observed_at
    found = reader.read(MESH, begin, end, 26, until())
    assert found.step_seconds in {60, 61}
    assert 20 <= len(found.snapshots) <= found.count <= 27
    busiest = snapshots[0].node_ids[int(np.argmax(snapshots[0].node_features[:, NodeMetric.REQUEST_RATE]))]

    def rate(snapshot: MeshSnapshot) -> float:
        return float(snapshot.node_features[snapshot.node_ids.index(busiest), NodeMetric.REQUEST_RATE])

    original = np.mean([rate(one) for one in snapshots[20:]])
    assert np.mean([rate(one) for one in found.snapshots]) == pytest.approx(original, rel=0.1)
    assert reader.read(MESH, begin, end, 26, until()) is found


def test_an_instant_is_a_snapshot(reader: PastReader, snapshots: list[MeshSnapshot]) -> None:
    read = reader.read_instant(MESH, snapshots[60].observed_at, until())
    assert len({*read.node_ids} & {*snapshots[60].node_ids}) >= 0.9 * snapshots[60].num_nodes
    assert read.num_edges >= 0.9 * snapshots[60].num_edges


def test_a_period_without_data_says_so(reader: PastReader, snapshots: list[MeshSnapshot]) -> None:
    early = snapshots[0].observed_at - timedelta(days=40)
    with pytest.raises(NoTelemetry, match="its Prometheus has no data from"):
        reader.read(MESH, early, early + timedelta(hours=1), 20, until())
    with pytest.raises(NoTelemetry, match="its Prometheus has no data of"):
        reader.read_instant(MESH, early, until())
    with pytest.raises(NoTelemetry, match="is not collected from Prometheus"):
        reader.read_instant("nowhere", early, until())
