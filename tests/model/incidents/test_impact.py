"""The impact of an incident: affected services, and the front-door requests that reach its origins."""

import numpy as np
import pytest

from model.incidents.impact import MAX_HOPS, add_impact, estimate_impact, measure_traffic
from model.snapshot import NODE_METRICS, MeshSnapshot
from model.verdict import Impact, Suspect
from tests.builders import incident, mesh_of, verdict
from tests.model.model_cases import at

Rates = dict[str, float | None]


def mesh(requests: Rates, calls: dict[tuple[str, str], float], index: int = 0) -> MeshSnapshot:
    """Return a mesh with these requests (None: not measured) and calls, both in 1/s."""
    nodes = np.full((len(requests), len(NODE_METRICS)), np.nan)
    nodes[:, 0] = [np.nan if rate is None else rate for rate in requests.values()]
    return mesh_of(tuple(requests), calls, at(index), nodes)


SHOP = mesh(
    {"a/web": 100.0, "a/cart": 20.0, "a/pay": 5.0, "a/search": 80.0},
    {("a/web", "a/cart"): 20.0, ("a/web", "a/search"): 80.0, ("a/cart", "a/pay"): 5.0},
)


def share(snapshot: MeshSnapshot, *affected: str, suspect: str = "") -> float | None:
    return estimate_impact(measure_traffic(snapshot, ()), affected, suspect).front_door_share


def test_the_share_follows_the_calls() -> None:
    assert share(SHOP, "a/pay") == pytest.approx(0.05)
    assert share(SHOP, "a/cart") == pytest.approx(0.2)
    assert share(SHOP, "a/cart", "a/search") == pytest.approx(1.0)
    assert share(SHOP, "a/web") == 1.0
    assert share(SHOP) == 0.0


def test_only_requests_that_reach_an_origin_count() -> None:
    assert share(SHOP, "a/web", "a/cart", "a/pay") == pytest.approx(0.05)
    suspected = share(SHOP, "a/web", "a/cart", "a/pay", suspect="a/cart")
    assert suspected == pytest.approx(0.2), "the first suspect is an origin, independent of its calls"
    assert share(SHOP, "a/web", "a/pay") == 1.0, "the calls of the entry point do not explain why it deviates"
    assert estimate_impact(measure_traffic(SHOP, ()), ("a/web", "a/cart", "a/pay"), "a/pay").services == 3


def test_calls_of_one_request_count_once() -> None:
    fan = mesh({"a/web": 10.0, "a/db": 30.0}, {("a/web", "a/db"): 30.0})
    assert share(fan, "a/db") == 1.0


def test_entry_points_are_weighted_by_their_requests() -> None:
    doors = mesh({"a/web": 90.0, "a/app": 10.0, "a/pay": 10.0}, {("a/app", "a/pay"): 10.0})
    assert share(doors, "a/pay") == pytest.approx(0.1)


def test_a_gateway_without_metrics_forwards_each_request_once() -> None:
    calls = {("a/gate", "a/cart"): 30.0, ("a/gate", "a/search"): 70.0}
    gate = mesh({"a/gate": None, "a/cart": None, "a/search": None}, calls)
    assert share(gate, "a/cart") == pytest.approx(0.3)


def test_calls_in_a_circle_end() -> None:
    calls = {("a/web", "a/x"): 5.0, ("a/x", "a/y"): 5.0, ("a/y", "a/x"): 5.0, ("a/y", "a/db"): 2.5}
    circle = mesh({"a/web": 10.0, "a/x": 10.0, "a/y": 5.0, "a/db": 2.5}, calls)
    # x makes half a call to y for each request. y makes half a call to the database and one back to x.
    assert share(circle, "a/db") == pytest.approx(0.5 * 0.5, abs=0.01)
    assert share(circle, "a/x", "a/y") == 0.0, "each of the two calls the other, so neither is an origin"
    assert share(circle, "a/x", "a/y", suspect="a/y") == pytest.approx(0.25, abs=0.01)


def test_without_an_entry_point_all_requests_count() -> None:
    calls = {("a/x", "a/y"): 1.0, ("a/y", "a/x"): 6.0}
    ring = mesh({"a/x": 10.0, "a/y": 6.0}, calls)
    assert share(ring, "a/y") == pytest.approx((0.1 * 10 + 6) / 16)
    assert share(mesh({"a/idle": 0.0, "a/x": 10.0, "a/y": 6.0}, calls), "a/y") == share(ring, "a/y")
    silent = mesh({"a/x": None, "a/y": None}, {})
    assert estimate_impact(measure_traffic(silent, ()), ("a/x",), "a/x") == Impact(1, None)


def test_an_entry_point_that_is_called_counts_if_it_is_known() -> None:
    calls = {("a/web", "a/cart"): 80.0, ("a/hooks", "a/web"): 5.0}
    called = mesh({"a/web": 95.0, "a/cart": 80.0, "a/hooks": 5.0}, calls)
    assert share(called, "a/cart") == pytest.approx(80 / 95)
    known = estimate_impact(measure_traffic(called, {"a/web"}), ("a/web",), "a/web")
    assert known.front_door_share == 1.0
    beside = estimate_impact(measure_traffic(called, {"a/web"}), ("a/hooks",), "a/hooks")
    assert beside.front_door_share == pytest.approx(0.05)
    unmeasured = mesh({"a/web": None, "a/cart": 80.0, "a/hooks": 5.0}, calls)
    beside = estimate_impact(measure_traffic(unmeasured, {"a/web"}), ("a/hooks",), "a/hooks")
    assert beside.front_door_share == pytest.approx(5 / 85), "its calls stand for its requests, not those to it"


def test_services_that_are_unknown_have_no_requests() -> None:
    assert estimate_impact(measure_traffic(SHOP, ()), ("a/new", "a/pay"), "").services == 2
    assert share(SHOP, "a/new", "a/pay") == pytest.approx(0.05)


def test_the_calls_before_the_incident_count() -> None:
    gone = mesh({"a/web": 100.0}, {}, index=2)
    suspects = (Suspect("a/cart", 1.0),)
    one = incident("a/cart", "a/web", id="i", since=at(1), suspects=suspects)
    shown = verdict(one, observed_at=at(2))
    (found,) = add_impact(shown, (SHOP, mesh({"a/web": 100.0}, {}, index=1), gone), ()).incidents
    assert found.impact is not None
    assert (found.impact.services, found.impact.front_door_share) == (2, pytest.approx(0.2))
    quiet = verdict(observed_at=at(2))
    assert add_impact(quiet, (SHOP,), ()) is quiet


def estimate_on_all_calls(snapshot: MeshSnapshot, affected: set[str], suspect: str) -> float:
    """The formula of the module, read off service by service."""
    rates = {name: float(rate) for name, rate in zip(snapshot.node_ids, snapshot.node_features[:, 0], strict=True)}
    ends = [(snapshot.node_ids[u], snapshot.node_ids[v]) for u, v in snapshot.edge_index.T.tolist()]
    calls = dict(zip(ends, snapshot.edge_features[:, 0].tolist(), strict=True))
    origins = {u for u in affected if not any(v in affected for w, v in calls if w == u)} | {suspect}
    reaching = {name: float(name in origins) for name in rates}
    for _ in range(MAX_HOPS):
        reaching = {
            u: 1.0
            if u in origins
            else min(1.0, sum(w / rates[u] * reaching[v] for (source, v), w in calls.items() if source == u))
            for u in rates
        }
    entries = rates.keys() - {v for _, v in calls}
    return sum(rates[u] * reaching[u] for u in entries) / sum(rates[u] for u in entries)


@pytest.mark.parametrize("seed", range(8))
def test_calls_that_lead_to_no_origin_change_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"a/{i}" for i in range(30)]
    pairs = {(names[u], names[v]) for u, v in rng.integers(0, 30, (60, 2)).tolist() if u < v or (u > 10 and u != v)}
    snapshot = mesh(
        {name: float(rate) for name, rate in zip(names, rng.uniform(1, 100, 30), strict=True)},
        {pair: float(rng.uniform(0.1, 60)) for pair in sorted(pairs)},
    )
    affected = {names[i] for i in rng.integers(5, 30, 4).tolist()}
    suspect = names[int(rng.integers(5, 30))]
    expected = estimate_on_all_calls(snapshot, affected, suspect)
    assert share(snapshot, *affected, suspect=suspect) == pytest.approx(expected, rel=1e-6)
