"""Pods fit the restricted level of Kubernetes, and can write to volumes only."""

import re
from typing import Any

from tests.cluster.dockerfile import DOCKERFILE, STAGES
from tests.cluster.rendering import Manifests
from tests.cluster.schemas import pods

LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


def check_restricted(template: dict[str, Any]) -> None:
    (uid,) = re.findall(r"useradd .*--uid (\d+) ray", DOCKERFILE)
    spec = template["spec"]
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context["runAsUser"] == context["fsGroup"] == int(uid)
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    for volume in spec["volumes"]:
        assert volume.keys() - {"name"} <= VOLUMES
    for container in containers(spec):
        assert container["securityContext"] == LOCKED
        assert not any("hostPort" in port for port in container.get("ports", ()))


def test_pods_are_restricted(manifests: Manifests) -> None:
    for template in pods(manifests.documents):
        check_restricted(template)


def test_what_the_image_writes_is_a_volume_with_a_limit(manifests: Manifests) -> None:
    (ray,) = set(re.findall(r"RAY_TMPDIR=(\S+)", DOCKERFILE))
    (home,) = set(re.findall(r"\bHOME=(\S+)", DOCKERFILE))
    for template in manifests.templates.values():
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        mounts = {one["mountPath"]: one for one in template["spec"]["containers"][0]["volumeMounts"]}
        for place in (ray, home):
            assert volumes[mounts[place]["name"]]["emptyDir"]["sizeLimit"]
        for mount in mounts.values():
            volume = volumes[mount["name"]]
            assert "emptyDir" in volume or "persistentVolumeClaim" in volume or mount["readOnly"] is True


def test_the_autoscaler_beside_the_head_is_restricted_too(manifests: Manifests) -> None:
    if manifests.is_ray_service:
        assert manifests.cluster["autoscalerOptions"]["securityContext"] == LOCKED


def test_pods_name_images_of_the_dockerfile(manifests: Manifests) -> None:
    for name, template in manifests.templates.items():
        wanted = "gpu" if name == "gpu" else "cpu"
        assert {one["image"] for one in containers(template["spec"])} == {f"tagae:{wanted}"}
        assert wanted in STAGES


def test_every_container_has_a_limit_of_memory(manifests: Manifests) -> None:
    for template in pods(manifests.documents):
        for container in containers(template["spec"]):
            resources = container["resources"]
            assert resources["limits"]["memory"] == resources["requests"]["memory"], "no pod is evicted for memory"


def test_all_objects_are_in_the_namespace(manifests: Manifests) -> None:
    placed = [one for one in manifests.documents if one["kind"] not in ("ClusterRole", "ClusterRoleBinding")]
    assert {one["metadata"]["namespace"] for one in placed} == {"tagae"}
