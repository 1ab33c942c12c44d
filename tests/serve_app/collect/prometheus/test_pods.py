"""Which pods belong to which workload, and what they use of what they may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from serve_app.collect.prometheus.keys import Column, KeyTable
from serve_app.collect.prometheus.pods import (
    CONTAINER,
    CORDONED,
    ENDED,
    NODE,
    NODES,
    OWNERS,
    PARENTS,
    USAGE_QUERIES,
    Pods,
)
from serve_app.collect.prometheus.signals import DISK, PODS, by_workload

NOW, WINDOW = 1_800_000_000.0, 60.0


@dataclass
class Cluster:
    """Columns as a poll reads them."""

    columns: dict[str, Column] = field(default_factory=dict)
    keys: KeyTable = field(default_factory=KeyTable)

    def set(self, role: str, values: Mapping[Any, float]) -> None:
        """Set the column of a role; the keys have the parts that its query names."""
        self.columns[role] = Column.of(values, self.keys)

    def pods(self) -> Pods:
        return Pods(self.columns, WINDOW)

    def share(self, resource: str = "cpu") -> dict[str, float]:
        column = self.pods().utilisation(resource, {})
        assert column is not None
        return {"/".join(key): value for key, value in column.items()}


def cluster(containers: Mapping[str, tuple[float | None, float | None, float | None]], node: float = 16.0) -> Cluster:
    """A cluster with containers "pod container": usage, limit, request. A pod's workload is its name up to ``-``."""
    made = Cluster()
    names = {text: (text.split()[1], text.split()[0], "shop") for text in containers}
    for place, amount in enumerate(("usage", "limits", "requests")):
        values = {names[text]: row[place] for text, row in containers.items()}
        made.set(f"cpu_{amount}", {key: value for key, value in values.items() if value is not None})
    pods = dict.fromkeys(key[1:] for key in names.values())
    made.set(OWNERS, {(*pod, "StatefulSet", pod[0].split("-")[0]): NOW for pod in pods})
    made.set(NODES, {(*pod, "n1"): 1.0 for pod in pods})
    made.set("cpu_allocatable", {("n1",): node})
    return made


@pytest.mark.parametrize(
    ("containers", "share"),
    [
        # limits of all
        ({"cart-0 main": (0.4, 1.0, 0.5), "cart-0 proxy": (0.1, 1.0, 0.1)}, 0.25),
        # one without a limit: requests of all, so that the generous limit of a sidecar hides nothing
        ({"cart-0 main": (0.9, None, 1.0), "cart-0 proxy": (0.1, 4.0, 0.25)}, 0.8),
        # a limit stands for a request that is missing
        ({"cart-0 main": (0.5, None, 1.0), "cart-0 proxy": (0.5, 1.0, None)}, 0.5),
        # neither limit nor request: the node
        ({"cart-0 main": (4.0, None, None)}, 0.25),
        ({"cart-0 main": (4.0, 0.0, 0.0)}, 0.25),
        # a small sidecar without limits does not hide that the main container is at its limit
        ({"cart-0 main": (0.9, 1.0, 1.0), "cart-0 log": (0.01, None, None)}, 0.9),
        # and a limit of a sidecar does not hide what the main container takes from the node
        ({"cart-0 main": (7.9, None, None), "cart-0 proxy": (0.1, 1.0, 1.0)}, 0.5),
        # a container that does not run keeps its limit
        ({"cart-0 main": (None, 1.5, 1.5), "cart-0 proxy": (0.1, 0.5, 0.5)}, 0.05),
        # two pods, before and after a change of the limit
        ({"cart-0 main": (1.0, 1.0, 1.0), "cart-1 main": (1.0, 3.0, 1.0)}, 0.5),
        # the pod without usage counts for nothing
        ({"cart-0 main": (0.5, 1.0, 1.0), "cart-1 main": (None, 1.0, 1.0)}, 0.5),
    ],
)
def test_the_share_is_of_limits_else_of_requests_else_of_the_node(
    containers: dict[str, tuple[float | None, float | None, float | None]], share: float
) -> None:
    assert cluster(containers).share() == pytest.approx({"shop/cart": share})


def test_a_pod_without_any_capacity_is_left_out_with_its_usage() -> None:
    made = cluster({"cart-0 main": (0.5, 1.0, 1.0), "cart-1 main": (9.0, None, None)})
    made.set(NODES, {("cart-0", "shop", "n1"): 1.0})
    assert made.share() == {"shop/cart": 0.5}
    assert made.pods().coverage([("shop", "cart")], {}).without_capacity == 1


@pytest.mark.parametrize("missing", [NODES, "cpu_allocatable"])
def test_without_sizes_of_nodes_the_limits_remain(missing: str) -> None:
    made = cluster({"cart-0 main": (0.5, 1.0, 1.0), "cart-0 proxy": (0.1, None, None)})
    del made.columns[missing]
    assert made.share() == {"shop/cart": 0.5}


@pytest.mark.parametrize("missing", ["cpu_usage", "cpu_limits", "cpu_requests"])
def test_without_one_of_the_queries_the_share_is_unknown(missing: str) -> None:
    made = cluster({"cart-0 main": (0.5, 1.0, 1.0)})
    del made.columns[missing]
    assert made.pods().utilisation("cpu", {}) is None


def test_pods_that_have_ended_or_are_gone_do_not_count() -> None:
    made = cluster({f"cart-{i} main": (usage, 1.0, 1.0) for i, usage in enumerate((0.2, 1.0, 1.0))})
    made.set(ENDED, {("cart-1", "shop"): 1.0})
    owners = {(f"cart-{i}", "shop", "StatefulSet", "cart"): NOW for i in range(3)}
    made.set(OWNERS, {**owners, ("cart-2", "shop", "StatefulSet", "cart"): NOW - 2 * WINDOW - 1})
    assert made.share() == {"shop/cart": 0.2}
    assert made.pods().coverage([], {}).pods == 1


def test_when_all_of_kube_state_metrics_is_late_no_pod_is_gone() -> None:
    made = cluster({"cart-0 main": (0.5, 1.0, 1.0), "cart-1 main": (0.5, 1.0, 1.0)})
    made.set(OWNERS, {(f"cart-{i}", "shop", "StatefulSet", "cart"): NOW - 290 for i in range(2)})
    assert made.share() == {"shop/cart": 0.5}


PARENT_ROWS = {
    ("shop", "ReplicaSet", "cart-5f9c", "cart"): 1.0,
    ("shop", "ReplicaSet", "canary-77b6", "canary"): 1.0,
    ("shop", "ReplicaSet", "bare-2b", "bare-2b"): 1.0,
    ("shop", "Job", "report-28371234", "report"): 1.0,
    ("shop", "ReplicationController", "legacy-3", "legacy"): 1.0,
}


@pytest.mark.parametrize(
    ("kind", "owner", "workload"),
    [
        ("ReplicaSet", "cart-5f9c", "cart"),  # of a deployment
        ("ReplicaSet", "canary-77b6", "canary"),  # of a rollout
        ("ReplicaSet", "bare-2b", "bare-2b"),  # without an owner, although its name ends like a hash
        ("ReplicaSet", "unknown-6c8d4f7bb", "unknown"),  # its series is not scraped
        ("ReplicaSet", "web-frontend", "web-frontend"),  # likewise, and its name has no hash
        ("Job", "report-28371234", "report"),
        ("Job", "nightly-28371234", "nightly"),
        ("Job", "migrate-7", "migrate-7"),
        ("ReplicationController", "legacy-3", "legacy"),
        ("ReplicationController", "older-12", "older"),
        ("StatefulSet", "store-1", "store-1"),
        ("DaemonSet", "agent", "agent"),
        ("CloneSet", "clone-5f9c", "clone-5f9c"),
        ("StrimziPodSet", "kafka", "kafka"),
        ("Pod", "alone", "alone"),
    ],
)
def test_the_workload_is_the_top_owner(kind: str, owner: str, workload: str) -> None:
    made = cluster({"p-0 main": (0.5, 1.0, 1.0)})
    made.set(PARENTS, PARENT_ROWS)
    made.set(OWNERS, {("p-0", "shop", kind, owner): NOW})
    assert made.share() == {f"shop/{workload}": 0.5}


def test_the_newest_owner_of_a_pod_counts() -> None:
    made = cluster({"p-0 main": (0.5, 1.0, 1.0)})
    made.set(OWNERS, {("p-0", "shop", "StatefulSet", "new"): NOW, ("p-0", "shop", "StatefulSet", "old"): NOW - 30})
    assert made.share() == {"shop/new": 0.5}


def test_signals_of_pods_become_signals_of_workloads() -> None:
    made = cluster({"cart-0 main": (0.5, 1.0, 1.0), "cart-1 main": (0.5, 1.0, 1.0), "web-0 main": (0.5, 1.0, 1.0)})
    rows = {
        ("main", "periods", "cart-0", "shop"): 5.0,
        ("main", "periods", "cart-1", "shop"): 6.0,
        ("main", "throttled", "cart-1", "shop"): np.nan,
        ("pod", "pending", "web-0", "shop"): 1.0,
        ("main", "periods", "unknown", "shop"): 9.0,
    }
    made.set(PODS, rows)
    made.set(DISK, {("cart-0", "shop"): 0.5, ("cart-1", "shop"): 0.9, ("unknown", "shop"): 1.0})
    signals = by_workload(made.columns, made.pods())
    assert {role: signals[role] for role in (PODS, DISK)} == {
        PODS: {("shop", "cart", "main", "periods"): 11.0, ("shop", "web", "pod", "pending"): 1.0},
        DISK: {("shop", "cart"): 0.9},
    }
    assert {PODS, DISK}.isdisjoint(by_workload(made.columns, None))


def test_workloads_on_cordoned_nodes() -> None:
    made = cluster({"cart-0 main": (0.5, 1.0, 1.0), "web-0 main": (0.5, 1.0, 1.0)})
    made.set(NODES, {("cart-0", "shop", "n1"): 1.0, ("web-0", "shop", "n2"): 1.0, ("unknown", "shop", "n2"): 1.0})
    assert made.pods().cordoned_workloads() is None
    made.set(CORDONED, {("n2",): 1.0})
    assert made.pods().cordoned_workloads() == {("shop", "web")}
    made.set(CORDONED, {})
    assert made.pods().cordoned_workloads() == frozenset()


def test_the_coverage_names_workloads_and_services_without_each_other() -> None:
    made = cluster({"cart-0 main": (0.5, 1.0, 1.0), "batch-0 main": (0.5, 1.0, 1.0), "lost-0 main": (0.5, 1.0, 1.0)})
    names = {"cart-0": "cart", "batch-0": "batch"}
    made.set(OWNERS, {(pod, "shop", "StatefulSet", name): NOW for pod, name in names.items()})
    owners = made.columns[OWNERS]
    made.set(OWNERS, {**owners, ("dns-0", "kube-system", "DaemonSet", "dns"): NOW})
    services = [("shop", "cart"), ("shop", "web")]
    coverage = made.pods().coverage(services, {})
    assert (coverage.pods, coverage.without_owner, coverage.without_capacity) == (3, 1, 0)
    assert (coverage.unmatched_workloads, coverage.workloads_elsewhere) == (("shop/batch",), 1)
    assert coverage.services_without_pods == ("shop/web",)


def test_containers_share_one_index_of_labels() -> None:
    """Label sets of a container are read once for all of its amounts."""
    by_labels = {query.labels for role, query in USAGE_QUERIES.items() if not role.endswith("_allocatable")}
    assert by_labels == {CONTAINER}
    assert {query.labels for role, query in USAGE_QUERIES.items() if role.endswith("_allocatable")} == {NODE}
