"""The wheel: its content, and that it works without the checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from kernels.library import FILE as LIBRARY
from serve_app.web.assets import FOLDER
from tests.cluster.dockerfile import copied_files

ROOT = Path(__file__).parent.parent
SCORE = """
from itertools import islice
from model.checkpoint import load
from serve_app.pipeline import Mesh, Options, advance
from lab.simulator.simulator import Simulator
from lab.simulator.mesh.topology import MeshSpec
mesh = Mesh()
for snapshot in islice(Simulator(MeshSpec(services=20, calls_per_service=2)).snapshots(), 12):
    verdict, mesh = advance(load(), mesh, snapshot, Options())
print(verdict.status.value)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from tracked files like a release, so that it has no stray file and a missing file is found."""
    return build(tracked_files(), tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel"))


def tracked_files() -> list[str]:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    return [name for name in tracked.stdout.decode().split("\0") if name]


def build(names: Iterable[str], source: Path, built: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Build the wheel from these files of the tree, which are copied to ``source``."""
    for name in names:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip.append("--no-build-isolation")  # an isolated build has no torch to compile the ops for
    subprocess.run([*pip, "--wheel-dir", str(built), str(source)], check=True, capture_output=True, env=environment)
    (found,) = built.glob("tagae-*.whl")
    return found


@pytest.fixture(scope="module")
def image_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the files that the images get."""
    given = [
        path.relative_to(ROOT).as_posix()
        for name in copied_files()
        for path in ((ROOT / name).rglob("*") if (ROOT / name).is_dir() else [ROOT / name])
        if "__pycache__" not in path.parts
    ]
    return build(given, tmp_path_factory.mktemp("image-source"), tmp_path_factory.mktemp("image-wheel"))


def test_the_images_get_all_files_of_the_wheel_but_the_laboratory(wheel: Path, image_wheel: Path) -> None:
    """.dockerignore and COPY select the files. A file that they leave out would be missing in the image."""
    left_out = set(names(wheel)) - set(names(image_wheel))
    assert {name for name in left_out if not name.startswith("lab/")} == set()
    assert "lab/__init__.py" in left_out
    assert not [name for name in names(image_wheel) if name.startswith("lab/")]


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def installed_bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("home"))


def install(wheel: Path, home: Path) -> Path:
    """Return ``bin`` of a fresh environment with the wheel, which uses the libraries of the current one."""
    venv.create(home, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet"]
    subprocess.run(
        [*pip, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True, env=clean_environment()
    )
    # Appended to the path without following .pth files, such as the one of an editable tagae.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


def clean_environment() -> dict[str, str]:
    """Return the environment of a user without this checkout."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TAGAE_CONFIG", "TAGAE_KERNELS")}


def run(installed: Path, folder: Path, *command: str) -> str:
    done = subprocess.run(
        [str(installed / command[0]), *command[1:]],
        cwd=folder,
        env=clean_environment() | {"HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_content_of_the_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert top == {"serve_app", "partitioning", "model", "kernels", "lab"}
    assert {
        "model/weights/tagae.safetensors",
        "serve_app/sidecar/verdicts.proto",
        *(f"serve_app/web/report/templates/report.{ending}" for ending in ("html", "md", "css")),
    } <= set(names)
    assert {f"{package}/py.typed" for package in top} <= set(names)
    page = {path.relative_to(ROOT).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert "serve_app/web/static/vendor/uplot.min.js" in page
    assert page <= set(names)
    assert {"lab/demo/web/controls.js", "lab/demo/web/controls.css"} <= set(names)
    assert not [name for name in names if "test" in name.split("/")[-1] or name.endswith((".parquet", ".png"))]
    assert wheel.stat().st_size < 5e6


@pytest.mark.skipif(not LIBRARY.exists(), reason="the ops are not compiled here")
def test_the_wheel_has_the_compiled_ops_for_every_python(wheel: Path) -> None:
    assert {"kernels/libtagae.so", "kernels/libpasses.so", "kernels/libjson.so"} <= set(names(wheel))
    assert wheel.name.split("-")[2:4] == ["py3", "none"]


@pytest.mark.skipif(not LIBRARY.exists() or not shutil.which("nvcc"), reason="needs g++ and nvcc")
def test_with_nvcc_the_wheel_has_the_ops_for_gpus(tmp_path: Path) -> None:
    built = build(tracked_files(), tmp_path / "source", tmp_path / "wheel", os.environ | {"TAGAE_BUILD_CUDA": "1"})
    assert "kernels/libtagae_cuda.so" in names(built)
    with zipfile.ZipFile(built) as archive:
        file = archive.extract("kernels/libtagae_cuda.so", tmp_path)
    code = f"import kernels.ops, kernels.library as k; k.register_unchecked(k.Path({file!r})); print('registered')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "registered" in done.stdout or "this torch has no CUDA" in done.stderr, done.stderr
    if shutil.which("cuobjdump"):
        parts = subprocess.run(
            ["cuobjdump", "--list-elf", "--list-ptx", file], capture_output=True, text=True, check=True
        ).stdout
        assert all(part in parts for part in ("sm_80.cubin", "sm_90.cubin", "sm_90.ptx")), parts


def test_without_a_compiler_the_wheel_is_plain_python(tmp_path: Path) -> None:
    """No compiler is on PATH, and the ops have their PyTorch form."""
    tools = {name: value for name, value in os.environ.items() if name != "CXX"} | {"PATH": str(tmp_path / "nothing")}
    plain = build(tracked_files(), tmp_path / "source", tmp_path / "wheel", tools)
    assert plain.name.endswith("-py3-none-any.whl")
    assert not [name for name in names(plain) if name.endswith(".so")]
    code = "import kernels; print(kernels.backend(), kernels.backend_reason())"
    with zipfile.ZipFile(plain) as archive:
        archive.extractall(tmp_path / "installed")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "installed",
        env=clean_environment() | {"PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("reference ")
    assert "install tagae where g++ or clang++ is on PATH" in done.stdout


def test_doctor_from_an_empty_folder(installed_bin: Path, tmp_path: Path) -> None:
    found = {f["subject"]: f for f in json.loads(run(installed_bin, tmp_path, "tagae", "doctor", "--json"))}
    for package in ("serve_app", "partitioning", "model", "kernels", "lab"):
        assert found[f"package {package}"]["outcome"] == "ok", found
        assert str(installed_bin.parent) in found[f"package {package}"]["found"], "the file is not from the wheel"
    assert found["weights"]["outcome"] == "ok"


def test_the_wheel_scores_from_an_empty_folder(installed_bin: Path, tmp_path: Path) -> None:
    assert run(installed_bin, tmp_path, "python", "-c", SCORE).strip() in ("normal", "anomalous")


def test_the_wheel_of_the_images_serves_and_reports_what_it_lacks(image_wheel: Path, tmp_path: Path) -> None:
    installed = install(image_wheel, tmp_path / "home")
    found = {f["subject"]: f for f in json.loads(run(installed, tmp_path, "tagae", "doctor", "--json"))}
    assert found["package serve_app"]["outcome"] == found["package lab"]["outcome"] == "ok", found
    assert found["package lab"]["found"].startswith("not installed; only for tagae demo")
    run(
        installed,
        tmp_path,
        "python",
        "-c",
        "import serve_app.app, serve_app.deployments.gate, serve_app.sidecar.single",
    )
    done = subprocess.run(
        [str(installed / "tagae"), "demo"], cwd=tmp_path, env=clean_environment(), capture_output=True, check=False
    )
    assert (done.returncode, b"the package lab is not installed" in done.stderr) == (1, True)
