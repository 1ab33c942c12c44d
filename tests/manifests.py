"""The Dockerfile, and KubeRay's schema of pods."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
CRD = ROOT.parent / "shared" / "kuberay" / "ray.io_rayservices.yaml"
needs_crd = pytest.mark.skipif(not CRD.exists(), reason="KubeRay's definitions are not here (../shared/kuberay)")


@cache
def ray_services() -> dict[str, Any]:
    """KubeRay's schema of RayServices by version. The file is large, and the C loader ten times as fast."""
    definition = yaml.CSafeLoader(CRD.read_text(encoding="utf-8")).get_single_data()
    return {version["name"]: version["schema"]["openAPIV3Schema"] for version in definition["spec"]["versions"]}


def strict(schema: Any) -> Any:
    """Kubernetes' structural schema as a JSON schema that refuses unknown keys."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    keys = {key: strict(value) for key, value in schema.items() if not key.startswith("x-kubernetes")}
    if "properties" in keys and not schema.get("x-kubernetes-preserve-unknown-fields"):
        keys.setdefault("additionalProperties", False)
    return keys


def copied_files() -> set[str]:
    """Files and folders that the Dockerfile copies into the images."""
    lines = re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
    return {word for line in lines for word in line.split()[:-1]}
