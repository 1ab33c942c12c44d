"""Pods of a cluster: the workload that owns each, and the share of its CPU and memory that it uses.

cAdvisor reports containers, kube-state-metrics reports containers, pods and owners. Prometheus removes the duplicates
of each series; the joins are made here. In PromQL they cost Prometheus two to four times as much, and one pod that
two exporters describe differently fails a whole query.

- **Duplicates.** Two replicas of kube-state-metrics, two endpoints of a kubelet, pairs of Prometheus servers and
  federation report a container more than once. It counts once, with its newest memory.
- **Containers.** Those that run as long as their pod: init containers only if they always restart (native sidecars).
- **Capacity.** The limits of a pod, if each of its containers has one; else its requests. CPU and memory are
  independent. A container with neither may use its whole node: the pod then counts with the tighter of two, its other
  containers against their limits or requests, and all of its containers against the node. So neither a small sidecar
  without limits nor a small limit of a sidecar hides a shortage.
- **Pods.** Those that run, and whose usage and capacity are both known.
- **Workloads.** The top owner that kube-state-metrics names: Deployments, Argo Rollouts and other owners of replica
  sets, CronJobs, deployment configs; any other controller is the workload itself, and so is a pod without one.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.snapshot import IntArray
from serve_app.collect.prometheus.client import Numbers
from serve_app.collect.prometheus.frames import Column, Key, KeyIndex
from serve_app.collect.prometheus.kubernetes import CONTROLLER, NO_OWNER, WORKLOAD, with_owner
from serve_app.collect.prometheus.query import Query
from serve_app.collect.prometheus.workloads import WorkloadServices, services_of

# The parts of these keys that other queries share are next to each other, so that they can be cut out.
POD = ("pod", "namespace")
CONTAINER = ("container", *POD)
OWNER = ("namespace", "owner_kind", "owner_name")
PARENT = ("namespace", "kind", "name", "workload")
NODE = ("node",)

RUNNING = 'container!="",container!="POD"'
CPU, MEMORY = "cpu", "memory"
RESOURCES = (CPU, MEMORY)
OWNERS, PARENTS, NODES, ENDED, CORDONED = "owners", "parents", "nodes", "ended", "cordoned"
GONE_WINDOWS = 2.0  # rate windows after which a pod is gone although its series still have a value

_NOT_WORKLOADS = f"{NO_OWNER}|Node"  # a node owns the pods of its kubelet's own manifests
# Controllers that other controllers own. A controller without replicas is left out: there are ten old replica sets of
# each deployment. Without its series, which many clusters drop for that reason, the owner's name is what Kubernetes
# made the controller's name from.
_OWNED = {
    "ReplicaSet": ("replicaset", "kube_replicaset_spec_replicas", r"-[bcdfghjklmnpqrstvwxz2456789]{1,10}"),
    "Job": ("job_name", "kube_job_status_active", r"-\d{8,10}"),
    "ReplicationController": ("replicationcontroller", "kube_replicationcontroller_spec_replicas", r"-\d+"),
}
_SUFFIXES = {kind: re.compile(f"(.+){suffix}") for kind, (_, _, suffix) in _OWNED.items()}
# Bytes that memory is below, 4 TiB: a sample's age and its value share the 53 bits of a number without loss.
_MAX_MEMORY = 2**42
_BY_CONTAINER = f"max by ({', '.join(CONTAINER)})"


def _parents(kind: str, label: str, replicas: str) -> str:
    series = f"kube_{label.removesuffix('_name')}_owner{{$match {CONTROLLER}}}"
    used = f"({series} unless on (namespace, {label}) ({replicas}{{$match}} == 0))"
    named = f'label_replace({with_owner(used, label)}, "name", "$1", "{label}", "(.*)")'
    return f'label_replace({named}, "kind", "{kind}", "{label}", ".*")'


def _owners() -> str:
    """The value is the time of the sample, which shows whether the pod is still there."""
    owned = f'timestamp(kube_pod_owner{{$match owner_kind!~"{_NOT_WORKLOADS}",{CONTROLLER}}})'
    bare = f'timestamp(kube_pod_owner{{$match owner_kind=~"{_NOT_WORKLOADS}"}})'
    named = f'label_replace({bare}, "owner_name", "$1", "pod", "(.*)")'
    return f'{owned} or label_replace({named}, "owner_kind", "Pod", "pod", ".*")'


def _cpu_usage() -> str:
    """cAdvisor reports each core, or only their sum."""
    total, cores = (
        f'rate(container_cpu_usage_seconds_total{{$match {RUNNING},cpu{operator}"cpu[0-9]+"}}[$window])'
        for operator in ("!~", "=~")
    )
    return f"{_BY_CONTAINER} ({total}) or {_BY_CONTAINER} (sum without (cpu) ({cores}))"


def _memory_usage() -> str:
    """The newest sample of each container: after a restart, the old series keeps its value for up to five minutes,
    because samples of cAdvisor carry times of their own. The greatest sum of time and value is the newest."""
    series = f"container_memory_working_set_bytes{{$match {RUNNING}}}"
    newest = f"floor(timestamp({series}) - time() + 1024) * {_MAX_MEMORY} + {series}"
    return f"{_BY_CONTAINER} ({newest}) % {_MAX_MEMORY}"


def _specified(amount: str, resource: str) -> str:
    """Limits or requests of the containers that run as long as their pod."""
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


IndexOf = Callable[[tuple[str, ...]], KeyIndex]


@dataclass(frozen=True, slots=True)
class PodCoverage:
    """Which pods, workloads and services of a cluster belong together.

    Attributes:
        pods: pods that run.
        without_owner: pods with usage that kube-state-metrics does not know. They count for no service.
        without_capacity: pods with usage, and neither a limit nor a request nor a known node. They are left out.
        unmatched_workloads: workloads with pods in a namespace of the mesh that serve none of its services.
        workloads_elsewhere: number of workloads in other namespaces.
        services_without_pods: services of the mesh whose CPU and memory nothing can show.
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
        known: columns of :data:`POD_QUERIES` and :data:`USAGE_QUERIES`, by role; ``owners`` is required.
    """

    def __init__(self, known: Mapping[str, Column], index_of: IndexOf, window_seconds: float) -> None:
        self._known, self._index_of = known, index_of
        self._pods, self._workloads = index_of(POD), index_of(WORKLOAD)
        self._pod_of = index_of(CONTAINER).part(1, None, self._pods)  # of each container
        owners = known[OWNERS]
        oldest = owners.values.max(initial=0.0) - GONE_WINDOWS * window_seconds
        order = np.argsort(owners.values, kind="stable")  # the last owner of a pod is the one that counts
        rows = owners.numbers[order[owners.values[order] >= oldest]]
        pods = owners.index.part(0, 2, self._pods)[rows]
        tops = self._top_owners(owners.index.part(1, 4, index_of(OWNER))[rows])
        self._workload_of = np.full(len(self._pods), -1)  # of each pod; -1: unknown, or the pod is gone
        self._workload_of[pods] = tops
        self._runs = self._workload_of >= 0
        if ENDED in known:
            self._runs[known[ENDED].numbers] = False
        self._measured = {
            resource: self._usage_and_capacity(resource)
            for resource in RESOURCES
            if {f"{resource}_{amount}" for amount in ("usage", "limits", "requests")} <= known.keys()
        }

    def _top_owners(self, owners: IntArray) -> IntArray:
        """Numbers of the workloads of these controllers."""
        keys = self._index_of(OWNER).keys
        parents = {key[:3]: key[3] for key in self._known[PARENTS].keys} if PARENTS in self._known else {}
        distinct, place = np.unique(owners, return_inverse=True)
        tops = (_top_owner(keys[owner], parents) for owner in distinct.tolist())
        return np.array([self._workloads.number_of(top) for top in tops], np.int64)[place]

    def utilisation(self, resource: str, serving: WorkloadServices) -> Column | None:
        """The used share of ``cpu`` or ``memory`` by service, over the pods of its workloads; None if unknown."""
        if resource not in self._measured:
            return None
        used, capacity = self._measured[resource]
        known = self._runs & (capacity > 0)
        by_workload = [
            np.bincount(self._workload_of[known], of_pods[known], len(self._workloads)) for of_pods in (used, capacity)
        ]
        totals: dict[Key, Numbers] = {}  # used, capacity
        for workload, *amounts in zip(self._workloads.keys, *(one.tolist() for one in by_workload), strict=True):
            if amounts[1] > 0:
                for service in services_of(workload, serving):
                    totals[service] = totals.get(service, np.zeros(2)) + amounts
        return Column.create({service: float(used / capacity) for service, (used, capacity) in totals.items()})

    def _usage_and_capacity(self, resource: str) -> tuple[Numbers, Numbers]:
        """``[P]`` usage of each pod, and ``[P]`` what it may use; 0 if either is unknown."""
        containers = self._index_of(CONTAINER)
        everyone = np.arange(len(containers))
        used, limit, request = (
            self._known[f"{resource}_{amount}"].align(containers, everyone)
            for amount in ("usage", "limits", "requests")
        )
        runs, limited, requested = np.isfinite(used), limit > 0, request > 0
        bounded = limited | requested
        by_requests = self._any(bounded & ~limited)[self._pod_of]
        bound = np.where(by_requests & requested, request, limit)
        measured = self._any(runs & bounded)
        capacity = np.where(measured, self._sum(bound, bounded), 0.0)
        used_of_capacity, used_of_node = self._sum(used, runs & bounded), self._sum(used, runs)
        node = self._node_sizes(resource)
        share = np.divide(used_of_capacity, capacity, out=np.zeros_like(capacity), where=measured)
        by_node = self._any(runs & ~bounded) & (node > 0) & (used_of_node >= share * node)
        return np.where(by_node, used_of_node, used_of_capacity), np.where(by_node, node, capacity)

    def _sum(self, values: Numbers, of: NDArray[np.bool_]) -> Numbers:
        """``[P]`` sum over the containers of each pod."""
        return np.bincount(self._pod_of[of], values[of], len(self._workload_of)).astype(np.float64)

    def _any(self, of: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """``[P]`` whether it holds for a container of the pod."""
        return np.bincount(self._pod_of[of], minlength=len(self._workload_of)) > 0

    def _node_sizes(self, resource: str) -> Numbers:
        """``[P]`` what the node of each pod has for pods; NaN if unknown."""
        sizes = np.full(len(self._workload_of), np.nan)
        allocatable = self._known.get(f"{resource}_allocatable")
        if NODES in self._known and allocatable is not None:
            pods, nodes = self._pods_on_nodes()
            sizes[pods] = allocatable.align(self._index_of(NODE), nodes)
        return sizes

    def _pods_on_nodes(self) -> tuple[IntArray, IntArray]:
        placed = self._known[NODES]
        pods = placed.index.part(0, 2, self._pods)[placed.numbers]
        nodes = placed.index.part(2, 3, self._index_of(NODE))[placed.numbers]
        owned = pods < len(self._workload_of)  # pods that became known later have no owner
        return pods[owned], nodes[owned]

    def cordoned_workloads(self) -> frozenset[Key] | None:
        """Workloads with pods on cordoned nodes; None if unknown."""
        if not {NODES, CORDONED} <= self._known.keys():
            return None
        pods, nodes = self._pods_on_nodes()
        cordoned = self._known[CORDONED].align(self._index_of(NODE), nodes)
        workloads = self._workload_of[pods[np.isfinite(cordoned)]]
        return frozenset(self._workloads.keys[i] for i in np.unique(workloads[workloads >= 0]).tolist())

    def by_workload(self, column: Column, combine: np.ufunc) -> Column:
        """Combine the values of pods that have the same workload.

        Args:
            column: keys end with pod and namespace.
            combine: for example ``np.add``.

        Returns:
            Values by namespace, workload and the other parts of the keys.
        """
        others = len(column.index.keys[0]) - len(POD) if len(column.index) else 0
        pods = column.index.part(others, None, self._pods)[column.numbers]
        workloads = np.append(self._workload_of, -1)[np.minimum(pods, len(self._workload_of))]
        usable = (workloads >= 0) & np.isfinite(column.values)
        if not usable.any():
            return Column.create({})
        rest = KeyIndex()
        rests = np.array([rest.number_of(column.index.keys[i][:others]) for i in column.numbers[usable].tolist()])
        codes = workloads[usable] * len(rest) + rests
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        values = combine.reduceat(column.values[usable][order], starts)
        ends = [divmod(code, len(rest)) for code in codes[order][starts].tolist()]
        keys = [(*self._workloads.keys[workload], *rest.keys[other]) for workload, other in ends]
        return Column.create(dict(zip(keys, values.tolist(), strict=True)))

    def coverage(self, services: Collection[Key], serving: WorkloadServices) -> PodCoverage:
        """Compare with the services of a snapshot."""
        used = np.zeros(len(self._workload_of), bool)
        for resource in RESOURCES:
            if column := self._known.get(f"{resource}_usage"):
                used[self._pod_of[column.numbers]] = True
        measured = np.any([capacity > 0 for _, capacity in self._measured.values()], axis=0)
        running = [self._workloads.keys[i] for i in np.unique(self._workload_of[self._runs]).tolist()]
        served = {workload: services_of(workload, serving) for workload in running}
        mesh, namespaces = set(services), {namespace for namespace, *_ in services}
        others = [workload for workload, its in served.items() if mesh.isdisjoint(its)]
        unmatched = sorted("/".join(key) for key in others if key[0] in namespaces)
        without = mesh.difference(*served.values())
        return PodCoverage(
            pods=int(self._runs.sum()),
            without_owner=int((used & (self._workload_of < 0)).sum()),
            without_capacity=int((used & self._runs & ~measured).sum()),
            unmatched_workloads=tuple(unmatched),
            workloads_elsewhere=len(others) - len(unmatched),
            services_without_pods=tuple(sorted(map("/".join, without))),
        )


def _top_owner(owner: Key, parents: Mapping[Key, str]) -> Key:
    """Namespace and name of the workload of a controller."""
    namespace, kind, name = owner
    if owner not in parents and (made_from := _SUFFIXES.get(kind)) and (match := made_from.fullmatch(name)):
        return namespace, match[1]
    return namespace, parents.get(owner, name)
