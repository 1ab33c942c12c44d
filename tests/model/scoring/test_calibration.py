from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.features import Array
from model.scoring.calibration import (
    EXPLAINED_AT_MOST,
    RATE_WEIGHT,
    SURPRISE_LIMIT,
    SeriesTail,
    Tail,
    explained_share,
)
from model.state.change_impact import ABOVE, BEGUN, BESIDE, EXCESS, EXPOSURES, OWN, SEEN, UNEXPOSED, no_impact
from model.state.filters import SCALES, TAIL_START, Deviation

LOOKS = np.log10(SCALES)  # decades subtracted because every time scale is tested


def alike(rate: float, mean_excess: float, shape: float) -> Tail:
    """Return the same tail for all exposures and scales."""
    return Tail(*(np.full((EXPOSURES, SCALES, 1), x, np.float32) for x in (rate, mean_excess, shape)))


TAIL = alike(0.02, 0.8, 0.15)


def past(seen: float = 500, count: float = 0.0, total: float = 0.0, rows: int = 1) -> Deviation:
    """Return a past with the values that calibration reads; the rest is normal."""
    zero = np.zeros((rows, 1), np.float32)
    known = np.ones((rows, 1), bool)

    def filled(x: float) -> Array:
        return np.full((SCALES, rows, 1), x, np.float32)

    return Deviation(
        now=zero,
        past_short=zero,
        past_long=zero,
        level=filled(0),
        observed=known,
        value=zero,
        expected=zero,
        spread=zero + 1,
        seen=filled(seen)[0],
        exceed_count=filled(count),
        exceed_sum=filled(total),
    )


def surprise(
    *levels: float, tail: Tail = TAIL, exposure: int = UNEXPOSED, impact: Array | None = None, **history: float
) -> Array:
    rows = len(levels)
    column = np.broadcast_to(np.array(levels, np.float32)[:, None], (SCALES, rows, 1))
    series = SeriesTail(
        tail, past(rows=rows, **history), np.full(rows, exposure), no_impact(1) if impact is None else impact
    )
    return series.surprise(column)[:, 0]


@given(
    st.floats(1e-4, 0.5), st.floats(0.05, 5), st.floats(0, 0.4), st.floats(0, 2000), st.floats(0, 30), st.floats(0, 5)
)
def test_surprise_rises_with_the_level(
    rate: float, mean: float, shape: float, seen: float, count: float, excess: float
) -> None:
    tail = alike(rate, mean, shape)
    surprises = surprise(*np.linspace(0, 60, 400), tail=tail, seen=seen, count=count, total=count * excess)
    assert (np.diff(surprises) >= 0).all()
    assert surprises[0] == 0
    assert surprises[-1] <= SURPRISE_LIMIT


def test_surprise_is_continuous_where_the_tail_starts() -> None:
    below, here, above = surprise(TAIL_START - 1e-4, TAIL_START, TAIL_START + 1e-4)
    assert here == pytest.approx(below, abs=1e-3)
    assert here == pytest.approx(above, abs=1e-3)


def test_at_the_start_of_the_tail_surprise_follows_from_its_rate() -> None:
    assert surprise(TAIL_START, seen=0)[0] == pytest.approx(-np.log10(0.02) - LOOKS, abs=1e-5)


def test_the_rate_of_a_series_moves_from_the_shipped_rate_to_its_own() -> None:
    own = 0.1
    surprises = [
        float(surprise(TAIL_START, seen=seen, count=own * seen, total=own * seen * 0.8)[0])
        for seen in (0, 50, 200, RATE_WEIGHT)
    ]
    assert (np.diff(surprises) < 0).all()
    assert surprises[0] == pytest.approx(-np.log10(0.02) - LOOKS, abs=1e-5)
    half = (own * RATE_WEIGHT + 0.02 * RATE_WEIGHT) / (2 * RATE_WEIGHT)
    assert surprises[3] == pytest.approx(-np.log10(half) - LOOKS, abs=1e-5)


def test_a_series_that_often_deviates_is_less_unusual() -> None:
    calm, wild = surprise(6.0, count=60, total=60 * 0.5)[0], surprise(6.0, count=60, total=60 * 3.0)[0]
    assert wild < calm - 0.5


def test_unobserved_values_have_no_surprise() -> None:
    half = replace(past(rows=2), observed=np.array([[True], [False]]))
    series = SeriesTail(TAIL, half, np.full(2, UNEXPOSED), no_impact(1))
    surprises = series.surprise(np.full((SCALES, 2, 1), 20, np.float32))
    assert surprises[0] > 3
    assert surprises[1] == 0


@given(st.floats(-30, 30), st.floats(-30, 30))
def test_explained_share_is_bounded(deviation: float, expected: float) -> None:
    share = float(explained_share(np.array([[deviation]], np.float32), np.array([[expected]], np.float32))[0, 0])
    assert 0 <= share <= np.float32(EXPLAINED_AT_MOST)
    if deviation * expected <= 0:
        assert share == 0


def test_explained_share_is_the_projection_of_the_expectation() -> None:
    share = explained_share(np.array([[10.0, 10.0, 0.1]], np.float32), np.array([[3.0, 20.0, 0.1]], np.float32))
    np.testing.assert_allclose(share, [[30 / 101, EXPLAINED_AT_MOST, 0.01 / 1.01]], rtol=1e-5)


def test_the_most_unusual_time_scale_counts() -> None:
    series = SeriesTail(TAIL, past(), np.full(1, UNEXPOSED), no_impact(1))
    for levels in np.eye(SCALES, dtype=np.float32)[..., None, None]:
        assert series.surprise(8 * levels) == surprise(8.0)[0]


@pytest.mark.parametrize("exposure", [BESIDE, OWN])
def test_near_a_change_the_shipped_tail_of_changes_counts_and_the_past_of_the_series_does_not(exposure: int) -> None:
    tail = alike(0.001, 0.8, 0.15)
    tail.rate[exposure] = 0.1
    calm, near = (
        surprise(TAIL_START, tail=tail, seen=0)[0],
        surprise(TAIL_START, tail=tail, seen=0, exposure=exposure)[0],
    )
    assert calm - near == pytest.approx(2.0, abs=1e-4)
    assert surprise(TAIL_START, tail=tail, exposure=exposure, seen=1000, count=300, total=900)[0] == near


def test_effects_of_past_changes_are_less_unusual_near_the_next_change() -> None:
    hard = no_impact(1)
    hard[[SEEN, BEGUN, ABOVE, EXCESS], OWN] = np.array([5000, 500, 2500, 20000], np.float32)[:, None, None]
    mild, used_to = (surprise(12.0, exposure=OWN, impact=impact)[0] for impact in (no_impact(1), hard))
    assert used_to < mild - 2
    assert surprise(12.0, exposure=BESIDE, impact=hard)[0] == mild
    assert surprise(12.0, impact=hard, seen=0)[0] == surprise(12.0, seen=0)[0]
