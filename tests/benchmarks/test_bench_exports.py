"""A small benchmark of exports: each form runs the same mesh and gives nearly the same outputs."""

from pathlib import Path

import pytest

pytest.importorskip("onnxscript", reason="the export extra is not installed")

from benchmarks.bench_exports import measure
from lab.export.check import TOLERANCE
from model.checkpoint import load

pytestmark = pytest.mark.slow


def test_lines_of_a_small_mesh(tmp_path: Path) -> None:
    lines = measure(load(), ((30, 60),), 2, tmp_path)
    assert [line["form"] for line in lines] == ["network", "pt2", "onnx"]
    assert all(line["difference"] <= TOLERANCE for line in lines)
    assert lines[0]["file_bytes"] is None
    assert all(line["file_bytes"] > 100_000 for line in lines[1:])
