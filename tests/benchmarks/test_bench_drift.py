"""The benchmark puts drift into meshes, and counts the advice on it."""

from itertools import islice

import numpy as np
import pytest

from benchmarks.bench_drift import BEFORE, DAY, DRIFTS, Drift, measure, run_of
from model.checkpoint import load


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_drift_begins_on_the_last_day_and_stays(drift: Drift) -> None:
    _, size, drifted = run_of(drift, 31)
    _, _, still = run_of(drift, 31)
    assert 0.1 < size <= 0.6
    first = list(islice(drifted, 3))
    for one, same in zip(first, islice(still, 3), strict=True):
        np.testing.assert_array_equal(one.node_features, same.node_features)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("drift", ["latency level", "missing metrics"])
def test_drift_is_reported_within_a_day(drift: Drift) -> None:
    result = measure(load(), drift, 31)
    assert result.hours is not None
    assert result.hours <= 24
    assert result.days <= (BEFORE + DAY) / DAY
    assert result.advice
