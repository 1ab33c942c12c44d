"""The pods of a rendering as they run: what they request, what they offer to replicas, and whether they are ready."""

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from serve_app.app import LIGHT_CPUS, Arguments
from tests.cluster.rendering import Manifests

_UNITS = {"m": 1e-3, "Mi": 2**20, "Gi": 2**30, "": 1.0}
_WAIT_FOR_HEAD = {"cpu": "200m", "memory": "256Mi"}  # KubeRay's init container of workers
PROXY = "localhost:8000/-/healthz"


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


@dataclass(frozen=True, eq=False)
class Deployment:
    """A deployment of Serve.

    Attributes:
        count: replicas at the start.
        claims: of each replica, by resource of Ray.
        per_pod: limit of its replicas in a pod; None: no limit.
    """

    name: str
    count: int
    claims: dict[str, float]
    per_pod: int | None


def deployments(manifests: Manifests) -> list[Deployment]:
    """What Serve places in the pods of a RayService, and nothing without one."""
    if not manifests.is_ray_service:
        return []
    (application,) = manifests.serve_config["applications"]
    settings = Arguments(**application["args"])
    counts = {
        "Ingress": settings.serve.ingress_replicas,
        "MeshSession": settings.serve.session_replicas,
        "MetaModel": settings.scorer.meta_replicas,
        "Scorer": settings.scorer.num_replicas,
    }
    found = []
    for one in application["deployments"]:
        options = one["ray_actor_options"]
        claims = {"CPU": options["num_cpus"], "GPU": options.get("num_gpus", 0)}
        found.append(Deployment(one["name"], counts[one["name"]], claims, one.get("max_replicas_per_node")))
    light = {"CPU": LIGHT_CPUS, "GPU": 0.0}
    found.append(Deployment("Collector", settings.collector.replicas, light, None))
    if settings.notify.has_receivers:
        found.append(Deployment("Notifier", 1, light, None))
    return found


@dataclass(eq=False)
class Pod:
    """A pod on a node of its own.

    Attributes:
        group: such as ``cpu``, ``head`` or ``redis``.
        labels: of its template.
        offers: to replicas, by resource of Ray.
        asks_proxy: whether it is ready only with a proxy, which Serve starts beside replicas.
        replicas: their number by deployment.
    """

    group: str
    labels: dict[str, str]
    offers: dict[str, float] = field(default_factory=dict)
    asks_proxy: bool = False
    replicas: Counter[Deployment] = field(default_factory=Counter)

    @property
    def is_ready(self) -> bool:
        return not self.asks_proxy or self.replicas.total() > 0

    def has_room(self, deployment: Deployment) -> bool:
        """Whether Serve may start one more replica here."""
        if deployment.per_pod is not None and self.replicas[deployment] >= deployment.per_pod:
            return False
        used = {name: sum(one.claims[name] * n for one, n in self.replicas.items()) for name in deployment.claims}
        return all(used[name] + claim <= self.offers.get(name, 0) + 1e-9 for name, claim in deployment.claims.items())

    def replacement(self) -> "Pod":
        """A new pod of the same group."""
        return Pod(self.group, self.labels, self.offers, self.asks_proxy)


def pods_at_start(manifests: Manifests) -> list[Pod]:
    """All pods, without replicas."""
    found = [Pod("redis", one["spec"]["template"]["metadata"]["labels"]) for one in manifests.all("StatefulSet")]
    if not manifests.is_ray_service:
        return [*found, Pod("service", manifests.templates["service"]["metadata"]["labels"])]
    found.append(Pod("head", manifests.templates["head"]["metadata"]["labels"]))
    for group in manifests.cluster["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        found += [
            Pod(
                group["groupName"],
                group["template"]["metadata"]["labels"],
                ray_resources(group),
                _asks_proxy(container),
            )
            for _ in range(group["minReplicas"])
        ]
    return found


def ray_resources(group: dict[str, Any]) -> dict[str, float]:
    """What KubeRay lets a pod of a worker group offer: its limits, with CPUs rounded up, or its start parameters."""
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    cpus = group["rayStartParams"].get("num-cpus", math.ceil(quantity(limits["cpu"])))
    return {"CPU": float(cpus), "GPU": float(limits.get("nvidia.com/gpu", 0))}


def _asks_proxy(container: dict[str, Any]) -> bool:
    """Without a probe in the template, KubeRay adds one, which asks the proxy."""
    probe = container.get("readinessProbe")
    return probe is None or PROXY in " ".join(probe["exec"]["command"])
