"""What Kubernetes knows of a mesh, from cAdvisor and kube-state-metrics in the same Prometheus.

No permission beyond the Prometheus is needed, and a past period can be asked for like the present. Everything is asked
by workload (deployment, stateful set, daemon set) and laid on services by who serves whom.
"""

from collections.abc import Mapping

import numpy as np

from serve_app.sources.prometheus.decisions import Controller, Served
from serve_app.sources.prometheus.dialects import Query
from serve_app.sources.prometheus.table import Column, Key

WORKLOAD = ("namespace", "workload")

_BY = "sum by (namespace, workload)"
_OWNED_BY_REPLICAS = (
    'label_replace(kube_pod_owner{owner_kind="ReplicaSet"}, "replicaset", "$1", "owner_name", "(.*)")'
    " * on (namespace, replicaset) group_left (workload)"
    ' label_replace(kube_replicaset_owner{owner_kind="Deployment"}, "workload", "$1", "owner_name", "(.*)")'
)
_OWNED = 'label_replace(kube_pod_owner{owner_kind=~"StatefulSet|DaemonSet"}, "workload", "$1", "owner_name", "(.*)")'
_OWNER = f"max by (namespace, pod, workload) ({_OWNED_BY_REPLICAS} or {_OWNED})"


def _of_workloads(by_pod: str) -> str:
    return f"{_BY} (sum by (namespace, pod) ({by_pod}) * on (namespace, pod) group_left (workload) {_OWNER})"


def _capacity(resource: str) -> str:
    """What a workload may use: its limits, else its requests, else its nodes."""
    limits, requests = (
        _of_workloads(f'kube_pod_container_resource_{kind}{{resource="{resource}"}}') for kind in ("limits", "requests")
    )
    nodes = _of_workloads(
        f'kube_pod_info * on (node) group_left () kube_node_status_allocatable{{resource="{resource}"}}'
    )
    return f"({limits}) or ({requests}) or ({nodes})"


def _of_controllers(deployment: str, stateful_set: str) -> str:
    parts = (
        f'label_replace({metric}, "workload", "$1", "{label}", "(.*)")'
        for metric, label in ((deployment, "deployment"), (stateful_set, "statefulset"))
    )
    return f"max by (namespace, workload) ({' or '.join(parts)})"


_RUNNING = 'container!="",container!="POD"'
RESOURCES = {
    "cpu_usage": Query(_of_workloads(f"rate(container_cpu_usage_seconds_total{{{_RUNNING}}}[$window])"), WORKLOAD),
    "cpu_capacity": Query(_capacity("cpu"), WORKLOAD),
    "memory_usage": Query(_of_workloads(f"container_memory_working_set_bytes{{{_RUNNING}}}"), WORKLOAD),
    "memory_capacity": Query(_capacity("memory"), WORKLOAD),
}
CONTROLLERS = {
    "desired": Query(_of_controllers("kube_deployment_spec_replicas", "kube_statefulset_replicas"), WORKLOAD),
    "generation": Query(
        _of_controllers("kube_deployment_metadata_generation", "kube_statefulset_metadata_generation"), WORKLOAD
    ),
}
_AUTOSCALED = (
    'label_replace(kube_horizontalpodautoscaler_info{scaletargetref_kind=~"Deployment|StatefulSet"}, "workload", "$1",'
    ' "scaletargetref_name", "(.*)") * on (namespace, horizontalpodautoscaler) group_left ()'
    " kube_horizontalpodautoscaler_status_desired_replicas"
)
_CORDONED = "kube_pod_info * on (node) group_left () (max by (node) (kube_node_spec_unschedulable) == 1)"
MORE = {  # of decisions, where it is known
    "autoscaled": Query(f"max by (namespace, workload) ({_AUTOSCALED})", WORKLOAD),
    "cordoned": Query(_of_workloads(_CORDONED), WORKLOAD),
}


def controllers(columns: Mapping[str, Column]) -> dict[Key, Controller]:
    """Workloads of which replicas and generation are known."""
    desired, generation = (_by_key(columns[role]) for role in CONTROLLERS)
    scaled = _by_key(columns["autoscaled"]) if "autoscaled" in columns else {}
    known = (key for key in desired if key in generation and np.isfinite(desired[key] + generation[key]))
    return {key: Controller(int(desired[key]), int(generation[key]), scaled.get(key) == desired[key]) for key in known}


def cordoned(columns: Mapping[str, Column]) -> frozenset[Key] | None:
    """Workloads with pods on nodes that take no new ones; None: not known."""
    return frozenset(columns["cordoned"].keys) if "cordoned" in columns else None


def _by_key(column: Column) -> dict[Key, float]:
    return dict(zip(column.keys, column.values.tolist(), strict=True))


def utilisation(usage: Column | None, capacity: Column | None, serves: Served) -> Column:
    """Usage over capacity by service, its workloads together; of those alone of which both are known."""
    used: dict[Key, float] = {}
    may: dict[Key, float] = {}
    if usage is not None and capacity is not None:
        limit = _by_key(capacity)
        for workload, value in zip(usage.keys, usage.values.tolist(), strict=True):
            most = limit.get(workload, 0.0)
            if not (most > 0 and np.isfinite(value)):
                continue
            for service in serves.get(workload, [workload]):
                used[service] = used.get(service, 0.0) + value
                may[service] = may.get(service, 0.0) + most
    return Column(tuple(used), np.array([used[key] / may[key] for key in used], np.float64))
