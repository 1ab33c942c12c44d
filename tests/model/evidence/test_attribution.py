"""What calls explain of their callers' errors and time, and how the ranking reads it."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from model.decision.ranking import attribution_nats, root_cause_shares
from model.evidence.attribution import NATS, Attribution, attribute
from model.evidence.gather import Evidence
from model.snapshot import MeshSnapshot
from model.state.mesh_state import MeshState
from tests.model.evidence_cases import CART, SEARCH, STORE, evidence_of
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, snapshot, watch, without

GATEWAY, TO_STORE = 0, CALLS.index((CART, STORE))
RARE = 3.0  # 1/s, calls of the cart to the store in these meshes, for 100 requests to it
REQUESTS, ERRORS, P50, P99 = range(4)
NOT_MEASURED = np.nan

Values = Mapping[tuple[int, int], float]  # by row and column


def scene(
    index: int = 40, nodes: Values | None = None, edges: Values | None = None, *, noise: np.ndarray | None = None
) -> MeshSnapshot:
    """Return a mesh whose cart rarely calls the store, with other values of some services and calls."""
    of_nodes, of_edges = np.tile(NODE, (len(SERVICES), 1)), np.array([EDGE] * len(CALLS))
    of_edges[TO_STORE, REQUESTS] = RARE
    for table, values in ((of_nodes, nodes), (of_edges, edges)):
        table[:, ERRORS] = 0.001
        if noise is not None:
            table *= noise[: table.shape[0], : table.shape[1]]
        for place, value in (values or {}).items():
            table[place] = value
    return snapshot(index, nodes=of_nodes, edges=of_edges)


@cache
def settled_mesh(*, calls_measured: bool = True) -> MeshState:
    rng = np.random.default_rng(0)
    blind = {} if calls_measured else {(e, c): NOT_MEASURED for e in range(len(CALLS)) for c in (ERRORS, P50, P99)}
    noises = np.exp(0.03 * rng.standard_normal((40, len(SERVICES), len(NODE))))
    return watch(scene(i, edges=blind, noise=noise) for i, noise in enumerate(noises))[1]


def shares(
    nodes: Values | None = None, edges: Values | None = None, *, calls_measured: bool = True
) -> tuple[float, float]:
    """Return what the cart's calls to the store explain of its errors and of its time."""
    observation, state = watch([scene(40, nodes, edges)], settled_mesh(calls_measured=calls_measured))
    found = attribute(observation, state.edge_index, np.arange(len(CALLS)))
    return float(found.errors[TO_STORE]), float(found.time[TO_STORE])


def rank_services(evidence: Evidence) -> list[str]:
    share = root_cause_shares(evidence, np.arange(len(evidence.names)), np.zeros(len(evidence.names), np.float32))
    return [evidence.names[i] for i in np.argsort(-share, kind="stable")]


def test_failing_calls_explain_the_errors_that_they_cause() -> None:
    """Of 100 requests 3 call the store, and 80% of these calls fail: 2.4% of errors at the cart."""
    failing = {(TO_STORE, ERRORS): 0.8}
    assert shares({(CART, ERRORS): 0.025}, failing)[0] == pytest.approx(1, abs=0.1)
    assert shares({(CART, ERRORS): 0.097}, failing)[0] == pytest.approx(0.25, abs=0.03), "the rest is its own doing"
    assert shares({(CART, ERRORS): 0.012}, failing)[0] == 1, "more than all is all"
    assert shares({(CART, ERRORS): 0.3})[0] == pytest.approx(0, abs=0.01)
    assert shares(edges=failing)[0] == 0, "a caller without a symptom has nothing to explain"


def test_slow_calls_explain_the_time_that_they_take() -> None:
    """The cart takes 20 ms, and 3 of 100 requests wait a second longer for the store: 50 ms in the median."""
    slow = {(TO_STORE, P50): 1.01}
    assert shares({(CART, P50): 0.05}, slow)[1] == pytest.approx(1, abs=0.1)
    assert shares({(CART, P50): 0.14}, slow)[1] == pytest.approx(0.25, abs=0.03)
    assert shares({(CART, P50): 0.022}, slow)[1] == 0, "a caller that is hardly slower has nothing to explain"


def test_calls_that_are_not_measured_have_the_values_of_their_destination() -> None:
    blind = {(e, c): NOT_MEASURED for e in range(len(CALLS)) for c in (ERRORS, P50, P99)}
    failing = {(CART, ERRORS): 0.025, (STORE, ERRORS): 0.8}
    assert shares(failing, blind, calls_measured=False)[0] == pytest.approx(1, abs=0.1)
    unknown = {(CART, ERRORS): 0.025, (STORE, ERRORS): NOT_MEASURED}
    assert shares(unknown, blind, calls_measured=False)[0] == 0, "only what is measured explains"


def test_calls_beyond_the_usual_number_are_the_callers_own_doing() -> None:
    often = {(TO_STORE, ERRORS): 0.2, (TO_STORE, REQUESTS): 30.0}
    assert shares({(CART, ERRORS): 0.06}, often)[0] == pytest.approx(0.1, abs=0.02)


def test_calls_to_a_service_that_is_gone_explain_errors() -> None:
    gone = snapshot(40, *without(STORE), nodes={(..., ERRORS): 0.001, (SEARCH, ERRORS): 0.5})
    observation, state = watch([gone], settled_mesh())
    assert observation.presence.gone[STORE]
    found = attribute(observation, state.edge_index, np.arange(len(CALLS)))
    assert found.errors[CALLS.index((SEARCH, STORE))] == pytest.approx(1, abs=0.05)
    assert found.time[CALLS.index((SEARCH, STORE))] == 0


def test_a_failing_callee_stands_above_its_caller() -> None:
    nodes = {(CART, ERRORS): 0.025, (STORE, ERRORS): 0.026}
    evidence = evidence_of(scene(40, nodes, {(TO_STORE, ERRORS): 0.8}), state=settled_mesh())
    order = rank_services(evidence)
    assert order[0] == SERVICES[STORE]
    nats = dict(zip(evidence.names, attribution_nats(evidence), strict=True))
    assert nats[SERVICES[STORE]] == pytest.approx(NATS, rel=0.1)
    assert nats[SERVICES[CART]] == pytest.approx(-NATS, rel=0.1)


def test_in_a_chain_the_last_failing_service_stands_first() -> None:
    """The gateway fails because the cart fails, and the cart because the store fails."""
    nodes = {(GATEWAY, ERRORS): 0.02, (CART, ERRORS): 0.04, (STORE, ERRORS): 0.9}
    edges = {(CALLS.index((GATEWAY, CART)), ERRORS): 0.04, (TO_STORE, ERRORS): 0.9, (3, ERRORS): 0.9}
    nodes |= {(SEARCH, ERRORS): 0.46}
    assert rank_services(evidence_of(scene(40, nodes, edges), state=settled_mesh()))[0] == SERVICES[STORE]


def test_errors_without_a_failing_callee_are_the_callers_own() -> None:
    """Exceptions in the cart show at the cart, and at the gateway that calls it."""
    nodes = {(CART, ERRORS): 0.3, (GATEWAY, ERRORS): 0.15}
    evidence = evidence_of(scene(40, nodes, {(CALLS.index((GATEWAY, CART)), ERRORS): 0.3}), state=settled_mesh())
    assert rank_services(evidence)[0] == SERVICES[CART]
    alone = evidence_of(scene(40, {(CART, ERRORS): 0.3}), state=settled_mesh())
    assert rank_services(alone)[0] == SERVICES[CART], "not even if no caller sees them"
    assert not attribution_nats(alone).any()


def nats(
    errors: tuple[float, float],
    share: float,
    load: float = 1.0,
    latency: tuple[float, float] = (0.0, 0.0),
    time: float = 0.0,
) -> list[float]:
    """Return the nats of a caller and of its callee."""
    one = Attribution(np.array([share], np.float32), np.array([time], np.float32))
    both = (np.array(values, np.float32) for values in (errors, latency, (0.0, 0.0), (1.0, load)))
    return [float(value) for value in one.nats(np.array([[0], [1]]), *both)]


def test_nats_are_bounded_and_rise_with_the_share() -> None:
    ladder = [nats((9.0, 9.0), share) for share in (0.0, 0.3, 0.6, 1.0)]
    assert [callee for _, callee in ladder] == pytest.approx([0.0, 0.3 * NATS, 0.6 * NATS, NATS])
    assert [caller for caller, _ in ladder] == pytest.approx([-callee for _, callee in ladder])
    many = Attribution(np.ones(8, np.float32), np.ones(8, np.float32))
    calls, strong, none = np.array([range(8), [8] * 8]), np.full(9, 9, np.float32), np.zeros(9, np.float32)
    assert many.nats(calls, strong, strong, none, np.ones(9, np.float32))[8] == NATS


def test_only_symptoms_that_both_ends_show_count() -> None:
    assert nats((9.0, 1.5), 1.0) == [0.0, 0.0], "the callee does not deviate"
    assert nats((1.5, 9.0), 1.0)[1] == 0, "the caller does not suffer"
    assert nats((6.0, 9.0), 1.0, latency=(6.0, 0.0)) == pytest.approx([-NATS / 2, NATS / 2]), "its latency is its own"


def test_an_overloaded_callee_explains_nothing() -> None:
    assert nats((9.0, 9.0), 1.0, load=3.0) == [0.0, 0.0]
    assert nats((9.0, 9.0), 1.0, load=1.5) == pytest.approx([-NATS / 2, NATS / 2])
