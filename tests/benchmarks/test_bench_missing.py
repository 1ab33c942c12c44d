"""Missing telemetry and values in its place, on small meshes and by hand."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from benchmarks.bench_missing import NORMAL, OPTIONS, Alert, Scene, advance, compare, detect, outcome_of, simulate_scene
from benchmarks.missing.filling import FILLINGS, LONGEST, MASK, Filling, fill, follow_series
from benchmarks.missing.gaps import FIRST, PATTERNS, Fault, Missing, Pattern, plan_gaps, remove
from model.checkpoint import load
from model.features import EDGE_CHANNELS, NODE_CHANNELS
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, NodeMetric
from model.state.filters import CENTRE, SEEN, SLOTS
from model.state.mesh_state import MeshState
from serve_app.pipeline import Mesh
from serve_app.pipeline import advance as advance_mesh

LATENCY = NodeMetric.P50_LATENCY
START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("shop/cart", "shop/stock", "shop/pay", "bank/ledger")


def snapshot_at(index: int, latencies: list[float], calls: list[list[int]] | None = None) -> MeshSnapshot:
    """Return four services, with these latencies."""
    nodes = np.ones((len(NAMES), len(NODE_METRICS)), np.float32)
    nodes[:, [NodeMetric.ERROR_RATE, NodeMetric.CPU_UTILIZATION, NodeMetric.MEMORY_UTILIZATION]] = 0.5
    nodes[:, LATENCY] = latencies
    edges = [[10.0, 0.0, 0.01, 0.02]] * len(calls or [])
    at = START + index * timedelta(seconds=15)
    return MeshSnapshot.create(
        node_ids=NAMES, edge_index=np.array(calls or []).T, node_features=nodes, edge_features=edges, observed_at=at
    )


def usual_state(latencies: list[float]) -> MeshState:
    """Return a mesh that has usually had these latencies."""
    filters = np.zeros((SLOTS, len(NAMES), len(NODE_CHANNELS)), np.float32)
    filters[SEEN] = 50
    filters[CENTRE, :, LATENCY] = NODE_CHANNELS[LATENCY].forward(np.array(latencies, np.float32))
    none = np.zeros((SLOTS, 0, len(EDGE_CHANNELS)), np.float32)
    return MeshState(node_ids=NAMES, node_filters=filters, edge_filters=none)


def fill_last(snapshots: list[MeshSnapshot], state: MeshState, filling: Filling) -> MeshSnapshot:
    return fill(snapshots[-1], list(follow_series(snapshots))[-1], state, filling)


def test_a_last_value_stands_in_for_as_long_as_it_may() -> None:
    missing = [snapshot_at(1 + i, [0.1, np.nan, 0.1, 0.1]) for i in range(5)]
    series = [snapshot_at(0, [0.1, 0.7, 0.1, 0.1]), *missing]
    filling = Filling("last", last=4)
    kept = fill_last(series[:5], MeshState(), filling)
    assert kept.node_features[1, LATENCY] == pytest.approx(0.7)
    assert kept.node_observed.all()
    gone = fill_last(series, MeshState(), filling)
    assert not gone.node_observed[1, LATENCY]
    assert gone.node_observed.sum() == kept.node_observed.sum() - 1


def test_the_mean_deviation_of_a_namespace_is_on_the_own_level_and_its_mean_value_is_not() -> None:
    usual = [0.1, 0.4, 0.1, 0.1]
    series = [snapshot_at(0, usual), snapshot_at(1, [0.2, np.nan, 0.2, 0.1])]  # the shop is twice as slow
    deviation = fill_last(series, usual_state(usual), Filling("deviation", mean=True))
    level = fill_last(series, usual_state(usual), Filling("level", mean=True, by_level=True))
    assert deviation.node_features[1, LATENCY] == pytest.approx(0.8, rel=0.01)
    assert level.node_features[1, LATENCY] == pytest.approx(0.2, rel=0.01)


def test_a_series_is_not_filled_after_a_long_time_or_if_it_never_was() -> None:
    never = [snapshot_at(i, [0.1, np.nan, 0.1, 0.1]) for i in range(3)]
    long_ago = [snapshot_at(0, [0.1] * 4), *(snapshot_at(i, [0.1, np.nan, 0.1, 0.1]) for i in range(1, LONGEST + 2))]
    for series in (never, long_ago):
        for filling in FILLINGS:
            filled = fill_last(series, usual_state([0.1] * 4), filling)
            assert not filled.node_observed[1, LATENCY]


def test_a_call_without_a_row_has_its_last_values() -> None:
    series = [snapshot_at(0, [0.1] * 4, [[0, 1], [0, 2]]), snapshot_at(1, [0.1] * 4, [[0, 1]])]
    filled = fill_last(series, MeshState(), Filling("last", last=4))
    assert filled.edge_index.T.tolist() == [[0, 1], [0, 2]]
    assert filled.edge_features[1] == pytest.approx([10.0, 0.0, 0.01, 0.02])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_gaps_take_away_what_they_say(pattern: Pattern) -> None:
    scene = simulate_scene(2, 100)
    snapshots = scene.snapshots
    names = sorted(snapshots[0].node_ids)
    fault = Fault(50, 60, names[0])
    gaps = plan_gaps(names, 100, [fault], pattern, np.random.default_rng(3))
    assert all(gap.end - gap.start in pattern.lengths and gap.start >= FIRST for gap in gaps)
    incomplete = list(remove(snapshots, [fault], pattern, 3))
    for index, (whole, left) in enumerate(zip(snapshots, incomplete, strict=True)):
        lost = whole.node_observed.sum() - left.node_observed.sum()
        open_gaps = [gap for gap in gaps if gap.start <= index < gap.end]
        if pattern.missing is Missing.RANDOM:
            share = lost / whole.node_observed.sum()
            assert share == pytest.approx(pattern.share if index >= FIRST else 0, abs=0.15)
        elif not open_gaps:
            assert left is whole
        elif pattern.missing is Missing.SERVICE:
            (gap,) = open_gaps
            silent = [name in gap.services for name in left.node_ids]
            assert not left.node_observed[silent].any()
            assert not any(left.node_ids[source] in gap.services for source in left.edge_index[0])
        else:
            (gap,) = open_gaps
            everywhere = pattern.missing is Missing.EVERYWHERE
            hidden = [everywhere or name in gap.services for name in left.node_ids]
            assert not left.node_observed[hidden, gap.metric].any()
            kept = np.delete(left.node_observed, gap.metric, axis=1)
            assert (kept == np.delete(whole.node_observed, gap.metric, axis=1)).all()
    assert left.edge_observed.shape[1] == len(EDGE_METRICS)


def test_the_mask_is_the_product() -> None:
    checkpoint, scene = load(), simulate_scene(0, 40)
    incomplete = list(remove(scene.snapshots, scene.faults, PATTERNS[0], 0))
    mesh, here = Mesh(), Mesh()
    for snapshot, known in zip(incomplete, follow_series(incomplete), strict=True):
        wanted, mesh = advance_mesh(checkpoint, mesh, snapshot, OPTIONS)
        filled = fill(snapshot, known, here.state, MASK)
        verdict, here = advance(checkpoint, here, snapshot, filled, MASK)
        assert (verdict.mesh_score, verdict.status) == (wanted.mesh_score, wanted.status)


def test_values_for_neighbours_only_are_never_scored() -> None:
    checkpoint, scene = load(), simulate_scene(0, 40)
    hidden = scene.snapshots[0].node_ids[0]
    incomplete = [
        replace(one, node_observed=one.node_observed & (np.array(one.node_ids) != hidden)[:, None])
        for one in scene.snapshots
    ]
    snapshots = [*scene.snapshots[:39], incomplete[39]]
    known = list(follow_series(snapshots))
    (filling,) = (one for one in FILLINGS if not one.is_scored)
    mesh = Mesh()
    for snapshot, series in zip(snapshots, known, strict=True):
        filled = fill(snapshot, series, mesh.state, filling)
        before = mesh
        _, mesh = advance(checkpoint, mesh, snapshot, filled, filling)
    assert filled.node_observed[0].any()
    row = mesh.state.node_ids.index(hidden)
    learned = before.state.node_filters[SEEN, row] == mesh.state.node_filters[SEEN, row]
    assert learned.all()


def test_a_line_counts_what_alerts_find_and_raises_thresholds_to_equal_false_alerts() -> None:
    snapshots = [snapshot_at(i, [0.1] * 4) for i in range(200)]
    scene = Scene.of("by hand", snapshots, [Fault(50, 60, "shop/cart"), Fault(100, 110, "shop/pay")])
    true = [Alert(at, "one", 5.0, ("shop/pay", "shop/cart")) for at in range(55, 60)]
    wrong = [Alert(105, "two", 3.0, ("bank/ledger",))]
    false = [Alert(150, "three", 4.0, ("shop/cart",)), Alert(151, "three", 4.0, ("shop/cart",))]
    assert scene.labels[150] == NORMAL
    outcome = outcome_of(scene, (*true, *wrong, *false))
    assert (outcome.found, outcome.first, outcome.false_alerts) == ((True, False), (False, False), 1)
    assert outcome.alerting == (0.5, 0.1)
    other = FILLINGS[1]
    late = [Alert(108, "four", 3.0, ("shop/pay",))]
    mask, filled = compare([scene], "by hand", {MASK: [(*true, *wrong)], other: [(*true, *late, *false)]})
    assert (mask["found"][0], filled["found"][0]) == (0.5, 1.0)
    assert (mask["found_at_equal"][0], filled["found_at_equal"][0]) == (0.5, 0.5), "above the false alert of 4"
    assert (filled["only_mask"], filled["only_filling"], filled["false_alerts"]) == (0, 1, 1)


@pytest.mark.slow
def test_fillings_run_in_a_gap() -> None:
    checkpoint, scene = load(), simulate_scene(1, 35)
    incomplete = list(remove(scene.snapshots, scene.faults, PATTERNS[2], 1))
    known = list(follow_series(incomplete))
    for filling in FILLINGS:
        detect(checkpoint, incomplete, known, filling)
