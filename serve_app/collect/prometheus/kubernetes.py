"""What Kubernetes knows of a mesh, from cAdvisor and kube-state-metrics in the same Prometheus.

No permission beyond the Prometheus is needed, and a past period can be asked for like the present. Everything is asked
by workload (deployment, stateful set, daemon set) and laid on services by who serves whom.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from model.incidents.mutes import LEVELS
from model.snapshot import IntArray, Sensitivity, ServicePolicy
from serve_app.api.schemas.base import MOST_REASON
from serve_app.collect.prometheus.dialects import Query
from serve_app.collect.prometheus.frames import Column, Key, Keys
from serve_app.collect.prometheus.workloads import Controller, Served

WORKLOAD = ("namespace", "workload")

_BY = "sum by (namespace, workload)"
_OWNED_BY_REPLICAS = (
    'label_replace(kube_pod_owner{owner_kind="ReplicaSet"}, "replicaset", "$1", "owner_name", "(.*)")'
    " * on (namespace, replicaset) group_left (workload)"
    ' label_replace(kube_replicaset_owner{owner_kind="Deployment"}, "workload", "$1", "owner_name", "(.*)")'
)
_OWNED = 'label_replace(kube_pod_owner{owner_kind=~"StatefulSet|DaemonSet"}, "workload", "$1", "owner_name", "(.*)")'
_OWNER = f"max by (namespace, pod, workload) ({_OWNED_BY_REPLICAS} or {_OWNED})"


def _of_pods(series: str) -> str:
    return f"sum by (namespace, pod) ({series})"


def _of_workloads(by_pod: str) -> str:
    return f"{_BY} (({by_pod}) * on (namespace, pod) group_left (workload) {_OWNER})"


def _capacity(resource: str) -> str:
    """What a workload may use: of each pod its limits, else its requests, else its node. Owners are looked up once, for
    the sum of it: that join is what such a query costs."""
    limits, requests = (
        _of_pods(f'kube_pod_container_resource_{kind}{{resource="{resource}"}}') for kind in ("limits", "requests")
    )
    node = _of_pods(f'kube_pod_info * on (node) group_left () kube_node_status_allocatable{{resource="{resource}"}}')
    return _of_workloads(f"{limits} or {requests} or {node}")


def _of_controllers(deployment: str, stateful_set: str) -> str:
    parts = (
        f'label_replace({metric}, "workload", "$1", "{label}", "(.*)")'
        for metric, label in ((deployment, "deployment"), (stateful_set, "statefulset"))
    )
    return f"max by (namespace, workload) ({' or '.join(parts)})"


def _annotated(annotation: str) -> str:
    """Workloads with ``tagae.io/ANNOTATION``, its name and value; kube-state-metrics makes labels of annotations."""
    label = f"annotation_tagae_io_{annotation}"
    parts = (
        f'label_replace(kube_{kind}_annotations{{{label}!=""}}, "workload", "$1", "{kind}", "(.*)")'
        for kind in ("deployment", "statefulset", "daemonset")
    )
    valued = f'label_replace({" or ".join(parts)}, "value", "$1", "{label}", "(?s)(.*)")'
    return f'label_replace({valued}, "annotation", "{annotation}", "{label}", "(?s).*")'


_RUNNING = 'container!="",container!="POD"'
RESOURCES = {
    "cpu_usage": Query(
        _of_workloads(_of_pods(f"rate(container_cpu_usage_seconds_total{{{_RUNNING}}}[$window])")), WORKLOAD
    ),
    "cpu_capacity": Query(_capacity("cpu"), WORKLOAD),
    "memory_usage": Query(_of_workloads(_of_pods(f"container_memory_working_set_bytes{{{_RUNNING}}}")), WORKLOAD),
    "memory_capacity": Query(_capacity("memory"), WORKLOAD),
}
CONTROLLERS = {
    "desired": Query(_of_controllers("kube_deployment_spec_replicas", "kube_statefulset_replicas"), WORKLOAD),
    "generation": Query(
        _of_controllers("kube_deployment_metadata_generation", "kube_statefulset_metadata_generation"), WORKLOAD
    ),
}
MUTE, SENSITIVITY = "mute", "sensitivity"
_ANNOTATION = (*WORKLOAD, "annotation", "value")
ANNOTATIONS = {
    "annotations": Query(
        f"group by ({', '.join(_ANNOTATION)}) ({_annotated(MUTE)} or {_annotated(SENSITIVITY)})", _ANNOTATION
    )
}
NO_REASONS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})  # nobody knows which way they are meant
_AUTOSCALED = (
    'label_replace(kube_horizontalpodautoscaler_info{scaletargetref_kind=~"Deployment|StatefulSet"}, "workload", "$1",'
    ' "scaletargetref_name", "(.*)") * on (namespace, horizontalpodautoscaler) group_left ()'
    " kube_horizontalpodautoscaler_status_desired_replicas"
)
_CORDONED = "kube_pod_info * on (node) group_left () (max by (node) (kube_node_spec_unschedulable) == 1)"
MORE = {  # of decisions, where it is known
    "autoscaled": Query(f"max by (namespace, workload) ({_AUTOSCALED})", WORKLOAD),
    "cordoned": Query(_of_workloads(_of_pods(_CORDONED)), WORKLOAD),
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


class Serving:
    """Which workload serves which service. One of which nobody says serves the service of its own name.

    Args:
        workloads, services: keys of all.
        pairs: a workload's key, then a service's.
    """

    def __init__(self, workloads: Keys, services: Keys, pairs: Column | None = None) -> None:
        self.workloads, self.services = workloads, services
        self._told = np.empty((2, 0), np.int64)
        if pairs is not None:
            ends = (pairs.of.part(0, 2, workloads), pairs.of.part(2, 4, services))
            self._told = np.stack([end[pairs.numbers] for end in ends])

    def pairs(self) -> tuple[IntArray, IntArray]:
        """``[P]`` numbers of workloads, each at least once, and of the services that they serve."""
        silent = np.ones(len(self.workloads), bool)
        silent[self._told[0]] = False
        others = np.flatnonzero(silent)
        theirs = self.workloads.part(0, None, self.services)[others]
        return np.append(self._told[0], others), np.append(self._told[1], theirs)

    def of(self, workload: Key) -> list[Key]:
        """Services of one workload."""
        theirs = self._told[1][self._told[0] == self.workloads.of(workload)]
        return [self.services.seen[i] for i in theirs.tolist()] or [workload]

    def told(self) -> Served:
        """Services of the workloads of which somebody says whom they serve."""
        found: dict[Key, list[Key]] = {}
        for workload, service in self._told.T.tolist():
            found.setdefault(self.workloads.seen[workload], []).append(self.services.seen[service])
        return found


def annotated(found: Column, serving: Serving) -> tuple[list[ServicePolicy], list[str]]:
    """What annotations say of services' pages, and those that say what nobody here knows, in words.

    A service is muted where one of its workloads is; of several sensitivities the one that pages sooner counts.
    """
    policies: dict[str, ServicePolicy] = {}
    unheeded = []
    for namespace, workload, annotation, value in sorted(found.keys):
        said = _said(annotation, value.strip())
        if isinstance(said, str):
            unheeded.append(f"{namespace}/{workload}: tagae.io/{annotation}: {said}, came {value[:80]!r}")
            continue
        for service in serving.of((namespace, workload)):
            name = "/".join(service)
            policies[name] = _sooner(policies.get(name, ServicePolicy(name)), said)
    return list(policies.values()), unheeded


def _said(annotation: str, value: str) -> ServicePolicy | str:
    """Of nobody yet; or what was expected instead."""
    if annotation == SENSITIVITY:
        if value in list(Sensitivity):
            return ServicePolicy("", Sensitivity(value))
        return f"expected {', '.join(Sensitivity)}"
    if value and value.lower() not in NO_REASONS and len(value) <= MOST_REASON:
        return ServicePolicy("", mute=value)
    return f"expected the reason, in words and up to {MOST_REASON} letters; without one it pages as ever"


def _sooner(one: ServicePolicy, other: ServicePolicy) -> ServicePolicy:
    """Both of one service."""
    told = [each.sensitivity for each in (one, other) if each.sensitivity is not None]
    return replace(one, sensitivity=min(told, key=LEVELS.__getitem__, default=None), mute=one.mute or other.mute)


def utilisation(usage: Column, capacity: Column, serving: Serving) -> Column:
    """Usage over capacity by service, its workloads together; of those alone of which both are known."""
    workloads, services = serving.pairs()
    used, may = (column.laid(serving.workloads, workloads) for column in (usage, capacity))
    known = np.isfinite(used) & (may > 0)
    count = len(serving.services)
    totals = [np.bincount(services[known], amount[known], count) for amount in (used, may)]
    there = np.flatnonzero(totals[1])
    return Column(serving.services, there, totals[0][there] / totals[1][there])
