"""The Dockerfile against the tree, the lock files, the manifests and the sidecar."""

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from typer.main import get_command

from serve_app.cli import app
from serve_app.cli.options import overrides
from serve_app.settings import load
from tests.cluster.dockerfile import DOCKERFILE, STAGES, copied_files
from tests.cluster.rendering import HELM, SHIPPED, SHIPPED_FILES, parse, render
from tests.cluster.schemas import ROOT, pods

SIDECAR = list(yaml.safe_load_all((ROOT / "deploy" / "sidecar" / "sidecar.yaml").read_text(encoding="utf-8")))


def without_cuda(stage: str) -> str:
    """A stage without the compiler for GPUs that it borrows from another image."""
    return re.sub(r"^RUN --mount=type=bind,from=cuda,\S+ NVCC=\S+ \\\n\s+", "RUN ", stage, flags=re.MULTILINE)


def test_the_images_copy_existing_files() -> None:
    assert {"cpu", "gpu"} <= STAGES.keys()
    for stage in ("{}-build", "{}"):
        built = {
            without_cuda(STAGES[stage.format(target)].split("COPY", 1)[1]).replace(target, "").strip()
            for target in ("cpu", "gpu")
        }
        assert len(built) == 1, "the images differ only in torch and in the compiler for GPUs"
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in copied_files():
        assert (ROOT / name).exists(), name
        assert any(fnmatch.fnmatch(name, pattern) for pattern in allowed), f".dockerignore leaves out {name}"


def test_the_images_run_as_a_user_by_number_and_carry_no_build_tools() -> None:
    (uid,) = re.findall(r"useradd .*--uid (\d+) ray", DOCKERFILE)
    for target in ("cpu", "gpu"):
        # By number, because the kubelet cannot decide from a name whether the user is root.
        assert STAGES[target].strip().splitlines()[-1] == f"USER {uid}:{uid}"
        assert "pip uninstall --yes pip" in STAGES[f"{target}-build"]
    assert "pip uninstall --yes pip setuptools wheel" in STAGES["runtime"]
    assert not re.search(r"\b(gcc|g\+\+|build-essential|git|curl)\b", STAGES["runtime"])
    bases = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    assert {name for base, name in bases if base == "runtime"} == {"cpu", "gpu"}


def test_the_images_install_what_the_lock_file_allows() -> None:
    assert "pip install --require-hashes --no-deps -r requirements.lock" in STAGES["libraries"]
    later = [line for stage in ("cpu-build", "gpu-build") for line in re.findall(r"pip install (.*)", STAGES[stage])]
    assert len(later) == 4
    assert all(line.startswith(("-c constraints.txt torch", "--no-deps --no-build-isolation .")) for line in later)


def test_a_release_names_images_by_digest() -> None:
    """The digest of the base image is an argument. `make images` looks it up and names its images by digest."""
    assert re.search(r"^ARG BASE=python:3\.1[12]-slim$", DOCKERFILE, re.MULTILINE)
    outside = {base for base, _ in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)} - STAGES.keys()
    assert outside == {"${BASE}", "${CUDA}"}
    script = (ROOT / "deploy" / "images.sh").read_text(encoding="utf-8")
    ((cuda, version),) = re.findall(r"^ARG CUDA=(nvidia/cuda:(\d+\.\d+)\.\S+)$", DOCKERFILE, re.MULTILINE)
    assert f"cuda=${{CUDA:-{cuda}}}" in script
    assert f"NVCC=/usr/local/cuda-{version}/bin/nvcc" in STAGES["gpu-build"]
    (pattern,) = re.findall(r'sed -i "s\|(.*)\|image: \$image@\$digest\|"', script)
    for manifest in (*SHIPPED_FILES, "deploy/sidecar/sidecar.yaml"):
        text = (ROOT / manifest).read_text(encoding="utf-8")
        for target in ("cpu", "gpu"):
            found = pattern.replace("$target", target).replace("\\$", "$")
            text = re.sub(found, "image: IMAGE@sha256:0", text, flags=re.MULTILINE)
        assert "image: IMAGE@sha256:0" in text
        assert "image: tagae:" not in text


DOCKER = """#!/bin/sh
# Stands in for docker with a registry, which are not here: digests by the name of the image.
[ "$2" = imagetools ] || exit 0
printf 'sha256:%s' "$(printf %s "$4" | sha256sum | cut -d' ' -f1)"
"""


def test_a_release_writes_manifests_and_values_with_digests(tmp_path: Path) -> None:
    for name in (*SHIPPED_FILES, "deploy/images.sh", "deploy/sidecar/sidecar.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text(DOCKER)
    (tmp_path / "bin" / "docker").chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    command = [str(tmp_path / "deploy" / "images.sh"), "registry.example/tagae"]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    values = yaml.safe_load((tmp_path / "dist" / "images.yaml").read_text("utf-8"))["images"]
    assert all(re.fullmatch(r"(registry\.example/tagae|redis)@sha256:[0-9a-f]{64}", image) for image in values.values())
    assert values.keys() == {"cpu", "gpu", "redis"}
    written = {one.stem: parse(one.read_text("utf-8")) for one in (tmp_path / "dist").glob("*.yaml")}
    used = {
        name: {one["image"] for template in pods(manifests.documents) for one in template["spec"]["containers"]}
        for name, manifests in written.items()
        if name in SHIPPED
    }
    assert used == {
        "cluster": {values["cpu"], values["redis"]},
        "gpu": set(values.values()),
        "one-pod": {values["cpu"]},
    }
    if HELM is not None:
        manifests = render(tmp_path, None, tmp_path / "dist" / "images.yaml")
        assert manifests.documents == written["cluster"].documents


def test_the_image_for_cpus_refuses_a_torch_with_cuda(tmp_path: Path) -> None:
    """The check runs on the torch that is here, and on one that says that it has CUDA."""
    (check,) = re.findall(r'^RUN python -c "(.+?)"$', STAGES["cpu-build"], re.MULTILINE | re.DOTALL)
    command = ["sh", "-c", f'exec "{sys.executable}" -c "{check}"']
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("from . import version\n__version__ = '2.13.0'\n")
    (tmp_path / "torch" / "version.py").write_text("cuda = '13.0'\n")
    refused = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    )
    assert refused.returncode == 1
    assert "expected torch without CUDA in this image, got 2.13.0; give --build-arg TORCH_INDEX_URL" in refused.stderr


def test_images_and_the_sidecar_run_existing_commands() -> None:
    (port,) = set(re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE))
    (folder,) = set(re.findall(r"install -d -o ray -g ray (\S+)", DOCKERFILE))
    commands = [json.loads(command) for command in re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)]
    assert len(commands) == 1
    assert "ENTRYPOINT" not in DOCKERFILE, "the sidecar's args are its whole command"
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    for pod in pods(SIDECAR):
        commands += [one["args"] for one in pod["spec"]["initContainers"]]
    for program, *words in commands:
        assert program in scripts
        command = get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        options = command.make_context(program, words).params
        if assignments := options["assignments"]:
            settings = load(overrides=overrides(assignments))
            assert (settings.serve.host, settings.serve.port) == ("0.0.0.0", int(port))
            assert str(settings.store.path) == folder
