"""Checks which metrics a mesh's Prometheus has, and what you lose without the missing ones."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from model.incidents.owners import Owners
from model.names import list_first
from model.snapshot import MeshSnapshot
from serve_app.collect.base import Finding, Outcome, Poll, Role
from serve_app.collect.opening import open_source, poll_in_time
from serve_app.collect.prometheus.combine import CALLS, KUBERNETES, SERVICES, split_level
from serve_app.collect.prometheus.detect import DETECTION, MeshSource
from serve_app.collect.prometheus.groups import label_values
from serve_app.collect.prometheus.kubernetes import OWNERS_OF_SERVICES
from serve_app.collect.prometheus.native import SUFFIX
from serve_app.collect.prometheus.pods import RESOURCES
from serve_app.collect.prometheus.query import RECORDED_FROM_CALLS, Query
from serve_app.collect.prometheus.replies import is_hint
from serve_app.collect.prometheus.signals import DISK, PENDING, PODS, QUEUES, RESTARTS, SOURCES, THROTTLING
from serve_app.collect.prometheus.unread import describe_nameless
from serve_app.collect.service_labels import OUTSIDE, POD_NAMES
from serve_app.doctor.arrival import arrival_findings
from serve_app.doctor.picture import MeshPicture, draw_picture
from serve_app.settings import CollectorSettings, MeshSettings

COSTS: dict[str, dict[str, str]] = {  # by level and role
    SERVICES: {
        "requests": "without them there is no mesh",
        "failures": "errors are visible only in calls",
        "cancelled": "requests that callers gave up on are not visible",
        "long_requests": "requests in flight are wrong while long requests end; load the rules again",
        "buckets": "latency of a service is visible only in calls to it",
        "p50": "latency of a service is visible only in calls to it",
        "p99": "rare slow requests are not visible",
        "connections": "requests in flight are used instead, if available",
        "in_flight": "growing queues are not visible",
    },
    CALLS: {
        "requests": "without them there is no graph",
        "failures": "the failure of a dead service is not visible at its callers",
        "buckets": "slowness is traced through services alone: the root cause is found less often",
        "p50": "slowness is traced through services alone: the root cause is found less often",
        "p99": "rare slow calls are not visible",
    },
    KUBERNETES: {
        "cpu_usage": "CPU is not monitored; cAdvisor provides it",
        "cpu_limits": "CPU is measured against requests or nodes; kube-state-metrics provides limits, if pods have any",
        "cpu_requests": "pods without CPU limits are measured against their nodes; kube-state-metrics provides "
        "requests",
        "cpu_allocatable": "CPU of pods without limits and requests is unknown; kube-state-metrics provides it",
        "memory_usage": "memory is not monitored; cAdvisor provides it",
        "memory_limits": "memory is measured against requests or nodes; kube-state-metrics provides limits, if pods "
        "have any",
        "memory_requests": "pods without memory limits are measured against their nodes; kube-state-metrics provides "
        "requests",
        "memory_allocatable": "memory of pods without limits and requests is unknown; kube-state-metrics provides it",
        "owners": "CPU, memory and signals of pods are not monitored; kube_pod_owner of kube-state-metrics provides it",
        "parents": "workloads of pods are guessed from the names of replica sets and jobs; kube-state-metrics "
        "provides them",
        "nodes": "pods without limits and requests are left out, node drains are unknown; kube_pod_info provides it",
        "ended": "pods that have ended still count until their series end; kube_pod_status_phase identifies them",
        "desired": "planned scaling and removal are unknown and may raise alerts; kube-state-metrics provides them",
        "generation": "planned deploys are unknown and raise more alerts; kube-state-metrics provides them",
        "annotations": "annotations for mutes and sensitivity are unknown; kube-state-metrics provides them",
        "pod_annotations": "annotations of pods are unknown; kube-state-metrics provides them",
        OWNERS_OF_SERVICES: "teams are known only from settings; kube-state-metrics exports labels of workloads with "
        "--metric-labels-allowlist",
        "autoscaled": "scaling by an autoscaler looks like any other scaling",
        "cordoned": "planned node drains are unknown; kube-state-metrics provides them",
        "serves": "each workload is assigned to the service with its name",
        "relays": "requests through a gateway count twice",
        PODS: "CPU throttling, OOM kills, restarts and pending pods are unknown",
        DISK: "full volumes and nodes with disk pressure are unknown",
        QUEUES: "the depth of queues is unknown",
    },
}
# The cost of a missing signal source. Meshes without volumes or brokers miss nothing.
SIGNAL_COSTS = {
    THROTTLING: "CPU throttling is not monitored; cAdvisor provides it for containers with a CPU limit",
    RESTARTS: "restarts and OOM kills are not monitored; kube-state-metrics provides them",
    PENDING: "pending pods are not monitored; kube-state-metrics provides them",
}
# Exporters that serve several queries. If all of an exporter's series are missing, that is one finding.
CADVISOR, STATE_METRICS = "cAdvisor", "kube-state-metrics"
_OF_CADVISOR = {f"{resource}_usage" for resource in RESOURCES}
EXPORTERS: dict[str, frozenset[Role]] = {
    CADVISOR: frozenset((KUBERNETES, role) for role in _OF_CADVISOR),
    STATE_METRICS: frozenset(
        (KUBERNETES, role)
        for role in COSTS[KUBERNETES].keys() - _OF_CADVISOR - {"serves", "relays", PODS, DISK, QUEUES}
    ),
}
EXPORTER_COSTS = {
    CADVISOR: "CPU, memory and CPU throttling are not monitored. Scrape the kubelets at /metrics/cadvisor",
    STATE_METRICS: (
        "planned scaling, deploys and drains are unknown and raise more alerts; restarts, OOM kills and pending pods "
        "are not monitored; CPU and memory are assigned to no service. Install kube-state-metrics and scrape it"
    ),
}
SIGNALS_OF = {CADVISOR: {THROTTLING}, STATE_METRICS: {RESTARTS, PENDING}}
QUEUES_SHOWN = JOBS_SHOWN = 20
TEAMLESS_SHOWN = 5
NAMES_SHOWN = 3
NEEDED = {(SERVICES, "requests"), (CALLS, "requests")}
# No failures, cancelled or long requests, annotations, autoscalers or drained nodes.
MAY_BE_EMPTY = {(SERVICES, "failures"), (CALLS, "failures"), (SERVICES, "cancelled"), (SERVICES, "long_requests")} | {
    (KUBERNETES, role)
    for role in (
        *("autoscaled", "cordoned", "ended", "annotations", "pod_annotations", "relays"),
        *(OWNERS_OF_SERVICES, PODS, DISK, QUEUES),
    )
}


@dataclass(frozen=True, slots=True)
class TelemetryReport:
    """A mesh's readable telemetry, and its picture; None if nothing can be read."""

    findings: tuple[Finding, ...]
    mesh: MeshPicture | None


def check_telemetry(
    mesh: MeshSettings, collector: CollectorSettings, at: datetime, name: str = "NAME"
) -> TelemetryReport:
    """Poll a mesh once, as the collector does. Its name is for the lines of `tagae.toml`."""
    if mesh.other_source is not None:
        return _check_other_source(mesh, collector, at)
    with closing(MeshSource(mesh, collector)) as source:
        poll = poll_in_time(source, at, collector)
        signals = _signal_sources(source, poll.at)
        more = (*_gaps(source, poll.at), *(() if poll.snapshot else _jobs(source, poll.at)))
    kinds = [name.removesuffix(SUFFIX) for name in source.dialect.names] if source.dialect else []
    address = "" if "?" in mesh.prometheus_url else mesh.prometheus_url  # its parameters may hold a secret
    findings = (
        *_connection(poll, mesh, kinds),
        *_findings(poll, signals),
        *more,
        *_snapshot(poll, kinds, mesh),
        *arrival_findings(poll.arrival, poll.pods, name, address),
    )
    return TelemetryReport(findings, draw_picture(poll.snapshot, mesh.entry_points) if poll.snapshot else None)


def _check_other_source(mesh: MeshSettings, collector: CollectorSettings, at: datetime) -> TelemetryReport:
    """Poll a source of another package once."""
    with closing(open_source(mesh, collector)) as source:
        poll = source.poll(at)
    if poll.snapshot is None:
        remedy = "correct source_options, or ask the authors of the package"
        return TelemetryReport((Finding(f"source {mesh.other_source}", "problem", poll.why, remedy),), None)
    summary = f"{poll.snapshot.num_nodes} services, {poll.snapshot.num_edges} calls"
    finding = Finding(f"source {mesh.other_source}", "ok", summary)
    return TelemetryReport((finding,), draw_picture(poll.snapshot, mesh.entry_points))


def _findings(poll: Poll, signals: frozenset[str] | None) -> Iterator[Finding]:
    absent = [] if signals is None else _absent_exporters(poll, signals)
    covered_roles = {role for exporter in absent for role in EXPORTERS[exporter]}
    if signals is not None and not signals:  # there are no signals
        covered_roles |= {(KUBERNETES, role) for role in (PODS, DISK, QUEUES)}
    for role, answer in poll.answers.items():
        if role[0] == DETECTION[0] or role in covered_roles:
            continue
        level, part = split_level(role[0])
        query: Role = (level, role[1])
        subject, count = " ".join(filter(None, (*query, part))), len(answer.samples)
        # A query without series is a problem only if nothing can be read for that reason.
        outcome: Outcome = "problem" if query in NEEDED and not part and poll.snapshot is None else "warning"
        if answer.failed:
            yield Finding(subject, outcome, answer.detail, COSTS[level][role[1]])
        elif count or query in MAY_BE_EMPTY:
            yield Finding(subject, "ok", f"{count} series in {answer.seconds:.2f} s")
        else:
            yield Finding(subject, outcome, "no series", COSTS[level][role[1]])
    for exporter in absent:
        yield Finding(exporter, "warning", "no series", EXPORTER_COSTS[exporter])
    for role, dropped_series in poll.dropped.items():
        yield Finding(" ".join(role), "warning", *describe_nameless(dropped_series))
    yield from _find_folded_names(poll)
    if signals is not None:
        yield from _signals(poll, absent, signals)
    if poll.ignored_annotations:
        yield Finding(
            "annotations", "warning", "; ".join(poll.ignored_annotations), "correct or remove them: they have no effect"
        )


def _absent_exporters(poll: Poll, signals: frozenset[str]) -> list[str]:
    """Return the exporters whose queries all succeeded, but without any series."""
    return [
        exporter
        for exporter, roles in EXPORTERS.items()
        if (answers := [poll.answers[role] for role in roles if role in poll.answers])
        and not any(answer.failed or len(answer.samples) for answer in answers)
        and not signals & SIGNALS_OF[exporter]
    ]


def _signal_sources(source: MeshSource, at: datetime) -> frozenset[str] | None:
    """Return the signal sources that exist; None if a query failed."""
    answers = source.ask({name: Query(f"count({series})", ()) for name, series in SOURCES.items()}, at, beside=True)
    if any(answer.failed for answer in answers.values()):
        return None
    return frozenset(name for name, answer in answers.items() if answer.samples)


def _gaps(source: MeshSource, at: datetime) -> Iterator[Finding]:
    for found_gap in source.gaps(at):
        state, remedy = f"missing; {found_gap.series} series", f"{found_gap.gap.cost}: {found_gap.gap.remedy}"
        yield Finding(f"{found_gap.source} {found_gap.gap.name}", "warning", state, remedy)


def _jobs(source: MeshSource, at: datetime) -> Iterator[Finding]:
    """List the scrape jobs of a Prometheus without a mesh, those with the most targets first."""
    texts = {"targets": "count by (job) (up)", "up": "sum by (job) (up)"}
    answers = source.ask({name: Query(promql, ()) for name, promql in texts.items()}, at)
    if any(answer.failed for answer in answers.values()):
        return
    targets, up = (
        dict(zip((row.get("job", "") for row in rows), answer.samples.values.tolist(), strict=True))
        for answer in answers.values()
        for rows in [label_values(answer.samples, ("job",))]
    )
    if not targets:
        state, remedy = "none", "this Prometheus scrapes nothing, or only stores what others scrape"
        yield Finding("scrape jobs", "warning", state, remedy)
        return
    jobs = sorted(targets, key=lambda job: (-targets[job], job))
    targets_by_job = [f"{job} ({up.get(job, 0):.0f} of {targets[job]:.0f} targets up)" for job in jobs]
    down = any(not up.get(job) for job in targets)
    yield Finding(
        "scrape jobs",
        "warning" if down else "ok",
        list_first(targets_by_job, JOBS_SHOWN),
        "all targets of a job are down: see /targets of this Prometheus" if down else "",
    )


def _snapshot(poll: Poll, kinds: Sequence[str], mesh: MeshSettings) -> Iterator[Finding]:
    if (snapshot := poll.snapshot) is None:
        return
    at = poll.at.isoformat(timespec="seconds")
    yield Finding("snapshot", "ok", f"{snapshot.num_nodes} services, {snapshot.num_edges} calls at {at}")
    yield _teams(snapshot, mesh)
    if poll.recorded:
        yield Finding("recording rules", "ok", "read")
    elif snapshot.num_edges >= RECORDED_FROM_CALLS and "generic" not in mesh.sources:
        command = f"tagae rules --source {kinds[0]}" if kinds else "tagae rules"
        remedy = f"load the output of `{command}` into this Prometheus: it cuts the work and the traffic to a third"
        yield Finding("recording rules", "warning", f"missing or outdated, for {snapshot.num_edges} calls", remedy)


def _teams(snapshot: MeshSnapshot, mesh: MeshSettings) -> Finding:
    """Count the services without a team. A mesh without any team does not use teams."""
    owners = Owners(mesh.owner_patterns, snapshot.policies)
    without = [name for name in snapshot.node_ids if not ((owner := owners.find(name)) and owner.team)]
    total = snapshot.num_nodes
    if len(without) == total:
        return Finding("teams", "ok", "no service has a team, so alerts have no label team")
    if not without:
        return Finding("teams", "ok", f"all {total} services have a team")
    summary = f"{len(without)} of {total} services have no team: {list_first(without, TEAMLESS_SHOWN)}"
    remedy = f"set the label {mesh.team_labels[0]}" if mesh.team_labels else "name them"
    return Finding("teams", "warning", summary, f"{remedy} of their workloads, or add patterns to `owners` of the mesh")


def _find_folded_names(poll: Poll) -> Iterator[Finding]:
    """Yield the names that are not services, by kind."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name, kind in poll.folded.items():
        by_kind[kind].append(name)
    for kind, names in sorted(by_kind.items()):
        meaning = f"those that are called are {OUTSIDE}/{kind}, those that call are no service"
        if kind == POD_NAMES:
            meaning = "they count for the service that they name"
        yield Finding("names", "ok", f"{kind}: {list_first(names, NAMES_SHOWN)}; {meaning}")


def _signals(poll: Poll, absent: Sequence[str], signals: frozenset[str]) -> Iterator[Finding]:
    """Yield the signals that exist, and the queues without a service."""
    covered_sources = {source for exporter in absent for source in SIGNALS_OF[exporter]}
    for source, cost in SIGNAL_COSTS.items():
        if source not in signals | covered_sources:
            yield Finding(f"signals {source}", "warning", "no series", cost)
    if signals:
        yield Finding("signals", "ok", ", ".join(sorted(signals)))
    if poll.unmapped_queues:
        queues = f"{list_first(poll.unmapped_queues, QUEUES_SHOWN)}: no service of the mesh reads them"
        yield Finding("queues", "warning", queues, "set `queues` of the mesh to the service that reads each")


def _connection(poll: Poll, mesh: MeshSettings, kinds: Sequence[str]) -> Iterator[Finding]:
    address = mesh.prometheus_url.partition("?")[0]  # its parameters may hold a secret
    if poll.snapshot is None:
        yield Finding("mesh", "problem", poll.why, _remedy(poll, address))
    else:
        warnings = {text for answer in poll.answers.values() for text in answer.warnings if not is_hint(text)}
        remedy = f"Prometheus warns: {'; '.join(sorted(warnings))}" if warnings else ""
        yield Finding("mesh", "warning" if warnings else "ok", address, remedy)
    if kinds:
        dialect_names = f"{', '.join(kinds)}{', found by its metrics' if mesh.source == 'auto' else ''}"
        yield Finding("source", "ok", dialect_names)


def _remedy(poll: Poll, address: str) -> str:
    """Return the remedy if nothing can be read, unless the problem already names it."""
    if "check" in poll.why:
        return ""
    arrival = poll.survey.mesh if poll.survey else None
    if arrival and arrival.newest_seconds is not None and arrival.interval_seconds is None:
        return "its series are too young: a rate needs two scrapes; wait a minute and run this check again"
    return f"check {address} and what it scrapes"
