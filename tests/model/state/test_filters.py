"""The filters of one channel, with inputs made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from model.features import Channel
from model.state.filters import (
    BOUND,
    CENTRE,
    CLIP,
    EXCEED_COUNT,
    EXCEED_SUM,
    EXCESS_LIMIT,
    LIMIT,
    LONG,
    LONG_SCALE,
    PRIOR_WEIGHT,
    SCALES,
    SEEN,
    SHORT,
    SLOW_CENTRE,
    SLOW_VARIANCE,
    SUPPORT,
    TAIL_MEMORY,
    TAIL_START,
    VARIANCE,
    YOUNG,
    accept_level,
    new_filters,
    temper_young,
)
from tests.model.filter_cases import CHANNEL, SIGMA, Series


def test_centre_and_spread_of_normal_noise_are_found() -> None:
    series = Series(200).settle(800)
    assert series.slot(SLOW_CENTRE).mean() == pytest.approx(0.0, abs=0.01)
    assert np.sqrt(series.slot(SLOW_VARIANCE)).mean() == pytest.approx(SIGMA, rel=0.15)
    assert np.sqrt(series.slot(VARIANCE)).mean() == pytest.approx(SIGMA, rel=0.15)


@pytest.mark.parametrize("sigmas", [-6.0, 3.0, 10.0])
def test_a_step_is_measured_in_sigmas(sigmas: float) -> None:
    series = Series(200).settle()
    deviation = series.see(SIGMA * sigmas)
    np.testing.assert_allclose(deviation.now, (deviation.value - deviation.expected) / deviation.spread, rtol=1e-5)
    assert np.median(deviation.now) == pytest.approx(sigmas, rel=0.2)


def test_deviations_of_normal_noise_are_about_standard_normal() -> None:
    series = Series(400).settle(300)
    now = np.concatenate([series.see(*(SIGMA * z)).now for z in np.random.default_rng(1).standard_normal((20, 400))])
    # Slightly below one: a pair gives the smaller of two deviations, and zero if their signs differ.
    assert 0.7 < now.std() <= 1.05
    assert abs(now.mean()) < 0.05


def test_the_first_value_is_no_deviation_but_the_centre() -> None:
    series = Series()
    first = series.see(5.0)
    assert (first.now, first.observed) == (0, False)
    assert series.slot(CENTRE) == series.slot(SLOW_CENTRE) == 5.0
    assert series.see(5.0).observed


def test_deviations_are_cut_at_the_limit() -> None:
    assert Series().settle(100).see(1e4).now == LIMIT
    assert Series().settle(100).see(-1e4).now == -LIMIT


def test_a_paused_series_learns_from_usual_values_only() -> None:
    series = Series(50).settle()
    before = series.filters.copy()
    for _ in range(50):
        series.see(10 * SIGMA, paused=True)
    np.testing.assert_array_equal(series.filters[CENTRE : SLOW_VARIANCE + 1], before[CENTRE : SLOW_VARIANCE + 1])
    for _ in range(50):
        series.see(SIGMA, paused=True)
    assert (series.filters[CENTRE] > before[CENTRE]).all()


def test_an_outlier_moves_the_baseline_no_more_than_two_sigmas_would() -> None:
    gross, mild = Series(50).settle(), Series(50).settle()
    spread = gross.see(100.0).spread
    before = mild.slot(CENTRE).copy()
    mild.see(*(before + CLIP * spread[:, 0] * 1.001))
    # Innovations are clipped at the spread of the fast pair. The reported spread is the nearer pair's, so they differ.
    np.testing.assert_allclose(gross.slot(CENTRE), mild.slot(CENTRE), atol=0.02 * SIGMA)
    assert (np.abs(gross.slot(CENTRE) - before) < 0.15 * SIGMA).all()
    assert (gross.slot(VARIANCE) < 1.5 * SIGMA**2 * CLIP).all()


def test_after_an_outlier_the_next_value_is_normal() -> None:
    series = Series(50).settle()
    series.see(100.0)
    assert (np.abs(series.see(0.0).now) < 1.5).all()


def test_a_lasting_shift_is_absorbed_fast_and_remembered_slowly() -> None:
    series = Series(50).settle()
    shifted = [float(np.median(series.see(5 * SIGMA).now)) for _ in range(80)]
    assert shifted[0] > 4
    assert shifted[40] < 0.5 * shifted[0]
    assert shifted[79] < 1.0
    # Back at the first level: the slow baseline still remembers it, so it is not unusual.
    assert np.median(np.abs(series.see(0.0).now)) < 3.0


def test_a_service_that_alternates_between_two_levels_becomes_normal_at_both() -> None:
    series = Series()
    last = [series.see(level).now for _ in range(40) for level in ([0.0] * 10 + [1.0] * 10)][-20:]
    assert np.abs(last).max() < 2.5


def test_sampling_noise_widens_the_spread() -> None:
    calm, counted = Series(50).settle(), Series(50).settle()
    few = counted.see(5 * SIGMA, noise=1.0)
    many = calm.see(5 * SIGMA, noise=1e-6)
    assert (few.spread > 0.99).all()
    assert (few.now < 0.6).all()
    assert np.median(many.now) > 4


def test_a_young_series_uses_the_prior() -> None:
    series = Series()
    series.see(0.0)
    # One value counts for one part in PRIOR_WEIGHT; the centre is as uncertain as the value.
    variance = 0.2**2 * (1 - 1 / PRIOR_WEIGHT) + CHANNEL.floor**2
    assert series.see(0.5).spread == pytest.approx(np.sqrt(2 * variance), rel=1e-5)


def test_a_young_series_uses_the_mean_of_the_mesh_if_known() -> None:
    known = Series(10).settle(400)
    young = new_filters(3, known.filters, known.channels)
    np.testing.assert_allclose(young[VARIANCE], np.median(known.slot(SLOW_VARIANCE)))
    assert (new_filters(3, Series(10).filters, known.channels)[VARIANCE] == np.float32(CHANNEL.prior**2)).all()


def test_the_spread_has_a_floor() -> None:
    series = Series()
    for _ in range(500):
        series.see(1.0)
    deviation = series.see(1.0 + CHANNEL.floor)
    assert CHANNEL.floor <= deviation.spread < 1.2 * CHANNEL.floor
    assert 0.8 < deviation.now <= 1.0


def test_unmeasured_values_change_no_baseline_and_pause_the_filter() -> None:
    series = Series().settle(100)
    series.see(1.0)
    before = series.filters.copy()
    deviation = series.see(77.0, measured=False)
    assert (deviation.now, deviation.observed) == (0, False)
    for slot in (CENTRE, VARIANCE, SLOW_CENTRE, SLOW_VARIANCE, SEEN):
        np.testing.assert_array_equal(series.filters[slot], before[slot])
    assert series.slot(SHORT) == before[SHORT, 0, 0] > 0
    assert series.slot(LONG) == before[LONG, 0, 0] > 0


def test_trajectories_average_over_4_and_16_snapshots() -> None:
    series = Series().settle(200)
    short, long = float(series.slot(SHORT)[0]), float(series.slot(LONG)[0])
    deviation = series.see(0.3)
    now = float(deviation.now[0, 0])
    assert 1 < now < BOUND
    assert series.slot(SHORT) == pytest.approx(short + (now - short) / 4, rel=1e-5)
    assert series.slot(LONG) == pytest.approx(long + (now - long) / 16, rel=1e-5)
    assert (deviation.past_short, deviation.past_long) == (short, long)


def test_the_trajectories_bound_short_large_deviations() -> None:
    series = Series().settle(200)
    short, long = float(series.slot(SHORT)[0]), float(series.slot(LONG)[0])
    assert series.see(1e4).now == LIMIT
    assert series.slot(SHORT) == pytest.approx(short + (BOUND - short) / 4, rel=1e-5)
    assert series.slot(LONG) == pytest.approx(long + (BOUND - long) / 16, rel=1e-5)


def test_longer_time_scales_react_later_to_a_lasting_deviation() -> None:
    series = Series(50).settle()
    levels = np.stack([np.median(series.see(2.5 * SIGMA).level, axis=(1, 2)) for _ in range(16)])
    assert [int(levels[i].argmax()) for i in (0, 3, 15)] == [0, 1, 2]
    assert levels[15, 2] > levels[3, 2] > levels[0, 2]


def test_the_average_over_four_ignores_one_slow_snapshot_and_is_far_in_the_tail_after_three() -> None:
    once = Series(50).settle().see(20 * SIGMA).level
    series = Series(50).settle()
    for _ in range(3):
        thrice = series.see(20 * SIGMA).level
    assert np.median(once[0]) > 5 * TAIL_START
    assert np.median(once[1]) < 1.2 * TAIL_START
    assert np.median(thrice[1]) > 2 * TAIL_START


def test_a_deviation_that_ended_is_no_anomaly_even_if_averages_are_high() -> None:
    series = Series(50).settle()
    for _ in range(6):
        during = series.see(8 * SIGMA)
    after = series.see(0.0)
    assert (during.level > TAIL_START).all()
    assert (series.slot(SHORT) > 1).all()
    assert (after.level < 1).all()


def test_the_average_over_sixteen_counts_only_while_the_average_over_four_confirms_it() -> None:
    """Else it would come back at the first high value after the deviation has ended."""
    series = Series(50).settle()
    for _ in range(30):
        series.see(4 * SIGMA, paused=True)
    for _ in range(20):
        series.see(0.0, paused=True)
    again = series.see(0.6 * SIGMA, paused=True)
    remembered = np.median(series.slot(LONG))
    assert np.median(again.now) > SUPPORT * remembered, "this value alone would confirm it"
    assert remembered * LONG_SCALE > 1.5 * TAIL_START
    assert np.median(again.level[2]) < TAIL_START
    for _ in range(4):
        lasting = series.see(3 * SIGMA, paused=True)
    assert np.median(lasting.level[2]) > 2 * TAIL_START, "four such values confirm it"


def test_a_spell_in_the_tail_counts_once() -> None:
    series = Series().settle(300)
    before = float(series.slot(EXCEED_COUNT)[0, 0])
    for _ in range(5):
        series.see(8 * SIGMA)
    assert series.slot(EXCEED_COUNT)[0, 0] - before == pytest.approx(1.0, abs=0.02)


def test_two_spells_apart_count_twice() -> None:
    series = Series().settle(300)
    before = float(series.slot(EXCEED_COUNT)[0, 0])
    for _ in range(2):
        series.see(20 * SIGMA)
        for _ in range(30):
            series.see(0.0)
    forgotten = before * (1 - (1 - 1 / TAIL_MEMORY) ** 62)
    assert series.slot(EXCEED_COUNT)[0, 0] - before + forgotten == pytest.approx(2.0, abs=0.1)


def test_a_gross_exceedance_counts_for_no_more_than_the_limit() -> None:
    series = Series().settle(300)
    before = float(series.slot(EXCEED_SUM)[0, 0])
    series.see(1e6)
    assert series.slot(EXCEED_SUM)[0, 0] - before == pytest.approx(EXCESS_LIMIT, abs=0.01)


def test_the_tail_does_not_learn_from_rows_in_an_open_incident() -> None:
    series = Series().settle(300)
    before = series.filters.copy()
    series.see(20 * SIGMA, muted=True)
    for slots in (EXCEED_COUNT, EXCEED_SUM):
        np.testing.assert_array_equal(series.filters[slots], before[slots])
    series.see(-20 * SIGMA)
    faded = before[EXCEED_COUNT, ..., 0] * (1 - 1 / TAIL_MEMORY)
    np.testing.assert_allclose(series.slot(EXCEED_COUNT), faded, rtol=1e-5)


def test_a_deviation_has_the_tail_before_the_update() -> None:
    series = Series().settle(300)
    before = series.filters.copy()
    deviation = series.see(20 * SIGMA)
    np.testing.assert_array_equal(deviation.exceed_count, before[EXCEED_COUNT])
    np.testing.assert_array_equal(deviation.exceed_sum, before[EXCEED_SUM])
    np.testing.assert_array_equal(deviation.seen, before[SEEN])
    assert series.slot(EXCEED_COUNT)[0] > before[EXCEED_COUNT, 0, 0][0]


def test_a_fall_counts_for_traffic_only() -> None:
    two_sided = Channel("rate", "1/s", "log", 1.0, 0.02, 0.2, two_sided=True)
    rate, time = Series(channel=two_sided).settle(), Series().settle()
    fallen = rate.see(-5 * SIGMA).level, time.see(-5 * SIGMA).level
    assert fallen[0].shape == (SCALES, 1, 1)
    np.testing.assert_array_equal(fallen[0], np.abs(fallen[1]))
    assert (fallen[1] < 0).all()


@pytest.mark.parametrize(("sigmas", "is_normal"), [(3.0, True), (25.0, False)])
def test_a_moderate_level_is_accepted_and_a_gross_one_is_not(sigmas: float, is_normal: bool) -> None:
    series = Series(2).settle()
    for _ in range(13):
        deviation = series.see(sigmas * SIGMA, sigmas * SIGMA)
    before = series.filters
    series.filters = accept_level(before, deviation, np.array([[True], [False]]), moderate=0.0)
    np.testing.assert_array_equal(series.filters[:, 1], before[:, 1])
    assert not series.slot(slice(SHORT, LONG + 1))[:, 0].any()
    after = series.see(sigmas * SIGMA, sigmas * SIGMA)
    assert (after.level[:, 0] < TAIL_START).all() == is_normal
    assert (after.level[:, 1] > after.level[:, 0]).all()


@pytest.mark.parametrize(("moderate", "is_normal"), [(0.8, False), (1.2, True)])
def test_a_deviation_up_to_the_given_size_is_accepted_in_full(moderate: float, is_normal: bool) -> None:
    series = Series(2).settle()
    expected = series.see(0.0, 0.0).expected
    for _ in range(4):
        deviation = series.see(*(expected[:, 0] + 1.0), paused=True)
    assert (deviation.now > 8).all(), "gross"
    series.filters = accept_level(series.filters, deviation, np.array([[True], [True]]), moderate)
    assert (np.abs(series.slot(CENTRE) - deviation.value[:, 0]) < 1e-5).all() == is_normal
    after = series.see(*(expected[:, 0] + 1.0))
    assert (np.abs(after.now) < 0.5).all() == is_normal
    assert (after.now > 5).all() != is_normal
    assert (np.abs(series.see(*expected[:, 0]).now) < 1.5).all(), "the slow baseline remembers the level before"


def test_a_series_that_was_not_measured_is_not_accepted() -> None:
    series = Series().settle()
    deviation = series.see(1.0, measured=False)
    assert accept_level(series.filters, deviation, np.array([[True]]), moderate=np.inf) is series.filters


def test_averages_of_a_young_series_are_no_more_certain_than_its_centre() -> None:
    rng = np.random.default_rng(0)
    series, tempered, plain = Series(4000), [], []
    for index in range(13):
        found = series.see(*(SIGMA * rng.standard_normal(4000)))
        if index >= 5:
            plain.append(found.level)
            tempered.append(temper_young(found, series.channels).level)
    too_far = [np.mean(np.array(levels)[:, 1:] > TAIL_START) for levels in (plain, tempered)]
    assert too_far[1] < too_far[0] / 2
    np.testing.assert_array_equal(np.array(plain)[:, 0], np.array(tempered)[:, 0])


def test_an_old_series_errors_and_large_deviations_keep_their_levels() -> None:
    for name, snapshots, value, is_kept in (
        ("x", int(YOUNG) + 1, SIGMA, True),
        ("error_rate", 5, SIGMA, True),
        ("x", 5, 20 * SIGMA, True),
        ("x", 5, SIGMA, False),
    ):
        series = Series(channel=replace(CHANNEL, name=name))
        for _ in range(snapshots):
            series.see(0.0)
        for _ in range(3):
            found = series.see(value)
        assert np.array_equal(temper_young(found, series.channels).level, found.level) == is_kept, name
