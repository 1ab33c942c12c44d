from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.features import Array, Channel
from model.scoring.calibration import EXPLAINED_AT_MOST, RATE_WEIGHT, SURPRISE_LIMIT, Tail, TailCounts, explained_share
from model.state.change_impact import ABOVE, BEGUN, BESIDE, EXCESS, EXPOSURES, OWN, SEEN, UNEXPOSED, no_impact
from model.state.filters import SCALES, SLOTS, TAIL_START, Deviation, new_filters, update_filters

LOOKS = np.log10(SCALES)  # decades subtracted because every time scale is tested


def alike(rate: float, mean_excess: float, shape: float) -> Tail:
    """Return the same tail for all exposures and scales."""
    return Tail(*(np.full((EXPOSURES, SCALES, 1), x, np.float32) for x in (rate, mean_excess, shape)))


TAIL = alike(0.02, 0.8, 0.15)
CHANNEL = Channel("x", "1", "log", 1.0, floor=0.02, prior=0.2)


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
    series = tail.of(past(rows=rows, **history), np.full(rows, exposure), no_impact(1) if impact is None else impact)
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
    series = TAIL.of(half, np.full(2, UNEXPOSED), no_impact(1))
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
    series = TAIL.of(past(), np.full(1, UNEXPOSED), no_impact(1))
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


def counted(*excesses: Array, seen: int, exposure: int = UNEXPOSED, scale: int = 0) -> list[TailCounts]:
    """Count meshes in which one channel exceeds the start of the tail by these excesses at one time scale."""
    meshes = []
    for excess in excesses:
        rows = len(excess)
        level = np.zeros((SCALES, rows, 1), np.float32)
        level[scale, :, 0] = TAIL_START + excess
        mesh = TailCounts(1)
        mesh.add(replace(past(rows=rows), level=level), np.full(rows, exposure), np.ones(rows, bool))
        mesh.tally[SEEN] = seen
        meshes.append(mesh)
    return meshes


def pareto(shape: float, scale: float, count: int = 40_000) -> Array:
    u = np.random.default_rng(0).random(count)
    return (scale / shape * (u**-shape - 1)).astype(np.float32)


@pytest.mark.parametrize("shape", [0.1, 0.2, 0.35])
def test_the_shape_of_a_generalised_pareto_is_recovered(shape: float) -> None:
    fitted = Tail.of_meshes(counted(pareto(shape, 0.7), seen=2_000_000))
    assert fitted.shape[UNEXPOSED, 0, 0] == pytest.approx(shape, abs=0.03)
    assert fitted.mean_excess[UNEXPOSED, 0, 0] == pytest.approx(0.7 / (1 - shape), rel=0.05)
    assert fitted.rate[UNEXPOSED, 0, 0] == pytest.approx(0.02, rel=0.01)


def test_the_typical_mesh_counts_and_a_wild_one_makes_no_tail_heavy() -> None:
    calm = [pareto(0.1, 0.5, 2000)] * 4
    fitted = Tail.of_meshes(counted(*calm, pareto(0.1, 6.0, 9000), seen=100_000))
    assert fitted.mean_excess[UNEXPOSED, 0, 0] == pytest.approx(calm[0].mean(), rel=1e-3)
    assert fitted.shape[UNEXPOSED, 0, 0] == pytest.approx(0.1, abs=0.05)


def test_tails_thinner_than_exponential_are_treated_as_exponential() -> None:
    uniform = np.random.default_rng(0).random(10_000).astype(np.float32)
    fitted = Tail.of_meshes(counted(uniform, seen=100_000, exposure=OWN, scale=1))
    assert fitted.shape[OWN, 1, 0] == 0


def test_too_few_excesses_keep_a_cautious_shape() -> None:
    fitted = Tail.of_meshes(counted(np.ones(9, np.float32), np.ones(40, np.float32), seen=0))
    np.testing.assert_allclose(fitted.shape, 0.2)
    assert (fitted.rate > 0).all()
    assert np.isfinite(fitted.mean_excess).all()


def test_normal_noise_exceeds_levels_at_the_stated_rate() -> None:
    """Heavy-tailed noise (Student's t, 3 degrees) is calibrated on other snapshots of the same noise.

    Then levels with a probability of 10^-s occur about as often as that. The calibrated rate counts spells. Some spells
    last several snapshots, so a level may occur up to three times as often.
    """
    channels, rows = (CHANNEL,), 400
    rng = np.random.default_rng(7)
    filters = new_filters(rows, np.zeros((SLOTS, 0, 1), np.float32), channels)
    measured, quiet = np.ones((rows, 1), bool), np.zeros((rows, 1), np.float32)
    nothing = np.zeros(rows, bool)  # neither muted nor paused

    def see(filters: Array) -> tuple[Deviation, Array]:
        value = (0.07 * rng.standard_t(3, (rows, 1))).astype(np.float32)
        return update_filters(filters, value, measured, quiet, nothing, nothing, channels)

    counts = TailCounts(1)
    for t in range(700):
        deviation, filters = see(filters)
        if t >= 300:
            counts.add(deviation, np.full(rows, UNEXPOSED), np.ones(rows, bool))
    tail = Tail.of_meshes([counts])
    surprises = []
    for _ in range(600):
        deviation, filters = see(filters)
        series = tail.of(deviation, np.full(rows, UNEXPOSED), no_impact(1))
        surprises.append(series.surprise(np.maximum(deviation.level, 0)))
    observed = np.stack(surprises)
    for decades in (1.5, 2.0, 2.5, 3.0):
        share = float((observed > decades).mean())
        assert 10**-decades / 2 < share < 10**-decades * 3, (decades, share)
