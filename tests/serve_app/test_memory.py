"""What a session holds, and what its store's files hold, does not grow with the snapshots it has seen."""

import importlib.util
from pathlib import Path
from types import ModuleType

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_memory.py"


def _benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_memory", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_memory_and_files_are_flat_once_the_window_is_full(tmp_path: Path) -> None:
    rows = list(_benchmark().measured(tmp_path, services=60, snapshots=700, every=175))
    full, last = rows[0], rows[-1]  # the window is of 120
    assert last["resident"] - full["resident"] < 3 * 2**20  # snapshots of 7.5 kB that nobody lets go: 3.9 MB
    assert last["cache"] < full["cache"] * 1.1
    assert last["files"] < full["files"] * 1.3
