"""Every node of a layout can be drained, one after the other, and replicas are spread again."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.drain import Blocked, Cluster
from tests.cluster.pods import deployments, pods_at_start
from tests.cluster.rendering import CLUSTER, GPU, Manifests

ROUNDS = 2  # in the second one, the pods are those that the first one left


def clusters(manifests: Manifests) -> Iterator[Cluster]:
    """The cluster for each order in which replicas may choose its pods."""
    replicas, budgets = deployments(manifests), manifests.all("PodDisruptionBudget")
    for order in itertools.permutations(range(len(pods_at_start(manifests)))):
        pods = pods_at_start(manifests)
        yield Cluster([pods[position] for position in order], replicas, budgets)


def drain_all(manifests: Manifests) -> Iterator[Cluster]:
    """Drain each node of each cluster, and yield the cluster after each drain."""
    for cluster in clusters(manifests):
        for _ in range(ROUNDS):
            for pod in list(cluster.pods):
                cluster.drain(pod)
                yield cluster


def test_every_node_can_be_drained_one_after_the_other(manifests: Manifests) -> None:
    for cluster in drain_all(manifests):
        assert all(pod.is_ready for pod in cluster.pods)
        assert cluster.waiting.total() == 0


def test_replicas_are_spread_from_the_start_and_after_each_drain(ray_service: Manifests) -> None:
    for cluster in itertools.chain(clusters(ray_service), drain_all(ray_service)):
        for deployment in {one for pod in cluster.pods for one in pod.replicas if one.per_pod is not None}:
            group = "gpu" if deployment.name == "Scorer" else "cpu"
            counts = [pod.replicas[deployment] for pod in cluster.pods if pod.group == group]
            assert max(counts) - min(counts) <= 1, deployment.name


def test_gpu_pods_run_scorers_and_nothing_else() -> None:
    for cluster in clusters(GPU):
        names = {one.name for pod in cluster.pods if pod.group == "gpu" for one, n in pod.replicas.items() if n}
        assert names == {"Scorer"}


@pytest.mark.parametrize("shipped", [CLUSTER, GPU], ids=["cluster.yaml", "gpu.yaml"])
def test_requests_are_served_while_a_cpu_node_is_drained(shipped: Manifests) -> None:
    for cluster in clusters(shipped):
        for pod in [one for one in cluster.pods if one.group == "cpu"]:
            meanwhile = cluster.drain(pod)
            assert meanwhile["Ingress"] >= 1
            assert meanwhile["MeshSession"] >= 1


def _without_limits(service: dict[str, Any]) -> None:
    text = service["spec"]["serveConfigV2"].splitlines()
    service["spec"]["serveConfigV2"] = "\n".join(line for line in text if "max_replicas_per_node" not in line)


def _with_cpus_in_gpu_pods(service: dict[str, Any]) -> None:
    _without_limits(service)
    for group in service["spec"]["rayClusterConfig"]["workerGroupSpecs"]:
        group["rayStartParams"] = {}
        del group["template"]["spec"]["containers"][0]["readinessProbe"]


def test_the_simulation_finds_a_node_that_cannot_be_drained() -> None:
    """As the layout with GPUs was shipped once."""
    changed = Manifests(copy.deepcopy(GPU.documents))
    _with_cpus_in_gpu_pods(changed.one("RayService"))
    with pytest.raises(Blocked, match="cpu: 1 of its pods are ready, 1 must stay"):
        list(drain_all(changed))


def test_without_limits_replicas_stay_together_after_a_drain() -> None:
    changed = Manifests(copy.deepcopy(CLUSTER.documents))
    _without_limits(changed.one("RayService"))
    uneven = 0
    for cluster in drain_all(changed):
        for deployment in {one for pod in cluster.pods for one in pod.replicas}:
            counts = [pod.replicas[deployment] for pod in cluster.pods if pod.group == "cpu"]
            uneven = max(uneven, max(counts) - min(counts))
    assert uneven > 1
