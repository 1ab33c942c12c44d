"""Pictures: lines that keep their peaks, axes with round times, probabilities where they belong."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest

from model.evaluate.curves import forecast
from serve_app.evaluation.charts import reliability
from serve_app.web.svg import LABEL_WIDTH, Scale, instants, thinned

START = datetime(2026, 3, 1, 22, 3, 15, tzinfo=UTC)


@pytest.mark.parametrize("count", [1, 3, 20_000])
def test_a_thinned_line_keeps_the_extremes_and_ends_of_every_pixel(count: int) -> None:
    rng = np.random.default_rng(count)
    x = np.sort(rng.uniform(40, 340, count))
    y = rng.standard_t(2, count)
    breaks = [count // 2] if count > 2 else []
    kept = thinned(x, y, breaks)
    assert (np.diff(kept) > 0).all()
    assert len(kept) <= min(count, 4 * 302)
    assert set(breaks) <= set(kept.tolist()), "the line is interrupted at a point that is drawn"
    for pixel in np.unique(np.floor(x)):
        every, drawn = np.flatnonzero(np.floor(x) == pixel), kept[np.floor(x[kept]) == pixel]
        assert (drawn[0], drawn[-1]) == (every[0], every[-1])
        assert (y[drawn].min(), y[drawn].max()) == (y[every].min(), y[every].max())


@pytest.mark.parametrize(
    ("seconds", "count", "first"), [(15, 480, "22:10"), (60, 1500, "02 Mar"), (300, 2000, "02 Mar")]
)
def test_times_below_an_axis_are_round_and_have_room(seconds: int, count: int, first: str) -> None:
    times = [START + i * timedelta(seconds=seconds) for i in range(count)]
    told = instants(times, np.linspace(46, 892, count))
    assert told[0][1] == first
    assert 4 <= len(told) <= 846 / LABEL_WIDTH
    assert min(b - a for (a, _), (b, _) in pairwise(told)) >= LABEL_WIDTH


def test_a_tail_drawn_closer_together_does_not_cost_the_rest_its_labels() -> None:
    times = [START + i * timedelta(seconds=15) for i in range(4000)]
    x = np.concatenate([np.linspace(46, 760, 480), np.linspace(761, 892, 3520)])
    told = instants(times, x)
    assert [label for at, label in told if at < 760][:3] == ["22:10", "22:20", "22:30"]


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0, 17.3, 200, 30), [0, 5, 10, 15]),
        (Scale(-0.2, 1.05, 0, 1), [0, 0.5, 1]),
        (Scale(0.04, 2e6, 0, 1, log=True), [0.1, 10, 1e3, 1e5]),
    ],
)
def test_ticks_are_round_and_inside(scale: Scale, ticks: list[float]) -> None:
    assert scale.ticks() == pytest.approx(ticks)
    assert scale.one(scale.low) == pytest.approx(scale.start)
    assert scale.one(scale.high) == pytest.approx(scale.end)


def test_a_probability_that_comes_true_is_on_the_diagonal() -> None:
    rng = np.random.default_rng(0)
    said = rng.uniform(0, 1, 20_000)
    found = forecast(said, rng.uniform(0, 1, 20_000) < said)
    assert found is not None
    svg = reliability(found, "Reliability", "x")
    dots = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)
    assert len(dots) == 10
    for x, y in dots:
        assert (float(x) - 44) / 234 == pytest.approx((250 - float(y)) / 240, abs=0.04)
