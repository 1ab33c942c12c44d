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
        desired: desired replicas.
        generation: the object's generation, which rises with each change to its specification; for an unknown owner of
            replica sets, when the newest one was created (Unix, s).
        by_autoscaler: whether an autoscaler set ``desired``.
    """

    desired: int
    generation: int
    by_autoscaler: bool = field(default=False, compare=False)


Controllers = Mapping[Key, Controller]  # by (namespace, workload)
WorkloadServices = Mapping[Key, Sequence[Key]]  # services (namespace, name) of each workload


def services_of(workload: Key, serving: WorkloadServices) -> Sequence[Key]:
    """A workload's services. A missing workload serves the service of its own name."""
    return serving.get(workload, (workload,))


def serve(keys: KeyTable, workloads: IntArray, serving: WorkloadServices) -> tuple[IntArray, IntArray]:
    """One row per workload and service: ``[S]`` index of the workload in ``[R]``, and ``[S]`` service."""
    numbers = keys.distinct(workloads)
    served = [[keys.number(tuple(one)) for one in services_of(name, serving)] for name in keys.name(numbers)]
    rows, services = [], []
    for place in range(max(map(len, served), default=0)):
        service = np.full(len(keys), -1)
        service[numbers] = [of[place] if place < len(of) else -1 for of in served]
        rows.append(np.flatnonzero(service[workloads] >= 0))
        services.append(service[workloads[rows[-1]]])
    none = np.empty(0, np.int64)
    return np.concatenate([none, *rows]), np.concatenate([none, *services])


def by_service(column: Column, serving: WorkloadServices, how: Join) -> Column:
    """Join values by service; the keys begin with workloads."""
    rest = column.part(2)
    rows, services = serve(column.table, column.part(0, 2), serving)
    return Column.join(column.table, column.table.join(services, rest[rows]), column.array[rows], how)


def read_serving(pairs: Iterable[Key] | None) -> WorkloadServices:
    """Each workload's services, from joined keys of workload and service."""
    found: dict[Key, list[Key]] = {}
    for key in pairs or ():
        found.setdefault(key[:2], []).append(key[2:])
    return found


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """The workloads of a mesh at one instant.

    Attributes:
        controllers: specification of each workload.
        services: services of each workload, including workloads without traffic now. A missing workload serves the
            service of its own name.
        cordoned: workloads with pods on cordoned nodes.
        held_polls: number of polls in a row that held back missing controllers.
    """

    controllers: Controllers = field(default_factory=dict)
    services: WorkloadServices = field(default_factory=dict)
    cordoned: Set[Key] = frozenset()
    held_polls: int = 0

    def update(
        self, controllers: Controllers, services: WorkloadServices, cordoned: Set[Key] | None
    ) -> tuple[list[PlannedChange], "WorkloadState"]:
        """Compare with the next instant.

        Without any controller, kube-state-metrics is down: the state is kept and nothing is reported. The first
        controllers are not changes. If many controllers disappear at once, a shard of kube-state-metrics may be down,
        so they are reported only if they do not return.

        Returns:
            The planned changes in between, and the next state.
        """
        cordoned = self.cordoned if cordoned is None else cordoned
        known = {**self.services, **services}
        if not controllers:
            return [], WorkloadState(
                self.controllers, known if self.controllers else services, cordoned, self.held_polls
            )
        missing, held_polls = self._hold_back(controllers)
        now = {**missing, **controllers}
        changes = []
        if self.controllers:
            changes = _changes(self.controllers, now, known)
            changes += _new_backends(services.keys() & self.controllers.keys() - self.services.keys(), known)
            changes += _node_drains(cordoned - self.cordoned, known, {change.service for change in changes})
        present = {workload: its_services for workload, its_services in known.items() if workload in now}
        return changes, WorkloadState(now, present, cordoned, held_polls)

    def _hold_back(self, now: Controllers) -> tuple[Controllers, int]:
        """Missing controllers that still count as present, and the new ``held_polls``."""
        gone = {key: was for key, was in self.controllers.items() if key not in now}
        if len(gone) <= max(MAX_GONE, SHARE_GONE * len(self.controllers)) or self.held_polls >= HOLD_BACK_POLLS:
            return {}, 0
        return gone, self.held_polls + 1


def _changes(before: Controllers, now: Controllers, workload_services: WorkloadServices) -> list[PlannedChange]:
    changed_keys = {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
    if not changed_keys:
        return []
    workloads: dict[Key, list[Key]] = {}
    for key in before.keys() | now.keys():
        for service in services_of(key, workload_services):
            workloads.setdefault(service, []).append(key)
    changes = []
    for service, its in sorted(workloads.items()):
        changed = sorted(changed_keys.intersection(its))
        if changed and (kind := _kind(its, before, now)):
            reason = "; ".join(f"{key[1]}: {_describe(before.get(key), now.get(key))}" for key in changed)
            changes.append(PlannedChange(kind, "/".join(service), reason))
    return changes


def _kind(workloads: Iterable[Key], before: Controllers, now: Controllers) -> str:
    """The kind of change in a service's workloads; empty if it cannot affect traffic."""
    was, is_now = (
        {key: controllers[key].desired for key in workloads if key in controllers} for controllers in (before, now)
    )
    running, runs = ({key for key, desired in one.items() if desired} for one in (was, is_now))
    if not runs:
        if running:
            return RETIREMENT if is_now else DELETION
        return ""  # no replica ran before
    if not was:
        return NEW_SERVICE
    if running and running != runs:
        return DEPLOY  # another version, beside the old one or instead of it
    more = sum(is_now.values()) - sum(was.values())
    return SCALE_OUT if more > 0 else SCALE_IN if more < 0 else DEPLOY


def _describe(before: Controller | None, now: Controller | None) -> str:
    if now is None:
        return "controller deleted"
    if before is None:
        return f"new controller with {now.desired} replicas"
    if now.desired != before.desired:
        by = " by the autoscaler" if now.by_autoscaler else ""
        return f"replicas changed from {before.desired} to {now.desired}{by}"
    if now.generation >= FIRST_TIME:
        return "another replica set"
    return f"generation {before.generation} to {now.generation}"


def _new_backends(workloads: Set[Key], workload_services: WorkloadServices) -> list[PlannedChange]:
    """Deploys: workloads that existed without traffic and now serve a service beside other workloads."""
    backends = Counter(service for services in workload_services.values() for service in services)
    return [
        PlannedChange(DEPLOY, "/".join(service), f"{key[1]}: now serves this service")
        for key in sorted(workloads)
        for service in workload_services[key]
        if backends[service] > 1
    ]


def _node_drains(cordoned: Set[Key], workload_services: WorkloadServices, changed: Set[str]) -> list[PlannedChange]:
    """Drains of services with pods on newly cordoned nodes, except services with another planned change."""
    services = {"/".join(service) for key in cordoned for service in services_of(key, workload_services)}
    reason = "has pods on a cordoned node"
    return [PlannedChange(NODE_DRAIN, service, reason) for service in sorted(services - changed)]
