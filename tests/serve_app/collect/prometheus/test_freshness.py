"""Scrape intervals and lags from the samples of a mesh."""

import math
from collections.abc import Sequence
from random import Random

import pytest

from serve_app.collect.prometheus.groups import (
    COUNTS,
    LONG,
    LONG_SECONDS,
    SHORT,
    Freshness,
    SeriesGroup,
    follow,
    interval_of,
    measure,
)

AT = 1_700_000_000.0


def scraped(
    interval: float,
    offset: float = 0.0,
    name: str = "web",
    fact: str = LONG,
    lag: float = 0.0,
    job: str = "",
) -> SeriesGroup:
    """A group whose newest sample is ``offset`` old, or older by the lag."""
    seconds, _ = COUNTS[fact]
    span = seconds - offset - lag
    count = math.floor(span / interval) + 1
    return SeriesGroup(("shop", name), job, {}, {fact: count + span / seconds / 2}, AT - offset - lag)


@pytest.mark.parametrize("interval", [1, 2, 5, 7, 10, 15, 20, 25, 30, 40, 45, 50, 60, 75, 90, 120, 180])
@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.8, 0.99])
def test_the_interval_is_exact_whenever_the_newest_sample_is(interval: float, share: float) -> None:
    assert interval_of(scraped(interval, share * interval)) == interval


@pytest.mark.parametrize("interval", [5, 10, 15, 30, 60])
def test_two_minutes_of_a_young_mesh_are_enough(interval: float) -> None:
    found = {interval_of(scraped(interval, share * interval, fact=SHORT)) for share in (0.05, 0.4, 0.7)}
    assert found == {interval}


@pytest.mark.parametrize("interval", [5, 10, 15])
@pytest.mark.parametrize("gap", [30, 60, 150, 240])
@pytest.mark.parametrize("end", [20, 60, 90, 200, 400])
def test_minutes_without_scrapes_do_not_lengthen_the_window(interval: float, gap: float, end: float) -> None:
    for share in (0.05, 0.4, 0.7):
        ages = [(share + i) * interval for i in range(150)]
        group = group_of_ages([age for age in ages if not end <= age < end + gap])
        assert follow(60.0, measure([group], AT, 15)) == 60.0


def group_of_ages(ages: Sequence[float]) -> SeriesGroup:
    """A group whose samples are so old, s."""
    counts = {}
    for fact, (seconds, before) in COUNTS.items():
        if of := [age for age in ages if before <= age < before + seconds]:
            counts[fact] = len(of) + 0.5 - (min(of) - before) / seconds / 2
    return SeriesGroup(("shop", "web"), "", {}, counts, AT - min(ages))


def test_jitter_and_several_series_change_nothing() -> None:
    rng = Random(3)
    for interval in (10, 15, 30, 45, 60, 90):
        offsets = [rng.uniform(0, interval) for _ in range(50)]
        groups = [scraped(interval, offset) for offset in offsets]
        most = max(group.counts[LONG] for group in groups)
        most += rng.uniform(-0.02, 0.02) / LONG_SECONDS / 2
        assert interval_of(SeriesGroup(("shop", "web"), "", {}, {LONG: most})) == interval


def test_a_series_that_has_ended_was_scraped_as_often_before() -> None:
    group = scraped(15, offset=90.0)
    group.newest = AT - 2.0  # of the series that has replaced it
    assert interval_of(group) == 15.0


@pytest.mark.parametrize("missed", [1, 2, 3])
def test_missed_scrapes_do_not_change_a_window(missed: int) -> None:
    group = scraped(15, 3.0)
    group.counts[LONG] -= missed
    assert follow(60.0, measure([group], AT, 15)) == 60.0


@pytest.mark.parametrize(
    ("interval", "window"), [(5, 60), (15, 60), (20, 80), (30, 120), (45, 180), (60, 240), (120, 480)]
)
def test_the_window_is_four_intervals_and_never_shorter_than_the_settings(interval: float, window: float) -> None:
    assert follow(60.0, measure([scraped(interval, 2.0)], AT, 15)) == window


def test_a_slow_part_sets_the_window_but_a_single_service_of_many_does_not() -> None:
    fast = [scraped(15, 3.0, f"s{i}") for i in range(99)]
    part = [scraped(60, 3.0, f"t{i}", job="slow") for i in range(9)]
    assert follow(60.0, measure(fast + part, AT, 15)) == 240.0
    alone = measure([*fast, scraped(60, 3.0, "t")], AT, 15)
    assert follow(60.0, alone) == 60.0
    assert [(one.services, one.interval_seconds, one.example) for one in alone.slow] == [(1, 60.0, "shop/t")]


def test_a_part_that_is_extremely_slow_does_not_make_the_whole_mesh_so() -> None:
    mesh = measure([scraped(15, 3.0, f"s{i}") for i in range(5)] + [scraped(240, 3.0, "rare")], AT, 15)
    assert mesh.window_seconds == 600.0
    assert mesh.slow[0].interval_seconds == 240.0


@pytest.mark.parametrize("interval", [10, 15, 30, 60])
def test_the_time_to_the_next_scrape_is_no_lag(interval: float) -> None:
    for share in (0.0, 0.5, 0.99):
        assert measure([scraped(interval, share * interval)], AT, 15).late_seconds == 0.0


@pytest.mark.parametrize("lag", [60.0, 120.0, 240.0])
def test_a_lag_is_the_age_of_the_newest_sample_of_many(lag: float) -> None:
    found = measure([scraped(15, i * 0.7, f"s{i}", lag=lag) for i in range(20)], AT, 15)
    assert (found.late_seconds, found.late_share) == (lag, 1.0)


def test_one_job_can_lag_alone() -> None:
    on_time = [scraped(15, 2.0, f"s{i}", job="near") for i in range(6)]
    late = [scraped(15, 2.0, f"t{i}", job="far", lag=100) for i in range(2)]
    found = measure(on_time + late, AT, 15)
    assert (found.newest_seconds, found.late_seconds, found.late_share) == (2.0, 102.0, 0.25)


def test_without_samples_nothing_is_known() -> None:
    assert measure([], AT, 15) == Freshness()
    assert follow(60.0, Freshness()) == 60.0


def test_times_that_cannot_be_right_are_no_lag() -> None:
    """A store that answers with the time 0, or whose series ended hours ago."""
    for newest in (0.0, 1.0, AT - 7200):
        group = SeriesGroup(("shop", "web"), "", {}, {LONG: 1.0}, newest)
        assert measure([group], AT, 15).late_seconds == 0.0
