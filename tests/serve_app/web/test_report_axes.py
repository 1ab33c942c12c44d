"""Axes of reports with round times and round values."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from serve_app.web.report.svg import LABEL_WIDTH, Scale, instants

START = datetime(2026, 3, 1, 22, 3, 15, tzinfo=UTC)


@pytest.mark.parametrize(("minutes", "first"), [(120, "22:10"), (1500, "02 Mar"), (10_000, "02 Mar")])
def test_times_below_an_axis_are_round_and_have_room(minutes: int, first: str) -> None:
    scale = Scale(0, 60 * minutes, 46, 892)
    labels = instants(START, START + timedelta(minutes=minutes), scale)
    assert labels[0] == (pytest.approx(scale.pixel(405 if first == "22:10" else 7005)), first)
    assert 4 <= len(labels) <= 846 / LABEL_WIDTH
    assert min(b - a for (a, _), (b, _) in pairwise(labels)) >= LABEL_WIDTH


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
    assert scale.pixel(scale.low) == pytest.approx(scale.start)
    assert scale.pixel(scale.high) == pytest.approx(scale.end)
