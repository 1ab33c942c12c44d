"""Contenders on snapshots made by hand, and the contract of scorers that each one meets."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest

from lab.contenders import (
    NAMES,
    Contender,
    adaptive_bands,
    autoencoder,
    baro,
    contender,
    deepest,
    ecod,
    graph_z,
    guarded,
    isolation_forest,
    microrca,
    moving_variance,
    n_sigma,
    own_limit,
    pca,
    robust_bands,
)
from lab.contenders.paging import Floats
from lab.contenders.past import Past, quantiles
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from model.verdict import Status, Verdict
from tests.contract import Scorer, check_all, check_same, with_unknown_service

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, tzinfo=UTC)
SERVICES = ("shop/gateway", "shop/cart", "shop/store", "bank/ledger")
CALLS = ((0, 1), (1, 2))  # the ledger stands alone
EASE = (100.0, 0.01, 0.02, 0.1, 0.4, 0.5, 20.0)
WARM_UP = 41

Values = dict[tuple[int, str], float]  # by service (or call) and metric


def snapshot(index: float, services: Values | None = None, calls: Values | None = None) -> MeshSnapshot:
    """Return a normal snapshot, except for the given values."""
    nodes, edges = np.tile(EASE, (len(SERVICES), 1)), np.tile((50.0, 0.01, 0.01, 0.05), (len(CALLS), 1))
    for (service, metric), value in (services or {}).items():
        nodes[service, NODE_METRICS.index(metric)] = value
    for (call, metric), value in (calls or {}).items():
        edges[call, EDGE_METRICS.index(metric)] = value
    return MeshSnapshot.create(
        node_ids=SERVICES,
        edge_index=np.array(CALLS).T,
        node_features=nodes,
        edge_features=edges,
        observed_at=START + timedelta(seconds=15 * index),
    )


def run(module: Contender, snapshots: Sequence[MeshSnapshot], warm_up: int = WARM_UP) -> list[Verdict]:
    """Return a verdict for each snapshot."""
    state, verdicts = module.start(15.0, warm_up), []
    for one in snapshots:
        verdict, state = module.advance(state, one)
        verdicts.append(verdict)
    return verdicts


def after(module: Contender, *later: Values, warm: Sequence[Values] = ()) -> list[Verdict]:
    """Return the verdicts of these snapshots, after ``warm`` and then normal snapshots."""
    values = [*warm, *[{}] * (WARM_UP - 1 - len(warm)), *later]
    return run(module, [snapshot(i, services) for i, services in enumerate(values)])[WARM_UP - 1 :]


def affected_services(verdict: Verdict) -> list[tuple[str, ...]]:
    return [incident.affected for incident in verdict.incidents]


OVER = [  # values just above and below the limit of a normal service
    (guarded, "p99_latency", 0.51, 0.49),
    (guarded, "error_rate", 0.051, 0.049),
    (guarded, "cpu_utilization", 0.81, 0.79),
    (guarded, "memory_utilization", 0.91, 0.89),
    (own_limit, "p50_latency", 0.031, 0.029),
    (own_limit, "p99_latency", 0.151, 0.149),
    (own_limit, "error_rate", 0.0151, 0.0149),
    (own_limit, "cpu_utilization", 0.61, 0.59),
    (own_limit, "memory_utilization", 0.76, 0.74),
    (n_sigma, "p50_latency", 0.0368, 0.036),  # e^0.6 = 1.822 times as long: six of the least spread, 0.1
    (n_sigma, "error_rate", 0.0221, 0.0219),
    (n_sigma, "cpu_utilization", 0.521, 0.519),
]


@pytest.mark.parametrize(("module", "metric", "over", "under"), OVER)
def test_two_in_a_row_over_the_limit(module: Contender, metric: str, over: float, under: float) -> None:
    high, low = {(1, metric): over}, {(1, metric): under}
    assert [affected_services(v) for v in after(module, {}, high, high, {})][:3] == [[], [], [("shop/cart",)]]
    assert not any(affected_services(v) for v in after(module, {}, high, {}, high, {}))
    assert not any(affected_services(v) for v in after(module, {}, low, low, low))


@pytest.mark.parametrize("module", [guarded, own_limit, n_sigma])
def test_snapshots_around_a_gap_are_not_consecutive(module: Contender) -> None:
    high: Values = {(1, "cpu_utilization"): 0.95}
    calm = [snapshot(i) for i in range(WARM_UP)]
    assert affected_services(run(module, [*calm, snapshot(WARM_UP, high), snapshot(WARM_UP + 1, high)])[-1])
    assert not affected_services(run(module, [*calm, snapshot(WARM_UP, high), snapshot(WARM_UP + 2, high)])[-1])


@pytest.mark.parametrize("module", [guarded, own_limit])
def test_ratios_and_latencies_of_few_requests_say_nothing(module: Contender) -> None:
    def bad(rate: float) -> Values:
        return {(1, "request_rate"): rate, (1, "error_rate"): 0.9, (1, "p99_latency"): 9.0}

    assert not any(affected_services(v) for v in after(module, *[bad(99 / 15)] * 4))
    assert not any(affected_services(v) for v in after(module, *[bad(np.nan)] * 4))
    assert affected_services(after(module, *[bad(101 / 15)] * 4)[-1]) == [("shop/cart",)]
    busy: Values = {(1, "request_rate"): 1.0, (1, "cpu_utilization"): 0.95}
    assert affected_services(after(module, *[busy] * 4)[-1]) == [("shop/cart",)]


def test_guarded_leaves_out_services_that_alarm_in_normal_operation() -> None:
    cart, store = (1, "cpu_utilization"), (2, "cpu_utilization")
    warm = [{store: 0.95}, {cart: 0.95}, {cart: 0.95}]  # the store once, the cart twice in a row
    assert affected_services(after(guarded, *[{cart: 0.95, store: 0.95}] * 4, warm=warm)[-1]) == [("shop/store",)]


def test_own_limit_is_each_services_own_99th_percentile() -> None:
    """38 of 40 samples are 0.1, two are 1. The limit is between the 39th and the 40th, which are both 1."""
    warm: list[Values] = [{(1, "p99_latency"): 1.0}] * 2
    high: Values = {(1, "p99_latency"): 1.4, (2, "p99_latency"): 1.4}
    assert affected_services(after(own_limit, *[high] * 3, warm=warm)[-1]) == [("shop/store",)]


def test_own_limit_of_errors_never_seen_is_one_in_a_hundred() -> None:
    none: list[Values] = [{(1, "error_rate"): 0.0}] * (WARM_UP - 1)
    assert not any(affected_services(v) for v in after(own_limit, *[{(1, "error_rate"): 0.009}] * 4, warm=none))
    assert affected_services(after(own_limit, *[{(1, "error_rate"): 0.011}] * 4, warm=none)[-1]) == [("shop/cart",)]


def test_a_service_that_was_not_in_the_warm_up_has_no_limit_of_its_own() -> None:
    later = [with_unknown_service(snapshot(WARM_UP + i, {(1, "cpu_utilization"): 0.95})) for i in range(4)]
    verdict = run(own_limit, [*(snapshot(i) for i in range(WARM_UP)), *later])[-1]
    assert affected_services(verdict) == [("shop/cart",)]


@pytest.mark.parametrize("module", [n_sigma, graph_z, deepest, microrca])
def test_a_slow_call_is_evidence_about_the_service_that_is_called(module: Contender) -> None:
    calm = [snapshot(i) for i in range(WARM_UP)]
    slow = [snapshot(WARM_UP + i, calls={(1, "p50_latency"): 0.4}) for i in range(2)]
    verdict = run(module, [*calm, *slow])[-1]
    assert (affected_services(verdict), verdict.suspects[0].service) == ([("shop/store",)], "shop/store")
    assert verdict.mesh_score == pytest.approx(np.log(40.0) / 0.1, rel=1e-5)


def test_spreads_are_a_services_own() -> None:
    """A value that the store has half the time is normal for it. It would be unusual for the cart."""
    restless: list[Values] = [{(2, "cpu_utilization"): 0.9 if i % 2 else 0.1} for i in range(WARM_UP - 1)]
    high: Values = {(1, "cpu_utilization"): 0.9, (2, "cpu_utilization"): 0.9}
    assert affected_services(after(n_sigma, *[high] * 3, warm=restless)[-1]) == [("shop/cart",)]


def test_the_graph_score_subtracts_what_callees_explain() -> None:
    worse: Values = {(0, "p99_latency"): 5.0, (1, "p99_latency"): 4.0, (2, "p99_latency"): 2.0}

    def first(module: Contender) -> list[str]:
        return [suspect.service for suspect in after(module, *[worse] * 3)[-1].suspects[:3]]

    assert first(n_sigma) == ["shop/gateway", "shop/cart", "shop/store"]
    assert first(graph_z) == ["shop/store", "shop/cart", "shop/gateway"]  # log 20 is compared with log 2 and log 1.25


def test_the_deepest_anomaly_comes_first_however_small() -> None:
    worse: Values = {(0, "p99_latency"): 5.0, (1, "p99_latency"): 2.0, (3, "cpu_utilization"): 0.53}
    verdict = after(deepest, *[worse] * 3)[-1]
    assert [s.service for s in verdict.suspects[:3]] == ["shop/cart", "bank/ledger", "shop/gateway"]


def test_moving_variance_alarms_at_a_step_and_not_at_a_new_level() -> None:
    verdicts = after(moving_variance, *[{(1, "p99_latency"): 0.4}] * 12)
    assert affected_services(verdicts[3]) == [("shop/cart",)]
    assert not affected_services(verdicts[-1]), "a constant has no variance"
    restless: list[Values] = [{(1, "p99_latency"): 0.4 if i % 2 else 0.1} for i in range(WARM_UP - 1)]
    assert not any(affected_services(v) for v in after(moving_variance, *restless[:12], warm=restless))


def test_moving_variance_has_a_least_limit() -> None:
    """Of eight samples, one is d away from the others: their variance is 7/64 d squared. The least limit is 0.02^2."""
    at_limit = 0.02 * 8 / np.sqrt(7)
    for step, alarms in ((1.02 * at_limit, True), (0.98 * at_limit, False)):
        found = after(moving_variance, {(1, "cpu_utilization"): EASE[4] + step}, *[{}] * 3)
        assert any(affected_services(v) for v in found) == alarms


def test_principal_components_count_against_their_own_variance() -> None:
    """The columns have variances 4 and 1, and do not depend on each other: two spreads each make 4 and 4."""
    rows = np.array([[2, 1], [2, -1], [-2, 1], [-2, -1]], np.float32)
    (found,) = pca._anomaly_score(pca._learn(rows), np.array([[4, 2]], np.float32))
    assert found == pytest.approx(8.0)


def test_the_random_walk_prefers_the_slow_service_whose_cpu_follows_the_latency() -> None:
    """Both services are called slowly, and the cpu of one has the same course."""
    course = [0.0, 0.5, 1.0, 0.6, 0.9, 0.4, 1.0, 0.8]
    calm = [snapshot(i) for i in range(WARM_UP)]
    for owner, other in ((1, 2), (2, 1)):
        later = [
            snapshot(
                WARM_UP + i,
                {(owner, "cpu_utilization"): 0.4 + 0.015 * x, (other, "cpu_utilization"): 0.4},
                {(call, "p50_latency"): 0.01 * float(np.exp(3 * x)) for call in range(2)},
            )
            for i, x in enumerate(course)
        ]
        assert run(microrca, [*calm, *later])[-1].suspects[0].service == SERVICES[owner]


@pytest.mark.parametrize("module", [adaptive_bands, robust_bands])
def test_a_band_is_half_of_its_middle_wide_where_a_series_is_flat(module: Contender) -> None:
    """40 samples are 0.4, one or two are higher. The adaptive band's hour includes these, so it is slightly wider."""
    assert affected_services(after(module, *[{(1, "cpu_utilization"): 0.62}] * 2)[-1]) == [("shop/cart",)]
    assert not any(affected_services(v) for v in after(module, *[{(1, "cpu_utilization"): 0.59}] * 4))
    assert affected_services(after(module, *[{(1, "request_rate"): 47.0}] * 2)[-1]) == [("shop/cart",)], (
        "a value below the band is outside too"
    )
    for rate, alarms in ((0.08, 0), (0.8, 1)):  # 4.8 and 48 requests a minute
        steady: list[Values] = [{(1, "request_rate"): rate}] * (WARM_UP - 1)
        assert len(after(module, *[{(1, "request_rate"): rate / 4}] * 2, warm=steady)[-1].incidents) == alarms


def test_adaptive_bands_widen_where_an_hour_was_variable_and_as_they_were_a_day_before() -> None:
    """Two samples an hour. 0.4 and 4 have mean 2.2 and deviation 1.8, which is more than half of the mean. 4 and 2 have
    mean 3 and deviation 1, which is less. The samples after that are constant."""

    def sample(value: float) -> tuple[tuple[str, ...], Floats]:
        return ("b", "a"), np.array([[1.0], [value]])  # the first one is flat

    bands = adaptive_bands.AdaptiveBands.empty(1800.0, 1)
    for value in (0.4, 4.0):
        bands = bands.with_samples(sample(value))
    assert bands.hour.mean()[1, 0] == pytest.approx(2.2)
    assert bands.distance_outside(sample(2.2 + 2 * 1.8))[1, 0] == pytest.approx(1.0)
    for _ in range(46):
        bands = bands.with_samples(sample(2.0))
    assert bands.distance_outside(sample(2.2 + 2 * 1.8))[1, 0] == pytest.approx(1.0), "23.5 hours ago"
    bands = bands.with_samples(sample(2.0))
    assert bands.distance_outside(sample(2.0 + 2 * 1.8))[1, 0] == pytest.approx(1.0), "3 plus twice 1 is less"
    for _ in range(6):
        bands = bands.with_samples(sample(2.0))
    assert bands.distance_outside(sample(2.0 + 0.5 * 2.0))[1, 0] == pytest.approx(1.0), "forgotten after 26 hours"


def test_robust_bands_are_twice_the_median_absolute_deviation() -> None:
    """Samples 1 to 9: median 5, median absolute deviation 2; 5 plus or minus 4 is wider than half of 5."""
    bands = robust_bands.RobustBands(Past(20), np.empty((0, 2)))
    for value in range(1, 10):
        bands = bands.with_samples((("a",), np.array([[float(value)]])))
    assert bands.distance_outside((("a",), np.array([[9.0]])))[0, 0] == pytest.approx(1.0)
    assert bands.distance_outside((("a", "b"), np.array([[0.0], [7.0]])))[:, 0] == pytest.approx([1.25, 0.0])


def test_ecod_adds_the_rarest_tails() -> None:
    """Five samples and the row itself; the first feature leans right, the second is symmetric, so both tails count."""
    rows = np.array([[0, 1], [0, 2], [0, 3], [0, 4], [9, 5]], np.float32)
    (found,) = ecod._anomaly_score(ecod._learn(rows), np.array([[5, 6]], np.float32))
    assert found == pytest.approx(-np.log(2 / 6) - np.log(1 / 6) - np.log(6 / 6))


@pytest.mark.parametrize("module", [isolation_forest, ecod, pca, autoencoder])
def test_learned_rows_are_of_all_services_and_rare_ones_alarm(module: Contender) -> None:
    rng = np.random.default_rng(1)
    worse = {"p50_latency": 0.5, "p99_latency": 4.0, "error_rate": 0.5, "cpu_utilization": 0.9}
    bad: Values = {(1, name): value for name, value in worse.items()}
    noisy: list[Values] = [
        {(i, name): EASE[NODE_METRICS.index(name)] * float(rng.uniform(0.9, 1.3)) for i in range(4) for name in worse}
        for _ in range(WARM_UP - 1)
    ]
    verdicts = after(module, *noisy[:3], bad, bad, warm=noisy)
    assert [affected_services(v) for v in verdicts] == [[], [], [], [], [("shop/cart",)]]
    assert verdicts[-1].suspects[0].service == "shop/cart"


def test_trees_score_as_scikit_learn_does() -> None:
    rng = np.random.default_rng(3)
    rows, others = (np.abs(rng.normal(size=(n, 7))).astype(np.float32) for n in (700, 50))
    expected = -IsolationForest(random_state=0).fit(rows).score_samples(others)
    assert isolation_forest._anomaly_score(isolation_forest._learn(rows), others) == pytest.approx(expected, rel=1e-9)


def test_a_model_is_learned_again_when_twice_as_much_was_seen() -> None:
    state, due = ecod.start(15.0, 5), []
    for i in range(20):
        _, state = ecod.advance(state, snapshot(i))
        due.append(state.due)
    assert due == [4] * 3 + [8] * 4 + [16] * 8 + [32] * 5


def test_baro_ranks_by_interquartile_ranges_since_the_gap() -> None:
    """Memory counts, and a constant series is scaled by its unit. Snapshots before a gap do not count."""
    restless: list[Values] = [{(2, "request_rate"): 100.0 + i % 2} for i in range(WARM_UP - 1)]
    worse: Values = {(2, "request_rate"): 150.0, (0, "active_connections"): 45.0, (3, "memory_utilization"): 0.9}
    verdict = after(baro, worse, {}, warm=restless)[-1]
    assert [s.service for s in verdict.suspects[:3]] == ["shop/store", "shop/gateway", "bank/ledger"]
    score = {s.service: s.score for s in verdict.suspects}
    assert score["shop/store"] / score["shop/gateway"] == pytest.approx(49.5 * 1.349 / 25, rel=1e-6)
    calm = [snapshot(i, values) for i, values in enumerate([*restless, worse])]
    assert run(baro, [*calm, snapshot(WARM_UP + 5)])[-1].suspects[0].score == pytest.approx(1 / 4)


@pytest.mark.parametrize("module", [guarded, own_limit])
def test_services_that_call_each_other_are_one_page_followed_by_id(module: Contender) -> None:
    def hot(*services: int) -> Values:
        return {(service, "cpu_utilization"): 0.81 + service / 20 for service in services}

    verdicts = after(module, {}, *[hot(1)] * 2, *[hot(1, 2, 3)] * 2, *[hot(2)] * 2, *[{}] * 4, *[hot(1)] * 2)
    cart, both = verdicts[2].incidents[0], verdicts[4].incidents
    assert [i.affected for i in both] == [("shop/cart", "shop/store"), ("bank/ledger",)]
    assert [s.service for s in both[0].suspects] == ["shop/store", "shop/cart"], "the strongest first"
    assert both[0].id == cart.id
    assert [i.id for i in verdicts[6].incidents if "shop/store" in i.affected] == [cart.id], (
        "the incident moved along a call"
    )
    assert [i.id for i in verdicts[7].incidents] == [cart.id], "one quiet snapshot does not end an incident"
    assert not verdicts[8].incidents
    assert verdicts[12].incidents[0].id not in {cart.id, both[1].id}


def test_incidents_that_merge_keep_the_id_of_the_oldest() -> None:
    def hot(*services: int) -> Values:
        return {(service, "cpu_utilization"): 0.95 for service in services}

    verdicts = after(guarded, *[hot(0)] * 2, *[hot(0, 2)] * 2, *[hot(0, 1, 2)] * 2)
    apart, together = verdicts[3].incidents, verdicts[5].incidents
    assert [i.affected for i in apart] == [("shop/gateway",), ("shop/store",)]
    assert [(i.id, i.affected) for i in together] == [(apart[0].id, SERVICES[1:2] + SERVICES[0:1] + SERVICES[2:3])]


def test_quantiles_of_what_was_observed() -> None:
    """Four samples are 1, 2, 4 and 8. The first quartile is 0.75 of the way from the first to the second."""
    past = Past(length=5).with_frame(("a",), np.array([[99.0]]))
    for value in (8.0, np.nan, 1.0, 2.0, 4.0):
        past = past.with_frame(("b", "a"), np.array([[np.nan], [value]]))
    quarter, half = quantiles(past.cube(), (0.25, 0.5))
    assert past.look_up(quarter, ("a", "c"))[:, 0] == pytest.approx([1.75, np.nan], nan_ok=True)
    assert past.look_up(half, ("b", "a"))[:, 0] == pytest.approx([np.nan, 3.0], nan_ok=True)


@pytest.fixture(scope="module")
def mesh() -> list[MeshSnapshot]:
    spec = MeshSpec(services=20, calls_per_service=2.0, seed=5, hiccups_per_hour=5.0)
    return list(Simulator(spec, snapshots=60).snapshots())


@pytest.mark.parametrize("warm_up", [10, 35])
@pytest.mark.parametrize("name", NAMES)
def test_the_contract_of_scorers_holds(name: str, warm_up: int, mesh: list[MeshSnapshot]) -> None:
    module = contender(name)
    assert module.LABEL
    assert module.SUMMARY
    # Contenders are not stored. A deep copy stands for a state that was saved and loaded.
    check_all(Scorer(lambda: module.start(15.0, warm_up), module.advance, deepcopy, warm_up), mesh)


@pytest.mark.parametrize("name", NAMES)
def test_a_verdict_does_not_depend_on_later_snapshots(name: str, mesh: list[MeshSnapshot]) -> None:
    spoilt = [replace(one, node_features=one.node_features * np.float32(4)) for one in mesh[40:]]
    straight, other = run(contender(name), mesh, 35), run(contender(name), [*mesh[:40], *spoilt], 35)
    check_same(straight[:40], other[:40])
    assert straight[41:] != other[41:]
    assert Status.ANOMALOUS in {verdict.status for verdict in other}


def test_an_unknown_contender_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"expected one of guarded, .*, got 'oracle'"):
        contender("oracle")
