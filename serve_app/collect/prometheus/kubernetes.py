"""CPU, memory, controllers and annotations from cAdvisor and kube-state-metrics in the same Prometheus.

This needs no permission in the cluster, and works for past periods too. All queries are by workload (deployment,
stateful set, daemon set); values are then assigned to the services that a workload serves.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from model.incidents.mutes import LEVELS
from model.snapshot import IntArray, Sensitivity, ServicePolicy
from serve_app.api.schemas.base import MOST_REASON
from serve_app.collect.prometheus.frames import Column, Key, KeyIndex
from serve_app.collect.prometheus.query import Query
from serve_app.collect.prometheus.workloads import Controller, WorkloadServices

WORKLOAD = ("namespace", "workload")

_BY = "sum by (namespace, workload)"
_OWNED_BY_REPLICAS = (
    'label_replace(kube_pod_owner{owner_kind="ReplicaSet"}, "replicaset", "$1", "owner_name", "(.*)")'
    " * on (namespace, replicaset) group_left (workload)"
    ' label_replace(kube_replicaset_owner{owner_kind="Deployment"}, "workload", "$1", "owner_name", "(.*)")'
)
_OWNED = 'label_replace(kube_pod_owner{owner_kind=~"StatefulSet|DaemonSet"}, "workload", "$1", "owner_name", "(.*)")'
OWNER = f"max by (namespace, pod, workload) ({_OWNED_BY_REPLICAS} or {_OWNED})"


def _sum_by_pod(series: str) -> str:
    return f"sum by (namespace, pod) ({series})"


def _sum_by_workload(by_pod: str) -> str:
    return f"{_BY} (({by_pod}) * on (namespace, pod) group_left (workload) {OWNER})"


def _capacity(resource: str) -> str:
    """How much of a resource a workload may use: limits of each pod, or its requests, or the size of its node.

    Owners are joined once, after summing, because that join is the expensive part of the query.
    """
    limits, requests = (
        _sum_by_pod(f'kube_pod_container_resource_{kind}{{resource="{resource}"}}') for kind in ("limits", "requests")
    )
    node = _sum_by_pod(f'kube_pod_info * on (node) group_left () kube_node_status_allocatable{{resource="{resource}"}}')
    return _sum_by_workload(f"{limits} or {requests} or {node}")


def _controller_series(deployment: str, stateful_set: str) -> str:
    parts = (
        f'label_replace({metric}, "workload", "$1", "{label}", "(.*)")'
        for metric, label in ((deployment, "deployment"), (stateful_set, "statefulset"))
    )
    return f"max by (namespace, workload) ({' or '.join(parts)})"


def _annotation_series(annotation: str) -> str:
    """Workloads with ``tagae.io/ANNOTATION``, its name and value. kube-state-metrics turns annotations into labels."""
    label = f"annotation_tagae_io_{annotation}"
    parts = (
        f'label_replace(kube_{kind}_annotations{{{label}!=""}}, "workload", "$1", "{kind}", "(.*)")'
        for kind in ("deployment", "statefulset", "daemonset")
    )
    with_value = f'label_replace({" or ".join(parts)}, "value", "$1", "{label}", "(?s)(.*)")'
    return f'label_replace({with_value}, "annotation", "{annotation}", "{label}", "(?s).*")'


RUNNING = 'container!="",container!="POD"'
RESOURCES = {
    "cpu_usage": Query(
        _sum_by_workload(_sum_by_pod(f"rate(container_cpu_usage_seconds_total{{{RUNNING}}}[$window])")), WORKLOAD
    ),
    "cpu_capacity": Query(_capacity("cpu"), WORKLOAD),
    "memory_usage": Query(_sum_by_workload(_sum_by_pod(f"container_memory_working_set_bytes{{{RUNNING}}}")), WORKLOAD),
    "memory_capacity": Query(_capacity("memory"), WORKLOAD),
}
CONTROLLERS = {
    "desired": Query(
        _controller_series("kube_deployment_spec_replicas", "kube_statefulset_replicas"), WORKLOAD, joined_by="max"
    ),
    "generation": Query(
        _controller_series("kube_deployment_metadata_generation", "kube_statefulset_metadata_generation"),
        WORKLOAD,
        joined_by="max",
    ),
}
MUTE, SENSITIVITY = "mute", "sensitivity"
_ANNOTATION = (*WORKLOAD, "annotation", "value")
ANNOTATIONS = {
    "annotations": Query(
        f"group by ({', '.join(_ANNOTATION)}) ({_annotation_series(MUTE)} or {_annotation_series(SENSITIVITY)})",
        _ANNOTATION,
        joined_by="max",
    )
}
NOT_REASONS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})  # ambiguous as a reason to mute
_AUTOSCALED = (
    'label_replace(kube_horizontalpodautoscaler_info{scaletargetref_kind=~"Deployment|StatefulSet"}, "workload", "$1",'
    ' "scaletargetref_name", "(.*)") * on (namespace, horizontalpodautoscaler) group_left ()'
    " kube_horizontalpodautoscaler_status_desired_replicas"
)
_CORDONED = "kube_pod_info * on (node) group_left () (max by (node) (kube_node_spec_unschedulable) == 1)"
OPTIONAL = {  # further series about planned changes
    "autoscaled": Query(f"max by (namespace, workload) ({_AUTOSCALED})", WORKLOAD, joined_by="max"),
    "cordoned": Query(_sum_by_workload(_sum_by_pod(_CORDONED)), WORKLOAD),
}


def read_controllers(columns: Mapping[str, Column]) -> dict[Key, Controller]:
    """Controllers by workload, if replicas and generation are known."""
    desired, generation = (_by_key(columns[role]) for role in CONTROLLERS)
    scaled = _by_key(columns["autoscaled"]) if "autoscaled" in columns else {}
    known = (key for key in desired if key in generation and np.isfinite(desired[key] + generation[key]))
    return {key: Controller(int(desired[key]), int(generation[key]), scaled.get(key) == desired[key]) for key in known}


def read_cordoned(columns: Mapping[str, Column]) -> frozenset[Key] | None:
    """Workloads with pods on cordoned nodes; None if unknown."""
    return frozenset(columns["cordoned"].keys) if "cordoned" in columns else None


def _by_key(column: Column) -> dict[Key, float]:
    return dict(zip(column.keys, column.values.tolist(), strict=True))


class ServiceMapping:
    """Which workload serves which service. A workload that is in no pair serves the service of its own name.

    Args:
        workloads, services: all keys.
        pairs: keys of workload and service, joined.
    """

    def __init__(self, workloads: KeyIndex, services: KeyIndex, pairs: Column | None = None) -> None:
        self.workloads, self.services = workloads, services
        self._pairs = np.empty((2, 0), np.int64)
        if pairs is not None:
            ends = (pairs.index.part(0, 2, workloads), pairs.index.part(2, 4, services))
            self._pairs = np.stack([end[pairs.numbers] for end in ends])

    def pairs(self) -> tuple[IntArray, IntArray]:
        """``[P]`` numbers of workloads, each at least once, and ``[P]`` of the services that they serve."""
        unpaired = np.ones(len(self.workloads), bool)
        unpaired[self._pairs[0]] = False
        others = np.flatnonzero(unpaired)
        own = self.workloads.part(0, None, self.services)[others]
        return np.append(self._pairs[0], others), np.append(self._pairs[1], own)

    def services_of(self, workload: Key) -> list[Key]:
        """Services of one workload."""
        numbers = self._pairs[1][self._pairs[0] == self.workloads.number_of(workload)]
        return [self.services.keys[i] for i in numbers.tolist()] or [workload]

    def to_mapping(self) -> WorkloadServices:
        """Services of each workload that is in a pair."""
        found: dict[Key, list[Key]] = {}
        for workload, service in self._pairs.T.tolist():
            found.setdefault(self.workloads.keys[workload], []).append(self.services.keys[service])
        return found


def read_annotations(annotations: Column, serving: ServiceMapping) -> tuple[list[ServicePolicy], list[str]]:
    """Read the policies of services from annotations of their workloads.

    A service is muted if one of its workloads is. The highest of several sensitivities counts.

    Returns:
        The policies; and a description of each invalid annotation, which is ignored.
    """
    policies: dict[str, ServicePolicy] = {}
    ignored = []
    for namespace, workload, annotation, value in sorted(annotations.keys):
        policy = _parse_annotation(annotation, value.strip())
        if isinstance(policy, str):
            ignored.append(f"{namespace}/{workload}: tagae.io/{annotation}: {policy}, came {value[:80]!r}")
            continue
        for service in serving.services_of((namespace, workload)):
            name = "/".join(service)
            policies[name] = _merge(policies.get(name, ServicePolicy(name)), policy)
    return list(policies.values()), ignored


def _parse_annotation(annotation: str, value: str) -> ServicePolicy | str:
    """The policy, without a service; or what was expected instead."""
    if annotation == SENSITIVITY:
        if value in list(Sensitivity):
            return ServicePolicy("", Sensitivity(value))
        return f"expected {', '.join(Sensitivity)}"
    if value and value.lower() not in NOT_REASONS and len(value) <= MOST_REASON:
        return ServicePolicy("", mute=value)
    return f"expected the reason for the mute, at most {MOST_REASON} characters"


def _merge(one: ServicePolicy, other: ServicePolicy) -> ServicePolicy:
    """Combine two policies of one service."""
    given = [each.sensitivity for each in (one, other) if each.sensitivity is not None]
    return replace(one, sensitivity=min(given, key=LEVELS.__getitem__, default=None), mute=one.mute or other.mute)


def utilisation(usage: Column, capacity: Column, serving: ServiceMapping) -> Column:
    """Usage over capacity by service, summed over its workloads for which both are known."""
    workloads, services = serving.pairs()
    used, available = (column.align(serving.workloads, workloads) for column in (usage, capacity))
    known = np.isfinite(used) & (available > 0)
    count = len(serving.services)
    totals = [np.bincount(services[known], amount[known], count) for amount in (used, available)]
    present = np.flatnonzero(totals[1])
    return Column(serving.services, present, totals[0][present] / totals[1][present])
