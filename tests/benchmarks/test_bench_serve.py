"""A mode that is stopped keeps the rows that it has measured, and says what to do."""

import sys

from benchmarks.bench_serve import run_in_child
from tests.timing import TIME_FACTOR

ENDLESS = ["sh", "-c", "echo '{}'; sleep 3600"]  # prints within milliseconds
SECONDS = 2.0 * TIME_FACTOR


def test_a_mode_that_is_stopped_keeps_its_rows() -> None:
    rows, problem = run_in_child(ENDLESS, "default", minutes=SECONDS / 60)
    assert rows == [{}]
    assert problem is not None
    assert "got those above" in problem


def test_a_mode_that_fails_keeps_its_rows() -> None:
    rows, problem = run_in_child([sys.executable, "-c", "print('{}'); raise SystemExit(3)"], "default", minutes=10)
    assert rows == [{}]
    assert problem is not None
    assert "got 3" in problem


def test_a_mode_that_ends_has_no_problem() -> None:
    assert run_in_child([sys.executable, "-c", "print('{}'); print('of a library')"], "default", minutes=10) == (
        [{}],
        None,
    )
