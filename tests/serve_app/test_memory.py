"""Memory of a session and files of its store do not grow with the number of snapshots."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def test_memory_and_files_are_flat_once_the_window_is_full(tmp_path: Path) -> None:
    """In a process of its own: what other tests left in this one's allocator would be counted, too."""
    file = tmp_path / "rows.jsonl"
    command = ["benchmarks.bench_memory", "--services", "500", "--snapshots", "700", "--json", str(file)]
    subprocess.run([sys.executable, "-m", *command], check=True, cwd=ROOT)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    full, late = rows[1], rows[-3:]  # the window holds 120 snapshots
    least = {key: min(row[key] for row in late) for key in ("resident", "cache", "files")}
    assert least["resident"] - full["resident"] < 10 * 2**20  # 18 MB or more if no snapshot of 62 kB were released
    assert least["cache"] < full["cache"] * 1.1
    assert least["files"] < full["files"] * 1.5
