"""examples/score_onnx.py, score_onnx.mjs and serve_onnx.py: programs without TAGAE score with the exported network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from serve_app.pipeline import Mesh, Options, advance
from serve_app.recordings.reader import RecordingReader
from serve_app.recordings.writer import RecordingWriter
from tests.serve_app.cli.command import tagae
from tests.serve_app.running import start_process
from tests.site_pages import ROOT
from tests.timing import PATIENCE_SECONDS

pytest.importorskip("onnxscript", reason="the export extra is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def slow_service() -> str:
    simulator = Simulator(MeshSpec(services=30, seed=3, calls_per_service=3), snapshots=1)
    return simulator.node_ids[7]


@pytest.fixture(scope="module")
def exported(slow_service: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported network, with a sample in which a service is slow."""
    folder = tmp_path_factory.mktemp("exported")
    simulator = Simulator(
        MeshSpec(services=30, seed=3, calls_per_service=3),
        (Fault("latency_injection", slow_service, 40, 45, 10.0),),
        snapshots=44,
    )
    with RecordingWriter(folder / "shop", 15.0) as writer:
        for snapshot in simulator.snapshots():
            writer.write(snapshot)
    model = folder / "tagae.onnx"
    result = tagae("export", model, "--sample", folder / "shop")
    assert result.exit_code == 0, result.stderr
    return model


def run(command: list[str], model: Path, sample: Path) -> subprocess.CompletedProcess[str]:
    words = [*command, str(model), str(sample)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def sample_of(model: Path) -> Path:
    return model.with_name(f"{model.name}.sample.json")


PYTHON = [sys.executable, "examples/score_onnx.py"]


def test_a_program_names_the_service_that_is_slow(exported: Path, slow_service: str) -> None:
    found = run(PYTHON, exported, sample_of(exported))
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"{slow_service}: ")
    assert len(found.stdout.splitlines()) == 5


def test_outputs_that_differ_from_the_sample_end_with_status_1(exported: Path, tmp_path: Path) -> None:
    document = json.loads(sample_of(exported).read_text("utf-8"))
    document["outputs"]["structure"]["data"][0] += 0.01
    (tmp_path / "wrong.json").write_text(json.dumps(document), "utf-8")
    found = run(PYTHON, exported, tmp_path / "wrong.json")
    assert found.returncode == 1
    assert "structure: expected at most 0.0001 from the sample" in found.stderr


def test_javascript_prints_what_python_prints(exported: Path) -> None:
    node = shutil.which("node")
    require = "require('module').createRequire(process.cwd() + '/package.json').resolve('onnxruntime-node')"
    if node is None or subprocess.run([node, "-e", require], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("not here: Node.js with onnxruntime-node (npm install onnxruntime-node)")
    ours, theirs = (run(words, exported, sample_of(exported)) for words in (PYTHON, [node, "examples/score_onnx.mjs"]))
    assert theirs.returncode == 0, theirs.stderr
    assert theirs.stdout == ours.stdout


def test_an_http_server_answers_with_the_loss_of_our_verdict(exported: Path) -> None:
    mesh = Mesh()
    for snapshot in RecordingReader(exported.parent / "shop").snapshots():
        verdict, mesh = advance(load(), mesh, snapshot, Options())
    command = [sys.executable, str(ROOT / "examples" / "serve_onnx.py"), str(exported), "--port", "0"]
    sample = json.loads(sample_of(exported).read_text("utf-8"))
    with (
        start_process(command, r"http://\S+", os.environ) as (_, found),
        httpx.Client(timeout=PATIENCE_SECONDS) as http,
    ):
        answer = http.post(found[0], json=sample).json()
        refused = http.post(found[0], json={"inputs": {}})
    assert verdict.reconstruction is not None
    assert answer["loss"] == pytest.approx(verdict.reconstruction.loss, rel=1e-3)
    assert answer["model_version"] == verdict.model_digest
    for name, tensor in sample["outputs"].items():
        ours = np.array(tensor["data"]).reshape(tensor["shape"])
        assert np.allclose(answer[name], ours, rtol=1e-4, atol=1e-4), name
    assert (refused.status_code, "expected the inputs of a sample" in refused.text) == (400, True)
