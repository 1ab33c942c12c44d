"""One score and one threshold decide about an alert."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.incidents.policy import AlertPolicy
from model.incidents.threshold import (
    LASTING_DECADES,
    MARGIN,
    MAX_ABOVE,
    MOVES_PER_HOUR,
    REMEMBERED,
    SEVERE,
    Track,
    Tracks,
    began,
    decisive_scores,
    follow_scores,
    forget,
    next_threshold,
)
from tests.builders import START
from tests.model.model_cases import at

POLICY = AlertPolicy()
LEVEL = 6.0
WATCHED = LEVEL - LASTING_DECADES
NAME = "a/s0"
NOW = START.timestamp()
some_scores = st.lists(st.floats(0, 30), min_size=1, max_size=20)


def follow(*scores: float, policy: AlertPolicy = POLICY, threshold: float = LEVEL) -> Tracks:
    """Return the tracks after snapshots with these page scores, the oldest first."""
    tracks: Tracks = {}
    for i, score in enumerate(scores):
        tracks = follow_scores(tracks, (NAME,), np.array([score], np.float32), threshold, policy, at(i))
    return tracks


def decisive(*scores: float, policy: AlertPolicy = POLICY, may_last: bool = True) -> float:
    """Return the decisive score after snapshots with these page scores, the oldest first."""
    return float(decisive_scores(follow(*scores, policy=policy), (NAME,), policy, np.array([may_last]))[0])


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], 0.0),
        ([9.0] * 3, 6.0),  # 3 of 4, 1.5 times as high
        ([9.0] * 2, 0.0),
        ([9.0, 9.0, 0.0, 9.0], 6.0),
        ([9.0, 0.0, 0.0, 9.0, 9.0], 0.0),  # only two of the last four
        ([20.0, 20.0, 9.0], 6.0),  # now, and then
        ([7.0, 7.0, 30.0], 7.0),  # not only now
        ([7.0] * 5, 7.0),  # 5 of 6
        ([7.0] * 4, 7.0 / SEVERE),
        ([7.0, 0.0, 7.0, 7.0, 7.0, 7.0], 7.0),
        ([7.0, 0.0, 7.0, 0.0, 7.0, 7.0, 7.0], 7.0 / SEVERE),
        ([7.0, 8.0, 9.0, 9.5, 10.0], 7.0),  # the fifth of them
        ([10.0, 9.5, 9.0, 8.0, 7.0], 7.0),  # now
        ([4.0] * 12, 4.0 + LASTING_DECADES),  # 12 of 16
        ([4.0] * 11, 4.0),
        ([4.0] * 6 + [0.0] * 4 + [4.0] * 6, 4.0 + LASTING_DECADES),
        ([4.0] * 6 + [0.0] * 5 + [4.0] * 6, 4.0),
        ([4.0] * 12 + [3.0], 3.0 + LASTING_DECADES),
        ([3.0] + [4.0] * 11, 3.0 + LASTING_DECADES),
        ([12.0] * 16, 12.0 + LASTING_DECADES),
    ],
)
def test_the_decisive_score_is_the_page_score_of_now_and_of_most_of_the_last_snapshots(
    scores: list[float], expected: float
) -> None:
    assert decisive(*scores) == pytest.approx(expected)


@pytest.mark.parametrize("before", [[12.0] * 4, [12.0] * 15])
def test_a_service_that_is_usual_now_has_no_decisive_score(before: list[float]) -> None:
    assert decisive(*before, 0.0) == 0
    assert decisive(*before, 1.0, may_last=False) == 1.0


def test_the_duration_of_some_deviations_does_not_count() -> None:
    """Resources that harm no one, and rollouts."""
    assert decisive(*[4.0] * 16, may_last=False) == pytest.approx(4.0)
    assert decisive(*[9.0] * 3, may_last=False) == pytest.approx(6.0)


def test_a_policy_of_fewer_snapshots_needs_fewer() -> None:
    minute = POLICY.at_interval(60.0)
    assert (minute.confirm, minute.confirm_of, minute.doubtful) == (2, 3, 0)
    assert decisive(7.0, 0.0, 7.0, policy=minute) == pytest.approx(7.0)
    assert decisive(7.0, policy=minute) == 0


def test_services_have_scores_of_their_own_and_others_have_none() -> None:
    tracks: Tracks = {}
    for i in range(5):
        tracks = follow_scores(tracks, ("a", "b"), np.array([7.0, 9.0], np.float32), LEVEL, POLICY, at(i))
    found = decisive_scores(tracks, ("b", "c", "a"), POLICY, np.ones(3, bool))
    assert found.tolist() == pytest.approx([9.0, 0.0, 7.0])
    assert decisive_scores(tracks, (), POLICY, np.ones(0, bool)).tolist() == []


@given(some_scores, st.integers(0, 19), st.floats(0, 10), st.booleans())
def test_a_higher_page_score_never_lowers_the_decisive_score(
    scores: list[float], place: int, more: float, may_last: bool
) -> None:
    higher = scores.copy()
    higher[place % len(scores)] += more
    assert decisive(*higher, may_last=may_last) >= decisive(*scores, may_last=may_last)


@given(some_scores)
def test_the_decisive_score_is_at_most_the_newest_one_and_the_decades_for_its_duration(scores: list[float]) -> None:
    newest = scores[-1] + 0.0051  # tracks keep two digits
    assert decisive(*scores) <= newest + LASTING_DECADES
    assert decisive(*scores, may_last=False) <= newest


def test_a_track_has_the_newest_scores_first_and_only_as_many_as_count() -> None:
    (track,) = follow(*range(3, 30)).values()
    assert track.scores == tuple(float(score) for score in range(29, 29 - POLICY.lasting_of, -1))


def test_a_service_is_remembered_from_a_score_worth_it_until_all_of_them_are_low() -> None:
    assert follow(REMEMBERED - 0.1) == {}
    tracks = follow(REMEMBERED)
    for i in range(1, POLICY.lasting_of):
        tracks = follow_scores(tracks, (), np.zeros(0, np.float32), LEVEL, POLICY, at(i))
        assert tracks[NAME].scores == (*[0.0] * i, REMEMBERED), "a service that is no candidate scores 0"
    assert follow_scores(tracks, (), np.zeros(0, np.float32), LEVEL, POLICY, at(16)) == {}


def test_the_argument_is_unchanged() -> None:
    before = follow(7.0, 7.0)
    copy = dict(before)
    follow_scores(before, (NAME, "b"), np.array([8.0, 9.0], np.float32), LEVEL, POLICY, at(2))
    forget(before, [NAME])
    assert before == copy


def test_tracks_of_some_services_are_forgotten() -> None:
    tracks = follow(7.0) | {"b": Track((7.0,), at(0))}
    assert forget(tracks, [NAME, "c"]) == {"b": tracks["b"]}
    assert forget(tracks, ["c"]) is tracks


U, A = WATCHED, LEVEL  # unusual, and above the threshold
LATELY = POLICY.confirm_of + POLICY.doubtful


@pytest.mark.parametrize(
    ("scores", "unusual", "above"),
    [
        ([A], 0, 0),
        ([U], 0, None),
        ([A - 0.01], 0, None),
        ([U, U, A], 0, 2),
        ([A, A, U], 0, 0),
        ([A, *[U] * (LATELY - 1)], 0, 0),  # a streak lasts while one of the last scores was above
        ([A, *[U] * LATELY], 0, None),
        ([A, *[U] * LATELY, A], 0, LATELY + 1),
        ([U, *[0.0] * (LATELY - 1), U], 0, None),
        ([U, *[0.0] * LATELY, U], LATELY + 1, None),
        ([REMEMBERED, U], 1, None),  # remembered, but not unusual before
    ],
)
def test_a_streak_has_its_beginning_and_ends_after_several_low_scores(
    scores: list[float], unusual: int, above: int | None
) -> None:
    (track,) = follow(*scores).values()
    assert track.unusual_since == at(unusual)
    assert track.above_since == (None if above is None else at(above))


def test_a_track_counts_the_scores_at_or_above_a_level() -> None:
    track = Track((5.0, 6.0, 4.0, 6.0), START)
    assert [track.times_above(6.0, n) for n in (1, 2, 3, 4, 9)] == [0, 1, 1, 2, 2]


def beginning(*scores: float) -> datetime:
    return began(follow(*scores), NAME, LEVEL, POLICY, at(len(scores) - 1), 15.0)


@pytest.mark.parametrize(
    ("scores", "index"),
    [
        ([0.0, 9.0, 9.0, 9.0], 1),
        ([U, U, 9.0, 9.0, 9.0], 2),  # moderate ones do not count before they last
        ([0.0, 0.0, *[U] * 12], 2),
        ([0.0, U, *[0.0] * 3, *[U] * 11], 1),
        ([0.0, *[U] * 11, 9.0], 1),  # it lasts, and became strong
        ([*[U] * 11], 10),  # not yet: now
        ([*[U] * 20], 4),  # the oldest that counts
        ([9.0] * 20, 0),  # longer ago than the scores that count
    ],
)
def test_a_deviation_began_with_the_first_snapshot_above_or_the_first_that_counts_as_lasting(
    scores: list[float], index: int
) -> None:
    assert beginning(*scores) == at(index)


def test_a_service_without_a_track_begins_now() -> None:
    assert began({}, NAME, LEVEL, POLICY, at(7), 15.0) == at(7)


def threshold(
    scores: Sequence[float], before: tuple[float, float] | None = None, *, base: float = LEVEL, seconds: float = 15.0
) -> float:
    """Return the threshold so many seconds after the one before."""
    return next_threshold(base, np.array(scores, np.float64), before, POLICY, NOW + seconds)


def test_without_scores_the_threshold_is_what_the_budget_asks_for() -> None:
    assert threshold([]) == LEVEL
    assert threshold([1.0] * 100) == LEVEL, "a calm mesh does not lower it"


def test_the_threshold_is_a_margin_above_the_percentile_of_the_mesh_s_own_scores() -> None:
    scores = np.linspace(0, 4.5, 101)
    percentile = 0.99 * 4.5
    assert threshold(scores.tolist()) == pytest.approx(percentile + MARGIN)
    assert LEVEL < percentile + MARGIN < LEVEL + MAX_ABOVE
    assert threshold([LEVEL - MARGIN] * 9) == pytest.approx(LEVEL), "up to that, nothing rises"


def test_the_mesh_s_own_scores_raise_the_threshold_by_a_decade_at_most() -> None:
    assert threshold([40.0] * 100) == LEVEL + MAX_ABOVE
    assert threshold([40.0] * 100, base=3.0) == 3.0 + MAX_ABOVE


def test_after_the_first_hour_the_threshold_moves_by_a_fifth_in_an_hour() -> None:
    restless, calm = [40.0] * 100, [0.0] * 100
    quarter = MOVES_PER_HOUR / 4
    assert threshold(restless, (LEVEL, NOW), seconds=900) == pytest.approx(LEVEL * (1 + quarter))
    assert threshold(calm, (LEVEL + 1, NOW), seconds=900) == pytest.approx((LEVEL + 1) * (1 - quarter))
    assert threshold(restless, (LEVEL, NOW), seconds=0) == LEVEL
    assert threshold(restless, (LEVEL, NOW), seconds=-900) == LEVEL, "a clock that goes back moves nothing"
    assert threshold(restless, (LEVEL, NOW), seconds=3600) == LEVEL + MAX_ABOVE
    assert threshold(restless, seconds=0) == LEVEL + MAX_ABOVE, "in the first hour it follows at once"


def test_an_anomaly_of_minutes_hardly_moves_the_threshold() -> None:
    level = LEVEL
    for i in range(40):
        scores = np.array([*[1.0] * 40, *[20.0] * i], np.float64)
        level = next_threshold(LEVEL, scores, (level, NOW + 15 * i), POLICY, NOW + 15 * (i + 1))
    assert LEVEL < level < LEVEL * (1 + MOVES_PER_HOUR / 4)


def test_the_threshold_follows_another_budget_at_once() -> None:
    calm = [0.0] * 100
    assert threshold(calm, (LEVEL, NOW), base=LEVEL + 3) == LEVEL + 3
    assert threshold(calm, (LEVEL + 3, NOW), base=LEVEL - 3) == LEVEL - 3 + MAX_ABOVE


@given(
    st.lists(st.floats(0, 50), max_size=30),
    st.one_of(st.none(), st.tuples(st.floats(-5, 20), st.floats(NOW - 1e5, NOW))),
    st.floats(-5, 12),
)
def test_the_threshold_is_between_the_budget_s_and_a_decade_more(
    scores: list[float], before: tuple[float, float] | None, base: float
) -> None:
    assert base <= threshold(scores, before, base=base) <= base + MAX_ABOVE
