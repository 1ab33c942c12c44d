"""The benchmark of collecting accepts only correct snapshots, in any order of rows, and leaves out bad polls."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.bench_collect import INTERVAL, ExpectedSnapshot, is_late, mesh
from model.snapshot import MeshSnapshot
from tests.live.exporter import PAGES

MADE = mesh(20, 60)
EXPECTED = ExpectedSnapshot(MADE)


def read() -> MeshSnapshot:
    """Return the snapshot of a correct collector, with its rows in another order."""
    nodes, edges = np.arange(20)[::-1], np.arange(60)[::-1]
    snapshot = replace(
        MADE,
        node_features=EXPECTED.nodes.astype(np.float32),
        edge_features=EXPECTED.edges.astype(np.float32),
    )
    return snapshot.take(nodes, edges)


def test_correct_values_pass_in_any_order() -> None:
    EXPECTED.check(read())


def test_quantiles_come_from_buckets_and_are_near_the_true_values() -> None:
    assert not np.allclose(EXPECTED.edges[:, 3], MADE.edge_features[:, 3], rtol=1e-3)
    beyond = MADE.edge_features[:, 3] > 2.5  # the highest bound
    ratio = EXPECTED.edges[:, 3] / MADE.edge_features[:, 3]
    assert ratio[~beyond].min() > 0.4
    assert ratio[~beyond].max() < 3


@pytest.mark.parametrize("column", range(4))
def test_a_call_that_differs_by_a_thousandth_fails(column: int) -> None:
    wrong = read()
    values = wrong.edge_features.copy()
    row = int(values[:, column].argmax())
    values[row, column] *= 1.001
    with pytest.raises(AssertionError):
        EXPECTED.check(replace(wrong, edge_features=values))


def test_a_missing_call_fails() -> None:
    with pytest.raises(AssertionError):
        EXPECTED.check(read().take(np.arange(20), np.arange(59)))


AT = 1_000.0  # a snapshot reads six intervals back: a minute of rates, and rules of the previous interval


def page(offset: float, *, without: int | None = None, late: float = 0.0, failed: bool = False) -> np.ndarray:
    """Return scrapes of one page, ``offset`` s after multiples of the interval, from 90 s before the poll.

    The fourth scrape may be special.
    """
    times = AT - 90.0 + offset + INTERVAL * np.arange(6)
    times[3] += late
    was_taken = np.ones(6)
    was_taken[3] = not failed
    kept = np.arange(6) != without
    return np.array([times, was_taken])[:, kept]


REGULAR = [page(offset) for offset in np.linspace(0.0, INTERVAL, PAGES, endpoint=False)]


def test_polls_of_regular_scrapes_are_timed() -> None:
    assert not is_late(REGULAR, AT)
    assert not is_late([*REGULAR[1:], page(3.0, late=1.0)], AT)


@pytest.mark.parametrize(
    "bad",
    [page(3.0, late=2.0), page(3.0, failed=True), *(page(3.0, without=i) for i in range(6))],
    ids=["late", "failed", *(f"{i} lost" for i in range(6))],
)
def test_polls_that_go_back_to_a_bad_scrape_are_left_out(bad: np.ndarray) -> None:
    assert is_late([*REGULAR[1:], bad], AT)


def test_polls_without_a_page_are_left_out() -> None:
    assert is_late(REGULAR[1:], AT)
