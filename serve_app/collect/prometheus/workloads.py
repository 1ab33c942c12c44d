"""What somebody decided of a mesh's workloads between two instants: planned changes, service by service.

Replicas that are wanted, a generation, an object that comes or goes, a node that is cordoned: these change when people
or their tools decide, never because a pod died. What is told is of services, since a service may have several workloads
(versions beside each other), and one that goes while another stays is a deploy, no retirement.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from model.snapshot import PlannedChange
from serve_app.collect.prometheus.frames import Key

RETIREMENT, DELETION, SCALE_OUT, SCALE_IN = "retirement", "deletion", "scale_out", "scale_in"
NEW_SERVICE, DEPLOY, NODE_DRAIN = "new_service", "deploy", "node_drain"

MOST_GONE, SHARE_GONE = (
    5,
    0.1,
)  # controllers gone at once, beyond which kube-state-metrics may have lost a part of itself
HELD_BACK = 4  # instants for which nothing is told of them: a shard of it restarts in less than a minute


@dataclass(frozen=True, slots=True)
class Controller:
    """What somebody decided of a workload: how many replicas, and how often the decision was changed.

    Attributes:
        desired: replicas.
        generation: of the object.
        by_autoscaler: the number is its autoscaler's.
    """

    desired: int
    generation: int
    by_autoscaler: bool = field(default=False, compare=False)


Controllers = Mapping[Key, Controller]  # by (namespace, workload)
Served = Mapping[Key, Sequence[Key]]  # services (namespace, name) of each workload


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """What is known of one instant, and must be remembered to see what is decided after it.

    Attributes:
        controllers: by workload.
        serves: services of each workload, also of one that serves nobody just now; one that is not there serves the
            service of its own name.
        cordoned: workloads with pods on nodes that take no new ones.
        held: for how many instants in a row so many controllers have been gone that nothing is told of it.
    """

    controllers: Controllers = field(default_factory=dict)
    serves: Served = field(default_factory=dict)
    cordoned: Set[Key] = frozenset()
    held: int = 0

    def after(
        self, controllers: Controllers, serves: Served, cordoned: Set[Key] | None
    ) -> tuple[list[PlannedChange], "WorkloadState"]:
        """What was decided since, and what is known now.

        No controller at all: kube-state-metrics is away, nothing is told and nothing forgotten. The first controllers
        that are seen are no news. Where many are gone at once a part of it may be away: they are told of only if they
        stay away.

        Args:
            controllers, serves: as they are now.
            cordoned: likewise; None: not known now.
        """
        cordoned = self.cordoned if cordoned is None else cordoned
        known = {**self.serves, **serves}
        if not controllers:
            return [], WorkloadState(self.controllers, known if self.controllers else serves, cordoned, self.held)
        kept, held = self._held_back(controllers)
        now = {**kept, **controllers}
        changes = []
        if self.controllers:
            changes = _changes(self.controllers, now, known)
            changes += _joined(serves.keys() & self.controllers.keys() - self.serves.keys(), known)
            changes += _drained(cordoned - self.cordoned, known, {change.service for change in changes})
        remembered = {workload: services for workload, services in known.items() if workload in now}
        return changes, WorkloadState(now, remembered, cordoned, held)

    def _held_back(self, now: Controllers) -> tuple[Controllers, int]:
        """Controllers that are gone and taken for there, and for how long that has been so."""
        gone = {key: was for key, was in self.controllers.items() if key not in now}
        if len(gone) <= max(MOST_GONE, SHARE_GONE * len(self.controllers)) or self.held >= HELD_BACK:
            return {}, 0
        return gone, self.held + 1


def _changes(before: Controllers, now: Controllers, serves: Served) -> list[PlannedChange]:
    decided = {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
    workloads: dict[Key, list[Key]] = {}
    for key in before.keys() | now.keys():
        for service in serves.get(key, [key]):
            workloads.setdefault(service, []).append(key)
    changes = []
    for service, its in sorted(workloads.items()):
        changed = sorted(decided.intersection(its))
        if changed and (kind := _kind(its, before, now)):
            reason = "; ".join(f"{key[1]}: {_words(before.get(key), now.get(key))}" for key in changed)
            changes.append(PlannedChange(kind, "/".join(service), reason))
    return changes


def _kind(workloads: Iterable[Key], before: Controllers, now: Controllers) -> str:
    """Of what was decided of one service's workloads; empty: nothing that its traffic could show."""
    was, is_now = (
        {key: controllers[key].desired for key in workloads if key in controllers} for controllers in (before, now)
    )
    running, runs = ({key for key, desired in one.items() if desired} for one in (was, is_now))
    if not runs:
        if running:
            return RETIREMENT if is_now else DELETION
        return ""  # nothing ran of what was changed or deleted
    if not was:
        return NEW_SERVICE
    if running and running != runs:
        return DEPLOY  # another version beside it, or instead of it
    more = sum(is_now.values()) - sum(was.values())
    return SCALE_OUT if more > 0 else SCALE_IN if more < 0 else DEPLOY


def _words(before: Controller | None, now: Controller | None) -> str:
    if now is None:
        return "its controller was deleted"
    if before is None:
        return f"a new controller wants {now.desired} replicas"
    if now.desired != before.desired:
        by = ", by its autoscaler" if now.by_autoscaler else ""
        return f"replicas wanted, from {before.desired} to {now.desired}{by}"
    return f"generation {before.generation} to {now.generation}"


def _joined(workloads: Set[Key], serves: Served) -> list[PlannedChange]:
    """Of services that others serve, and now these workloads too, which were there and had served nobody: a version
    that gets its first traffic."""
    servants = Counter(service for services in serves.values() for service in services)
    return [
        PlannedChange(DEPLOY, "/".join(service), f"{key[1]}: serves it from now on")
        for key in sorted(workloads)
        for service in serves[key]
        if servants[service] > 1
    ]


def _drained(cordoned: Set[Key], serves: Served, told: Set[str]) -> list[PlannedChange]:
    """Of services whose pods are on nodes that were cordoned now; of whom another decision is told, that is enough."""
    services = {"/".join(service) for key in cordoned for service in serves.get(key, [key])}
    reason = "pods of it are on a node that was cordoned"
    return [PlannedChange(NODE_DRAIN, service, reason) for service in sorted(services - told)]
