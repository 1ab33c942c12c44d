"""A small comparison of cheaper forms: a student hardly trained, and the network in other operators and fewer bits."""

from pathlib import Path

import pytest

pytest.importorskip("onnxscript", reason="the export extra is not installed")
pytest.importorskip("onnxruntime", reason="the export extra is not installed")

from benchmarks.bench_tiers import measure
from lab.export.check import TOLERANCE
from lab.training.meshes import TrainingMeshes
from lab.training.train import TrainingOptions

pytestmark = pytest.mark.slow


def test_lines_of_the_forms(tmp_path: Path) -> None:
    small, held_out = TrainingMeshes(count=3, snapshots=240), TrainingMeshes(count=1, snapshots=240, seed=5)
    options = TrainingOptions(steps=10, meta_steps=10)
    full, student, *lowered = measure(small, held_out, options, ((30, 60),), 2, 1, tmp_path)
    assert (full["form"], student["form"]) == ("full", "student")
    assert [line["form"] for line in lowered] == [
        "standard operators, float32",
        "standard operators, bf16",
        "ONNX, float32",
        "ONNX, INT8 dynamic",
        "ONNX, INT8 static",
    ]
    difference = {line["form"]: line["difference"] for line in lowered}
    exact = [difference[name] for name in difference if name.endswith("float32")]
    assert full["difference"] == 0
    assert max(exact) <= TOLERANCE < min(difference[name] for name in difference if not name.endswith("float32"))
    assert student["size_bytes"] < full["size_bytes"] / 5
    lines = [full, student, *lowered]
    assert len({line["faults"] for line in lines}) == 1, "all are judged on the same faults"
    assert all(line["pass_ms_30"] > 0 and line["normal_days"] > 0 for line in lines)
    for line in lines:
        if line["form"].endswith("float32"):
            assert (line["found"], line["culprit_first"]) == (full["found"], full["culprit_first"])
