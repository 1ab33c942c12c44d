"""Describes how a mesh's series arrive: interval, delay, clusters, servers, and the pods that they cover."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from model.names import list_first
from serve_app.collect.base import Finding
from serve_app.collect.prometheus.pods import PodCoverage
from serve_app.settings import CollectorSettings
from serve_app.settings.toml import table_header

MAX_NAMED = 5


def arrival_findings(
    remarks: Sequence[Finding], pods: PodCoverage | None, mesh: str, address: str = ""
) -> Iterator[Finding]:
    """Yield a survey's findings, with the lines of `tagae.toml` for this mesh and its Prometheus' address."""
    for finding in remarks:
        yield replace(finding, toml=_toml(finding.toml, mesh, address))
    if pods is not None and pods.pods:
        yield from _pods(pods)


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
            f"without a service in the mesh: {list_first(pods.unmatched_workloads, MAX_NAMED)}",
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
    """Return the lines of `tagae.toml` for a setting, with its table's header."""
    if not setting:
        return ""
    if setting.partition(" ")[0] in CollectorSettings.model_fields:
        return f"[collector]\n{setting}"
    lines = [table_header(("meshes", mesh)), f"prometheus = {json.dumps(address)}" if address else "", setting]
    return "\n".join(filter(None, lines))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"
