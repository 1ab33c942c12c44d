"""What a mesh's Prometheus has, what it lacks, and what that costs."""

from collections.abc import Iterator
from datetime import datetime

from serve_app.collect.prometheus.detect import DETECTION, MeshSource
from serve_app.collect.prometheus.source import CALLS, KUBERNETES, SERVICES, Poll, Role
from serve_app.doctor.installation import Finding
from serve_app.settings import CollectorSettings, MeshSettings

COSTS: dict[Role, str] = {
    (SERVICES, "requests"): "there is no mesh without them",
    (SERVICES, "failures"): "errors show only in calls, if there",
    (SERVICES, "buckets"): "how slow a service is shows only in calls into it, if there",
    (SERVICES, "p50"): "how slow a service is shows only in calls into it, if there",
    (SERVICES, "p99"): "rare slow requests do not show",
    (SERVICES, "connections"): "requests in flight stand for them, if there",
    (SERVICES, "in_flight"): "queues that build up do not show",
    (CALLS, "requests"): "there is no graph without them",
    (CALLS, "failures"): "a dead service is not seen by its callers",
    (CALLS, "buckets"): "who slows whom is guessed from services alone: the culprit is found less often",
    (CALLS, "p50"): "who slows whom is guessed from services alone: the culprit is found less often",
    (CALLS, "p99"): "rare slow calls do not show",
    (KUBERNETES, "cpu_usage"): "cpu is not watched; cAdvisor and kube_pod_owner give it",
    (KUBERNETES, "cpu_capacity"): "cpu is not watched; kube-state-metrics gives limits, requests and nodes",
    (KUBERNETES, "memory_usage"): "memory is not watched; cAdvisor and kube_pod_owner give it",
    (KUBERNETES, "memory_capacity"): "memory is not watched; kube-state-metrics gives limits, requests and nodes",
    (KUBERNETES, "desired"): "scaling and retirements are not known as planned, and may page; kube-state-metrics tells",
    (KUBERNETES, "generation"): "deploys are not known as planned, and page more often; kube-state-metrics tells",
    (KUBERNETES, "annotations"): "mutes and sensitivity by annotation are not known; kube-state-metrics tells them",
    (KUBERNETES, "autoscaled"): "whether an autoscaler or somebody else has scaled is not told",
    (KUBERNETES, "cordoned"): "nodes that are drained are not known as planned; kube-state-metrics tells",
    (KUBERNETES, "serves"): "a workload counts for the service of its own name",
}
NEEDED = {(SERVICES, "requests"), (CALLS, "requests")}
MAY_BE_EMPTY = {  # where nothing fails, nobody annotated or autoscales anything, no node is drained
    (SERVICES, "failures"),
    (CALLS, "failures"),
    (KUBERNETES, "autoscaled"),
    (KUBERNETES, "cordoned"),
    (KUBERNETES, "annotations"),
}


def look_at(mesh: MeshSettings, collector: CollectorSettings, at: datetime) -> Iterator[Finding]:
    """Ask once, as the collector would."""
    source = MeshSource(mesh, collector)
    try:
        poll = source.poll(at)
    finally:
        source.close()
    yield _reached(poll, mesh)
    for role, answer in poll.answers.items():
        if role[0] == DETECTION[0]:
            continue
        subject, count = " ".join(role), len(answer.samples)
        if answer.failed:
            yield Finding(subject, "problem" if role in NEEDED else "warning", answer.detail, COSTS[role])
        elif count or role in MAY_BE_EMPTY:
            yield Finding(subject, "ok", f"{count} series in {answer.seconds:.2f} s")
        else:
            yield Finding(subject, "problem" if role in NEEDED else "warning", "no series", COSTS[role])
    if poll.ignored_annotations:
        yield Finding(
            "annotations", "warning", "; ".join(poll.ignored_annotations), "correct or remove them: they do nothing"
        )
    if poll.snapshot is not None:
        found = f"{poll.snapshot.num_nodes} services, {poll.snapshot.num_edges} calls at {at.isoformat()}"
        yield Finding("snapshot", "ok", found)
        yield from _rules(poll, mesh, collector)


def _rules(poll: Poll, mesh: MeshSettings, collector: CollectorSettings) -> Iterator[Finding]:
    """Of a mesh that is large enough for them."""
    calls = poll.snapshot.num_edges if poll.snapshot else 0
    if poll.recorded:
        yield Finding("recording rules", "ok", "read")
    elif calls >= collector.recorded_from_calls and mesh.source != "generic":
        remedy = "load what `tagae rules` prints into this Prometheus: a third of the work for both, and of the bytes"
        yield Finding("recording rules", "warning", f"not there, or behind, for {calls} calls", remedy)


def _reached(poll: Poll, mesh: MeshSettings) -> Finding:
    if poll.snapshot is None:
        return Finding("mesh", "problem", poll.why, f"look at {mesh.prometheus} and at what it scrapes")
    warned = {text for answer in poll.answers.values() for text in answer.warnings}
    if warned:
        return Finding("mesh", "warning", mesh.prometheus, f"Prometheus warns: {'; '.join(sorted(warned))}")
    return Finding("mesh", "ok", mesh.prometheus)
