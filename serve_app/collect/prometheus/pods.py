"""A cluster's pods: each pod's workload, and the share of its CPU and memory that it uses.

cAdvisor reports containers; kube-state-metrics reports containers, pods and owners. Prometheus removes each series'
duplicates, and this module joins the results. Joins in PromQL would cost Prometheus two to four times as much, and one
pod that two exporters describe differently would make a whole query fail.

- **Duplicates.** If kube-state-metrics has two replicas, a kubelet two endpoints, Prometheus a second server or
  federation, a container is reported more than once. It counts once, with its newest memory.
- **Containers.** Containers count if they run as long as their pod; init containers only if they always restart (native
  sidecars).
- **Capacity.** A pod's limits, if each of its containers has one; else its requests. CPU and memory are independent. A
  container with neither may use its whole node: the pod then counts with the tighter of two, its other containers
  against their limits or requests, and all of its containers against the node. So neither a small sidecar without
  limits nor a small limit of a sidecar hides a shortage.
- **Pods.** Pods count if they run and both their usage and capacity are known.
- **Workloads.** The top owner that kube-state-metrics names: Deployments, Argo Rollouts and other owners of replica
  sets, CronJobs, deployment configs; any other controller is the workload itself, and so is a pod without one.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.snapshot import IntArray
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.keys import Column, Columns, Key, KeyMap
from serve_app.collect.prometheus.kubernetes import CONTROLLER, NO_OWNER, with_owner
from serve_app.collect.prometheus.query import Join, Query
from serve_app.collect.prometheus.workloads import WorkloadServices, serve, services_of
from serve_app.collect.service_labels import SAFE

# Parts of these keys that other queries share are adjacent, so that they can be sliced.
POD = ("pod", "namespace")
CONTAINER = ("container", *POD)
OWNER = ("namespace", "owner_kind", "owner_name")
PARENT = ("namespace", "kind", "name", "workload")
NODE = ("node",)

RUNNING = 'container!="",container!="POD"'
CPU, MEMORY = "cpu", "memory"
RESOURCES = (CPU, MEMORY)
OWNERS, PARENTS, NODES, ENDED, CORDONED = "owners", "parents", "nodes", "ended", "cordoned"
GONE_WINDOWS = 2.0  # age in rate windows above which a pod is gone although its series still have a value

_NOT_WORKLOADS = f"{NO_OWNER}|Node"  # a node owns the pods of its kubelet's own manifests
# Controllers that other controllers own. A controller without replicas is left out: each deployment has ten old replica
# sets. If their series are missing, because many clusters drop them for that reason, the owner's name is the
# controller's name without its suffix.
_OWNED = {
    "ReplicaSet": ("replicaset", "kube_replicaset_spec_replicas", f"-{SAFE}{{1,10}}"),
    "Job": ("job_name", "kube_job_status_active", r"-\d{8,10}"),
    "ReplicationController": ("replicationcontroller", "kube_replicationcontroller_spec_replicas", r"-\d+"),
}
_SUFFIXES = {kind: re.compile(f"(.+){suffix}") for kind, (_, _, suffix) in _OWNED.items()}
# Memory is below this number of bytes, 4 TiB, so that a sample's age and value share a number's 53 bits without loss.
_MAX_MEMORY = 2**42
_BY_CONTAINER = f"max by ({', '.join(CONTAINER)})"


def _parents(kind: str, label: str, replicas: str) -> str:
    series = f"kube_{label.removesuffix('_name')}_owner{{$match {CONTROLLER}}}"
    controllers = f"({series} unless on (namespace, {label}) ({replicas}{{$match}} == 0))"
    with_names = f'label_replace({with_owner(controllers, label)}, "name", "$1", "{label}", "(.*)")'
    return f'label_replace({with_names}, "kind", "{kind}", "{label}", ".*")'


def _owners() -> str:
    """Return PromQL for the pods' owners. The value is the sample's time, which shows whether the pod still exists."""
    of_controllers = f'timestamp(kube_pod_owner{{$match owner_kind!~"{_NOT_WORKLOADS}",{CONTROLLER}}})'
    bare = f'timestamp(kube_pod_owner{{$match owner_kind=~"{_NOT_WORKLOADS}"}})'
    with_pod_names = f'label_replace({bare}, "owner_name", "$1", "pod", "(.*)")'
    return f'{of_controllers} or label_replace({with_pod_names}, "owner_kind", "Pod", "pod", ".*")'


def _cpu_usage() -> str:
    """Return PromQL for the containers' CPU usage. cAdvisor reports each core, or only their sum."""
    total, cores = (
        f'rate(container_cpu_usage_seconds_total{{$match {RUNNING},cpu{operator}"cpu[0-9]+"}}[$window])'
        for operator in ("!~", "=~")
    )
    return f"{_BY_CONTAINER} ({total}) or {_BY_CONTAINER} (sum without (cpu) ({cores}))"


def _memory_usage() -> str:
    """Return each container's newest sample. After a restart, the old series keeps its value for up to five minutes,
    because cAdvisor's samples have their own timestamps. The largest sum of time and value is the newest."""
    series = f"container_memory_working_set_bytes{{$match {RUNNING}}}"
    newest = f"floor(timestamp({series}) - time() + 1024) * {_MAX_MEMORY} + {series}"
    return f"{_BY_CONTAINER} ({newest}) % {_MAX_MEMORY}"


def _specified(amount: str, resource: str) -> str:
    """Return the limits or requests of the containers that run as long as their pod."""
    of_containers, of_init_containers = (
        f'kube_pod_{kind}_resource_{amount}{{$match resource="{resource}"}}' for kind in ("container", "init_container")
    )
    stays = 'kube_pod_init_container_info{$match restart_policy="Always"}'
    sidecars = f"{of_init_containers} and on ({', '.join(CONTAINER)}) {stays}"
    return f"{_BY_CONTAINER} ({of_containers}) or {_BY_CONTAINER} ({sidecars})"


def _largest(promql: str, labels: tuple[str, ...]) -> Query:
    return Query(promql, labels, joined_by="max")


_PODS_OWNER = (*POD, *OWNER[1:])
POD_QUERIES = {
    OWNERS: _largest(f"max by ({', '.join(_PODS_OWNER)}) ({_owners()})", _PODS_OWNER),
    PARENTS: _largest(
        f"group by ({', '.join(PARENT)})"
        f" ({' or '.join(_parents(kind, label, replicas) for kind, (label, replicas, _) in _OWNED.items())})",
        PARENT,
    ),
    NODES: _largest(f"group by ({', '.join((*POD, *NODE))}) (kube_pod_info{{$match}})", (*POD, *NODE)),
    ENDED: _largest(
        f'group by ({", ".join(POD)}) (kube_pod_status_phase{{$match phase=~"Succeeded|Failed"}} == 1)', POD
    ),
    CORDONED: _largest("max by (node) (kube_node_spec_unschedulable{$match}) == 1", NODE),
}
USAGE_QUERIES = {
    f"{CPU}_usage": _largest(_cpu_usage(), CONTAINER),
    f"{MEMORY}_usage": _largest(_memory_usage(), CONTAINER),
    **{
        f"{resource}_{amount}": _largest(_specified(amount, resource), CONTAINER)
        for resource in RESOURCES
        for amount in ("limits", "requests")
    },
    **{
        f"{resource}_allocatable": _largest(
            f'max by (node) (kube_node_status_allocatable{{$match resource="{resource}"}})', NODE
        )
        for resource in RESOURCES
    },
}


@dataclass(frozen=True, slots=True)
class PodCoverage:
    """The match between a cluster's pods, workloads and services.

    Attributes:
        without_owner: pods with usage that are unknown to kube-state-metrics. They count for no service.
        without_capacity: pods with usage, and neither a limit nor a request nor a known node. They are left out.
        unmatched_workloads: workloads with pods in a namespace of the mesh that serve none of its services.
        workloads_elsewhere: number of workloads in other namespaces.
        services_without_pods: services of the mesh whose CPU and memory cannot be known.
    """

    pods: int
    without_owner: int
    without_capacity: int
    unmatched_workloads: tuple[str, ...]
    workloads_elsewhere: int
    services_without_pods: tuple[str, ...]


class Pods:
    """The pods of one instant.

    Args:
        columns: results of :data:`POD_QUERIES` and :data:`USAGE_QUERIES`, by role; ``owners`` is required.
    """

    def __init__(self, columns: Columns, window_seconds: float) -> None:
        self._columns = columns
        owners = columns[OWNERS]
        self._keys = keys = owners.table
        parents = {key[:3]: key[3] for key in columns.get(PARENTS, ())}
        recent = owners.only(owners.array >= np.fmax.reduce(owners.array, initial=0.0) - GONE_WINDOWS * window_seconds)
        newest_first = np.argsort(-recent.array, kind="stable")
        tops = KeyMap(keys, lambda owner: _top_owner(owner, parents))(recent.part(1))
        pods, place = np.unique(recent.part(0, 2)[newest_first], return_index=True)
        # If a pod has several owners, the last one counts.
        self._workload_of = Column(keys, pods, tops[newest_first][place].astype(np.float64))
        self._running = np.setdiff1d(pods, columns[ENDED].numbers if ENDED in columns else ())
        self._measured = {
            resource: self._usage_and_capacity(resource)
            for resource in RESOURCES
            if {f"{resource}_{amount}" for amount in ("usage", "limits", "requests")} <= columns.keys()
        }

    def utilisation(self, resource: str, serving: WorkloadServices) -> Column | None:
        """Return the used share of ``cpu`` or ``memory`` by service, over the pods of its workloads; None if
        unknown."""
        if resource not in self._measured:
            return None
        usage, capacity = (column.among(self._running) for column in self._measured[resource])
        rows, services = serve(self._keys, self._workload_of.at(usage.numbers).astype(np.int64), serving)
        usage, capacity = (Column.join(self._keys, services, column.array[rows]) for column in (usage, capacity))
        return Column(self._keys, usage.numbers, usage.array / capacity.array)

    def _usage_and_capacity(self, resource: str) -> tuple[Column, Column]:
        """Return each pod's usage and capacity, if both are known."""
        columns = [self._columns[f"{resource}_{amount}"] for amount in ("usage", "limits", "requests")]
        containers = np.unique(np.concatenate([column.numbers for column in columns]))
        pods, pod = np.unique(self._keys.part(1)(containers), return_inverse=True)
        usage, limit, request = (column.at(containers) for column in columns)

        def add(values: Numbers, mask: NDArray[np.bool_]) -> Numbers:
            """Return ``[P]`` each pod's sum over these containers."""
            return np.bincount(pod[mask], values[mask], len(pods)).astype(np.float64)

        runs, is_limited = np.isfinite(usage), limit > 0
        is_bounded, ones = is_limited | (request > 0), np.ones(len(pod))
        by_requests = add(ones, is_bounded & ~is_limited) > 0
        bound = np.where(by_requests[pod] & (request > 0), request, limit)
        capacity = np.where(add(ones, runs & is_bounded) > 0, add(bound, is_bounded), 0.0)
        of_bounded, of_all = add(usage, runs & is_bounded), add(usage, runs)
        node = self._node_sizes(resource).at(pods)
        share = np.divide(of_bounded, capacity, out=np.zeros(len(pods)), where=capacity > 0)
        by_node = (add(ones, runs & ~is_bounded) > 0) & (node > 0) & (of_all >= share * node)
        usage, capacity = np.where(by_node, of_all, of_bounded), np.where(by_node, node, capacity)
        pair = (Column(self._keys, pods, values).only(capacity > 0) for values in (usage, capacity))
        return next(pair), next(pair)

    def _node_sizes(self, resource: str) -> Column:
        """Return each pod's node capacity."""
        nodes, sizes = self._columns.get(NODES), self._columns.get(f"{resource}_allocatable")
        if nodes is None or sizes is None:
            return Column.of({}, self._keys)
        return Column.join(self._keys, nodes.part(0, 2), sizes.at(nodes.part(2)), "max")

    def cordoned_workloads(self) -> frozenset[Key] | None:
        """Return the workloads with pods on cordoned nodes; None if unknown."""
        if not {NODES, CORDONED} <= self._columns.keys():
            return None
        nodes = self._columns[NODES]
        on_them = nodes.part(0, 2)[self._keys.among(nodes.part(2), self._columns[CORDONED].numbers)]
        return frozenset(self._keys.name(self._workloads(on_them)))

    def by_workload(self, column: Column, join: Join) -> Column:
        """Join the values of pods with the same workload.

        Args:
            column: keys end with pod and namespace.

        Returns:
            Values by namespace, workload and the other parts of the keys.
        """
        workloads = self._workload_of.at(column.part(-2))
        usable = np.isfinite(workloads) & np.isfinite(column.array)
        numbers = self._keys.join(workloads[usable].astype(np.int64), column.part(0, -2)[usable])
        return Column.join(self._keys, numbers, column.array[usable], join)

    def _workloads(self, pods: IntArray) -> IntArray:
        """Return the distinct workloads of these pods."""
        workloads = self._workload_of.at(pods)
        return np.unique(workloads[np.isfinite(workloads)].astype(np.int64))

    def coverage(self, services: Collection[Key], serving: WorkloadServices) -> PodCoverage:
        """Compare the pods with the services of a snapshot."""
        no_pods = np.empty(0, np.int64)
        usage = [self._columns[role] for role in (f"{CPU}_usage", f"{MEMORY}_usage") if role in self._columns]
        used_pods = np.unique(np.concatenate([no_pods, *(column.part(1) for column in usage)]))
        measured_pods = np.concatenate([no_pods, *(capacity.numbers for _, capacity in self._measured.values())])
        services_by_workload = {
            workload: services_of(workload, serving) for workload in self._keys.name(self._workloads(self._running))
        }
        mesh, namespaces = set(services), {namespace for namespace, *_ in services}
        unserved_workloads = [workload for workload, its in services_by_workload.items() if mesh.isdisjoint(its)]
        unmatched_workloads = sorted("/".join(key) for key in unserved_workloads if key[0] in namespaces)
        return PodCoverage(
            pods=len(self._running),
            without_owner=len(np.setdiff1d(used_pods, self._workload_of.numbers)),
            without_capacity=len(np.setdiff1d(np.intersect1d(used_pods, self._running), measured_pods)),
            unmatched_workloads=tuple(unmatched_workloads),
            workloads_elsewhere=len(unserved_workloads) - len(unmatched_workloads),
            services_without_pods=tuple(sorted(map("/".join, mesh.difference(*services_by_workload.values())))),
        )


def _top_owner(owner: Key, parents: Mapping[Key, str]) -> Key:
    """Return a controller's workload: namespace and name."""
    namespace, kind, name = owner
    if owner not in parents and (made_from := _SUFFIXES.get(kind)) and (match := made_from.fullmatch(name)):
        return namespace, match[1]
    return namespace, parents.get(owner, name)
