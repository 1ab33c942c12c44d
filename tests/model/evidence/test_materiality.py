"""Rare alone is not enough: a deviation matters by the harm that it can do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.evidence.materiality import FROM, SHARE, TAIL_SHARE, Floors, floors, material, matters
from model.features import ERROR, MEMORY, NODE_CHANNELS, P50, P99, Array
from model.incidents.policy import AlertPolicy
from model.snapshot import NodeMetric
from tests.model.evidence_cases import STORE, evidence_of, score_of, scored_mesh, with_nodes
from tests.model.model_cases import NODE, settled_state, snapshot, watch

LEAST = AlertPolicy().latency_floor_seconds
FLOOR = floors(LEAST, 0.0, 0.0)
ONCE = np.ones(1, np.float32)


def series(**values: float) -> Array:
    """Return a row of a service's channels with these latencies, s, and errors."""
    metrics = {"p50": 0.1, "p99": 0.5, "errors": 0.01} | values
    row = np.zeros((1, len(NODE_CHANNELS)), np.float32)
    row[0, [P50, P99]] = np.log([metrics["p50"], metrics["p99"]])
    row[0, ERROR] = np.log(metrics["errors"] / (1 - metrics["errors"]))
    return row


def counts(usual: float, now: float, *, tail: bool = False, repeats: float = 1.0, floor: Floors = FLOOR) -> float:
    """Return how much it matters that a median, or a p99, rises to ``now`` s."""
    metric = "p99" if tail else "p50"
    found = material(series(**{metric: now}), series(**{metric: usual}), np.float32(repeats) * ONCE, floor)
    return float(found[1 if tail else 0][0])


@pytest.mark.parametrize("usual", [0.001, 0.005, 0.008])
def test_a_rise_of_a_few_milliseconds_is_nothing_however_rare_it_is(usual: float) -> None:
    assert counts(usual, usual + 0.004) == 0
    assert counts(usual, usual + 0.010) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("usual", [0.002, 0.01, 0.012, 0.024])
def test_a_rise_of_twenty_milliseconds_counts_in_full(usual: float) -> None:
    assert counts(usual, usual + 0.0201) == pytest.approx(1)
    assert counts(usual, usual + 0.015) == pytest.approx(0.5, abs=0.01)


def test_a_small_share_of_the_usual_latency_is_nothing_either() -> None:
    assert counts(0.1, 0.104) == 0
    assert counts(2.4, 2.5) == 0
    assert counts(3.0, 3.3) == 0, "a tenth more"


def test_a_call_that_is_repeated_counts_from_a_smaller_rise() -> None:
    """Each request of the caller waits for it several times."""
    assert counts(0.002, 0.007) == 0
    assert counts(0.002, 0.007, repeats=4.0) == pytest.approx(1)
    assert counts(0.002, 0.0045, repeats=4.0) == pytest.approx(0, abs=1e-4)
    assert counts(0.002, 0.0095, repeats=2.0) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("usual", "width"), [(0.03, 0.025), (0.06, 0.05), (0.12, 0.15), (0.3, 0.25), (0.6, 0.5), (1.2, 1.5), (6.0, 5.0)]
)
def test_a_rise_within_a_bucket_of_a_histogram_is_a_guess(usual: float, width: float) -> None:
    assert counts(usual, usual + FROM * width) == pytest.approx(0, abs=1e-4)
    assert counts(usual, usual + 1.01 * width) == pytest.approx(1)
    assert counts(usual, usual + 1.01 * width, repeats=100.0) == pytest.approx(1)
    assert counts(usual, usual + FROM * width, repeats=100.0) == pytest.approx(0, abs=1e-4), "repeats resolve no bucket"


def test_the_tail_has_a_floor_of_its_own() -> None:
    apart = Floors(0.02, 0.1)
    assert counts(0.02, 0.09, tail=True, floor=apart) < 0.5
    assert counts(0.02, 0.121, tail=True, floor=apart) == pytest.approx(1)
    assert counts(0.02, 0.041, floor=apart) == pytest.approx(1)


def test_the_floor_is_a_share_of_what_a_request_takes_at_the_front_door() -> None:
    assert floors(0.02, 0.0, 0.0) == Floors(0.02, 0.02), "unknown"
    assert floors(0.02, 0.1, 0.05) == Floors(0.02, 0.02), "a fast mesh"
    assert floors(0.02, 1.0, 4.0) == Floors(SHARE * 1.0, TAIL_SHARE * 4.0)
    slow = floors(0.02, 1.0, 4.0)
    assert counts(0.01, 0.06, floor=slow) == pytest.approx(0, abs=1e-6)
    assert counts(0.01, 0.06) == pytest.approx(1)
    assert counts(0.01, 0.12, floor=slow) == pytest.approx(1)


def test_errors_count_by_percentage_points_and_relative_to_the_usual_ones() -> None:
    def errors(usual: float, now: float) -> float:
        return float(material(series(errors=now), series(errors=usual), ONCE, FLOOR)[2][0])

    assert errors(0.01, 0.012) == 0
    assert errors(0.01, 0.05) == pytest.approx(1)
    assert errors(0.8, 0.88) == 0
    assert 0 < errors(0.001, 0.01) < 1


def test_latency_of_a_reason_matters_like_that_of_an_alert_and_memory_from_a_point() -> None:
    usual, now = series(), series(p50=0.104, p99=1.2, errors=0.05)
    now[0, MEMORY] = 1.0
    found = matters(now, usual, ONCE, FLOOR)
    expected = material(now, usual, ONCE, FLOOR)
    assert [found[0, P50], found[0, P99], found[0, ERROR]] == [part[0] for part in expected]
    assert (found[0, P50], found[0, P99], found[0, MEMORY]) == (0, 1, 1)


@given(st.floats(1e-4, 10), st.floats(0, 10), st.floats(0, 10), st.floats(1, 50), st.floats(0, 1), st.booleans())
def test_a_higher_rise_never_matters_less_nor_does_a_lower_floor(
    usual: float, rise: float, more: float, repeats: float, floor: float, tail: bool
) -> None:
    def of(amount: float, floor: float, repeats: float = repeats) -> float:
        return counts(usual, usual + amount, tail=tail, repeats=repeats, floor=Floors(floor, floor))

    assert 0 <= of(rise, floor) <= of(rise + more, floor) + 1e-4 <= 1 + 2e-4
    assert of(rise, floor) <= of(rise, floor / 2) + 1e-4
    assert of(rise, floor, 1.0) <= of(rise, floor) + 1e-4


def test_a_latency_that_no_user_notices_is_no_evidence() -> None:
    """The store's median rises from 20 ms to 24 ms in a mesh without noise, and then by more than a bucket."""
    state = settled_state(60, sigma=0.001)
    small, large = (
        evidence_of(with_nodes(60, STORE, {NodeMetric.P50_LATENCY: latency}), state=state) for latency in (0.024, 0.05)
    )
    assert score_of(small, STORE, "latency") == 0
    assert score_of(large, STORE, "latency") > 5


def test_errors_are_evidence_relative_to_the_usual_errors() -> None:
    """A rise from 1% to 5% is large. From 80% to 88% is normal for a service that fails most of the time."""
    healthy = evidence_of(with_nodes(30, STORE, {NodeMetric.ERROR_RATE: 0.05}))
    broken = watch((snapshot(i, nodes={(STORE, 1): 0.8}) for i in range(30, 150)), settled_state())[1]
    worse = evidence_of(with_nodes(150, STORE, {NodeMetric.ERROR_RATE: 0.88}), state=broken)
    assert score_of(healthy, STORE, "error") > 2
    assert score_of(worse, STORE, "error") < 0.1


def test_the_policy_sets_the_floor() -> None:
    state = settled_state(60, sigma=0.001)
    slower = with_nodes(60, STORE, {NodeMetric.P50_LATENCY: 0.05})
    strict = AlertPolicy(latency_floor_seconds=1.0)
    assert score_of(evidence_of(slower, state=state), STORE, "latency") > 5
    assert score_of(evidence_of(slower, state=state, policy=strict), STORE, "latency") == 0


def test_the_front_door_are_the_services_that_no_other_one_calls() -> None:
    """Here the gateway and the idle service, weighted by their requests."""
    columns = (0, P50, P99)
    nodes = {(0, columns): (300.0, 0.8, 4.0), (4, columns): (100.0, 0.4, 2.0)}
    observation, state = watch([snapshot(i, nodes=nodes) for i in range(30)])
    found = scored_mesh(state, observation).floors
    assert found.p50 == pytest.approx(SHARE * 0.7, rel=0.02)
    assert found.p99 == pytest.approx(TAIL_SHARE * 3.5, rel=0.02)


def test_behind_gateways_without_metrics_the_front_door_is_what_they_call() -> None:
    nodes = {(0,): np.nan, (4,): np.nan, ((1, 2), P50): 0.5, ((1, 2), P99): 3.0}
    observation, state = watch([snapshot(i, nodes=nodes) for i in range(30)])
    found = scored_mesh(state, observation).floors
    assert found.p50 == pytest.approx(SHARE * 0.5, rel=0.02)
    assert found.p99 == pytest.approx(TAIL_SHARE * 3.0, rel=0.02)


def test_a_call_that_a_caller_makes_several_times_for_each_request_repeats() -> None:
    edges = {(2, 0): 5 * NODE[0]}  # the cart calls the store five times for each of its own requests
    observation, state = watch([snapshot(i, edges=edges) for i in range(30)])
    of_services, of_calls = scored_mesh(state, observation).repeats
    np.testing.assert_allclose(of_calls, [1, 1, 5, 1], rtol=0.02)
    np.testing.assert_allclose(of_services, [1, 1, 1, 5, 1], rtol=0.02)
