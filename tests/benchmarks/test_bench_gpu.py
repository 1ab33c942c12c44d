"""The benchmark of a GPU: what can be checked on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import bench_gpu
from benchmarks.bench_gpu import (
    NEIGHBOURS,
    Run,
    first_of_each,
    measure,
    milliseconds,
    ops,
    random_task,
    summary,
)
from model.checkpoint import load
from model.scoring.score import score

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@needs_no_gpu
def test_without_a_gpu_it_says_what_is_missing_and_ends() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_gpu"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("bench_gpu: no usable GPU: ")


def test_it_needs_few_packages() -> None:
    """A machine with a GPU may be bare."""
    code = (
        "import sys\n"
        "class Few:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('ray', 'pydantic', 'msgspec', 'pymetis', 'pyarrow', 'httpx', 'fastapi', 'typer', 'lab'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Few())\n"
        "import benchmarks.bench_gpu\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_random_meshes_are_ready_to_be_scored() -> None:
    task = random_task(60, 500, seed=3)
    for attended, end in ((task.attended_callers, 1), (task.attended_callees, 0)):
        assert np.bincount(task.edge_index[end][attended]).max() <= NEIGHBOURS
    (scores,) = score(load().network, [task])
    assert np.isfinite(scores.node_expected).all()
    assert first_of_each(np.array([3, 1, 3, 3, 1]), 2).tolist() == [True, True, True, False, True]


def test_times_are_of_at_least_three_calls() -> None:
    calls: list[int] = []
    assert len(milliseconds(lambda: calls.append(1), 100, 0.0)) == 3
    assert len(milliseconds(lambda: calls.append(1), 2, 0.0)) == 2
    assert summary([3.0, 1.0, 2.0], "x_") == {"x_p50_ms": 2.0, "x_p99_ms": 3.0}


def test_each_op_is_compared_with_float64_in_values_and_gradients() -> None:
    rows = list(ops(Run(CPU, 1, 0.0)))
    assert [(row["op"], row["dtype"]) for row in rows[:2]] == [("attend", "float32"), ("attend", "bfloat16")]
    for row in rows[::2]:
        assert max(row["value_error"], row["gradient_error"]) < 1e-4, row
        assert row["with_gradients_p50_ms"] > 0


def test_sections_run_and_an_error_ends_one_of_them_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gpu, "BATCHED", "20x60")
    monkeypatch.setattr(bench_gpu, "BATCHES", (1, 2))
    monkeypatch.setitem(bench_gpu.SECTIONS, "ops", lambda run: iter([1 // 0]))
    rows = list(measure(Run(CPU, 2, 0.0, ["30x90"]), ["ops", "passes", "batches"]))
    assert rows[0] == {"section": "ops", "error": "ZeroDivisionError: integer division or modulo by zero"}
    assert [row["section"] for row in rows[1:]] == ["passes", "batches", "batches"]
    assert [row["meshes"] for row in rows[2:]] == [1, 2]
    assert json.dumps(rows)


def test_what_is_left_out_is_measured_beside_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gpu, "BATCHED", "20x60")
    precise, together, copies = measure(Run(CPU, 2, 0.0, ["30x90"]), ["tf32", "streams", "copies"])
    assert precise["change"] < 1e-2
    assert torch.get_float32_matmul_precision() == "highest"
    assert {"tf32_p50_ms", "p50_ms"} <= precise.keys()
    assert {"joined_p50_ms", "apart_p50_ms", "streams_p50_ms"} <= together.keys()
    assert copies["bytes"] == 90 * 21 * 4
    assert {"pinned_p50_ms", "pageable_p50_ms"} <= copies.keys()
