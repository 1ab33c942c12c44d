"""Memory of a session and files of its store do not grow with the number of snapshots."""

from pathlib import Path

import pytest

from benchmarks.bench_memory import measure

pytestmark = pytest.mark.slow


def test_memory_and_files_are_flat_once_the_window_is_full(tmp_path: Path) -> None:
    rows = list(measure(tmp_path, services=60, snapshots=700, every=175))
    full, last = rows[0], rows[-1]  # the window holds 120 snapshots
    assert last["resident"] - full["resident"] < 3 * 2**20  # it would be 3.9 MB if no snapshot of 7.5 kB were released
    assert last["cache"] < full["cache"] * 1.1
    assert last["files"] < full["files"] * 1.3
