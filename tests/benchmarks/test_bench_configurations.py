"""The table of configurations: the same for our machine and for another one, which is compared with ours."""

import os

import pytest

from benchmarks import bench_configurations
from benchmarks.bench_configurations import measure
from benchmarks.figures import configurations
from benchmarks.rows import Row

ROW: Row = {"cores": 1, "sessions": 1, "services": 60, "clients": 1, "p50_ms": 20.0, "p99_ms": 30.0}
ROWS: list[Row] = [ROW | {"per_second": 40.0, "cpu_ms": 25.0}, ROW | {"clients": 8, "per_second": 60.0, "cpu_ms": 24.0}]


def test_rates_are_relative_to_the_first_line_and_cpu_time_to_ours() -> None:
    *_, first, second = configurations([ROWS[0] | {"ours": 10.0}, ROWS[1]]).splitlines()
    assert first == "| 1 | 1 | 60 | 1 | 40.0 | × 1.0 | 20.0 / 30.0 ms | 25.0 ms (× 2.5 of ours) |"
    assert second == "| 1 | 1 | 60 | 8 | 60.0 | × 1.5 | 20.0 / 30.0 ms | 24.0 ms |"


def test_what_this_machine_has_no_cores_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    monkeypatch.setattr(bench_configurations, "CONFIGURATIONS", ((len(before) + 1, 1),))
    assert list(measure([60], [1], 0.0, 0.0)) == []
    assert os.sched_getaffinity(0) == before
