"""The manifests of the repository, and the chart as helm renders it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.cluster.schemas import ROOT

CHART = ROOT / "deploy" / "helm" / "tagae"
SMALL_VALUES, ONE_POD_VALUES = CHART / "values-small.yaml", CHART / "values-one-pod.yaml"
SHIPPED_FILES = ("cluster.yaml", "deploy/kubernetes/gpu.yaml", "deploy/kubernetes/one-pod.yaml")
OVERLAY = ROOT / "deploy" / "kustomize" / "kustomization.yaml"
SEARCHED = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
HELM, KUBECTL = (shutil.which(program, path=SEARCHED) for program in ("helm", "kubectl"))
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not here (make setup installs it on Linux on x86-64)")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not here")


class Manifests(NamedTuple):
    """The documents of one rendering.

    Attributes:
        documents: all of them, in order.
    """

    documents: list[dict[str, Any]]

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.documents if one["kind"] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        (found,) = self.all(kind)
        return found

    @property
    def is_ray_service(self) -> bool:
        """Whether KubeRay runs it."""
        return bool(self.all("RayService"))

    @property
    def cluster(self) -> dict[str, Any]:
        found: dict[str, Any] = self.one("RayService")["spec"]["rayClusterConfig"]
        return found

    @property
    def serve_config(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(self.one("RayService")["spec"]["serveConfigV2"])
        return found

    @property
    def templates(self) -> dict[str, dict[str, Any]]:
        """The templates of its pods by component, except for the Redis."""
        if not self.is_ray_service:
            return {"service": self.one("Deployment")["spec"]["template"]}
        groups = {group["groupName"]: group["template"] for group in self.cluster["workerGroupSpecs"]}
        return {"head": self.cluster["headGroupSpec"]["template"], **groups}


def parse(text: str) -> Manifests:
    return Manifests([document for document in yaml.safe_load_all(text) if document])


def run_helm(*arguments: str) -> str:
    """Return what helm prints.

    Raises:
        subprocess.CalledProcessError: it failed; ``stderr`` says why.
    """
    assert HELM is not None
    return subprocess.run([HELM, *arguments], check=True, capture_output=True, text=True).stdout


def render(folder: Path, values: Mapping[str, Any] | None = None, *files: Path) -> Manifests:
    """Render the chart.

    Args:
        folder: for a file with the values.
        values: nested, beyond the files.
        files: with values.
    """
    own = folder / "values.yaml"
    own.write_text(json.dumps(values or {}), encoding="utf-8")
    chosen = [word for file in (*files, own) for word in ("--values", str(file))]
    return parse(run_helm("template", "tagae", str(CHART), "--namespace", "tagae", *chosen))


SHIPPED = {Path(name).stem: parse((ROOT / name).read_text(encoding="utf-8")) for name in SHIPPED_FILES}
CLUSTER, GPU, ONE_POD = SHIPPED.values()
