"""Days of a simulated mesh as its operators would see them: collected through a Prometheus, scored, and alerted.

    simulator -> its cluster's controllers -> what a Prometheus would answer -> source -> pipeline -> alerts

This is the whole path of the service, except HTTP, which other tests cover: a day is 5,760 snapshots of 20 queries.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

import msgspec
import numpy as np

from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import BenignChange, Fleet
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import MeshRun, Simulator
from model.checkpoint import SHIPPED, Checkpoint, load
from model.snapshot import MeshSnapshot, PlannedChange
from serve_app.alerts.alert import Alert, MeshAlerts
from serve_app.alerts.links import Links
from serve_app.alerts.transitions import transition
from serve_app.api.codec import encode_verdict
from serve_app.collect.prometheus.client import K, QueryAnswer, Samples
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.pipeline import Mesh, Options, advance
from serve_app.settings import CollectorSettings, MeshSettings
from tests.serve_app.collect.prometheus.cluster import Cluster, workload_of
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh

CORDONED = 6  # snapshots for which a drained node takes no new pods
NEAR = 16  # an alert this many snapshots after a nearby change counts as caused by it: twice a slow rollout


@dataclass(frozen=True)
class Opened:
    """An alert, the index of its snapshot, and its services."""

    index: int
    alert: Alert
    services: tuple[str, ...]


@dataclass
class Day:
    """Changes and alerts of a day.

    Attributes:
        made: changes as people made them, with the snapshot in which they began.
        collected: changes read from kube-state-metrics.
        opened: alerts.
        neighbours: callers and callees of each service.
    """

    made: list[tuple[int, PlannedChange]] = field(default_factory=list)
    collected: list[tuple[int, PlannedChange]] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    neighbours: dict[str, set[str]] = field(default_factory=dict)

    def beside_changes(self) -> list[Opened]:
        """Return alerts about a service that was being changed, or about one of its neighbours."""
        return [one for one in self.opened if any(self._beside(one, at, change) for at, change in self.made)]

    def _beside(self, one: Opened, at: int, change: PlannedChange) -> bool:
        near = {change.service, *self.neighbours.get(change.service, ())}
        return at <= one.index <= at + NEAR and not near.isdisjoint(one.services)


class _OperatedMesh(Simulator):
    """A simulated mesh whose replicas its operators know: no snapshot says them."""

    fleet: Fleet  # of the newest snapshot

    def desired_replicas(self, snapshot: MeshSnapshot) -> dict[str, int]:
        desired = np.where(self.fleet.due > 0, self.fleet.ordered, self.fleet.replicas)
        position = {name: i for i, name in enumerate(self.node_ids)}
        return {name: round(float(desired[position[name]])) for name in snapshot.node_ids}

    def _observe(self, run: MeshRun, *measured: Any) -> MeshSnapshot:
        self.fleet = run.fleet
        return super()._observe(run, *measured)


class _Answering:
    """Evaluates queries without a connection."""

    def __init__(self, mesh: IstioMesh) -> None:
        self._mesh = mesh

    def ask(self, queries: Mapping[K, str], at: datetime, within: float) -> dict[K, QueryAnswer]:
        snapshot = self._mesh.at(at.timestamp())
        return {name: QueryAnswer(self._samples(name, snapshot)) for name in queries}

    def _samples(self, name: object, snapshot: MeshSnapshot | None) -> Samples:
        is_role = isinstance(name, tuple)  # other queries find nothing: it has no rules
        found = list(self._mesh.samples(snapshot, name)) if snapshot and is_role else []  # type: ignore[arg-type]
        labels = [msgspec.json.encode(labels) for labels, _ in found]
        return Samples(labels, np.array([float(value) for _, value in found]))


def simulate_day(
    spec: MeshSpec,
    changes: Sequence[BenignChange],
    snapshots: int,
    *,
    faults: Sequence[Fault] = (),
    empties: bool = False,
    late: int = 0,
) -> Day:
    """Simulate a mesh with these changes and faults.

    Args:
        spec: of the mesh.
        changes, faults: by snapshot.
        snapshots: their number.
        empties: retired workloads are scaled to zero and deleted later; else deleted at once.
        late: delay of kube-state-metrics in snapshots, because it is scraped less often than the mesh.
    """
    simulator = _OperatedMesh(spec, faults, changes, snapshots)
    now: dict[float, MeshSnapshot] = {}
    prometheus = IstioMesh(now.get)
    collector = CollectorSettings(interval_seconds=spec.interval_seconds)
    mesh_settings = MeshSettings(prometheus="http://as-given", source="istio")
    source = MeshSource(mesh_settings, collector, evaluator=_Answering(prometheus))
    cluster = Cluster(empties)
    seen: deque[dict[str, tuple[int, int]]] = deque(maxlen=late + 1)
    checkpoint, mesh, options, mesh_alerts, day = _weights(), Mesh(), Options(), MeshAlerts(), Day()
    for a, b in simulator.calls.T.tolist():
        for one, other in ((a, b), (b, a)):
            day.neighbours.setdefault(simulator.node_ids[one], set()).add(simulator.node_ids[other])
    for index, sent in enumerate(simulator.snapshots()):
        day.made += [(index, change) for change in sent.changes]
        wanted = cluster.after(sent, simulator.desired_replicas(sent))
        seen.append({"/".join(key): (one.replicas, one.generation) for key, one in wanted.items()})
        now.clear()
        now[sent.observed_at.timestamp()] = sent
        prometheus.replicas = seen[0]
        prometheus.cordoned = _drained_workloads(simulator, day.made, index)
        poll = source.poll(sent.observed_at)
        assert poll.snapshot is not None, poll.why
        day.collected += [(index, change) for change in poll.snapshot.changes]
        verdict, mesh = advance(checkpoint, mesh, poll.snapshot, options)
        transitioned = transition(mesh_alerts, "day", encode_verdict(verdict), verdict.observed_at, Links())
        known = {page.incident for page in mesh_alerts.open}
        day.opened += [Opened(index, p.alert, p.services) for p in transitioned.alerts.open if p.incident not in known]
        mesh_alerts = transitioned.alerts
    return day


def _drained_workloads(simulator: Simulator, made: Sequence[tuple[int, PlannedChange]], index: int) -> set[str]:
    """Return workloads with a pod on a node that is being drained."""
    found: set[str] = set()
    for at, change in made:
        if change.kind == "node_drain" and index < at + CORDONED:
            host = simulator.mesh.host[simulator.node_ids.index(change.service)]
            on_it = np.flatnonzero(simulator.mesh.host == host).tolist()
            found |= {"/".join(workload_of(simulator.node_ids[i])) for i in on_it}
    return found


@cache
def _weights() -> Checkpoint:
    return load(SHIPPED)
