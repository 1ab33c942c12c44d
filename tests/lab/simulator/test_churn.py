"""New and retired services, canaries and drains: their effects on a mesh, without harm to any service."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from lab.simulator.events.operations import BenignChange, ColdStart
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot

SPEC = MeshSpec(seed=1, without_resources=0.0, without_connections=0.0, dropout=0.0, hiccups_per_hour=0.0)
MESH = build_mesh(SPEC)
NAMES = MESH.topology.node_ids


def rate(snapshot: MeshSnapshot, service: str) -> float:
    return float(snapshot.node_features[snapshot.node_ids.index(service), 0])


def run(*changes: BenignChange, snapshots: int = 80) -> list[MeshSnapshot]:
    return list(Simulator(SPEC, changes=changes, snapshots=snapshots).snapshots())


@pytest.fixture(scope="module")
def calm() -> list[MeshSnapshot]:
    return run()


def test_latent_services_and_calls_are_hidden_until_they_start(calm: list[MeshSnapshot]) -> None:
    assert MESH.topology.latent.sum() >= 5
    ordinary = {name for name, latent in zip(NAMES, MESH.topology.latent, strict=True) if not latent}
    assert len(ordinary) == SPEC.services
    for snapshot in calm[:3]:
        assert set(snapshot.node_ids) == ordinary
        assert snapshot.num_edges == (~MESH.topology.latent_calls).sum()


def test_swapping_the_calls_of_a_misroute_changes_no_rate() -> None:
    first, second, wrong, crossed = MESH.misroutes.T
    topology = MESH.topology
    flow = MESH.usual_rate[topology.source] * topology.calls_per_request
    assert len(first) >= 1
    assert (topology.destination[wrong] == topology.destination[second]).all()
    assert (topology.destination[crossed] == topology.destination[first]).all()
    np.testing.assert_allclose(flow[wrong], flow[second], rtol=0.11)
    np.testing.assert_allclose(flow[crossed], flow[first], rtol=0.11)


def test_a_new_service_is_wired_up_step_by_step() -> None:
    name = NAMES[MESH.newcomers[0]]
    snapshots = run(BenignChange("new_service", name, 20), snapshots=50)
    assert [name in s.node_ids for s in snapshots] == [i >= 20 for i in range(50)]
    early, late = (np.mean([rate(s, name) for s in part]) for part in (snapshots[20:23], snapshots[30:50]))
    assert 0 <= early < 0.6 * late
    assert snapshots[20].changes[0].kind == "new_service"


def test_a_retirement_is_announced_two_intervals_before_the_service_goes(calm: list[MeshSnapshot]) -> None:
    able = (MESH.topology.layer > 0) & ~MESH.topology.shared & ~MESH.topology.latent
    able[MESH.canaries[:, 0]] = False
    name = NAMES[int(np.argmax(np.where(able, MESH.usual_rate, 0)))]
    snapshots = run(BenignChange("deletion", name, 20), snapshots=40)
    assert [c.kind for c in snapshots[20].changes] == ["deletion"]
    assert [name in s.node_ids for s in snapshots[18:24]] == [True, True, True, True, False, False]
    assert rate(snapshots[21], name) < 0.7 * rate(calm[21], name)
    errors = np.array([np.nanmax(s.node_features[:, 1]) for s in snapshots])
    assert errors[20:].max() < errors[:20].max() + 0.05


def test_a_canary_takes_the_traffic_in_steps_and_gives_it_back(calm: list[MeshSnapshot]) -> None:
    service, canary = max(MESH.canaries, key=lambda pair: MESH.usual_rate[pair[0]])
    snapshots = run(BenignChange("canary", NAMES[service], 10))
    for first, share in zip(range(12, 60, 12), (0.1, 0.25, 0.5, 1.0), strict=True):
        part, before = snapshots[first : first + 9], calm[first : first + 9]
        whole = np.mean([rate(s, NAMES[service]) for s in before])
        assert np.mean([rate(s, NAMES[canary]) for s in part]) == pytest.approx(share * whole, rel=0.25, abs=0.3)
        assert np.mean([rate(s, NAMES[service]) for s in part]) == pytest.approx((1 - share) * whole, rel=0.25, abs=0.3)
    assert NAMES[canary] not in snapshots[70].node_ids
    assert rate(snapshots[70], NAMES[service]) == pytest.approx(rate(calm[70], NAMES[service]), rel=0.1)


def test_a_drained_node_restarts_replicas_of_several_services(calm: list[MeshSnapshot]) -> None:
    hosts = np.bincount(MESH.host[~MESH.topology.latent])
    on_host = np.flatnonzero((MESH.host == int(hosts.argmax())) & ~MESH.topology.latent)
    snapshots = run(BenignChange("node_drain", NAMES[on_host[0]], 20), snapshots=40)
    memory = [s.node_features[[s.node_ids.index(NAMES[i]) for i in on_host], 5] for s in (calm[22], snapshots[22])]
    assert (memory[1] < memory[0] - 1e-4).sum() >= 2


def test_a_change_without_a_possible_place_is_refused() -> None:
    simulator = Simulator(SPEC)
    stream = simulator.snapshots()
    list(islice(stream, 3))
    name = NAMES[MESH.newcomers[0]]
    simulator.schedule(BenignChange("new_service", name, 4))
    assert name in list(islice(stream, 3))[-1].node_ids
    with pytest.raises(ValueError, match="is already scheduled"):
        simulator.schedule(BenignChange("new_service", name, 9))
    with pytest.raises(ValueError, match="is not one of the"):
        simulator.schedule(BenignChange("canary", name, 9))


@pytest.mark.parametrize(("strength", "seconds"), [(0.5, 15.0), (3.0, 45.0)])
def test_a_deploy_slows_its_service_by_cold_starts_of_the_set_strength_and_length(
    strength: float, seconds: float
) -> None:
    spec = replace(SPEC, cold_strength=strength, cold_seconds=seconds)
    usual = MESH.usual_rate * ~MESH.topology.latent * (MESH.services.replicas >= 4)
    service = NAMES[int(np.argmax(usual))]
    deploy = BenignChange("deploy", service, 40, factor=1.0)

    def p50(*changes: BenignChange) -> np.ndarray:
        snapshots = Simulator(spec, changes=changes, snapshots=60).snapshots()
        return np.array([s.node_features[s.node_ids.index(service), 2] for s in snapshots])

    slower = p50(deploy) / p50() - 1
    cold = ColdStart(strength, seconds)
    batch = [cold.stall(4, t, SPEC.interval_seconds) > 1 for t in range(3)]  # a quarter of the replicas, 3 snapshots
    assert np.abs(slower[:40]).max() == 0
    assert (slower[40:52] > 0.01).tolist() == batch * 4
    assert np.abs(slower[54:]).max() < 0.05


def latency(snapshots: list[MeshSnapshot], service: str) -> float:
    return float(np.median([s.node_features[s.node_ids.index(service), 2] for s in snapshots]))


def errors(snapshots: list[MeshSnapshot], service: str) -> float:
    return float(np.mean([s.node_features[s.node_ids.index(service), 1] for s in snapshots]))


def test_a_new_version_fails_until_the_next_deploy() -> None:
    name = NAMES[int(np.argmax(MESH.usual_rate))]
    bad, good = BenignChange("deploy", name, 10, 1.0, errors=0.4), BenignChange("deploy", name, 40, 1.0)
    snapshots = run(bad, good)
    assert errors(snapshots[:10], name) < 0.05
    assert errors(snapshots[24:40], name) == pytest.approx(0.4, abs=0.05)
    assert errors(snapshots[54:], name) < 0.05
    during = [errors([s], name) for s in snapshots[11:22]]
    assert 0.05 < during[2] < during[-1]


def test_a_canary_can_be_taken_back() -> None:
    service, canary = (NAMES[i] for i in MESH.canaries[0])
    snapshots = run(BenignChange("canary", service, 10, 1.0, stages=2), snapshots=60)
    share = [rate(s, canary) / (rate(s, canary) + rate(s, service)) if canary in s.node_ids else 0.0 for s in snapshots]
    assert np.mean(share[10:22]) == pytest.approx(0.1, abs=0.05)
    assert np.mean(share[22:34]) == pytest.approx(0.25, abs=0.05)
    assert 0 < share[34] < 0.25
    assert share[38:] == [0.0] * 22


def test_a_worse_canary_is_slow_and_fails_and_so_is_the_service_once_it_is_promoted() -> None:
    service, canary = (NAMES[i] for i in MESH.canaries[0])
    snapshots = run(BenignChange("canary", service, 5, 4.0, errors=0.3), snapshots=80)
    trial, usual, after = snapshots[29:41], snapshots[:5], snapshots[62:]
    assert errors(trial, canary) > 0.2 > errors(trial, service)
    assert latency(trial, canary) > 1.2 * latency(trial, service)
    assert errors(after, service) > 0.2 > errors(usual, service)
    back = run(BenignChange("canary", service, 5, 4.0, errors=0.3, stages=2), snapshots=80)
    assert errors(back[40:], service) < 0.1


def test_wrong_versions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"errors: expected a share from 0 to 1, got 1\.5"):
        BenignChange("deploy", "a/b", 1, errors=1.5)
    with pytest.raises(ValueError, match="stages: expected 1 to 4, got 5"):
        BenignChange("canary", "a/b", 1, stages=5)
