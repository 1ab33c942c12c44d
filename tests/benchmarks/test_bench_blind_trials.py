"""The blind trials draw services that have what the trial needs, and judge what verdicts say."""

import numpy as np
import pytest

from benchmarks.bench_blind_trials import is_good, table
from benchmarks.blind_trials.score import TrialScore, score_trial
from benchmarks.blind_trials.trials import BEGIN, HOMES, TRIALS
from benchmarks.calm_again.mesh import CALLS, FRONT_RATE, NAMES, USUAL_RATES, World, snapshots


def trial_score(*, trial: str = "deploy", right: bool = True, is_found: bool = True) -> TrialScore:
    return TrialScore(trial, 1, is_found, right, right, "")


@pytest.mark.parametrize("name", list(TRIALS))
def test_a_trial_changes_the_mesh_and_nothing_before_it(name: str) -> None:
    trial = TRIALS[name](np.random.default_rng(3))
    calm, faulty = World(FRONT_RATE), World(FRONT_RATE)
    trial.scenario(BEGIN - 1, faulty)
    assert faulty == calm
    trial.scenario(BEGIN, faulty)
    assert faulty != calm
    assert bool(trial.answers) == (name not in ("scale-out", "deploy"))


def test_each_service_has_a_namespace() -> None:
    first = next(snapshots(lambda position, world: None, 1, 1, HOMES))
    assert set(first.node_ids) == {f"{HOMES[name]}/{name}" for name in NAMES}


def test_callers_repeat_what_fails_until_it_is_overloaded() -> None:
    world = World(FRONT_RATE, fail=dict.fromkeys(NAMES, 0.0), retries={"cart": 3}, limits={"cart": 40.0})
    rate, call_rate = world.traffic()
    failing = 1 - 40.0 / rate["cart"]
    assert failing > 0.7
    assert rate["cart"] == pytest.approx(USUAL_RATES["cart"] * (1 + failing + failing**2 + failing**3), rel=0.01)
    assert call_rate["web", "cart"] / call_rate["api", "cart"] == pytest.approx(80 * 0.5 / (30 * 0.6), rel=0.01)


def test_calls_that_are_lost_do_not_arrive_and_fail() -> None:
    world = World(FRONT_RATE, fail=dict.fromkeys(NAMES, 0.0), lost={"web": 0.5})
    rate, call_rate = world.traffic()
    assert call_rate["web", "search"] == pytest.approx(80 * CALLS["web"]["search"])
    assert rate["search"] == pytest.approx(call_rate["web", "search"] / 2 + call_rate["api", "search"])
    assert world.failing_calls("web", "search", world.responses(rate)[1]) == 0.5


def test_answers_have_to_be_right_and_planned_changes_calm() -> None:
    assert is_good([trial_score()] * 12)
    assert is_good([trial_score(trial="flood of one caller", right=False), *[trial_score()] * 11])
    assert not is_good([trial_score(trial="flood of one caller", right=False)] * 2 + [trial_score()] * 10)
    assert not is_good([trial_score(is_found=False), *[trial_score()] * 11])
    assert table([trial_score()]).splitlines()[-1].split() == ["all", "1/1", "1/1", "1/1"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DNS of a namespace", "retry storm", "flood of one caller"])
def test_the_service_where_it_began_is_named(name: str) -> None:
    score = score_trial(name, 11)
    assert score.is_found
    assert score.is_service, score.text
    assert score.is_action, score.text
