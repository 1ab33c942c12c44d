"""The page level rises in meshes that are more restless than training's."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from model.incidents.policy import AlertPolicy
from model.incidents.restlessness import DEEPEST, MOST, restlessness

Scores = np.ndarray[Any, np.dtype[np.floating[Any]]]
POLICY, SERVICES, INTERVAL, LEVEL = AlertPolicy(), 300, 15.0, 6.0
NEAR = LEVEL - DEEPEST + 0.5  # near the page level


def rise(scores: Scores, times: Scores | None = None, policy: AlertPolicy = POLICY) -> float:
    when = np.arange(len(scores)) * INTERVAL if times is None else times
    return restlessness(tuple(scores.tolist()), tuple(when.tolist()), LEVEL, policy, SERVICES, INTERVAL)


def with_episodes(count: int, length: int = 5, snapshots: int = 1440) -> Scores:
    """Return the scores of six quiet hours with so many episodes near the page level, evenly spaced."""
    scores = np.ones(snapshots)
    for i in range(count):
        start = 20 + i * (snapshots - 40) // count
        scores[start : start + length] = NEAR
    return scores


def test_a_calm_mesh_and_one_without_history_keep_the_level() -> None:
    assert rise(np.ones(1440)) == 0
    assert rise(with_episodes(10)) == 0
    assert rise(np.zeros(0)) == rise(np.full(2, 20.0)) == 0


def test_the_level_rises_with_the_episodes_up_to_a_decade() -> None:
    rises = [rise(with_episodes(count)) for count in (20, 40, 60)]
    assert 0 < rises[0] < rises[1] < rises[2] <= MOST
    assert rise(with_episodes(100)) == MOST


def test_one_long_history_counts_more_than_a_short_one() -> None:
    long = with_episodes(60, snapshots=2000)
    assert rise(long) > rise(long[:300]) > 0


def test_scores_that_would_not_confirm_an_alert_do_not_count() -> None:
    assert rise(with_episodes(60, length=POLICY.confirm)) == 0
    assert rise(with_episodes(60, length=POLICY.confirm + POLICY.doubtful)) > 0


def test_snapshots_near_an_alert_do_not_count() -> None:
    scores = with_episodes(60)
    times = np.arange(len(scores)) * INTERVAL
    starts = np.flatnonzero(np.diff(scores) < 0) + 1  # an alert follows each episode
    for start in starts:
        times[start:] += 10 * INTERVAL
    assert rise(scores) > 0
    assert rise(scores, times) == 0


def test_a_large_budget_is_not_changed_by_what_it_allows() -> None:
    assert rise(with_episodes(60), policy=AlertPolicy(false_pages_per_day=500.0)) == 0


@given(st.lists(st.floats(0, 30), max_size=60), st.floats(0.1, 1000), st.floats(1, 3600), st.integers(1, 5000))
def test_the_rise_is_between_0_and_a_decade(scores: list[float], budget: float, interval: float, services: int) -> None:
    policy = AlertPolicy(false_pages_per_day=budget)
    level = policy.page_level(services, interval)
    times = tuple(interval * i for i in range(len(scores)))
    assert 0 <= restlessness(tuple(scores), times, level, policy, services, interval) <= MOST


def test_the_interval_of_the_mesh_says_how_many_snapshots_confirm() -> None:
    scores = with_episodes(120, length=2)
    assert rise(scores) == 0
    times = tuple(60.0 * i for i in range(len(scores)))
    assert restlessness(tuple(scores.tolist()), times, LEVEL, POLICY, SERVICES, 60.0) > 0  # two of three
