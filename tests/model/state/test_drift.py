"""The sketch of a mesh: what it counts, when it judges, and what it reports."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

from lab.training.reference import join_meshes
from model.drift.call_sample import BLOCK_SECONDS, SLOTS
from model.drift.measures import LIMITS, MEASURES, ROWS, Kind, Measure, Reference
from model.drift.populations import BINS, POPULATIONS, ValueCounts
from model.drift.sketch import DriftSketch, drifting
from model.features import EDGE_CHANNELS, NODE_CHANNELS, RATE
from model.scoring.calibration import Tail
from model.snapshot import MeshSnapshot, NodeMetric
from model.state.drift import SAMPLE_SECONDS, Trained, count_snapshot, limits_of, observe_drift, tail_decades
from model.state.mesh_state import MeshState
from model.state.observe import observe
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, noisy, snapshot, watch

STEP = 2 * SAMPLE_SECONDS  # s between two snapshots: half of the samples that a block can have
DAY = round(86_400 / STEP)  # snapshots


def tail(channels: int) -> Tail:
    shape = (3, 3, channels)
    return Tail(*(np.full(shape, value, np.float32) for value in (0.01, 0.5, 0.1)))


TRAINED = Trained(tail(len(NODE_CHANNELS)).rate, tail(len(EDGE_CHANNELS)).rate, None)
ROW = {measure: row for row, measure in enumerate(MEASURES)}


def mesh_at(index: int, rng: np.random.Generator, latency: float = 1.0, load: float = 1.0) -> MeshSnapshot:
    """A mesh with a daily curve of its load."""
    size = (len(SERVICES), len(NODE))
    day = load * (1 + 0.4 * np.sin(2 * np.pi * index / DAY))
    nodes = np.array(NODE) * np.exp(rng.normal(0, 0.05, size)) * np.array([1, 0.2, 1, 3, 1, 1, 1])
    nodes *= np.exp(np.arange(len(SERVICES)))[:, None] ** np.array([0.5, 0, 0.3, 0.3, 0.1, 0, 0.2])
    nodes[:, [NodeMetric.REQUEST_RATE, NodeMetric.CPU_UTILIZATION, NodeMetric.ACTIVE_CONNECTIONS]] *= day
    nodes[:, [NodeMetric.P50_LATENCY, NodeMetric.P99_LATENCY]] *= latency
    nodes[:, 4:6] = nodes[:, 4:6].clip(0, 0.95)
    edges = np.array(EDGE) * np.exp(rng.normal(0, 0.05, (len(CALLS), len(EDGE)))) * np.array([day, 1, 1, 1])
    return snapshot(index, nodes=nodes, edges=edges, interval=STEP)


def follow(snapshots: Iterable[MeshSnapshot], state: MeshState | None = None, trained: Trained = TRAINED) -> MeshState:
    state = state or MeshState()
    for one in snapshots:
        observation, state = observe(state, one, window_size=20, neighbours=6)
        state = observe_drift(state, observation, one.observed_at, trained)
    return state


@pytest.fixture(scope="module")
def known() -> MeshState:
    """A mesh after eight days."""
    rng = np.random.default_rng(0)
    return follow(mesh_at(i, rng) for i in range(8 * DAY))


def mesh_of_noise(index: int) -> MeshSnapshot:
    return noisy(index, np.random.default_rng(index))


def next_day(known: MeshState, change: Callable[[MeshSnapshot], MeshSnapshot] = lambda s: s, **how: float) -> MeshState:
    rng = np.random.default_rng(1)
    return follow((change(mesh_at(i, rng, **how)) for i in range(8 * DAY, 9 * DAY)), known)


def drifts(state: MeshState) -> set[Measure]:
    return {MEASURES[row] for row in drifting(state.drift).tolist()}


def test_every_value_is_counted_once_wherever_it_is() -> None:
    observation, state = watch(noisy(i, np.random.default_rng(0)) for i in range(3))
    counts = count_snapshot(state, observation)
    assert counts.values.shape == (len(POPULATIONS), BINS)
    observed = [*observation.node.observed.sum(axis=0), *observation.edge.observed.sum(axis=0)]
    with_callers, with_callees = len({b for _, b in CALLS}), len({a for a, _ in CALLS})
    np.testing.assert_allclose(counts.values.sum(axis=1), [*observed, with_callers, with_callees], rtol=1e-5)
    np.testing.assert_array_equal(counts.missing[: len(NODE_CHANNELS)], len(SERVICES) - np.array(observed[:9]))


def test_a_service_without_requests_is_no_part_of_the_mix_and_misses_nothing() -> None:
    def idle(index: int) -> MeshSnapshot:
        one = noisy(index, np.random.default_rng(index))
        features, observed = one.node_features.copy(), one.node_observed.copy()
        features[4] = 0
        observed[4, 1:4] = False
        return replace(one, node_features=features, node_observed=observed)

    def counted(of: Callable[[int], MeshSnapshot]) -> ValueCounts:
        observation, state = watch(map(of, range(3)))
        return count_snapshot(state, observation)

    busy, silent = counted(mesh_of_noise), counted(idle)
    assert silent.values[RATE].sum() == busy.values[RATE].sum() - 1
    assert not silent.missing[:4].any()
    assert silent.possible[RATE] == busy.possible[RATE] - 1


def test_a_mesh_as_before_does_not_drift(known: MeshState) -> None:
    after = next_day(known)
    assert not drifts(after)
    values = after.drift.distances[ROWS[Reference.WEEK, Kind.VALUES]]
    assert (values < 0.2 * LIMITS[ROWS[Reference.WEEK, Kind.VALUES]]).all()


def test_a_mesh_with_twice_the_load_does_not_drift(known: MeshState) -> None:
    assert not {m for m in drifts(next_day(known, load=1.6)) if m.kind is Kind.VALUES}


def test_a_new_level_of_latency_drifts_within_a_day_and_is_usual_after_a_week(known: MeshState) -> None:
    after = next_day(known, latency=1.8)
    found = drifts(after)
    assert Measure(Reference.WEEK, Kind.VALUES, "service.p50_latency") in found
    assert Measure(Reference.WEEK, Kind.VALUES, "service.request_rate") not in found
    row = ROW[Measure(Reference.WEEK, Kind.VALUES, "service.p50_latency")]
    assert after.drift.moved[row] > 0.3
    assert after.drift.since[row] >= 8 * DAY * STEP
    rng = np.random.default_rng(2)
    weeks = follow((mesh_at(i, rng, latency=1.8) for i in range(9 * DAY, 18 * DAY)), after)
    assert not drifts(weeks)


def test_a_metric_that_half_of_the_services_lose_is_missing(known: MeshState) -> None:
    def without(one: MeshSnapshot) -> MeshSnapshot:
        observed = one.node_observed.copy()
        observed[:3, NodeMetric.CPU_UTILIZATION] = False
        return replace(one, node_observed=observed)

    assert Measure(Reference.WEEK, Kind.MISSING, "service.cpu_utilization") in drifts(next_day(known, without))


@pytest.mark.parametrize(
    ("calls", "drifts_from_them"),
    [
        ([[0, 0, 4, 3], [1, 4, 2, 1]], True),
        ([[0, 0, 1, 4], [1, 2, 4, 3]], False),  # of one service
    ],
)
def test_calls_to_other_services_are_new_unless_one_service_makes_them(
    known: MeshState, calls: list[list[int]], drifts_from_them: bool
) -> None:
    after = next_day(known, lambda one: replace(one, edge_index=np.array(calls)))
    assert (Measure(Reference.WEEK, Kind.CALLS) in drifts(after)) == drifts_from_them


def test_neighbours_of_a_service_that_left_are_no_drift(known: MeshState) -> None:
    """Its two callers are far faster without it, which is a large share of a mesh of five services."""

    def without(one: MeshSnapshot) -> MeshSnapshot:
        features, edge_features = one.node_features.copy(), one.edge_features.copy()
        features[1:4, 2:4] /= 3
        edge_features[:, 2:4] /= 3
        return replace(
            one, node_features=features, edge_features=edge_features[:2], edge_index=one.edge_index[:, :2],
            edge_observed=one.edge_observed[:2],
        )  # fmt: skip

    def faster(one: MeshSnapshot) -> MeshSnapshot:
        return replace(without(one), edge_index=one.edge_index, edge_features=one.edge_features,
                       edge_observed=one.edge_observed)  # fmt: skip

    latency = Measure(Reference.WEEK, Kind.VALUES, "service.p50_latency")
    assert latency in drifts(next_day(known, faster))
    assert latency not in drifts(next_day(known, without))


def test_a_short_block_is_not_judged(known: MeshState) -> None:
    judged = known.drift.judged
    rng = np.random.default_rng(3)
    start = 8 * DAY + 3 * DAY  # after three days without data
    after = follow((mesh_at(i, rng) for i in range(start, start + 10)), known)
    assert after.drift.samples <= 10
    assert after.drift.judged in (judged, known.drift.block)
    later = follow((mesh_at(i, rng) for i in range(start + DAY // SLOTS, start + DAY // SLOTS + 3)), after)
    assert later.drift.judged == after.drift.judged, "ten samples say too little of six hours"


def test_a_mesh_unlike_all_training_meshes_drifts_from_training(known: MeshState) -> None:
    shares = np.zeros((len(POPULATIONS), BINS), np.float32)
    shares[:, 0] = 1.0
    reference = join_meshes([shares] * 4)
    trained = replace(TRAINED, reference=reference)
    rng = np.random.default_rng(1)
    after = follow((mesh_at(i, rng) for i in range(8 * DAY, 10 * DAY)), known, trained)
    found = {m.channel for m in drifts(after) if m.reference is Reference.TRAINING and m.kind is Kind.VALUES}
    assert {"service.request_rate", "call.weight"} <= found


def test_without_a_reference_nothing_is_known_of_training() -> None:
    limits = limits_of(None)
    assert np.isnan(limits[ROWS[Reference.TRAINING, Kind.VALUES]]).all()
    assert not np.isnan(limits[ROWS[Reference.WEEK, Kind.VALUES]]).any()


def test_a_mesh_that_leaves_its_range_as_often_as_training_has_no_decades() -> None:
    _, state = watch(noisy(i, np.random.default_rng(0)) for i in range(5))
    assert np.abs(tail_decades(state, TRAINED)).max() < 0.5


def test_a_sketch_is_small() -> None:
    sketch = DriftSketch()
    assert sum(getattr(sketch, name).nbytes for name in ("recent", "week", "week_missing")) < 20_000
    assert BLOCK_SECONDS * SLOTS == 86_400
