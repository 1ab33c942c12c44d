"""Controllers, autoscalers and annotations from kube-state-metrics in the same Prometheus.

This needs no permission in the cluster, and works for past periods too. All queries are by workload (deployment,
stateful set, Argo Rollout, ...); values are then assigned to the services that a workload serves. Pods are in
:mod:`~serve_app.collect.prometheus.pods`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from model.incidents.mutes import LEVELS
from model.snapshot import Owner, Sensitivity, ServicePolicy
from serve_app.api.schemas.base import MAX_CONTACT, MAX_REASON, MAX_TEAM, UNPRINTABLE
from serve_app.collect.prometheus.frames import OPTIONAL
from serve_app.collect.prometheus.keys import Key
from serve_app.collect.prometheus.query import Query
from serve_app.collect.prometheus.workloads import Controller, WorkloadServices, services_of

WORKLOAD = ("namespace", "workload")

NO_OWNER = "|<none>"  # kind of a missing owner, by version of kube-state-metrics; a regular expression
CONTROLLER = 'owner_is_controller!="false"'
_WORKLOAD = f"max by ({', '.join(WORKLOAD)})"

# Replicas by kind of controller, which is also the label with its name. A daemon set has one replica or none: the
# number of its pods is the number of nodes, which is not a decision about it.
_REPLICAS = {
    "deployment": "kube_deployment_spec_replicas{$match}",
    "statefulset": "kube_statefulset_replicas{$match}",
    "daemonset": "clamp_max(kube_daemonset_status_desired_number_scheduled{$match}, 1)",
    "deploymentconfig": "openshift_deploymentconfig_spec_replicas{$match}",
    "cloneset": "kruise_cloneset_spec_replicas{$match}",
}
_EXPORTERS = {"deploymentconfig": "openshift", "cloneset": "kruise"}  # kube-state-metrics exports other kinds

_OWNERS_OF_PODS = ("replicaset", "replicationcontroller")


def with_owner(owners: str, label: str) -> str:
    """Return PromQL for controllers with their owners in the label ``workload``; a controller without one owns itself.

    Args:
        owners: series about owners, for example of ``kube_job_owner``.
    """
    return f'label_replace({by_name(owners, label)}, "workload", "$1", "owner_name", "([^<].*)")'


def by_name(series: str, label: str) -> str:
    """Return PromQL for workload series that copies the name from ``label`` to the label ``workload``."""
    return f'label_replace({series}, "workload", "$1", "{label}", "(.*)")'


def _of_owned(operation: str, amount: str, kind: str, only: str = "") -> str:
    """Return the sum or maximum over an owner's replica sets (or replication controllers), unless the owner is a
    deployment. kube-state-metrics does not know other owners, for example Argo Rollouts."""
    owners = f'kube_{kind}_owner{{$match {CONTROLLER},owner_kind!="Deployment"}}'
    amounts = f"max by (namespace, {kind}) ({amount} and on (namespace, {kind}) {owners}{only})"
    owner = f"topk by (namespace, {kind}) (1, {with_owner(owners, kind)})"
    return f"{operation} by ({', '.join(WORKLOAD)}) ({amounts} * on (namespace, {kind}) group_left (workload) {owner})"


def _desired() -> str:
    """Return PromQL for desired replicas. Argo Rollouts exports its own, often with our labels renamed."""
    rollouts = 'label_replace(rollout_info_replicas_desired{$match}, "namespace", "$1", "exported_namespace", "(.+)")'
    direct = " or ".join([*(by_name(series, kind) for kind, series in _REPLICAS.items()), by_name(rollouts, "name")])
    by_owner = (_of_owned("sum", f"kube_{kind}_spec_replicas{{$match}}", kind) for kind in _OWNERS_OF_PODS)
    return " or ".join((f"{_WORKLOAD} ({direct})", *by_owner))


def _generation() -> str:
    series = ((f"{_EXPORTERS.get(kind, 'kube')}_{kind}_metadata_generation{{$match}}", kind) for kind in _REPLICAS)
    direct = " or ".join(by_name(*pair) for pair in series)
    by_owner = (  # when the newest was created, preferably of those with replicas
        _of_owned("max", f"kube_{kind}_created{{$match}}", kind, only)
        for kind in _OWNERS_OF_PODS
        for only in (f" and kube_{kind}_spec_replicas{{$match}} > 0", "")
    )
    return " or ".join((f"{_WORKLOAD} ({direct})", *by_owner))


def _annotation_series(annotation: str) -> str:
    """Return the workloads with ``tagae.io/ANNOTATION``: its name and value. kube-state-metrics turns annotations into
    labels."""
    label = f"annotation_tagae_io_{annotation}"
    parts = [
        by_name(f'kube_{kind}_annotations{{$match {label}!=""}}', "job_name" if kind == "job" else kind)
        for kind in ("deployment", "statefulset", "daemonset", "cronjob", "job")
    ]
    without_owner = f'kube_replicaset_owner{{$match owner_kind=~"{NO_OWNER}"}}'  # others have copies of annotations
    replica_sets = f'kube_replicaset_annotations{{$match {label}!=""}} and on (namespace, replicaset) {without_owner}'
    return _with_annotation(" or ".join((*parts, by_name(f"({replica_sets})", "replicaset"))), annotation)


def _with_annotation(series: str, annotation: str) -> str:
    label = f"annotation_tagae_io_{annotation}"
    with_value = f'label_replace({series}, "value", "$1", "{label}", "(?s)(.*)")'
    return f'label_replace({with_value}, "annotation", "{annotation}", "{label}", "(?s).*")'


CONTROLLERS = {
    "desired": Query(_desired(), WORKLOAD, joined_by="max"),
    "generation": Query(_generation(), WORKLOAD, joined_by="max"),
}
MUTE, SENSITIVITY = "mute", "sensitivity"
_ANNOTATION = (*WORKLOAD, "annotation", "value")
_POD_ANNOTATION = ("annotation", "value", "pod", "namespace")


def _annotations(labels: tuple[str, ...], series: Callable[[str], str]) -> Query:
    return Query(f"group by ({', '.join(labels)}) ({series(MUTE)} or {series(SENSITIVITY)})", labels, joined_by="max")


ANNOTATIONS = {
    "annotations": _annotations(_ANNOTATION, _annotation_series),
    # From the pod template, for controllers that kube-state-metrics does not know.
    "pod_annotations": _annotations(
        _POD_ANNOTATION,
        lambda name: _with_annotation(f'kube_pod_annotations{{$match annotation_tagae_io_{name}!=""}}', name),
    ),
}
NOT_REASONS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})  # ambiguous as a reason to mute
_AUTOSCALED = (
    'label_replace(kube_horizontalpodautoscaler_info{$match}, "workload", "$1", "scaletargetref_name", "(.*)")'
    " * on (namespace, horizontalpodautoscaler) group_left ()"
    " max by (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_status_desired_replicas{$match})"
)
AUTOSCALERS = {"autoscaled": Query(f"{_WORKLOAD} ({_AUTOSCALED})", WORKLOAD, joined_by="max")}


def read_controllers(columns: Mapping[str, Mapping[Key, float]]) -> dict[Key, Controller]:
    """Return the controllers by workload, if replicas and generation are known."""
    replicas, generation = (columns[role] for role in CONTROLLERS)
    by_autoscaler = columns.get("autoscaled", {})
    keys = (key for key in replicas if key in generation and np.isfinite(replicas[key] + generation[key]))
    return {
        key: Controller(int(replicas[key]), int(generation[key]), by_autoscaler.get(key) == replicas[key])
        for key in keys
    }


def read_annotations(
    annotations: Iterable[Mapping[Key, float] | None], serving: WorkloadServices
) -> tuple[list[ServicePolicy], list[str]]:
    """Read service policies from their workloads' annotations.

    A service is muted if one of its workloads is. The highest of several sensitivities counts.

    Args:
        annotations: keys are namespace, workload, annotation and value. None: no annotations.

    Returns:
        The policies; and a description of each invalid annotation, which is ignored.
    """
    policies: dict[str, ServicePolicy] = {}
    problems = []
    keys = {key for column in annotations for key in column or ()}
    for namespace, workload, annotation, value in sorted(keys):
        policy = _parse_annotation(annotation, value.strip())
        if isinstance(policy, str):
            problems.append(f"{namespace}/{workload}: tagae.io/{annotation}: {policy}, got {value[:80]!r}")
            continue
        for service in services_of((namespace, workload), serving):
            name = "/".join(service)
            policies[name] = _merge(policies.get(name, ServicePolicy(name)), policy)
    return list(policies.values()), problems


def _parse_annotation(annotation: str, value: str) -> ServicePolicy | str:
    """Return the policy, without a service; or the expected value."""
    if annotation == SENSITIVITY:
        if value in list(Sensitivity):
            return ServicePolicy("", Sensitivity(value))
        return f"expected {', '.join(Sensitivity)}"
    if value and value.lower() not in NOT_REASONS and len(value) <= MAX_REASON:
        return ServicePolicy("", mute=value)
    return f"expected the reason for the mute, at most {MAX_REASON} characters"


def _merge(first: ServicePolicy, second: ServicePolicy) -> ServicePolicy:
    sensitivities = [policy.sensitivity for policy in (first, second) if policy.sensitivity is not None]
    highest = min(sensitivities, key=LEVELS.__getitem__, default=None)
    return replace(first, sensitivity=highest, mute=first.mute or second.mute)


OWNERS_OF_SERVICES = "service_owners"  # role of the query
CONTACT_LABELS = ("tagae.io/contact", "contact", "a8r.io/chat")  # say where to reach a team
_WORKLOADS = {kind: kind for kind in ("deployment", "statefulset", "daemonset", "cronjob")} | {"job": "job_name"}


@dataclass(frozen=True, slots=True)
class OwnerLabels:
    """The labels or annotations that name an owner; of each tuple, the first that is present counts."""

    team: tuple[str, ...] = ()
    contact: tuple[str, ...] = ()

    def query(self) -> Query:
        """Return the query for workloads and namespaces. Its keys are a namespace, a workload (empty for the namespace
        itself), and the values of :meth:`exported_labels`."""
        kinds = [
            by_name(f"kube_{kind}_{metadata}{{$match}}", label)
            for kind, label in _WORKLOADS.items()
            for metadata in ("labels", "annotations")
        ]
        series = " or ".join((*kinds, "kube_namespace_labels{$match}", "kube_namespace_annotations{$match}"))
        labels = (*WORKLOAD, *self.exported_labels())
        optional = (labels[0], *(f"{OPTIONAL}{label}" for label in labels[1:]))
        return Query(f"group by ({', '.join(labels)}) ({series})", optional, joined_by="max")

    def exported_labels(self) -> tuple[str, ...]:
        """Return the names that kube-state-metrics gives to all of them."""
        return tuple(dict.fromkeys((*_exported(self.team), *_exported(self.contact))))

    def read(self, values: Mapping[str, str]) -> Owner | None:
        """Return the owner that these values of :meth:`exported_labels` name; None if they name none."""
        team, contact = (
            next((values[label] for label in _exported(names) if values.get(label)), "")
            for names in (self.team, self.contact)
        )
        return Owner(team[:MAX_TEAM], contact[:MAX_CONTACT]) if team or contact else None


def read_owners(column: Iterable[Key], labels: OwnerLabels, serving: WorkloadServices) -> dict[str, Owner]:
    """Return the owners of services, by id, and of whole namespaces, by ``namespace/*``.

    Args:
        serving: which workload serves which service. If several do, the first by name counts.
    """
    labels_by_workload: dict[Key, dict[str, str]] = {}  # labels and annotations of a workload are two series
    for namespace, workload, *values in sorted(column):
        values_by_label = {
            name: text for name, value in zip(labels.exported_labels(), values, strict=True) if (text := _clean(value))
        }
        labels_by_workload.setdefault((namespace, workload), {}).update(values_by_label)
    owners: dict[str, Owner] = {}
    for (namespace, workload), values_by_label in labels_by_workload.items():
        if (owner := labels.read(values_by_label)) is not None:
            for service in services_of((namespace, workload), serving) if workload else [(namespace, "*")]:
                owners.setdefault("/".join(service), owner)
    return owners


def with_owners(policies: Iterable[ServicePolicy], owners: Mapping[str, Owner]) -> list[ServicePolicy]:
    """Return the policies with these owners, and one more for each other service that has an owner."""
    by_id = {policy.service: policy for policy in policies}
    for name, owner in owners.items():
        by_id[name] = replace(by_id.get(name, ServicePolicy(name)), owner=owner)
    return list(by_id.values())


def _exported(names: Iterable[str]) -> list[str]:
    """``label_team`` and ``annotation_team`` for ``team``. kube-state-metrics writes ``a8r.io/ownerName`` as
    ``a8r_io_owner_name``."""
    words = (re.sub("([a-z0-9])([A-Z])", r"\1_\2", re.sub("[^a-zA-Z0-9_]", "_", name)).lower() for name in names)
    return [f"{prefix}_{word}" for word in words for prefix in ("label", "annotation")]


def _clean(text: str) -> str:
    """Return a value as one line of printable text."""
    return " ".join(UNPRINTABLE.sub(" ", text).split())
