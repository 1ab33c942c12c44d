"""Derive planned changes of services from the state of their workloads at two instants.

Desired replicas, generations, controllers and cordoned nodes change when people or their tools change them, never
because a pod died. Changes are reported by service, because a service can have several workloads (versions side by
side): if one of them goes while another stays, that is a deploy, not a retirement.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from model.snapshot import IntArray, PlannedChange
from serve_app.collect.prometheus.keys import Column, Key, KeyTable
from serve_app.collect.prometheus.query import Join

RETIREMENT, DELETION, SCALE_OUT, SCALE_IN = "retirement", "deletion", "scale_out", "scale_in"
NEW_SERVICE, DEPLOY, NODE_DRAIN = "new_service", "deploy", "node_drain"

# If more controllers than this disappear at once, a shard of kube-state-metrics may be down.
MAX_GONE, SHARE_GONE = 5, 0.1
FIRST_TIME = 10**9  # Unix, s; generations are counted from 1 and stay below
HOLD_BACK_POLLS = 4  # number of polls in which they still count as present: a shard restarts in less than a minute


@dataclass(frozen=True, slots=True)
class Controller:
    """The specification of a workload.

    Attributes:
        generation: the object's generation, which rises with each change to its specification; for an unknown owner of
            replica sets, when the newest one was created (Unix, s).
    """

    replicas: int
    generation: int
    by_autoscaler: bool = field(default=False, compare=False)


Controllers = Mapping[Key, Controller]  # by (namespace, workload)
WorkloadServices = Mapping[Key, Sequence[Key]]  # services (namespace, name) of each workload


def services_of(workload: Key, serving: WorkloadServices) -> Sequence[Key]:
    """Return a workload's services. A missing workload serves the service of its own name."""
    return serving.get(workload, (workload,))


def serve(keys: KeyTable, workloads: IntArray, serving: WorkloadServices) -> tuple[IntArray, IntArray]:
    """Return one row per workload and service: ``[S]`` index of the workload in ``[R]``, and ``[S]`` service."""
    numbers = keys.distinct(workloads)
    services_by_workload = [
        keys.numbers(map(tuple, services_of(name, serving))).tolist() for name in keys.name(numbers)
    ]
    rows, services = [], []
    for place in range(max(map(len, services_by_workload), default=0)):
        service = np.full(len(keys), -1)
        service[numbers] = [its[place] if place < len(its) else -1 for its in services_by_workload]
        rows.append(np.flatnonzero(service[workloads] >= 0))
        services.append(service[workloads[rows[-1]]])
    none = np.empty(0, np.int64)
    return np.concatenate([none, *rows]), np.concatenate([none, *services])


def by_service(column: Column, serving: WorkloadServices, join: Join) -> Column:
    """Join values by service; the keys begin with workloads."""
    suffix = column.part(2)
    rows, services = serve(column.table, column.part(0, 2), serving)
    return Column.join(column.table, column.table.join(services, suffix[rows]), column.array[rows], join)


def read_serving(pairs: Iterable[Key] | None) -> WorkloadServices:
    """Return each workload's services, from joined keys of workload and service."""
    serving: dict[Key, list[Key]] = {}
    for key in pairs or ():
        serving.setdefault(key[:2], []).append(key[2:])
    return serving


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """The workloads of a mesh at one instant.

    Attributes:
        services: services of each workload, including workloads without traffic now. A missing workload serves the
            service of its own name.
        held_polls: number of polls in a row that held back missing controllers.
    """

    controllers: Controllers = field(default_factory=dict)
    services: WorkloadServices = field(default_factory=dict)
    cordoned_workloads: Set[Key] = frozenset()
    held_polls: int = 0

    def update(
        self, controllers: Controllers, services: WorkloadServices, cordoned_workloads: Set[Key] | None
    ) -> tuple[list[PlannedChange], "WorkloadState"]:
        """Compare with the next instant.

        Without any controller, kube-state-metrics is down: the state is kept and nothing is reported. The first
        controllers are not changes. If many controllers disappear at once, a shard of kube-state-metrics may be down,
        so they are reported only if they do not return.

        Returns:
            The planned changes in between, and the next state.
        """
        cordoned_workloads = self.cordoned_workloads if cordoned_workloads is None else cordoned_workloads
        known_services = {**self.services, **services}
        if not controllers:
            return [], WorkloadState(
                self.controllers, known_services if self.controllers else services, cordoned_workloads, self.held_polls
            )
        missing, held_polls = self._hold_back(controllers)
        present = {**missing, **controllers}
        changes = []
        if self.controllers:
            changes = _changes(self.controllers, present, known_services)
            changes += _new_backends(services.keys() & self.controllers.keys() - self.services.keys(), known_services)
            changed_services = {change.service for change in changes}
            changes += _node_drains(cordoned_workloads - self.cordoned_workloads, known_services, changed_services)
        serving = {workload: its for workload, its in known_services.items() if workload in present}
        return changes, WorkloadState(present, serving, cordoned_workloads, held_polls)

    def _hold_back(self, controllers: Controllers) -> tuple[Controllers, int]:
        """Return the missing controllers that still count as present, and the new ``held_polls``."""
        missing = {key: controller for key, controller in self.controllers.items() if key not in controllers}
        if len(missing) <= max(MAX_GONE, SHARE_GONE * len(self.controllers)) or self.held_polls >= HOLD_BACK_POLLS:
            return {}, 0
        return missing, self.held_polls + 1


def _changes(before: Controllers, after: Controllers, workload_services: WorkloadServices) -> list[PlannedChange]:
    changed_keys = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    if not changed_keys:
        return []
    workloads: dict[Key, list[Key]] = {}
    for key in before.keys() | after.keys():
        for service in services_of(key, workload_services):
            workloads.setdefault(service, []).append(key)
    changes = []
    for service, its in sorted(workloads.items()):
        changed_workloads = sorted(changed_keys.intersection(its))
        if changed_workloads and (kind := _kind(its, before, after)):
            reason = "; ".join(f"{key[1]}: {_describe(before.get(key), after.get(key))}" for key in changed_workloads)
            changes.append(PlannedChange(kind, "/".join(service), reason))
    return changes


def _kind(workloads: Iterable[Key], before: Controllers, after: Controllers) -> str:
    """Return the kind of change in a service's workloads; empty if it cannot affect traffic."""
    replicas_before, replicas_after = (
        {key: controllers[key].replicas for key in workloads if key in controllers} for controllers in (before, after)
    )
    running_before, running_after = (
        {key for key, count in replicas_of.items() if count} for replicas_of in (replicas_before, replicas_after)
    )
    if not running_after:
        if running_before:
            return RETIREMENT if replicas_after else DELETION
        return ""  # no replica ran before
    if not replicas_before:
        return NEW_SERVICE
    if running_before and running_before != running_after:
        return DEPLOY  # another version, beside the old one or instead of it
    more = sum(replicas_after.values()) - sum(replicas_before.values())
    return SCALE_OUT if more > 0 else SCALE_IN if more < 0 else DEPLOY


def _describe(before: Controller | None, after: Controller | None) -> str:
    if after is None:
        return "controller deleted"
    if before is None:
        return f"new controller with {after.replicas} replicas"
    if after.replicas != before.replicas:
        by = " by the autoscaler" if after.by_autoscaler else ""
        return f"replicas changed from {before.replicas} to {after.replicas}{by}"
    if after.generation >= FIRST_TIME:
        return "another replica set"
    return f"generation {before.generation} to {after.generation}"


def _new_backends(workloads: Set[Key], workload_services: WorkloadServices) -> list[PlannedChange]:
    """Return deploys: workloads that existed without traffic and now serve a service beside other workloads."""
    backends = Counter(service for services in workload_services.values() for service in services)
    return [
        PlannedChange(DEPLOY, "/".join(service), f"{key[1]}: now serves this service")
        for key in sorted(workloads)
        for service in workload_services[key]
        if backends[service] > 1
    ]


def _node_drains(
    newly_cordoned: Set[Key], workload_services: WorkloadServices, changed_services: Set[str]
) -> list[PlannedChange]:
    """Return the drains of services with pods on newly cordoned nodes, except services with another planned change."""
    services = {"/".join(service) for key in newly_cordoned for service in services_of(key, workload_services)}
    reason = "has pods on a cordoned node"
    return [PlannedChange(NODE_DRAIN, service, reason) for service in sorted(services - changed_services)]
