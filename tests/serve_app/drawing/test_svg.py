"""Axes of reports with round times and round values."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest

from serve_app.drawing.svg import LABEL_WIDTH, Scale, instants

START = datetime(2026, 3, 1, 22, 3, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "count", "first"), [(15, 480, "22:10"), (60, 1500, "02 Mar"), (300, 2000, "02 Mar")]
)
def test_times_below_an_axis_are_round_and_have_room(seconds: int, count: int, first: str) -> None:
    times = [START + i * timedelta(seconds=seconds) for i in range(count)]
    labels = instants(times, np.linspace(46, 892, count))
    assert labels[0][1] == first
    assert 4 <= len(labels) <= 846 / LABEL_WIDTH
    assert min(b - a for (a, _), (b, _) in pairwise(labels)) >= LABEL_WIDTH


def test_a_dense_tail_does_not_remove_the_labels_of_the_rest() -> None:
    times = [START + i * timedelta(seconds=15) for i in range(4000)]
    x = np.concatenate([np.linspace(46, 760, 480), np.linspace(761, 892, 3520)])
    labels = instants(times, x)
    assert [label for at, label in labels if at < 760][:3] == ["22:10", "22:20", "22:30"]


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
