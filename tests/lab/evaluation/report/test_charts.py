"""The reliability chart."""

import re

import numpy as np
import pytest

from lab.evaluation.measures.curves import forecast
from lab.evaluation.report.charts import draw_reliability


def test_the_reliability_chart_has_a_description() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.uniform(0, 1, 20_000)
    found = forecast(probabilities, rng.uniform(0, 1, 20_000) < probabilities)
    assert found is not None
    image = draw_reliability(found, "Reliability of x")
    assert image.startswith('<img alt="Reliability of x: Brier score 0.')
    points = re.findall(r"(\d+)%: (\d+)%", image)
    assert len(points) == 10
    for predicted, observed in points:
        assert int(predicted) == pytest.approx(int(observed), abs=4)
