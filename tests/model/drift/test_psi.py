"""The population stability index and the share that moved, of equal and shifted populations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.drift.measures import EMPTY, moved_share, population_stability_index
from model.features import Array

COUNTS = st.lists(st.integers(0, 50), min_size=8, max_size=8).filter(any)


def shares(counts: list[int]) -> Array:
    return np.array(counts, np.float32) / np.float32(sum(counts))


@given(COUNTS, COUNTS)
def test_the_index_is_symmetric_and_zero_only_for_equal_shares(a: list[int], b: list[int]) -> None:
    p, q = shares(a), shares(b)
    assert population_stability_index(p, p) == 0
    index = float(population_stability_index(p, q))
    assert index == pytest.approx(float(population_stability_index(q, p)), rel=1e-5, abs=1e-6)
    assert index >= -1e-6
    assert 0 <= moved_share(p, q) <= 1 + 1e-6
    # Pinsker's inequality, for both divergences and the shares with the empty bins filled.
    assert index >= 4 * (float(moved_share(p, q)) / (1 + EMPTY * len(a))) ** 2 - 1e-4


def test_the_index_is_the_textbook_value() -> None:
    p, q = np.array([0.5, 0.3, 0.2], np.float32), np.array([0.4, 0.4, 0.2], np.float32)
    by_hand = 0.1 * np.log(0.5 / 0.4) - 0.1 * np.log(0.3 / 0.4)
    assert population_stability_index(p, q) == pytest.approx(by_hand, rel=0.02)
    assert moved_share(p, q) == pytest.approx(0.1)


def test_the_share_that_moved_is_a_lower_bound() -> None:
    before, after = np.zeros(8, np.float32), np.zeros(8, np.float32)
    before[2] = 1.0
    after[2], after[5] = 0.39, 0.61
    assert moved_share(before, after) == pytest.approx(0.61)
