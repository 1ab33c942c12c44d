"""Reasons of a suspect, in a small mesh with one deviation."""

import numpy as np
import pytest

from model.evidence.explanations import MAX
from model.evidence.gather import Evidence
from model.snapshot import EDGE_METRICS, MeshSnapshot, NodeMetric
from model.verdict import LOST, MOVED, NEW, VANISHED
from tests.model.evidence_cases import CART, IDLE, SEARCH, STORE, evidence_of, snapshot_with_move
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, settled_state, snapshot, without

REQUESTS, ERRORS, P99 = NodeMetric.REQUEST_RATE, NodeMetric.ERROR_RATE, NodeMetric.P99_LATENCY
CPU, MEMORY = NodeMetric.CPU_UTILIZATION, NodeMetric.MEMORY_UTILIZATION


def explain(evidence: Evidence, service: int) -> list[tuple[str, str, float, float]]:
    """Return metric, other end of a call, observed and expected value of each reason; the strongest first."""
    return [
        (
            ("call " if reason.source and reason.metric in EDGE_METRICS else "") + reason.metric,
            reason.source or reason.destination,
            reason.observed,
            reason.expected,
        )
        for reason in evidence.explanation.reasons[evidence.names.index(SERVICES[service])]
    ]


def load_of(evidence: Evidence, service: int) -> float:
    return float(evidence.explanation.load[evidence.names.index(SERVICES[service])])


def snapshot_with(service: int, metrics: dict[int, float], call: tuple[float, ...] = EDGE) -> MeshSnapshot:
    """Return a snapshot with other metrics of one service and of the first call into it."""
    first = next(i for i, (_, to) in enumerate(CALLS) if to == service)
    return snapshot(30, nodes={(service, column): value for column, value in metrics.items()}, edges={(first,): call})


def test_a_reason_of_a_call_has_its_caller_and_both_values() -> None:
    slow = snapshot_with(CART, {P99: 0.4, CPU: 0.95}, (50.0, 0.01, 0.01, 0.4))
    first, second, *_ = explain(evidence_of(slow), CART)
    assert second[0] == "cpu_utilization", "the same symptom of the service itself comes later"
    assert first == ("call p99_latency", "shop/gateway", pytest.approx(0.4), pytest.approx(0.05, rel=0.2))


def test_rare_but_small_deviations_do_not_come_first() -> None:
    """In a mesh without noise 1% to 1.3% of errors, or 20% more memory, is more unusual than far more latency."""
    state = settled_state(sigma=0.001)
    one = evidence_of(snapshot_with(STORE, {ERRORS: 0.013, MEMORY: 0.6, P99: 0.25}), state=state)
    metrics = [metric for metric, *_ in explain(one, STORE)]
    assert metrics[0] == "p99_latency"
    assert "error_rate" not in metrics
    assert "error_rate" in [
        m for m, *_ in explain(evidence_of(snapshot_with(STORE, {ERRORS: 0.1}), state=state), STORE)
    ]


def test_load_is_shown_with_reasons_it_may_explain_only_if_it_changed() -> None:
    busy = evidence_of(snapshot_with(STORE, {REQUESTS: 220.0, P99: 0.5}))
    assert explain(busy, STORE)[0][0] == "p99_latency"
    assert load_of(busy, STORE) == pytest.approx(2.2, rel=0.1)
    assert load_of(busy, CART) == 1


def test_a_disappeared_service_has_one_reason_with_its_missing_requests() -> None:
    gone = evidence_of(snapshot(30, *without(STORE)))
    assert explain(gone, STORE) == [(VANISHED, "", pytest.approx(0, abs=0.01), pytest.approx(100, rel=0.2))]


def test_rerouted_calls_are_reasons_at_all_three_services() -> None:
    evidence = evidence_of(snapshot_with_move(0.7))
    assert explain(evidence, CART)[0] == (MOVED, "shop/idle", pytest.approx(35), 0.0)
    assert explain(evidence, IDLE)[0] == (NEW, "shop/cart", pytest.approx(35), 0.0)
    assert explain(evidence, STORE)[0] == (LOST, "shop/cart", pytest.approx(15), pytest.approx(50, rel=0.2))
    assert not {metric for metric, *_ in explain(evidence, SEARCH)} & {MOVED, NEW, LOST}


def test_a_normal_mesh_has_almost_no_reasons() -> None:
    quiet = evidence_of(snapshot(30))
    assert np.mean([len(reasons) / MAX for reasons in quiet.explanation.reasons]) < 0.2
    assert not any(reason.source or reason.destination for reasons in quiet.explanation.reasons for reason in reasons)


def facts(evidence: Evidence, service: int) -> list[tuple[str, str, float, float]]:
    """Return metric, destination, observed and expected value of the context."""
    context = evidence.explanation.context.get(evidence.names.index(SERVICES[service]), ())
    return [(fact.metric, fact.destination, fact.observed, fact.expected) for fact in context]


def cart_calls(times: float, errors: float = 0.01, busy: float = 1.0) -> MeshSnapshot:
    """Return a snapshot with a slow cart, at ``busy`` times its usual requests.

    It makes ``times`` its usual calls to the store, and the share ``errors`` of them fails.
    """
    nodes = {(CART, REQUESTS): busy * NODE[REQUESTS], (CART, P99): 0.5}
    return snapshot(30, nodes=nodes, edges={(CALLS.index((CART, STORE)),): (50.0 * times, errors, 0.01, 0.05)})


def test_the_calls_of_a_service_that_retries_are_context() -> None:
    sent, failed = facts(evidence_of(cart_calls(6.0, 0.47)), CART)
    assert sent == ("sent_calls", "", pytest.approx(300.0, rel=0.01), pytest.approx(50.0, rel=0.2))
    assert failed == ("error_rate", SERVICES[STORE], pytest.approx(0.47, rel=0.01), pytest.approx(0.01, abs=0.01))
    (alone,) = facts(evidence_of(cart_calls(6.0)), CART)
    assert alone[0] == "sent_calls"


def test_calls_that_requests_explain_are_no_context() -> None:
    assert facts(evidence_of(cart_calls(1.1)), CART) == []
    assert facts(evidence_of(cart_calls(6.0, busy=6.0)), CART) == []


def test_a_resource_that_is_no_reason_is_context() -> None:
    """A slow service has three reasons about latency before the one about its CPU."""
    slow = {2: 0.2, P99: 1.5, CPU: 0.95, ERRORS: 0.3}
    evidence = evidence_of(snapshot_with(CART, slow, (50.0, 0.3, 0.2, 1.5)))
    assert "cpu_utilization" not in [metric for metric, *_ in explain(evidence, CART)]
    (fact,) = facts(evidence, CART)
    assert fact == ("cpu_utilization", "", pytest.approx(0.95, rel=0.01), pytest.approx(0.4, rel=0.2))
    calm = evidence_of(snapshot_with(CART, {P99: 1.5}))
    assert facts(calm, CART) == []
