"""Few requests: what a failure or a slow request among them says, and what several snapshots of them say together."""

from collections.abc import Iterator, Sequence
from math import comb
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from model.checkpoint import Checkpoint, load
from model.features import CONNECTIONS, ERROR, NODE_CHANNELS, P99, RATE
from model.snapshot import MeshSnapshot
from model.state.few_requests import CERTAIN, FORGET, LAST, PARTS, Counts, compare_counts, count_failures
from model.state.filters import CLIP, SLOTS, TAIL_START, Deviation, new_filters, update_filters
from model.state.mesh_state import MeshState
from model.verdict import Severity
from serve_app.pipeline import Mesh, Options, advance, advance_in_detail, build_meta_input
from tests.model.filter_cases import Series
from tests.model.model_cases import at, watch

INTERVAL = 15.0
FEW = (0.5, 2.0, 5.0, 15.0)  # requests in a snapshot, on average
BUSY = 1000.0
QUIET = 160  # snapshots without a failure
SIZES = np.repeat([*FEW, BUSY], 6)
GATEWAY = "shop/gateway"
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load()


def services(sizes: Floats) -> list[str]:
    return [f"shop/s{i}" for i in range(len(sizes))]


def snapshot_of(index: int, failed: ArrayLike, made: ArrayLike, slowest: Sequence[float]) -> MeshSnapshot:
    """Return a gateway and the services that it calls, with these failures, requests and slowest requests."""
    counts, failures = np.array(made, float), np.array(failed, float)
    some = counts > 0
    calls = np.full((len(counts), 4), np.nan)
    calls[:, 0] = counts / INTERVAL
    calls[some, 1] = failures[some] / counts[some]
    calls[some, 2], calls[some, 3] = 0.05, np.array(slowest)[some]
    nodes = np.full((len(counts) + 1, 7), np.nan)
    nodes[1:, :4], nodes[1:, 4:6] = calls, (0.2, 0.3)
    nodes[0] = (counts.sum() / INTERVAL, 0.01, 0.06, 0.3, 0.3, 0.4, np.nan)
    ends = np.stack([np.zeros(len(counts), int), np.arange(1, len(counts) + 1)])
    return MeshSnapshot.create(
        node_ids=[GATEWAY, *services(counts)],
        edge_index=ends,
        node_features=nodes,
        edge_features=calls,
        observed_at=at(index, INTERVAL),
    )


def traffic(
    rng: np.random.Generator, sizes: Floats, share: Floats, count: int, first: int = 0
) -> Iterator[MeshSnapshot]:
    """Make snapshots in which requests arrive and fail by chance, and one in a hundred is ten times as slow."""
    for index in range(first, first + count):
        made = rng.poisson(sizes)
        latencies = [0.05 * np.exp(0.5 * rng.standard_normal(max(n, 1))) for n in made]
        latencies = [x * np.where(rng.random(len(x)) < 0.01, 10, 1) for x in latencies]
        yield snapshot_of(index, rng.binomial(made, share), made, [float(np.quantile(x, 0.99)) for x in latencies])


@given(
    failed=st.integers(1, 30), before=st.integers(0, 30), made=st.integers(30, 100), made_before=st.integers(100, 1000)
)
def test_counts_are_compared_as_by_the_binomial_distribution(
    failed: int, before: int, made: int, made_before: int
) -> None:
    share, total = made / (made + made_before), failed + before
    chance = sum(comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(failed, total + 1))
    found = compare_counts(*(np.array([x], float) for x in (failed, made, before, made_before)))[0]
    exact = -NormalDist().inv_cdf(max(chance, 1e-300))
    assert found == pytest.approx(max(exact, 0), abs=0.6)
    if exact > TAIL_START:
        assert found <= exact + 0.1


def test_without_a_time_before_nothing_is_more_than_usual() -> None:
    assert compare_counts(*(np.array([x], float) for x in (5, 10, 0, 0)))[0] == 0


def see(values: Sequence[float], requests: float, channel: int = P99) -> list[Deviation]:
    """Return the deviations of one channel from a settled past."""
    series = Series(channel=NODE_CHANNELS[channel]).settle(200, requests)
    return [series.see(value, requests=requests) for value in values]


@pytest.mark.parametrize(("requests", "largest"), [(5, CLIP), (19, CLIP), (20, 30)])
def test_a_quantile_that_one_request_can_set_is_no_evidence_by_itself(requests: float, largest: float) -> None:
    (only,) = see([9.0], requests)
    assert only.now == pytest.approx(largest)
    assert (only.level.max() < TAIL_START) == (largest < 30)


def test_several_such_snapshots_are_evidence() -> None:
    levels = [float(one.level.max()) for one in see([9.0] * 12, 5)]
    assert levels[0] < TAIL_START < levels[2]
    assert levels[-1] > 2 * TAIL_START


@pytest.mark.parametrize(("requests", "stays"), [(2, True), (1000, False)])
def test_one_normal_snapshot_of_few_requests_does_not_end_a_deviation(requests: float, stays: bool) -> None:
    *_, last = see([1.0] * 12 + [0.0], requests)
    assert (last.level.max() > TAIL_START) == stays


def test_channels_that_are_not_about_requests_are_denied_at_once() -> None:
    *_, last = see([1.0] * 12 + [0.0], 2, CONNECTIONS)
    assert last.level.max() < 1


def surprise_after(failed: Sequence[int], made: int = 3) -> tuple[float, float, MeshState]:
    """Return the surprise of a service with so many requests a snapshot and these failures at the end, and of its
    calls."""
    quiet = [snapshot_of(i, [0], [made], [0.1]) for i in range(QUIET)]
    failing = [snapshot_of(QUIET + i, [k], [made], [0.1]) for i, k in enumerate(failed)]
    observation, state = watch([*quiet, *failing])
    nodes, calls = observation.node_failures, observation.edge_failures
    assert observation.node.seen[1, RATE] == QUIET - 1 + len(failed)
    return float(nodes[1]), float(calls[0]), state


def test_failures_of_many_snapshots_are_certain() -> None:
    nodes, calls, _ = surprise_after([1, 0, 1, 1, 0, 2, 1, 0, 1, 1, 0, 1, 1, 1])
    assert nodes == calls >= CERTAIN


def test_they_are_over_when_as_many_requests_succeed() -> None:
    nodes, calls, _ = surprise_after([1, 0, 1, 1, 0, 2, 1, 0, 1, 1, 0, 1, 1, 1, *[0] * 7])
    assert nodes == calls == 0


@pytest.mark.parametrize("failed", [[1, 0, 1], [3, 3, 0], [3, 3, 3, 3], [3, 0, 0, 0, 0, 3]])
def test_some_failures_or_a_burst_are_not(failed: list[int]) -> None:
    assert surprise_after(failed)[:2] == (0, 0)


@pytest.mark.parametrize(("made", "each"), [(30, 1), (60, 2), (60, 5), (150, 5)])
def test_a_few_hundredths_of_more_requests_are_certain_after_three_minutes(made: int, each: int) -> None:
    assert surprise_after([each] * 8, made)[:2] == (0, 0), "as much as a rollout"
    nodes, calls, _ = surprise_after([each] * 13, made)
    assert nodes == calls >= CERTAIN


def test_what_is_usual_has_nothing_of_a_pause_nor_of_the_snapshots_around_it() -> None:
    rng = np.random.default_rng(0)
    failed, paused = rng.integers(0, 3, 200), np.zeros(200, bool)
    paused[[30, 31, 70]], paused[100:130] = True, True
    filters = new_filters(1, np.zeros((SLOTS, 0, 9), np.float32), NODE_CHANNELS)
    counts, measured = Counts.none(1), np.ones((1, 9), bool)
    requests, nothing = np.full(1, 4, np.float32), np.zeros(1, bool)
    expected = np.zeros(2)
    for index in range(200):
        value = NODE_CHANNELS[ERROR].forward(np.full((1, 9), failed[index] / 4, np.float32))
        noise = np.zeros((1, 9), np.float32)
        deviation, _ = update_filters(filters, value, measured, noise, nothing, nothing, NODE_CHANNELS, requests)
        at = slice(index, index + 1)
        _, counts, _ = count_failures(counts, deviation, filters, measured, requests, paused[at])
        np.testing.assert_array_equal(counts.recent[0][:, 0] / PARTS, [failed[index], 4])
        then = index - LAST
        if then >= 0 and not paused[then : index + 1].any():
            expected = expected * (1 - FORGET) + [failed[then], 4]
        np.testing.assert_allclose(counts.usual[:2, 0], expected, rtol=1e-4)
    assert expected[1] > 100


def test_counts_follow_their_rows() -> None:
    recent = np.arange(LAST * 2 * 3, dtype=np.uint16).reshape(LAST, 2, 3)
    counts = Counts(tuple(recent), np.ones((3, 3), np.float32))
    more = counts.add_rows(2).keep_rows(np.array([True, False, True, False, True]))
    np.testing.assert_array_equal(np.array(more.recent)[:, :, :2], np.array(counts.recent)[:, :, [0, 2]])
    assert not np.array(more.recent)[:, :, 2].any()
    assert more.usual.tolist() == [[1, 1, 0]] * 3


def test_one_failure_of_two_is_less_than_two_of_two() -> None:
    _, quiet = watch(snapshot_of(i, [0], [2], [0.1]) for i in range(80))
    one, two = (watch([snapshot_of(80, [failed], [2], [0.1])], quiet)[0].node for failed in (1, 2))
    assert one.level[:, 1, ERROR].max() < TAIL_START < two.level[:, 1, ERROR].max()
    share = NODE_CHANNELS[ERROR].inverse(float(two.value[1, ERROR]))
    assert share == pytest.approx(2 / 20, abs=0.01), "the value is the share of the last requests"


@pytest.mark.parametrize("share", [0.005, 0.03])
def test_few_requests_are_no_more_often_evidence_than_many(checkpoint: Checkpoint, share: float) -> None:
    """Scores of 3 and more are as rare as they say, one in a thousand, and none is far above.

    A sample has a binomial error. Its scores come in spells of about 4 snapshots, as long as the shorter average, so
    the error is as large as with a quarter of them.
    """
    mesh, options, rng = Mesh(), Options(), np.random.default_rng(1)
    names = services(SIZES)
    scores = []
    for snapshot in traffic(rng, SIZES, np.full(len(SIZES), share), 300):
        stages = advance_in_detail(checkpoint, mesh, snapshot, options)
        mesh = stages.mesh
        evidence = build_meta_input(checkpoint, stages.prepared, stages.calibrated, snapshot, options).evidence
        page = dict(zip(evidence.names, evidence.page.tolist(), strict=True))
        scores.append([page.get(name, 0.0) for name in names])
        assert not stages.verdict.alerts
    often = {size: float((np.array(scores)[40:, size == SIZES] > 3).mean()) for size in (*FEW, BUSY)}
    count = (len(scores) - 40) * int((SIZES == BUSY).sum())
    assert max(often.values()) <= 0.001 + 3 * (0.001 * 4 / count) ** 0.5
    assert np.max(scores) < 5.5


def test_a_third_of_two_requests_failing_is_found_within_minutes(checkpoint: Checkpoint) -> None:
    """In two of three meshes within five minutes, and in all within a quarter of an hour."""
    sizes, options, found_after = np.array([2.0, 2.0, 15.0, BUSY]), Options(), []
    for seed in range(3):
        mesh, rng, found = Mesh(), np.random.default_rng(seed), []
        for snapshot in traffic(rng, sizes, np.full(4, 0.001), 120):
            verdict, mesh = advance(checkpoint, mesh, snapshot, options)
            assert not verdict.alerts
        for snapshot in traffic(rng, sizes, np.array([0.3, 0.001, 0.001, 0.001]), 70, first=120):
            verdict, mesh = advance(checkpoint, mesh, snapshot, options)
            first = [i.suspects[0].service for i in verdict.incidents if i.severity is not Severity.NOTICE]
            found.append(first == ["shop/s0"])
        found_after.append(found.index(True))
        assert all(found[found.index(True) :])
    assert np.median(found_after) <= 20
    assert max(found_after) <= 60
