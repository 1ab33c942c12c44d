"""The simulated mesh: its shape, its physics, its churn and its faults."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

import numpy as np
import pytest

from lab.simulator.events.faults import Fault, FaultKind, apply_faults, candidates
from lab.simulator.events.operations import BenignChange
from lab.simulator.mesh.parameters import build_mesh, usual_conditions
from lab.simulator.mesh.topology import MeshSpec, generate_topology
from lab.simulator.physics.propagation import Conditions, MeshPhysics, Response, respond
from lab.simulator.physics.queueing import draw_binomial, draw_poisson, retry, share_above, wait_and_blocking
from lab.simulator.simulator import Simulator
from model.snapshot import NODE_METRICS, EdgeMetric, MeshSnapshot, PlannedChange, namespace_of

RATE, ERRORS, P50, P99, CPU, MEMORY, CONNECTIONS = range(len(NODE_METRICS))
SPEC = MeshSpec(seed=1, without_resources=0.0, without_connections=0.0, dropout=0.0, hiccups_per_hour=0.0, latent=0.0)


def nodes_of(snapshots: list[MeshSnapshot]) -> np.ndarray:
    """Return metrics ``[T, N, 7]``."""
    return np.stack([s.node_features for s in snapshots])


def settle(mesh: MeshPhysics, now: Conditions, ticks: int = 12) -> Response:
    """Return the response once retries have settled."""
    response = respond(mesh, now)
    for _ in range(ticks):
        response = respond(mesh, replace(now, attempts=response.attempts))
    return response


def with_fault(mesh: MeshPhysics, kind: FaultKind, service: int) -> Response:
    ids = mesh.topology.node_ids
    position = {name: i for i, name in enumerate(ids)}
    return settle(mesh, apply_faults([Fault(kind, ids[service], 0, 1)], 0, mesh, position, usual_conditions(mesh)))


@pytest.fixture(scope="module")
def mesh() -> MeshPhysics:
    return build_mesh(SPEC)


@pytest.fixture(scope="module")
def quiet_run() -> list[MeshSnapshot]:
    return list(Simulator(SPEC, snapshots=60).snapshots())


# --- topology -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("services", "mean"), [(20, 2.0), (60, 4.0), (500, 6.0), (2000, 4.0), (2000, 10.0), (6000, 4.0)]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_topology_has_the_requested_size_and_is_a_layered_graph(services: int, mean: float, seed: int) -> None:
    spec = MeshSpec(services=services, calls_per_service=mean, seed=seed)
    topology = generate_topology(spec, spec.stream(0))
    assert len(topology.node_ids) == services
    assert len({name.split("/")[1] for name in topology.node_ids}) == services
    assert len(topology.source) == round(services * mean)
    assert len(set(zip(topology.source.tolist(), topology.destination.tolist(), strict=True))) == len(topology.source)
    assert (topology.layer[topology.source] < topology.layer[topology.destination]).all()
    has_caller = np.bincount(topology.destination, minlength=services) > 0
    assert (has_caller == (topology.layer > 0)).all()
    assert sum(s.stop - s.start for s in topology.call_slices) == len(topology.source)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_most_calls_stay_in_their_namespace_and_shared_services_are_called_from_everywhere(seed: int) -> None:
    spec = MeshSpec(services=2000, calls_per_service=6.0, seed=seed)
    topology = generate_topology(spec, spec.stream(0))
    inside = topology.namespace[topology.source] == topology.namespace[topology.destination]
    to_shared = topology.shared[topology.destination]
    assert inside[~to_shared].mean() > 0.9
    in_degree = np.bincount(topology.destination, minlength=2000)
    assert in_degree[topology.shared].max() > 20 * np.median(in_degree[~topology.shared & (topology.layer > 0)])
    busiest = int(np.argmax(np.where(topology.shared, in_degree, 0)))
    callers = topology.source[topology.destination == busiest]
    assert len(np.unique(topology.namespace[callers])) > topology.namespace.max() // 2


def test_namespaces_are_heavy_tailed() -> None:
    spec = MeshSpec(services=6000, namespaces=40, namespace_skew=1.4)
    names = [namespace_of(name) for name in generate_topology(spec, spec.stream(0)).node_ids]
    sizes = sorted((names.count(n) for n in set(names)), reverse=True)
    assert len(sizes) == 40
    assert sizes[0] > 2000
    assert sizes[20] < 100


@pytest.mark.parametrize(
    "wrong",
    [
        {"services": 3},
        {"calls_per_service": 0.5},
        {"calls_per_service": 40.0},
        {"namespaces": 50},
        {"interval_seconds": 0.0},
        {"start": datetime(2026, 1, 1)},
        {"missing_metrics": ("luck",)},
        {"weekend": 0.0},
        {"load": 0.0},
        {"sized_for": 0.0},
        {"day_amplitude": 1.5},
    ],
)
def test_an_impossible_spec_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: expected"):
        MeshSpec(**wrong)  # type: ignore[arg-type]


def test_meshes_of_different_seeds_differ_widely() -> None:
    meshes = [build_mesh(MeshSpec(services=100, seed=seed)) for seed in range(12)]
    assert len({m.topology.layer.max() for m in meshes}) >= 3
    medians = np.array([np.median(m.usual_p50) for m in meshes])
    assert medians.max() > 2 * medians.min()
    rates = np.concatenate([m.usual_rate for m in meshes])
    assert rates.max() > 1e5 * rates[rates > 0].min()
    latencies = np.concatenate([m.usual_p50 for m in meshes])
    assert np.quantile(latencies, 0.02) < 0.005
    assert np.quantile(latencies, 0.98) > 0.1


# --- laws -----------------------------------------------------------------------------------------------------------


def test_waiting_follows_mm1_below_saturation_and_a_full_queue_refuses_requests() -> None:
    single = np.ones(4)
    wait, blocking = wait_and_blocking(np.array([0.1, 0.5, 0.8, 3.0]), single, single * 400)
    np.testing.assert_allclose(wait[:3], [0.1 / 0.9, 1.0, 4.0], rtol=1e-3)
    np.testing.assert_allclose(blocking, [0, 0, 0, 2 / 3], atol=1e-9)
    assert wait[3] == pytest.approx(400, rel=0.01)  # each accepted request has a full queue ahead
    # One long queue for four workers at 0.7: Erlang C is 0.4287, so the wait is 1.43 of service time over workers.
    pooled, _ = wait_and_blocking(np.array([0.7]), np.array([4.0]), np.array([400.0]))
    assert pooled[0] == pytest.approx(1.43, rel=0.1)
    x = np.linspace(0.9, 1.1, 401)
    wait, blocking = wait_and_blocking(x, np.ones(401), np.full(401, 50.0))
    assert (np.diff(wait) > 0).all()
    assert (np.diff(blocking) > 0).all()


def test_retries_multiply_attempts_until_the_budget_ends_them() -> None:
    failing, retries = np.array([0.0, 0.5, 0.5, 1.0]), np.array([3.0, 2.0, 2.0, 6.0])
    attempts, failures = retry(failing, retries, np.array([9.0, 9.0, 0.2, 1e9]))
    np.testing.assert_allclose(attempts, [1.0, 1.75, 1.2, 7.0], atol=1e-6)
    np.testing.assert_allclose(failures[[0, 1, 3]], [0.0, 0.125, 1.0], atol=1e-6)
    assert 0.125 < failures[2] < 0.5


def test_timeouts_cut_the_tail_of_the_lognormal() -> None:
    p50, p99 = np.full(3, 0.1), np.full(3, 0.4)
    np.testing.assert_allclose(share_above(np.array([0.1, 0.4, 4.0]), p50, p99), [0.5, 0.01, 0.0], atol=5e-4)


@pytest.mark.parametrize("mean", [0.02, 0.7, 6.0, 9.9, 10.1, 250.0])
def test_counts_have_the_mean_and_variance_of_poisson(mean: float) -> None:
    rng = np.random.default_rng(3)
    counts = draw_poisson(np.full(60_000, mean), rng.standard_normal(60_000), rng.random(60_000))
    assert counts.mean() == pytest.approx(mean, abs=5 * np.sqrt(mean / 60_000))
    assert counts.var() == pytest.approx(mean, rel=0.08)


@pytest.mark.parametrize(("count", "share"), [(10, 0.02), (40, 0.3), (500, 0.5), (500, 0.97), (3, 1.0)])
def test_failures_have_the_mean_of_the_binomial_and_never_exceed_the_count(count: int, share: float) -> None:
    rng = np.random.default_rng(3)
    n = np.full(60_000, float(count))
    hits = draw_binomial(n, np.full(60_000, share), rng.standard_normal(60_000), rng.random(60_000))
    assert hits.mean() == pytest.approx(count * share, rel=0.03)
    assert hits.min() >= 0
    assert hits.max() <= count


# --- physics --------------------------------------------------------------------------------------------------------


def test_load_is_conserved_down_the_calls(mesh: MeshPhysics) -> None:
    response = settle(mesh, usual_conditions(mesh))
    into = np.bincount(mesh.topology.destination, response.call_rate, len(response.rate))
    np.testing.assert_allclose(response.rate, into + mesh.services.entry, rtol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_usual_state_is_healthy(seed: int) -> None:
    usual = settle(
        build_mesh(replace(SPEC, services=200, seed=seed)),
        usual_conditions(build_mesh(replace(SPEC, services=200, seed=seed))),
    )
    assert usual.utilisation.max() < 0.65
    assert usual.errors.max() < 0.1
    assert np.median(usual.errors) < 1e-3
    assert (usual.p50 < usual.p99).all()
    assert usual.p50.min() > 0
    assert usual.p99.max() < 20


def test_a_slow_service_slows_only_its_callers(mesh: MeshPhysics) -> None:
    usual = settle(mesh, usual_conditions(mesh))
    callers = _callers(mesh)
    for culprit in candidates(mesh, "latency_injection")[::4]:
        slow = with_fault(mesh, "latency_injection", int(culprit))
        assert slow.p50[culprit] > 3 * usual.p50[culprit]
        upstream = callers[culprit]
        elsewhere = ~upstream
        elsewhere[culprit] = False
        assert (slow.p99[upstream] > 0.999 * usual.p99[upstream]).all()
        # At other services only the load of retries could have an effect.
        np.testing.assert_allclose(slow.p50[elsewhere], usual.p50[elsewhere], rtol=0.1)
        if upstream.any():
            assert (slow.mean[upstream] > usual.mean[upstream]).any()


def test_errors_reach_callers_and_decrease_with_distance(mesh: MeshPhysics) -> None:
    usual = settle(mesh, usual_conditions(mesh))
    callers = _callers(mesh)
    count = 0
    for culprit in candidates(mesh, "error_burst"):
        failing = with_fault(mesh, "error_burst", int(culprit))
        assert failing.errors[culprit] == pytest.approx(0.3, abs=0.1)
        elsewhere = ~callers[culprit]
        elsewhere[culprit] = False
        np.testing.assert_allclose(failing.errors[elsewhere], usual.errors[elsewhere], atol=2e-3)
        count += bool((failing.errors[callers[culprit]] > usual.errors[callers[culprit]] + 1e-3).any())
    assert count > 0.5 * (mesh.topology.layer[candidates(mesh, "error_burst")] > 0).sum()


def test_a_retry_storm_multiplies_the_calls_of_the_culprit_and_overloads_callees() -> None:
    overloaded = []
    for seed in range(4):
        mesh = build_mesh(replace(SPEC, seed=seed))
        usual = settle(mesh, usual_conditions(mesh))
        for culprit in candidates(mesh, "retry_storm"):
            storm = with_fault(mesh, "retry_storm", int(culprit))
            calls = mesh.topology.source == culprit
            per_request = storm.call_rate[calls].sum() / storm.rate[culprit]
            assert per_request > 1.4 * usual.call_rate[calls].sum() / usual.rate[culprit]
            assert storm.call_errors[calls].max() > 0.3
            # Its callers retry failed calls within their budgets. They start no storm of their own.
            assert storm.rate[culprit] < 1.8 * usual.rate[culprit]
            overloaded.append((storm.utilisation[mesh.topology.destination[calls]] > 0.9).any())
    assert np.mean(overloaded) > 0.3


# --- runs -----------------------------------------------------------------------------------------------------------


def test_equal_specs_give_equal_snapshots_and_a_run_can_be_repeated(quiet_run: list[MeshSnapshot]) -> None:
    simulator = Simulator(SPEC, snapshots=5)
    first, again = list(simulator.snapshots()), list(simulator.snapshots())
    assert [s.digest for s in first] == [s.digest for s in again] == [s.digest for s in quiet_run[:5]]
    second = next(Simulator(replace(SPEC, seed=2)).snapshots())
    assert second.digest != first[0].digest


def test_time_advances_in_intervals_and_a_source_without_a_length_does_not_end() -> None:
    simulator = Simulator(replace(SPEC, interval_seconds=60.0))
    times = [s.observed_at for s in islice(simulator.snapshots(), 40)]
    assert times == [datetime(2026, 1, 1, tzinfo=UTC) + i * timedelta(minutes=1) for i in range(40)]
    assert simulator.interval_seconds == 60.0


def test_requests_of_a_service_are_the_calls_into_it(quiet_run: list[MeshSnapshot], mesh: MeshPhysics) -> None:
    inner = mesh.services.entry == 0
    for snapshot in quiet_run[:5]:
        into = np.bincount(snapshot.edge_index[1], snapshot.edge_features[:, 0], snapshot.num_nodes)
        np.testing.assert_allclose(snapshot.node_features[inner, RATE], into[inner], rtol=1e-4, atol=1e-4)


def test_counts_scatter_like_poisson(quiet_run: list[MeshSnapshot]) -> None:
    rates = np.stack([s.edge_features[:, 0] for s in quiet_run])
    rare = (rates.mean(axis=0) * 15 < 30) & (rates.mean(axis=0) * 15 > 3)
    counts = rates[:, rare] * 15
    scatter = counts.var(axis=0) / counts.mean(axis=0)
    assert 0.8 < np.median(scatter) < 1.6


def test_scale_out_lowers_cpu_and_raises_connections(mesh: MeshPhysics, quiet_run: list[MeshSnapshot]) -> None:
    i = int(np.argmax(np.where(mesh.services.max_replicas == mesh.services.replicas, mesh.usual_utilisation, 0.0)))
    change = BenignChange("scale_out", mesh.topology.node_ids[i], 20, 2.0)
    run = list(Simulator(SPEC, changes=[change], snapshots=60).snapshots())
    before, after = nodes_of(quiet_run)[30:, i], nodes_of(run)[30:, i]
    assert after[:, CPU].mean() < 0.75 * before[:, CPU].mean()
    assert after[:, CONNECTIONS].mean() > before[:, CONNECTIONS].mean() + 1
    assert after[:, P99].mean() <= before[:, P99].mean()
    assert run[20].changes == (PlannedChange("scale_out", change.service, change.reason),)
    assert sum(len(s.changes) for s in run) == 1


def test_a_deploy_restarts_memory_and_leaves_a_small_mark(mesh: MeshPhysics, quiet_run: list[MeshSnapshot]) -> None:
    i = int(np.argmax(mesh.services.memory_growth / mesh.services.memory_hours))
    run = list(
        Simulator(SPEC, changes=[BenignChange("deploy", mesh.topology.node_ids[i], 20, 1.05)], snapshots=60).snapshots()
    )
    before, after = nodes_of(quiet_run)[:, i], nodes_of(run)[:, i]
    np.testing.assert_array_equal(before[:20], after[:20])
    assert after[25:45, MEMORY].min() < before[25:45, MEMORY].min() - 0.02
    lasting = after[45:, P50].mean() / before[45:, P50].mean()
    assert 1.0 < lasting <= 1.06
    assert (after[20:, P99] < 2.5 * before[20:, P99]).all()


def test_events_can_be_scheduled_while_the_mesh_runs(mesh: MeshPhysics) -> None:
    simulator = Simulator(SPEC)
    stream = simulator.snapshots()
    i = int(candidates(mesh, "error_burst")[0])
    before = list(islice(stream, 10))
    simulator.schedule(
        Fault("error_burst", simulator.node_ids[i], 12, 20), BenignChange("deploy", simulator.node_ids[i], 11)
    )
    after = list(islice(stream, 10))
    assert nodes_of(before)[:, i, ERRORS].max() < 0.1
    assert nodes_of(after)[2:, i, ERRORS].min() > 0.1
    assert [len(s.changes) for s in after[:3]] == [0, 1, 0]
    with pytest.raises(ValueError, match="is not among the 60 services"):
        simulator.schedule(Fault("error_burst", "shop/nobody", 30, 40))


def test_metrics_are_missing_as_specified() -> None:
    spec = replace(SPEC, services=400, without_resources=0.3, without_connections=0.2, dropout=0.01)
    run = list(Simulator(spec, snapshots=8).snapshots())
    observed_cells = np.stack([s.node_observed for s in run])
    is_missing = np.asarray(~observed_cells.any(axis=0))
    assert is_missing[:, CPU].mean() == pytest.approx(0.3, abs=0.08)
    assert (is_missing[:, CPU] == is_missing[:, MEMORY]).all()
    assert is_missing[:, CONNECTIONS].mean() == pytest.approx(0.2, abs=0.08)
    assert 1 - observed_cells[:, :, RATE].mean() == pytest.approx(0.01, abs=0.005)
    p99 = np.stack([s.edge_observed for s in run])[:, :, EdgeMetric.P99_LATENCY]
    assert not p99.any(axis=0).all()
    lacking = replace(SPEC, missing_metrics=("cpu_utilization",), missing_call_metrics=("p99_latency",))
    (snapshot,) = Simulator(lacking, snapshots=1).snapshots()
    assert not snapshot.node_observed[:, CPU].any()
    assert not snapshot.edge_observed[:, EdgeMetric.P99_LATENCY].any()
    assert snapshot.node_observed[:, RATE].all()


def _callers(mesh: MeshPhysics) -> dict[int, np.ndarray]:
    """Return for each service which others reach it over calls (bool ``[N]``)."""
    count = len(mesh.topology.node_ids)
    reaches = np.zeros((count, count), dtype=np.bool_)
    for source, destination in zip(mesh.topology.source[::-1], mesh.topology.destination[::-1], strict=True):
        reaches[source] |= reaches[destination]
        reaches[source, destination] = True
    return {i: reaches[:, i] for i in range(count)}
