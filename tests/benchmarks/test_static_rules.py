"""Static rules on snapshots made by hand."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from model.snapshot import NODE_METRICS, MeshSnapshot

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from contenders.static_rules import RULES, Rule, State, step, warm_up

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = ("a/web", "a/cart", "b/feed", "b/idle")
CALLS = [[0, 2], [1, 3]]  # web calls cart, feed calls idle
USUAL = {"request_rate": 50.0, "error_rate": 0.001, "p50_latency": 0.02, "p99_latency": 0.1, "cpu_utilization": 0.3}


def snapshot(index: int, names: Sequence[str] = NAMES, **wrong: dict[str, float]) -> MeshSnapshot:
    rows = [[{**USUAL, **wrong.get(name.replace("/", "_"), {})}.get(m, np.nan) for m in NODE_METRICS] for name in names]
    known = {name: i for i, name in enumerate(names)}
    ends = [(NAMES[s], NAMES[d]) for s, d in zip(*CALLS, strict=True)]
    calls = [(known[s], known[d]) for s, d in ends if s in known and d in known]
    return MeshSnapshot.create(
        node_ids=names,
        edge_index=np.array(calls, np.int64).reshape(-1, 2).T,
        node_features=rows,
        edge_features=[[10.0, 0.0, np.nan, np.nan]] * len(calls),
        observed_at=NOON + index * timedelta(seconds=15),
    )


def run(rule: Rule, snapshots: Sequence[MeshSnapshot], normal: Sequence[MeshSnapshot] = ()) -> State:
    limits = warm_up(rule, normal or [snapshot(i) for i in range(20)], 15.0)
    state = State()
    for one in snapshots:
        state = step(rule, limits, state, one, 15.0)
    return state


@pytest.mark.parametrize("rule", RULES)
def test_two_in_a_row_open_one_page_of_services_that_call_each_other(rule: Rule) -> None:
    bad = {"error_rate": 0.5}
    both = {"a_web": bad, "a_cart": bad}
    state = run(rule, [snapshot(20, a_web=bad), snapshot(21, **both), snapshot(22, **both)])
    (page,) = state.pages
    assert (page.begin, page.suspects) == (NOON + 21 * timedelta(seconds=15), ("a/web",))
    assert set(page.affected) == {"a/web", "a/cart"}
    apart = run(rule, [snapshot(i, a_web=bad, b_feed=bad) for i in (20, 21)])
    assert {page.suspects for page in apart.pages} == {("a/web",), ("b/feed",)}


@pytest.mark.parametrize("rule", RULES)
def test_who_is_furthest_over_the_limit_is_suspected_first(rule: Rule) -> None:
    """Of error rates and tails alike, whatever the names: web is slower, cart fails more often by a larger factor."""
    for worse, better in (("a_web", "a_cart"), ("a_cart", "a_web")):
        wrong = {worse: {"error_rate": 0.9}, better: {"p99_latency": 0.8}}
        (page,) = run(rule, [snapshot(i, **wrong) for i in (20, 21)]).pages
        assert page.suspects == (worse.replace("_", "/"), better.replace("_", "/"))


@pytest.mark.parametrize("rule", RULES)
def test_one_sample_or_few_requests_page_nobody(rule: Rule) -> None:
    assert run(rule, [snapshot(20, a_web={"error_rate": 0.5}), snapshot(21)]).pages == ()
    few = {"error_rate": 0.5, "p99_latency": 9.0, "request_rate": 6.0}  # 90 requests in 15 s
    assert run(rule, [snapshot(i, a_web=few) for i in (20, 21, 22)]).pages == ()
    enough = few | {"request_rate": 7.0}
    assert len(run(rule, [snapshot(i, a_web=enough) for i in (20, 21, 22)]).pages) == 1


def test_guarded_leaves_out_who_trips_it_in_normal_operation() -> None:
    slow = {"p99_latency": 0.8}
    normal = [snapshot(i, a_web=slow) for i in range(20)]
    assert run("guarded", [snapshot(i, a_web=slow | {"error_rate": 0.5}) for i in (20, 21)], normal).pages == ()
    assert len(run("guarded", [snapshot(i, a_cart=slow) for i in (20, 21)], normal).pages) == 1


def test_own_limit_is_half_as_much_again_as_the_service_ever_shows() -> None:
    for latency, pages in ((0.14, 0), (0.16, 1)):
        assert len(run("own limit", [snapshot(i, a_web={"p99_latency": latency}) for i in (20, 21)]).pages) == pages


@pytest.mark.parametrize("rule", RULES)
def test_services_come_and_go(rule: Rule) -> None:
    state = run(rule, [snapshot(20, NAMES[1:]), snapshot(21, (*NAMES, "c/new")), snapshot(22, ("c/new",))])
    assert state.pages == ()


@pytest.mark.parametrize("rule", RULES)
def test_a_page_ends_and_the_next_is_another(rule: Rule) -> None:
    bad = {"error_rate": 0.5}
    snapshots = [snapshot(i, **({"a_web": bad} if i in (20, 21, 30, 31) else {})) for i in range(20, 33)]
    assert len(run(rule, snapshots).pages) == 2
