from dataclasses import replace

import numpy as np
import pytest

from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.simulator.telemetry.instrumentation import Instrumentation, instrument
from model.snapshot import MeshSnapshot

SPEC = MeshSpec(services=40, seed=77)
LENGTH = 12


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return Simulator(SPEC, snapshots=LENGTH)


def instrumented_snapshots(simulator: Simulator, how: Instrumentation, *faults: Fault) -> list[MeshSnapshot]:
    return list(instrument(Simulator(simulator.spec, faults, snapshots=LENGTH).snapshots(), how, faults))


def traffic(snapshot: MeshSnapshot, rows: np.ndarray) -> np.ndarray:
    return np.bincount(snapshot.edge_index[1], snapshot.edge_features[:, 0], snapshot.num_nodes)[rows]


def test_without_instrumentation_nothing_is_rewritten(simulator: Simulator) -> None:
    plain = list(Simulator(SPEC, snapshots=LENGTH).snapshots())
    assert [s.digest for s in instrumented_snapshots(simulator, Instrumentation())] == [s.digest for s in plain]


def test_a_front_forwards_all_requests_and_has_the_metrics_of_its_callers(simulator: Simulator) -> None:
    last = instrumented_snapshots(simulator, Instrumentation(fronts=1.0, seed=5))[-1]
    fronts = [i for i, name in enumerate(last.node_ids) if name.endswith(".front")]
    assert fronts
    for front in fronts:
        (behind,) = last.edge_index[1, last.edge_index[0] == front]
        assert last.node_ids[behind] == last.node_ids[front].removesuffix(".front")
        assert (last.edge_index[0, last.edge_index[1] == behind] == front).all()
        assert not last.node_observed[front, 4:].any()
    handed_on = np.isin(last.edge_index[0], fronts)
    assert traffic(last, np.array(fronts)) == pytest.approx(last.edge_features[handed_on, 0], rel=1e-5)


def test_a_remote_name_receives_some_of_the_traffic_and_has_no_callees(simulator: Simulator) -> None:
    plain = list(Simulator(SPEC, snapshots=LENGTH).snapshots())[-1]
    last = instrumented_snapshots(simulator, Instrumentation(remotes=1.0, seed=5))[-1]
    remotes = [i for i, name in enumerate(last.node_ids) if name.endswith(".remote")]
    assert remotes
    assert not np.isin(last.edge_index[0], remotes).any()
    there = [last.node_ids.index(last.node_ids[i].removesuffix(".remote")) for i in remotes]
    before = [plain.node_ids.index(last.node_ids[i]) for i in there]
    total = traffic(last, np.array(remotes)) + traffic(last, np.array(there))
    assert total == pytest.approx(traffic(plain, np.array(before)), rel=1e-5)


def test_a_failing_caller_shows_faults_in_calls_that_only_it_measures(simulator: Simulator) -> None:
    how = Instrumentation(outside=1.0, seed=1)
    plain = list(Simulator(SPEC, snapshots=LENGTH).snapshots())[-1]
    source, destination = plain.edge_index
    leaves = np.setdiff1d(destination, source)
    visible = 0
    for caller in np.unique(source[np.isin(destination, leaves)]).tolist()[:8]:
        fault = Fault("error_burst", plain.node_ids[caller], 4, LENGTH, severity=0.8)
        calm, faulty = instrumented_snapshots(simulator, how)[-1], instrumented_snapshots(simulator, how, fault)[-1]
        mine = np.intersect1d(destination[source == caller], leaves)
        other_leaves = np.setdiff1d(leaves, mine)
        assert not faulty.node_observed[leaves, 4:].any()
        visible += bool((faulty.node_features[mine, 1] > calm.node_features[mine, 1] + 0.02).any())
        assert (faulty.node_features[other_leaves, 1] < calm.node_features[other_leaves, 1] + 0.02).all()
    assert visible  # half of the faults are visible there, drawn by service


def test_measurement_of_a_service_does_not_depend_on_other_services() -> None:
    first, second = Instrumentation(fronts=0.3, seed=9), Instrumentation(fronts=0.3, seed=10)
    names = [f"a/s{i}" for i in range(200)]
    draws = [first.draw(name, 5) for name in names]
    assert draws == [first.draw(name, 5) for name in reversed(names)][::-1]
    assert draws != [second.draw(name, 5) for name in names]
    assert draws != [replace(first).draw(name, 3) for name in names]
    assert 0.2 < np.mean(np.array(draws) < 0.3) < 0.4
