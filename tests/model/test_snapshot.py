from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import InvalidSnapshot
from model.names import find_bad_name
from model.snapshot import (
    EDGE_METRICS,
    NODE_METRICS,
    MeshSnapshot,
    PlannedChange,
    Signal,
    SignalKind,
    find_rows,
    mark_services,
    namespace_of,
    with_good_names,
)
from tests.builders import START
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, snapshot


def nodes_with(row: int, metric: str, value: float) -> dict[tuple[int, int], float]:
    return {(row, NODE_METRICS.index(metric)): value}


def edges_with(row: int, metric: str, value: float) -> dict[tuple[int, int], float]:
    return {(row, EDGE_METRICS.index(metric)): value}


@pytest.mark.parametrize(
    ("arguments", "place", "words"),
    [
        ({"services": (), "calls": (), "nodes": [], "edges": []}, ("nodes",), "at least one service"),
        ({"nodes": np.tile(NODE, (4, 1))}, (), "5 services, got 4"),
        ({"edges": np.tile(EDGE, (3, 1))}, (), "4 calls, got 3"),
        ({"services": ("a/a", "a/b", "a/c", "ad", "a/e")}, ("nodes", 3), "'ad'"),
        ({"services": ("a/a", "/b", "a/c", "a/d", "a/e")}, ("nodes", 1), "'/b'"),
        ({"services": ("a/a", "a/b", "a/", "a/d", "a/e")}, ("nodes", 2), "'a/'"),
        ({"services": ("a/a", "a/b", "a/c", "a/d", "a/b")}, ("nodes", 4), "already given as node 1"),
        ({"calls": ((0, 1), (0, 5), (1, 3), (2, 3))}, ("edges", 1), "[0, 5]"),
        ({"calls": ((0, 1), (0, 2), (-1, 3), (2, 3))}, ("edges", 2), "[-1, 3]"),
        ({"calls": ((0, 1), (0, 2), (1, 3), (0, 1))}, ("edges", 3), "already given as edge 0"),
        ({"nodes": nodes_with(3, "error_rate", 1.5)}, ("nodes", 3, "error_rate"), "from 0 to 1, got 1.5"),
        ({"nodes": nodes_with(2, "cpu_utilization", -0.1)}, ("nodes", 2, "cpu_utilization"), "got -0.1"),
        ({"nodes": nodes_with(0, "memory_utilization", 40.0)}, ("nodes", 0, "memory_utilization"), "got 40"),
        ({"nodes": nodes_with(1, "p99_latency", -1.0)}, ("nodes", 1, "p99_latency"), "0 or more, got -1"),
        ({"nodes": nodes_with(4, "request_rate", np.inf)}, ("nodes", 4, "request_rate"), "finite number"),
        ({"edges": edges_with(2, "error_rate", 2.0)}, ("edges", 2, "error_rate"), "from 0 to 1, got 2"),
        ({"edges": edges_with(1, "p50_latency", -np.inf)}, ("edges", 1, "p50_latency"), "got -inf"),
        (
            {"edges": edges_with(3, "requests_per_second", np.nan)},
            ("edges", 3, "requests_per_second"),
            "requests_per_second is missing",
        ),
    ],
)
def test_a_contradiction_is_refused_with_its_place(
    arguments: dict[str, Any], place: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(InvalidSnapshot) as refused:
        snapshot(**arguments)
    assert refused.value.details["place"] == place
    assert words in refused.value.message


THROTTLED = Signal(SignalKind.CPU_THROTTLING, "shop/cart", 0.4)


@pytest.mark.parametrize(
    ("signal", "place", "words"),
    [
        (replace(THROTTLED, service="shop/pay"), ("signals", 1), "'shop/pay' is not among the 5 services"),
        (THROTTLED, ("signals", 1), "cpu_throttling of 'shop/cart' was already given"),
        (replace(THROTTLED, service="shop/store", value=1.5), ("nodes", 3, "signals", "cpu_throttling"), "got 1.5"),
        (replace(THROTTLED, service="shop/store", value=-0.1), ("nodes", 3, "signals", "cpu_throttling"), "got -0.1"),
        (replace(THROTTLED, kind=SignalKind.OOM_KILLS, value=-1.0), ("nodes", 1, "signals", "oom_kills"), "got -1"),
        (replace(THROTTLED, kind=SignalKind.QUEUE_DEPTH, value=np.nan), ("nodes", 1, "signals", "queue_depth"), "nan"),
        (replace(THROTTLED, kind=SignalKind.QUEUE_DEPTH, value=np.inf), ("nodes", 1, "signals", "queue_depth"), "inf"),
    ],
)
def test_an_impossible_signal_is_refused_with_its_place(signal: Signal, place: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidSnapshot) as refused:
        snapshot(signals=[THROTTLED, signal])
    assert refused.value.details["place"] == place
    assert words in refused.value.message


def test_signals_have_one_order_and_are_part_of_the_digest() -> None:
    lag = Signal(SignalKind.QUEUE_DEPTH, "shop/cart", 5200.0)
    kill = Signal(SignalKind.OOM_KILLS, "shop/gateway", 1.0)
    first, again = snapshot(signals=[THROTTLED, lag, kill]), snapshot(signals=[lag, kill, THROTTLED])
    assert first.signals == again.signals == (kill, THROTTLED, lag)
    assert first.digest == again.digest != snapshot(signals=[lag, kill]).digest
    assert snapshot().digest != snapshot(signals=[kill]).digest


def test_signals_follow_their_services() -> None:
    kill = Signal(SignalKind.OOM_KILLS, "shop/store", 1.0)
    whole = snapshot(signals=[THROTTLED, kill])
    assert whole.take([3, 1], []).signals == (kill, THROTTLED)
    assert whole.take([0, 1], []).signals == (THROTTLED,)
    again = whole.with_values(whole.observed_at, whole.node_features, whole.edge_features, signals=[kill])
    assert again.signals == (kill,)


def observed_at(time: datetime) -> MeshSnapshot:
    """Return a mesh of one service at this time."""
    return MeshSnapshot.create(
        node_ids=["a/a"], edge_index=[[], []], node_features=[NODE], edge_features=[], observed_at=time
    )


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidSnapshot, match="add Z or an offset") as refused:
        observed_at(datetime(2026, 1, 1))
    assert refused.value.details["place"] == ("observed_at",)


def test_times_are_kept_in_utc() -> None:
    made = observed_at(datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert made.observed_at == START
    assert made.observed_at.tzinfo is UTC


@pytest.mark.parametrize(("edge", "hours"), [(datetime(1, 1, 1), 23), (datetime(9999, 12, 31, 23), -23)])
def test_a_time_outside_the_calendar_in_utc_is_refused(edge: datetime, hours: int) -> None:
    with pytest.raises(InvalidSnapshot, match="years 1 and 9999") as refused:
        observed_at(edge.replace(tzinfo=timezone(timedelta(hours=hours))))
    assert refused.value.details["place"] == ("observed_at",)


def test_unobserved_values_are_masked_and_zero() -> None:
    made = snapshot(nodes=nodes_with(2, "p50_latency", np.nan), edges=edges_with(1, "error_rate", np.nan))
    expected_nodes = np.ones((5, 7), bool)
    expected_nodes[2, 2] = False
    expected_edges = np.ones((4, 4), bool)
    expected_edges[1, 1] = False
    np.testing.assert_array_equal(made.node_observed, expected_nodes)
    np.testing.assert_array_equal(made.edge_observed, expected_edges)
    assert made.node_features[2, 2] == 0.0
    assert made.edge_features[1, 1] == 0.0


@pytest.mark.parametrize("name", ["edge_index", "node_features", "node_observed", "edge_features", "edge_observed"])
def test_arrays_are_read_only(name: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        getattr(snapshot(), name)[0, 0] = 1


def test_the_callers_arrays_are_neither_changed_nor_shared() -> None:
    nodes = np.tile(NODE, (len(SERVICES), 1)).astype(np.float32)
    nodes[0, 2] = np.nan
    made = snapshot(nodes=nodes)
    assert np.isnan(nodes[0, 2])
    nodes[0, 0] = 7.0
    assert made.node_features[0, 0] == 100.0


def test_take_returns_the_sub_mesh_in_the_given_order() -> None:
    made = snapshot(nodes=np.tile(NODE, (5, 1)) * np.arange(1, 6)[:, None] / 10, changes=[PlannedChange("x", "a/b")])
    part = made.take([3, 1], [2])
    assert part.node_ids == ("shop/store", "shop/cart")
    np.testing.assert_array_equal(part.edge_index, [[1], [0]])
    np.testing.assert_array_equal(part.node_features, made.node_features[[3, 1]])
    np.testing.assert_array_equal(part.edge_features, made.edge_features[[2]])
    assert (part.observed_at, part.changes) == (made.observed_at, made.changes)


def test_take_refuses_a_call_with_an_end_outside() -> None:
    with pytest.raises(InvalidSnapshot, match="edge 2 has an end outside the 2 chosen") as refused:
        snapshot().take([0, 1], [0, 2])
    assert refused.value.details["place"] == ("edges", 2)


def test_equal_content_has_an_equal_digest_at_any_time() -> None:
    assert snapshot(0).digest == snapshot(7).digest


@pytest.mark.parametrize(
    "other",
    [
        {"services": ("shop/gateway", "shop/cart", "shop/search", "shop/store", "shop/other")},
        {"calls": ((0, 1), (0, 2), (1, 3), (3, 2))},
        {"nodes": nodes_with(1, "p50_latency", 0.021)},
        {"nodes": nodes_with(1, "error_rate", np.nan)},
        {"edges": edges_with(1, "p50_latency", 0.011)},
        {"changes": [PlannedChange("deploy", "shop/cart")]},
    ],
)
def test_other_content_has_another_digest(other: dict[str, Any]) -> None:
    assert snapshot(**other).digest != snapshot().digest


def test_not_observed_and_zero_have_different_digests() -> None:
    zero, missing = nodes_with(1, "error_rate", 0.0), nodes_with(1, "error_rate", np.nan)
    assert snapshot(nodes=zero).digest != snapshot(nodes=missing).digest


def test_to_networkx_has_the_observed_metrics_only() -> None:
    graph = snapshot(nodes=nodes_with(0, "p50_latency", np.nan)).to_networkx()
    assert list(graph.nodes) == list(SERVICES)
    assert set(graph.edges) == {(SERVICES[a], SERVICES[b]) for a, b in CALLS}
    assert "p50_latency" not in graph.nodes["shop/gateway"]
    assert graph.nodes["shop/cart"]["p50_latency"] == pytest.approx(0.02)
    assert graph.edges["shop/gateway", "shop/cart"] == pytest.approx(dict(zip(EDGE_METRICS, EDGE, strict=True)))
    assert graph.graph["observed_at"] == START


def test_to_pyg_has_everything() -> None:
    pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")
    made = snapshot(nodes=nodes_with(0, "p50_latency", np.nan))
    data = made.to_pyg()
    np.testing.assert_array_equal(data.x.numpy(), made.node_features)
    np.testing.assert_array_equal(data.edge_index.numpy(), made.edge_index)
    np.testing.assert_array_equal(data.edge_attr.numpy(), made.edge_features)
    np.testing.assert_array_equal(data.x_observed.numpy(), made.node_observed)
    np.testing.assert_array_equal(data.edge_attr_observed.numpy(), made.edge_observed)
    assert data.node_ids == list(SERVICES)
    data.x[0, 0] = 1.0
    assert made.node_features[0, 0] == 100.0


def test_the_namespace_ends_at_the_first_slash() -> None:
    assert namespace_of("shop/cart/v2") == "shop"


def test_names_that_break_the_rule_are_escaped_and_stay_different() -> None:
    snapshot = MeshSnapshot.create(
        node_ids=["shop/cart", "shop/a b", "shop/a@b", "shop/a_b", "shop/a~40~b"],
        edge_index=[[0], [1]],
        node_features=np.ones((5, 7)),
        edge_features=np.ones((1, 4)),
        observed_at=datetime(2026, 3, 1, tzinfo=UTC),
        changes=[PlannedChange("deploy", "shop/a@b", "v2")],
    )
    clean = with_good_names(snapshot)
    assert clean.node_ids == ("shop/cart", "shop/a~20~b", "shop/a~40~b_2", "shop/a_b", "shop/a~40~b")
    assert clean.changes[0].service == "shop/a~40~b_2"
    assert find_bad_name(clean.node_ids) is None
    assert with_good_names(clean) is clean


@given(
    st.lists(st.integers(0, 60), unique=True, max_size=40),
    st.sets(st.integers(0, 60), max_size=30),
    st.dictionaries(st.integers(0, 60), st.integers(0, 50), max_size=30),
)
def test_services_are_found_wherever_they_stood_before(
    present: list[int], wanted: set[int], near: dict[int, int]
) -> None:
    names, looked_up = [f"a/{i}" for i in present], {f"a/{i}" for i in wanted}
    before = {f"a/{i}": row for i, row in near.items()}
    expected = {name: names.index(name) for name in looked_up & set(names)}
    assert find_rows(names, looked_up, before) == expected
    assert find_rows(names, looked_up) == expected
    assert mark_services(names, looked_up).tolist() == [name in looked_up for name in names]
