"""Schemas of Kubernetes and of KubeRay, which refuse unknown keys."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CRD = ROOT.parent / "shared" / "kuberay" / "ray.io_rayservices.yaml"
needs_crd = pytest.mark.skipif(not CRD.exists(), reason="KubeRay's definitions are not here (../shared/kuberay)")
VERSIONS = tuple(f"1.{minor}" for minor in range(30, 37))  # of Kubernetes: from the oldest one that the chart allows


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


@cache
def _ray_service_validators() -> dict[str, Any]:
    """Validators of RayServices by version. The file is large, and the C loader ten times as fast."""
    definition = yaml.CSafeLoader(CRD.read_text(encoding="utf-8")).get_single_data()
    found = {}
    for version in definition["spec"]["versions"]:
        schema: dict[str, Any] = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}  # rules of the API server itself
        found[version["name"]] = jsonschema.Draft202012Validator(schema)
    return found


def check(document: dict[str, Any]) -> None:
    """Validate a document: a RayService against KubeRay's schema, anything else against the schemas of Kubernetes.

    Raises:
        jsonschema.ValidationError: it does not fit.
    """
    if document["kind"] == "RayService":
        _ray_service_validators()[document["apiVersion"].split("/")[1]].validate(document)
        return
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)


def checkable(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents whose schema is here: without KubeRay's, all but RayServices."""
    return [one for one in documents if one["kind"] != "RayService" or CRD.exists()]


def pods(documents: Any) -> Iterator[dict[str, Any]]:
    if isinstance(documents, dict):
        if "containers" in documents.get("spec", {}):
            yield documents
        documents = list(documents.values())
    if isinstance(documents, list):
        for one in documents:
            yield from pods(one)
