"""The benchmark of learning online: likelihoods, updates and counts that can be computed by hand."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import torch

from benchmarks.bench_online import Judged, Track, measure
from benchmarks.online.archive import CalmMoment
from benchmarks.online.likelihood import Likelihood, of_tails, of_values
from benchmarks.online.low_rank import WEIGHTS, fit_low_rank, held_out_loss
from benchmarks.online.tails import RATE_WEIGHT, fit_tails
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.training.dataset import LabelledFault
from model.checkpoint import load
from model.scoring.score import whole_mesh
from model.state.change_impact import UNEXPOSED
from model.state.mesh_state import MeshState
from model.state.observe import observe

START = datetime(2026, 1, 1, tzinfo=UTC)


def archive(snapshots: int = 60) -> list[CalmMoment]:
    state, moments = MeshState(), []
    for snapshot in Simulator(MeshSpec(services=12, calls_per_service=1.5, seed=3), snapshots=snapshots).snapshots():
        observation, state = observe(state, snapshot, window_size=120, neighbours=6)
        moments.append(CalmMoment(observation, whole_mesh(state, observation)))
    return moments


def test_a_better_expectation_is_more_likely() -> None:
    seen = archive()[-1].observation.node
    right = (seen.value - seen.expected) / seen.spread
    perfect, none = of_values(seen, right), of_values(seen, np.zeros_like(right))
    assert perfect.values == none.values > 0
    assert perfect.mean < none.mean
    assert (none + none).mean == pytest.approx(none.mean)


def test_tails_move_towards_the_mesh_and_are_more_likely_there() -> None:
    shipped, moments = load(), archive(160)
    fitted = fit_tails(shipped, moments)
    seen = sum(int(one.observation.node.observed[:, 0].sum()) for one in moments)
    moved = fitted.node_tail.rate[UNEXPOSED, 0, 0] - shipped.node_tail.rate[UNEXPOSED, 0, 0]
    assert abs(moved) < seen / RATE_WEIGHT, "the shipped rate weighs as much as so many values"
    assert (fitted.node_tail.rate[1:] == shipped.node_tail.rate[1:]).all(), "near changes the state learns by itself"
    before, after = (
        sum(
            (of_tails(one.node_tail, m.observation.node, m.observation.node_exposure) for m in moments), Likelihood()
        ).mean
        for one in (shipped, fitted)
    )
    assert after < before


def test_low_rank_updates_change_only_the_heads() -> None:
    shipped, moments = load(), archive()[20:]
    fitted = fit_low_rank(shipped, moments, rank=2)
    assert held_out_loss(fitted.network, moments) < held_out_loss(shipped.network, moments)
    before, after = shipped.network.state_dict(), fitted.network.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == set(WEIGHTS)
    ranks = {int(torch.linalg.matrix_rank(after[name] - before[name], rtol=1e-3)) for name in WEIGHTS}
    assert max(ranks) <= 2


def track(scores: list[float], culprit: str = "a/x", alerts: tuple[int, ...] = ()) -> Track:
    times = tuple(START + i * timedelta(hours=1) for i in range(len(scores)))
    alerted = tuple(frozenset(["a/x"]) if score > 5 else frozenset() for score in scores)
    return Track(
        times, tuple(scores), (culprit,) * len(scores), alerts, alerted, Likelihood(5.0, 10), Likelihood(0.1, 10)
    )


def test_faults_are_found_above_the_level_of_calm_snapshots() -> None:
    fault = LabelledFault(START + timedelta(hours=4), START + timedelta(hours=8), "a/x")
    missed = replace(fault, start=START + timedelta(hours=12), end=START + timedelta(hours=14))
    calm = track(([2.0] * 4 + [0.0] * 10) * 3, alerts=(3,))  # at most one burst may be a false alert
    faulty = track([1.0] * 4 + [9.0] * 4 + [1.0] * 17)
    line = measure("without", [Judged("here", (fault, missed), calm, faulty, True, 0.5)])
    assert line["found at 1/day"][0] == 0.5
    assert line["culprit first at 1/day"][0] == 0.5
    assert line["alerts found"][0] == 0.5
    assert line["false alerts per week"] == pytest.approx(7 * 24 / 41, abs=0.01)
    assert line["nll"] == 0.5
    assert line["tail_nll"] == 10
    wrong = replace(faulty, culprits=("a/y",) * 25)
    assert measure("without", [Judged("here", (fault,), calm, wrong, True, 0)])["culprit first at 1/day"][0] == 0
