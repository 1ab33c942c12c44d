"""How the series of a mesh arrive: how often, how late, from which clusters and servers, and which pods they cover."""

import json
from collections.abc import Iterator, Sequence

from model.names import list_first
from serve_app.collect.prometheus.pods import PodCoverage
from serve_app.collect.prometheus.remarks import CONTAINERS, MESH, Remark
from serve_app.collect.prometheus.survey import Survey
from serve_app.doctor.finding import Finding
from serve_app.settings import CollectorSettings
from serve_app.settings.toml import table_header

MAX_NAMED = 5
ORDER = ("scrapes", "newest sample", "lag", "clusters", "replicas", "match")


def arrival_findings(
    survey: Survey | None, remarks: Sequence[Remark], pods: PodCoverage | None, mesh: str, address: str = ""
) -> Iterator[Finding]:
    """Yield what a survey of the series found.

    Args:
        survey: of the poll; None: unknown.
        remarks: of the poll.
        pods: of the poll; None: unknown.
        mesh: name of the mesh in the settings, for the lines of `tagae.toml`.
        address: of its Prometheus, for the same lines; empty: not shown.
    """
    found = [
        Finding(one.subject, "warning", one.found, one.remedy, _toml(one.setting, mesh, address)) for one in remarks
    ]
    unusual = {(one.subject, one.of) for one in remarks}
    if survey is not None:
        found += [finding for about, finding in _usual(survey) if about not in unusual]
    yield from sorted(found, key=lambda one: ORDER.index(one.subject))
    if pods is not None and pods.pods:
        yield from _pods(pods)


def _usual(survey: Survey) -> Iterator[tuple[tuple[str, str], Finding]]:
    """Findings that need no remedy, each with its subject and its scope, as in remarks."""
    arriving = ((MESH, survey.mesh), (CONTAINERS, survey.containers))
    for of, one in arriving:
        if one.interval_seconds is not None:
            yield ("scrapes", of), Finding("scrapes", "ok", f"{of}: every {one.interval_seconds:g} s")
        elif one.newest_seconds is not None:
            yield ("scrapes", of), Finding("scrapes", "ok", f"{of}: not known yet, its series are too young")
    ages = [f"{of}: {one.newest_seconds:.0f} s old" for of, one in arriving if one.newest_seconds is not None]
    if ages:
        yield ("newest sample", ""), Finding("newest sample", "ok", "; ".join(ages))
    if survey.clusters is None:
        yield ("clusters", ""), Finding("clusters", "ok", "one")
    else:
        read, label = ", ".join(filter(None, survey.clusters.read)) or "all", survey.clusters.label
        found = f"{len(survey.clusters.parts)}, by the label {label}; read: {read}"
        yield ("clusters", ""), Finding("clusters", "ok", found)
    if survey.replicas is None:
        yield ("replicas", ""), Finding("replicas", "ok", "no series of two Prometheus servers")


def _pods(pods: PodCoverage) -> Iterator[Finding]:
    elsewhere = (
        f"; {_count(pods.workloads_elsewhere, 'workload')} in other namespaces" if pods.workloads_elsewhere else ""
    )
    yield Finding("pods", "ok", f"{pods.pods} in the namespaces of the mesh{elsewhere}")
    if pods.without_owner:
        yield Finding(
            "pods",
            "warning",
            f"{_count(pods.without_owner, 'pod')} with usage unknown to kube-state-metrics",
            "their CPU and memory are assigned to no service; kube_pod_owner must cover all namespaces",
        )
    if pods.without_capacity:
        yield Finding(
            "pods",
            "warning",
            f"{_count(pods.without_capacity, 'pod')} with neither a limit nor a request nor a known node",
            "their CPU and memory are left out; kube_pod_info and kube_node_status_allocatable have the nodes",
        )
    if pods.unmatched_workloads:
        yield Finding(
            "workloads",
            "warning",
            f"of no service of the mesh: {list_first(pods.unmatched_workloads, MAX_NAMED)}",
            "their CPU, memory and planned changes are assigned to no service; this is correct for workloads without a "
            "proxy",
        )
    if pods.services_without_pods:
        yield Finding(
            "workloads",
            "warning",
            f"services without pods in this cluster: {list_first(pods.services_without_pods, MAX_NAMED)}",
            "their CPU and memory are unknown: they run elsewhere, or their workload has another name",
        )


def _toml(setting: str, mesh: str, address: str) -> str:
    """The lines of `tagae.toml` for a setting, with those that say where it belongs."""
    if not setting:
        return ""
    if setting.partition(" ")[0] in CollectorSettings.model_fields:
        return f"[collector]\n{setting}"
    lines = [table_header(("meshes", mesh)), f"prometheus = {json.dumps(address)}" if address else "", setting]
    return "\n".join(filter(None, lines))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"
