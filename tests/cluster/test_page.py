"""The commands of docs/cluster.md that can run without a cluster run as written, in order."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cluster.pods import requests
from tests.cluster.rendering import CLUSTER, GPU, HELM, KUBECTL, SEARCHED, Manifests, parse
from tests.cluster.schemas import ROOT, check, checkable

PAGE = (ROOT / "docs" / "cluster.md").read_text("utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NOT_RUN = {  # why, and what tests them instead
    "make images": "no Docker here; test_images.py",
    "docker build": "no Docker here; test_images.py",
    "kubectl apply": "no cluster here; test_chart.py validates what is applied",
    "kubectl -n tagae port-forward": "no cluster here",
    "tagae score": "a running service; tests/test_docs.py",
    "redis-cli --rdb": "test_redis.py",
    "tagae store copy": "test_redis.py",
    "helm uninstall": "the order is below; tests/kubernetes runs it",
    "make test-kubernetes": "no cluster here",
}
pytestmark = pytest.mark.skipif(HELM is None or KUBECTL is None, reason="helm and kubectl are not both here")


def offline(text: str) -> str:
    """The block with what needs a cluster changed into what needs none: objects are only written."""
    lines = text.replace("\\\n", " ").splitlines()
    kept = [line for line in lines if not re.match(r"kubectl (label|-n tagae (get|delete)) ", line)]
    created = [re.sub(r"^(kubectl .*create .*)$", r"\1 --dry-run=client -o yaml >> created.yaml", one) for one in kept]
    created = [re.sub(r"^(kubectl .*>> created.yaml)$", r"\1; echo --- >> created.yaml", one) for one in created]
    return "\n".join(re.sub(r"^helm (install|upgrade) (.*)$", r"helm template \2 > \1.yaml", one) for one in created)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the commands ran."""
    place = tmp_path_factory.mktemp("page")
    (place / ".venv").symlink_to(sys.prefix)
    shutil.copytree(ROOT / "deploy", place / "deploy")
    shutil.copy(ROOT / "cluster.yaml", place)
    (place / "dist").mkdir()
    images = {name: f"registry.example/{name}@sha256:{'0' * 64}" for name in ("cpu", "gpu", "redis")}
    (place / "dist" / "images.yaml").write_text(yaml.safe_dump({"images": images}))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": SEARCHED, "KUBECONFIG": os.devnull}
    output = []
    for block in BLOCKS:
        if any(word in block for word in NOT_RUN):
            continue
        command = ["bash", "-euo", "pipefail", "-c", offline(block)]
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        output.append(done.stdout)
    (place / "output.txt").write_text("".join(output))
    return place


def read(path: Path) -> Manifests:
    return parse(path.read_text("utf-8"))


def test_blocks_that_are_not_run_exist() -> None:
    assert [word for word in NOT_RUN if not any(word in block for block in BLOCKS)] == []
    assert sum(not any(word in block for word in NOT_RUN) for block in BLOCKS) >= 8


@pytest.mark.parametrize(
    "name",
    [
        "rendered.yaml",
        "install.yaml",
        "upgrade.yaml",
        "one-pod.yaml",
        "one-pod-redis.yaml",
        "small.yaml",
        "with-secrets.yaml",
        "with-weights.yaml",
        "with-mesh-weights.yaml",
        "created.yaml",
    ],
)
def test_what_the_commands_write_fits_the_schemas(name: str, folder: Path) -> None:
    documents = read(folder / name).documents
    assert documents
    for document in checkable(documents):
        check(document)


def test_the_namespace_and_the_secrets_are_those_of_the_manifests(folder: Path) -> None:
    created = read(folder / "created.yaml")
    assert created.one("Namespace")["metadata"]["name"] == "tagae"
    made = {one["metadata"]["name"]: set(one["data"]) for one in created.all("Secret")}
    named = {
        volume["secret"]["secretName"]
        for volume in CLUSTER.templates["cpu"]["spec"]["volumes"]
        if "secret" in volume and not volume["secret"].get("optional")
    }
    assert made == {"tagae-tokens": {"tokens.toml"}, "tagae-redis": {"password"}}
    assert named == made.keys()


def test_the_table_lists_what_helm_writes(folder: Path) -> None:
    """A reader finds each object of `helm template` in the first table of "What runs where"."""
    section = PAGE.split("## What runs where", 1)[1].split("KubeRay also makes", 1)[0]
    listed = {
        (kind, name)
        for kinds, name in re.findall(r"^\| ([A-Z][\w, ]+) `([\w-]+)` \|", section, re.MULTILINE)
        for kind in kinds.split(", ")
    }
    manifests = read(folder / "rendered.yaml")
    assert listed == {(one["kind"], one["metadata"]["name"]) for one in manifests.documents}
    shown = (folder / "output.txt").read_text("utf-8")
    assert all(f"kind: {kind}" in shown and f"name: {name}" in shown for kind, name in listed)


def test_the_tables_have_the_numbers_of_the_manifest() -> None:
    groups = {one["groupName"]: one for one in GPU.cluster["workerGroupSpecs"]}
    for name, group in groups.items():
        assert f"| group `{name}` | {group['minReplicas']} to {group['maxReplicas']} |" in PAGE
    (application,) = GPU.serve_config["applications"]
    front, scorer = application["args"]["serve"], application["args"]["scorer"]
    limits = [
        (front["ingress_replicas"], front["max_ingress_replicas"]),
        (front["session_replicas"], front["max_session_replicas"]),
        (scorer["meta_replicas"], scorer["max_meta_replicas"]),
    ]
    ranges = ", ".join(f"{fewest} to {most}" for fewest, most in limits)
    assert f"| ingress, session, meta-model | {ranges} |" in PAGE
    assert f"| scorer | {scorer['num_replicas']} to {scorer['max_replicas']} |" in PAGE
    assert f"| collector | {application['args']['collector']['replicas']} |" in PAGE


def test_values_of_the_page_reach_the_service(folder: Path) -> None:
    manifests = read(folder / "install.yaml")
    (application,) = manifests.serve_config["applications"]
    assert set(application["args"]["meshes"]) == {"shop"}
    (container,) = manifests.templates["cpu"]["spec"]["containers"]
    assert container["image"].startswith("registry.example/cpu@sha256:")


def test_the_table_has_the_requests_of_all_pods(folder: Path) -> None:
    totals = [requests(one) for one in (CLUSTER, read(folder / "small.yaml"))]
    shown = [f"{one['cpu']:.3g} CPU, {one['memory'] / 2**30:.3g} GiB" for one in totals]
    assert f"| all | | {shown[0]} | {shown[1]} |" in PAGE


RECORDER = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
case "$*" in *"get raycluster"*) echo raycluster.ray.io/tagae-one ;; esac
"""


def test_uninstalling_waits_for_the_cluster_before_redis_goes(tmp_path: Path) -> None:
    """The block runs with programs that only write down how they were called."""
    (block,) = [one for one in BLOCKS if "helm uninstall" in one]
    for program in ("kubectl", "helm"):
        (tmp_path / program).write_text(RECORDER)
        (tmp_path / program).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(tmp_path / "calls")}
    subprocess.run(["bash", "-euo", "pipefail", "-c", block], check=True, env=environment)
    calls = (tmp_path / "calls").read_text("utf-8").splitlines()
    assert [one for one in calls if " get " not in one] == [
        "kubectl -n tagae delete rayservice tagae",
        "kubectl -n tagae wait --for=delete --timeout=10m raycluster.ray.io/tagae-one",
        "helm uninstall tagae --namespace tagae",
    ]
