"""What runs in production works where the package ``lab`` is absent, as in the container images."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.codec import snapshot_document
from serve_app.recordings.writer import RecordingWriter
from tests.serve_app.running import record_simulation, start_service
from tests.timing import PATIENCE_SECONDS

ROOT = Path(__file__).parent.parent
# Python runs a file of this name as it starts, so that each process of the service refuses the package.
SITE_CUSTOMIZE = """
import sys

class NoLab:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "lab":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoLab())
"""
IMPORT_ALL = "import importlib, sys; print(*(importlib.import_module(name).__name__ for name in sys.argv[1:]))"
COMMANDS = [
    ("demo", "--once"),
    ("evaluate", "out/shop", "--verdicts", "tagae=out/verdicts"),
    ("export", "out/tagae.onnx"),
    ("simulate", "out/shop"),
    ("simulate", "--help"),
    ("train", "out/mine.safetensors"),
    ("models", "tune", "shop", "--recording", "out/shop"),
]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start from here on find no ``lab``."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE_CUSTOMIZE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), str(ROOT)]))


def python(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=4 * PATIENCE_SECONDS
    )


def tagae(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "from serve_app.cli import main; main()", *arguments)


@pytest.mark.usefixtures("environment")
def test_every_module_of_the_product_can_be_imported(tmp_path: Path) -> None:
    assert python(tmp_path, "import lab.demo").stderr.endswith("No module named 'lab'\n")
    files = [
        path for package in ("serve_app", "model", "partitioning", "kernels") for path in (ROOT / package).rglob("*.py")
    ]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in sorted(files)]
    done = python(tmp_path, IMPORT_ALL, *names)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == names


@pytest.mark.usefixtures("environment")
def test_help_lists_all_commands_and_a_recording_is_scored(tmp_path: Path) -> None:
    done = tagae(tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    for command in ("demo", "evaluate", "score", "simulate", "train"):
        assert f" {command} " in done.stdout
    with RecordingWriter(tmp_path / "shop", 15.0) as writer:
        for snapshot in record_simulation(MeshSpec(services=20, calls_per_service=2), 12):
            writer.write(snapshot)
    done = tagae(tmp_path, "score", "shop")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 12


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_of_the_laboratory_says_what_to_do(command: tuple[str, ...], tmp_path: Path) -> None:
    done = tagae(tmp_path, *command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"tagae: tagae {command[0]}: the package lab is not installed")
    assert "pip install tagae" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("environment")
def test_the_service_starts_and_answers(tmp_path: Path) -> None:
    spec = MeshSpec(services=20, calls_per_service=2)
    (snapshot,) = record_simulation(spec, 1)
    with start_service("--set", f"store.path={tmp_path / 'state'}", "--set", "serve.port=0") as (_, url):
        address = f"{url}/v1/meshes/shop/snapshots"
        response = httpx.post(address, json=snapshot_document(snapshot), timeout=PATIENCE_SECONDS)
    assert response.status_code == 200, response.text
    assert response.json()["status"] == "warming_up"
