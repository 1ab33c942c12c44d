"""Requests longer than the rate window are left out of latencies, whatever the bounds of the histogram."""

import re

import numpy as np
import pytest

from serve_app.collect.prometheus.frames import BUCKET, LabelReader, bucket_quantile, read_quantiles
from serve_app.collect.prometheus.long_requests import Border, leave_out_long, numerals_from
from serve_app.collect.prometheus.query import MILLISECONDS, SECONDS
from tests.serve_app.collect.prometheus.test_prometheus_table import sample, vector

MINUTE = Border.of(60.0, SECONDS)


def cut(counts: list[float], bounds: list[float], window_seconds: float = 60.0) -> tuple[float, float]:
    """Return the p99 without long requests, and their rate; bounds in seconds."""
    border = Border.of(window_seconds, SECONDS)
    kept, kept_bounds, long = leave_out_long(np.array([counts]), np.array(bounds), border)
    return float(bucket_quantile(kept, kept_bounds, 0.99)[0]), float(long[0])


@pytest.mark.parametrize(
    ("bounds", "counts", "p99", "long"),
    [
        # Istio and Envoy have a bound of 60 s.
        ([0.1, 30, 60, 3600, np.inf], [99, 99, 99, 103, 104], 0.099, 5),
        ([0.1, 30, 60, 3600, np.inf], [0, 0, 100, 100, 100], 59.7, 0),  # long polls of 55 s
        ([0.1, 30, 60, 3600, np.inf], [0, 0, 0, 4, 9], np.nan, 9),  # nothing but streams
        # Linkerd's highest bound is 50 s.
        ([0.1, 40, 50, np.inf], [100, 100, 100, 140], 0.099, 40),
        # No bound near the window: nothing is known of requests between 10 s and an hour.
        ([0.1, 10, 3600, np.inf], [50, 50, 100, 140], 10.0, 40),
        # OpenTelemetry's highest bound is 15 s. A service that hangs must not look healthy.
        ([0.1, 15, np.inf], [50, 50, 100], 15.0, 0),
    ],
)
def test_requests_beyond_the_bound_near_the_window_do_not_count(
    bounds: list[float], counts: list[float], p99: float, long: float
) -> None:
    assert cut([float(count) for count in counts], bounds) == (
        pytest.approx(p99, nan_ok=True),
        pytest.approx(long),
    )


def test_a_longer_window_keeps_longer_requests() -> None:
    bounds, counts = [1.0, 60, 300, np.inf], [50.0, 50, 100, 130]
    assert cut(counts, bounds, 60.0) == (pytest.approx(0.99), 80)
    assert cut(counts, bounds, 120.0) == (60.0, 30)  # longer than 60 s, at most 300 s
    assert cut(counts, bounds, 300.0) == (pytest.approx(295.2), 30)


def test_each_row_has_the_border_of_its_own_bounds() -> None:
    bounds = np.array([0.1, 50, 60, np.inf])
    counts = np.array([[9.0, 9, np.nan, 12], [9.0, np.nan, 10, 13], [9.0, np.nan, np.nan, 14]])
    _, _, long = leave_out_long(counts, bounds, MINUTE)
    assert long.tolist() == [3, 3, 0]


def test_without_the_bucket_of_all_requests_long_ones_are_unknown() -> None:
    kept, bounds, long = leave_out_long(np.array([[4.0, 8.0]]), np.array([1.0, 60.0]), MINUTE)
    assert bucket_quantile(kept, bounds, 0.5).tolist() == [1.0]
    assert np.isnan(long).all()
    assert all(len(part) == 0 for part in leave_out_long(np.empty((0, 0)), np.empty(0), MINUTE)[::2])


def test_long_requests_are_a_column_of_the_services_that_have_some() -> None:
    samples = [
        sample(count, app=app, le=bound)
        for app, counts in (("chat", ("5", "5.0", "7")), ("cart", ("5", "6", "6")))
        for bound, count in zip(("0.1", "6e+01", "+Inf"), counts, strict=True)
    ]
    sent = vector(samples)
    labels = LabelReader(("app", BUCKET)).read(sent.label_sets)
    p50, long = read_quantiles(sent.values, labels, [0.5], MINUTE)
    assert list(p50) == [("chat",), ("cart",)]
    assert long == {("chat",): 2.0}


@pytest.mark.parametrize("least", [1, 5, 9, 10, 36, 48, 61, 90, 99, 110, 3200, 7600, 48_000, 61_000, 300_000])
def test_bounds_are_recognized_however_they_are_spelled(least: int) -> None:
    expression = re.compile(numerals_from(least))
    numbers = [0.005, 0.5, 1, 2.5, 7.5, 9, 9.5, 10, 48, 61, 99.5, 100, 1e3, 7600, 6e4, 61_000, 3e5, 1e6, 3.6e6]
    for number in [*numbers, least - 1, least, least + 0.5, least * 1.09, least * 0.91]:
        shortest = f"{number:.12g}"
        mantissa, exponent = f"{number:.9e}".split("e")
        short = mantissa.rstrip("0").rstrip(".")
        spelled = {shortest, repr(float(number)), f"{short}e{exponent}", f"{short}E{int(exponent)}", f"{number:e}"}
        for text in spelled - {"0", "0.0"}:
            assert bool(expression.fullmatch(text)) == (float(text) >= least), text
    assert expression.fullmatch("+Inf")
    assert expression.fullmatch("Inf")


def test_a_border_is_in_the_unit_of_the_bounds() -> None:
    assert (MINUTE.first_long, MINUTE.first_above) == (48, 61)
    border = Border.of(60.0, MILLISECONDS)
    assert (border.first_long, border.first_above) == (48_000, 61_000)
    assert Border.of(1.0, SECONDS).first_long == 1
