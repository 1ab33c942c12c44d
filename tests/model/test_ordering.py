"""The orders are the same as by numpy's stable sorts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.ordering import descending_order, largest_of_rows, stable_order

FLOATS = st.floats(width=32, allow_nan=False)


@given(st.lists(st.integers(0, 6), max_size=40))
def test_equal_keys_keep_their_order(keys: list[int]) -> None:
    array = np.array(keys, np.int64)
    np.testing.assert_array_equal(stable_order(array, 7), np.argsort(array, kind="stable"))


@pytest.mark.parametrize("bound", [2**16, 2**40, 2**62])
def test_keys_of_any_size_are_ordered(bound: int) -> None:
    array = np.random.default_rng(0).integers(bound, size=1000)
    array[::3] = array[0]
    np.testing.assert_array_equal(stable_order(array, bound), np.argsort(array, kind="stable"))


@given(st.lists(FLOATS | st.sampled_from([0.0, -0.0, 1.0, float("inf"), -float("inf")]), max_size=40))
def test_the_largest_number_is_first_and_equal_ones_keep_their_order(values: list[float]) -> None:
    array = np.array(values, np.float32)
    np.testing.assert_array_equal(descending_order(array), np.argsort(-array, kind="stable"))


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (1000, 9)])
def test_the_largest_of_each_row_is_numpys(shape: tuple[int, int]) -> None:
    table = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    table[::7] = np.nan
    np.testing.assert_array_equal(largest_of_rows(table), table.max(axis=1))
