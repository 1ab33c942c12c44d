"""A mesh's resources, planned changes, policies and signals, from kube-state-metrics, cAdvisor and exporters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model.snapshot import Owner, PlannedChange, ServicePolicy, Signal
from serve_app.collect.prometheus.keys import Columns, Key
from serve_app.collect.prometheus.kubernetes import (
    ANNOTATIONS,
    AUTOSCALERS,
    CONTROLLERS,
    OWNERS_OF_SERVICES,
    OwnerLabels,
    read_annotations,
    read_controllers,
    read_owners,
    with_owners,
)
from serve_app.collect.prometheus.pods import OWNERS, POD_QUERIES, RESOURCES, USAGE_QUERIES, PodCoverage, Pods
from serve_app.collect.prometheus.query import Query
from serve_app.collect.prometheus.signals import Queues, by_workload, read_signals, signal_queries
from serve_app.collect.prometheus.workloads import WorkloadServices, WorkloadState, read_serving


@dataclass(frozen=True, slots=True)
class ClusterInstant:
    """The cluster at one instant: CPU and memory utilisation by service, planned changes since the previous instant,
    policies with owners, and the state to compare the next instant with."""

    resources: Columns
    changes: Sequence[PlannedChange]
    policies: Sequence[ServicePolicy]
    workloads: WorkloadState
    columns: Columns
    pods: Pods | None
    serving: WorkloadServices


class ClusterState:
    """A cluster's state between polls.

    Attributes:
        queries: about Kubernetes and signals, by role.
        workloads: None before the first poll.
        coverage: None: unknown.
    """

    def __init__(self, queues: Queues, owner_labels: OwnerLabels) -> None:
        self._queues, self._owner_labels = queues, owner_labels
        owners = {OWNERS_OF_SERVICES: owner_labels.query()} if owner_labels.exported_labels() else {}
        resources = USAGE_QUERIES | POD_QUERIES | CONTROLLERS | AUTOSCALERS | ANNOTATIONS
        self.queries: Mapping[str, Query] = resources | owners | signal_queries(queues)
        self._policies: list[ServicePolicy] = []
        self._owners: dict[str, Owner] = {}
        self.workloads: WorkloadState | None = None
        self.ignored_annotations: list[str] = []
        self.unmapped_queues: list[str] = []
        self.coverage: PodCoverage | None = None

    def begin(self, columns: Columns, window_seconds: float) -> None:
        """Learn the workloads before the first poll."""
        self.workloads = WorkloadState()
        if CONTROLLERS.keys() <= columns.keys():
            self.workloads = self.read(columns, window_seconds).workloads

    def read(self, columns: Columns, window_seconds: float) -> ClusterInstant:
        """Return the cluster at the next instant; ``window_seconds`` is the rate window of containers."""
        serving = read_serving(columns.get("serves"))
        pods = Pods(columns, window_seconds) if OWNERS in columns else None  # unknown without owners
        controllers = read_controllers(columns) if CONTROLLERS.keys() <= columns.keys() else {}
        cordoned_workloads = pods.cordoned_workloads() if pods else None
        changes, workloads = (self.workloads or WorkloadState()).update(controllers, serving, cordoned_workloads)
        shares = {resource: pods.utilisation(resource, serving) for resource in RESOURCES} if pods else {}
        annotations = columns.get("annotations")
        # Without annotations and controllers, kube-state-metrics is down: keep the last policies.
        if annotations is not None and (annotations or controllers):
            on_pods = columns.get("pod_annotations")
            of_pods = pods.by_workload(on_pods, "max") if pods and on_pods is not None else None
            self._policies, self.ignored_annotations = read_annotations((annotations, of_pods), serving)
        if (owner_series := columns.get(OWNERS_OF_SERVICES)) is not None and (owner_series or controllers):
            self._owners = read_owners(owner_series, self._owner_labels, serving)
        resources = {resource: column for resource, column in shares.items() if column is not None}
        policies = with_owners(self._policies, self._owners)
        return ClusterInstant(resources, changes, policies, workloads, columns, pods, serving)

    def read_signals(self, instant: ClusterInstant, services: Sequence[Key]) -> list[Signal]:
        pods = instant.pods
        self.coverage = pods.coverage(services, instant.serving) if pods else None
        columns = by_workload(instant.columns, pods)
        signals, self.unmapped_queues = read_signals(columns, instant.serving, services, self._queues)
        return signals
