"""Which pods can reach which ports."""

from typing import Any

import pytest
import yaml

from tests.cluster.rendering import CLUSTER, ONE_POD, Manifests
from tests.cluster.schemas import ROOT, pods

SERVICE = {"app.kubernetes.io/name": "tagae", "app.kubernetes.io/instance": "tagae"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}
OPERATOR = {"app.kubernetes.io/name": "kuberay-operator"}


def rules(manifests: Manifests, name: str) -> list[dict[str, Any]]:
    (policy,) = [one for one in manifests.all("NetworkPolicy") if one["metadata"]["name"] == name]
    found: list[dict[str, Any]] = policy["spec"]["ingress"]
    return found


def allowed_ports(found: list[dict[str, Any]], namespace: str, labels: dict[str, str]) -> set[int | None]:
    """Return the ports that the rules open to a pod with these labels in a namespace; None: all ports."""
    ports: set[int | None] = set()
    for rule in found:
        for peer in rule["from"]:
            space = {"kubernetes.io/metadata.name": namespace}  # Kubernetes sets this label on every namespace
            if not peer.get("namespaceSelector", {}).get("matchLabels", {}).items() <= space.items():
                continue
            if peer.get("podSelector", {}).get("matchLabels", {}).items() <= labels.items():
                ports |= {port["port"] for port in rule["ports"]} if "ports" in rule else {None}
    return ports


@pytest.mark.parametrize(
    ("namespace", "labels", "of_cluster", "of_one_pod"),
    [
        ("tagae", SERVICE, {None}, set()),
        ("tagae", {"tagae/client": "true"}, {8000}, {8000}),
        ("kuberay-system", OPERATOR, {8000, 8265}, set()),
        ("monitoring", PROMETHEUS, {8000, 8080}, {8000}),
        ("ingress-nginx", {"app.kubernetes.io/name": "ingress-nginx"}, {8000}, {8000}),
    ],
)
def test_pods_that_need_access_get_it_from_their_namespace_only(
    namespace: str, labels: dict[str, str], of_cluster: set[int | None], of_one_pod: set[int | None]
) -> None:
    for manifests, ports in ((CLUSTER, of_cluster), (ONE_POD, of_one_pod)):
        found = rules(manifests, "tagae")
        assert allowed_ports(found, namespace, labels) == ports
        assert allowed_ports(found, "elsewhere", labels) == set()  # anyone may set labels on their own pods
        assert allowed_ports(found, namespace, {"app": "another"}) == set()


def test_only_pods_of_the_service_reach_the_redis() -> None:
    found = rules(CLUSTER, "tagae-redis")
    assert allowed_ports(found, "tagae", SERVICE) == {6379}
    for namespace, labels in (("tagae", {"tagae/client": "true"}), ("monitoring", PROMETHEUS), ("elsewhere", SERVICE)):
        assert allowed_ports(found, namespace, labels) == set()


def test_every_rule_names_a_namespace_and_pods(manifests: Manifests) -> None:
    for policy in manifests.all("NetworkPolicy"):
        for rule in policy["spec"]["ingress"]:
            for peer in rule["from"]:
                assert peer.keys() == {"namespaceSelector", "podSelector"}
                assert peer["namespaceSelector"]["matchLabels"].keys() == {"kubernetes.io/metadata.name"}
                assert peer["podSelector"]["matchLabels"]


def test_each_pod_has_a_policy(manifests: Manifests) -> None:
    selectors = [one["spec"]["podSelector"]["matchLabels"].items() for one in manifests.all("NetworkPolicy")]
    if not selectors:
        return  # networkPolicy.create is false
    for template in pods(manifests.documents):
        labels = template["metadata"]["labels"].items()
        assert sum(selector <= labels for selector in selectors) == 1


def test_no_service_has_an_address_outside(manifests: Manifests) -> None:
    services = [one["spec"] for one in manifests.all("Service")]
    if manifests.is_ray_service:
        services.append(manifests.one("RayService")["spec"]["serveService"]["spec"])
    assert services
    assert {one.get("type", "ClusterIP") for one in services} == {"ClusterIP"}


def test_prometheus_may_reach_the_targets_of_its_jobs() -> None:
    text = (ROOT / "deploy" / "prometheus" / "scrape.yaml").read_text(encoding="utf-8")
    _, ray = yaml.safe_load(text)["scrape_configs"]
    ports = allowed_ports(rules(CLUSTER, "tagae"), "monitoring", PROMETHEUS)
    assert ports == {8000, 8080}  # 8080: the port on which KubeRay lets Ray export
    labels = CLUSTER.templates["head"]["metadata"]["labels"]
    assert ray["relabel_configs"][0]["regex"] == f"{labels['app.kubernetes.io/name']};metrics"
