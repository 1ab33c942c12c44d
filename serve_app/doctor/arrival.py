"""How the series of a mesh arrive: how often, how late, from which clusters and servers, and which pods they cover."""

from collections.abc import Iterator, Sequence

from serve_app.collect.prometheus.freshness import Freshness
from serve_app.collect.prometheus.pods import PodCoverage
from serve_app.collect.prometheus.remarks import Remark
from serve_app.collect.prometheus.survey import Survey
from serve_app.doctor.installation import Finding
from serve_app.settings import CollectorSettings

MOST_NAMED = 5


def arrival_findings(
    survey: Survey | None, remarks: Sequence[Remark], pods: PodCoverage | None, mesh: str
) -> Iterator[Finding]:
    """Yield what a survey of the series found.

    Args:
        survey: of the poll; None: unknown.
        remarks: of the poll.
        pods: of the poll; None: unknown.
        mesh: name of the mesh in the settings, for the lines of `tagae.toml`.
    """
    unusual = {one.subject for one in remarks}
    if survey is not None:
        yield from (one for one in _usual(survey) if one.subject not in unusual)
    for one in remarks:
        yield Finding(one.subject, "warning", one.found, one.remedy, _toml(one.setting, mesh))
    if pods is not None:
        yield from _pods(pods)


def _usual(survey: Survey) -> Iterator[Finding]:
    """What is as it should be."""
    for of, found in (("the mesh", survey.mesh), ("containers", survey.containers)):
        if found.interval_seconds is not None:
            yield Finding("scrapes", "ok", f"{of}: every {found.interval_seconds:g} s{_age(found)}")
    if survey.clusters is None:
        yield Finding("clusters", "ok", "one")
    else:
        read = ", ".join(survey.clusters.read) or "all"
        yield Finding(
            "clusters", "ok", f"{len(survey.clusters.parts)} by the label {survey.clusters.label}; read: {read}"
        )
    if survey.replicas is None:
        yield Finding("replicas", "ok", "no series twice")


def _age(found: Freshness) -> str:
    return "" if found.newest_seconds is None else f", the newest sample is {found.newest_seconds:.0f} s old"


def _pods(pods: PodCoverage) -> Iterator[Finding]:
    yield Finding("pods", "ok", f"{pods.pods} run; {pods.workloads_elsewhere} workloads in other namespaces")
    if pods.without_owner:
        yield Finding(
            "pods",
            "warning",
            f"{pods.without_owner} pods with usage are unknown to kube-state-metrics",
            "their CPU and memory count for no service; kube_pod_owner must cover all namespaces",
        )
    if pods.without_capacity:
        yield Finding(
            "pods",
            "warning",
            f"{pods.without_capacity} pods have neither a limit nor a request nor a known node",
            "their CPU and memory are left out; kube_pod_info and kube_node_status_allocatable have the nodes",
        )
    if pods.unmatched_workloads:
        yield Finding(
            "workloads",
            "warning",
            f"{_some(pods.unmatched_workloads)} serve no service of the mesh",
            "their CPU, memory and planned changes count for no service; without a proxy that is as it should be",
        )
    if pods.services_without_pods:
        yield Finding(
            "workloads",
            "warning",
            f"{_some(pods.services_without_pods)} have no pods here",
            "their CPU and memory are unknown: they run elsewhere, or their workload has another name",
        )


def _toml(setting: str, mesh: str) -> str:
    """The lines of `tagae.toml` for a setting."""
    if not setting:
        return ""
    is_general = setting.partition(" ")[0] in CollectorSettings.model_fields
    return f"[collector{'' if is_general else f'.meshes.{mesh}'}]\n{setting}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
