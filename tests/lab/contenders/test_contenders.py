"""Contenders on snapshots made by hand, and the contract of scorers that each one meets."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from lab.contenders import (
    NAMES,
    Contender,
    contender,
    guarded,
    n_sigma,
    own_limit,
)
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


def test_a_slow_call_is_evidence_about_the_service_that_is_called() -> None:
    calm = [snapshot(i) for i in range(WARM_UP)]
    slow = [snapshot(WARM_UP + i, calls={(1, "p50_latency"): 0.4}) for i in range(2)]
    verdict = run(n_sigma, [*calm, *slow])[-1]
    assert (affected_services(verdict), verdict.suspects[0].service) == ([("shop/store",)], "shop/store")
    assert verdict.mesh_score == pytest.approx(np.log(40.0) / 0.1, rel=1e-5)


def test_spreads_are_a_services_own() -> None:
    """A value that the store has half the time is normal for it. It would be unusual for the cart."""
    restless: list[Values] = [{(2, "cpu_utilization"): 0.9 if i % 2 else 0.1} for i in range(WARM_UP - 1)]
    high: Values = {(1, "cpu_utilization"): 0.9, (2, "cpu_utilization"): 0.9}
    assert affected_services(after(n_sigma, *[high] * 3, warm=restless)[-1]) == [("shop/cart",)]


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
