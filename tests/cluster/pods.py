"""What the pods of a rendering request, and what they offer to replicas."""

import math
import re
from typing import Any

from tests.cluster.rendering import Manifests

_UNITS = {"m": 1e-3, "Mi": 2**20, "Gi": 2**30, "": 1.0}
_WAIT_FOR_HEAD = {"cpu": "200m", "memory": "256Mi"}  # KubeRay's init container of workers


def quantity(text: str | int) -> float:
    """A quantity of Kubernetes, in cores or bytes."""
    number, unit = re.fullmatch(r"([\d.]+)(m|Mi|Gi|)", str(text)).groups()  # type: ignore[union-attr]
    return float(number) * _UNITS[unit]


def requests(manifests: Manifests) -> dict[str, float]:
    """CPU in cores and memory in bytes that all pods of an installation request at the start.

    KubeRay adds a container to the head, the autoscaler's, and one to workers, which waits for the head.
    """
    total = {"cpu": 0.0, "memory": 0.0}
    workers = {one["groupName"]: one["minReplicas"] for one in manifests.cluster["workerGroupSpecs"]}
    beside_head = manifests.cluster["autoscalerOptions"]["resources"]["requests"]
    templates = [
        *manifests.templates.items(),
        *(("redis", one["spec"]["template"]) for one in manifests.all("StatefulSet")),
    ]
    for group, template in templates:
        spec = template["spec"]
        later = [one["resources"]["requests"] for one in spec["containers"]]
        later += [beside_head] if group == "head" else []
        first = [one["resources"]["requests"] for one in spec.get("initContainers", ())]
        first += [_WAIT_FOR_HEAD] if group in workers else []
        for name in total:
            needed = max([sum(quantity(one[name]) for one in later), *(quantity(one[name]) for one in first)])
            total[name] += workers.get(group, 1) * needed
    return total


def ray_resources(group: dict[str, Any]) -> dict[str, float]:
    """What KubeRay lets a pod of a worker group offer: its limits, with CPUs rounded up, or its start parameters."""
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    cpus = group["rayStartParams"].get("num-cpus", math.ceil(quantity(limits["cpu"])))
    return {"CPU": float(cpus), "GPU": float(limits.get("nvidia.com/gpu", 0))}
