"""Simulates a service mesh. Latency and errors follow from load, queues and calls."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from lab.simulator.events.faults import Fault, apply_faults
from lab.simulator.events.operations import (
    WIRING_KINDS,
    BenignChange,
    ColdStart,
    Fleet,
    advance,
    begin_changes,
    effective_capacity,
    first_fleet,
    version_errors,
)
from lab.simulator.events.surges import Crowd, draw_batches, draw_crowds, slot_ticks, surge
from lab.simulator.events.traffic import TrafficShift, entries_of, shift_traffic
from lab.simulator.events.wiring import Calls, check, rewire
from lab.simulator.events.work import Work, calls_between, do_work
from lab.simulator.mesh.parameters import build_mesh, usual_conditions
from lab.simulator.mesh.topology import Ints, MeshSpec
from lab.simulator.physics.load import (
    DAY,
    Noise,
    Variation,
    draw_variation,
    entry_factor,
    first_noise,
    next_noise,
    week_factor,
)
from lab.simulator.physics.propagation import Conditions, MeshPhysics, Response, respond
from lab.simulator.physics.queueing import Floats
from lab.simulator.telemetry.measurement import Coverage, draw_coverage, measure, memory_now
from lab.simulator.telemetry.silence import PlannedSilence, draw_silences, silence, silence_slot
from model.snapshot import MeshSnapshot, PlannedChange

BURN_IN = 20  # ticks before the first snapshot


@dataclass(frozen=True, slots=True)
class MeshRun:
    """A run's state, passed to each tick and returned from it."""

    fleet: Fleet
    noise: Noise
    attempts: Floats


class Simulator:
    """Simulates one mesh; a :class:`~serve_app.collect.base.SnapshotSource`.

    Equal specs give equal runs. Faults and changes alter no random draw: services that they do not affect have the
    same values with and without them.
    """

    def __init__(
        self,
        spec: MeshSpec,
        faults: Sequence[Fault] = (),
        changes: Sequence[BenignChange] = (),
        snapshots: int | None = None,
        others: Sequence[TrafficShift | Work] = (),
    ) -> None:
        """
        Args:
            faults, changes: events, by snapshot index.
            snapshots: length of the run; None: endless.
            others: shifts in the traffic, and work beside the requests.

        Raises:
            ValueError: an event's service is not in the mesh.
        """
        self.spec = spec
        self.mesh: MeshPhysics = build_mesh(spec)
        self._length = snapshots
        self._position = {name: i for i, name in enumerate(self.mesh.topology.node_ids)}
        self._edge_index = np.stack([self.mesh.topology.source, self.mesh.topology.destination])
        self._variation: Variation = draw_variation(spec, self.mesh.topology, spec.stream(2))
        self._coverage: Coverage = draw_coverage(
            spec, len(self.mesh.topology.node_ids), len(self.mesh.topology.source), spec.stream(3)
        )
        self._crowds: dict[int, tuple[Crowd, ...]] = {}  # of the latest hour
        self._batches = draw_batches(spec, self.mesh, spec.stream(9))
        self._calls = Calls.of(self.mesh.topology)
        self._wiring: tuple[BenignChange, ...] = ()
        self._silences: dict[int, tuple[PlannedSilence, ...]] = {}  # of the latest slot
        self._faults: tuple[Fault, ...] = ()
        self._changes: dict[int, tuple[BenignChange, ...]] = {}
        self._shifts: tuple[TrafficShift, ...] = ()
        self._work: tuple[Work, ...] = ()
        self.schedule(*faults, *changes, *others)

    @property
    def interval_seconds(self) -> float:
        return self.spec.interval_seconds

    @property
    def node_ids(self) -> tuple[str, ...]:
        """Ids ``namespace/service``, including services that may appear later."""
        return self.mesh.topology.node_ids

    @property
    def calls(self) -> Ints:
        """int64 ``[2, E]``, source and destination of each call in ``node_ids``, including latent calls."""
        return self._edge_index

    def schedule(self, *events: Fault | BenignChange | TrafficShift | Work) -> None:
        """Add events, even during a run; past ones have no effect.

        Raises:
            ValueError: an event's service is not in the mesh.
        """
        for event in events:
            if isinstance(event, TrafficShift):
                entries_of(self.mesh.topology, event.scope)
                continue
            if event.service not in self._position:
                subject = "work" if isinstance(event, Work) else event.kind
                raise ValueError(
                    f"{subject}: {event.service!r} is not among the {len(self._position)} services of the mesh; "
                    "see node_ids"
                )
            if isinstance(event, Work) and event.caller:
                calls_between(self.mesh.topology, self._position, event.caller, event.service)
        self._faults += tuple(e for e in events if isinstance(e, Fault))
        self._shifts += tuple(e for e in events if isinstance(e, TrafficShift))
        self._work += tuple(e for e in events if isinstance(e, Work))
        for change in (e for e in events if isinstance(e, BenignChange)):
            check(self.mesh, change, self._position[change.service], self._wiring)
            if change.kind in WIRING_KINDS:
                self._wiring = tuple(sorted((*self._wiring, change), key=lambda c: c.at))
            self._changes[change.at] = (*self._changes.get(change.at, ()), change)

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots; each call starts a new run."""
        noise_rng, measurement_rng = self.spec.stream(4), self.spec.stream(5)
        run = MeshRun(
            first_fleet(self.mesh, noise_rng),
            first_noise(self.mesh.topology, noise_rng),
            np.ones(len(self.mesh.topology.source)),
        )
        index = -BURN_IN
        pending: tuple[BenignChange, ...] = ()
        while self._length is None or index < self._length:
            changes = self._changes.get(index, ())
            pending += changes
            run, conditions, truth, replicas = self._tick(run, index, changes, noise_rng)
            if index >= 0:
                snapshot = self._observe(run, index, conditions, truth, replicas, pending, measurement_rng)
                for gap in self._silences_at(index):
                    snapshot = silence(snapshot, gap.services, gap.reporter)
                yield snapshot
                pending = ()
            index += 1

    def _silences_at(self, index: int) -> tuple[PlannedSilence, ...]:
        slot = index // silence_slot(self.spec)
        if slot not in self._silences:
            self._silences = {slot: draw_silences(self.spec, self.node_ids, slot)}
        return tuple(gap for gap in self._silences[slot] if gap.start <= index < gap.end)

    def _tick(
        self, run: MeshRun, index: int, changes: Sequence[BenignChange], rng: np.random.Generator
    ) -> tuple[MeshRun, Conditions, Response, Floats]:
        """Simulate one interval: noise, changes, the response of the mesh, then the autoscaler."""
        noise = next_noise(self._variation, run.noise, rng)
        time = self.spec.time_of(index)
        load = entry_factor(self._variation, noise, time.timestamp() % DAY, rng)
        load *= week_factor(self.spec.weekend, time)
        fleet = begin_changes(run.fleet, changes, self._position, self.mesh.host, self.interval_seconds)
        replicas, speed, stall = effective_capacity(
            fleet, ColdStart(self.spec.cold_strength, self.spec.cold_seconds), self.interval_seconds
        )
        usual = usual_conditions(self.mesh)
        pace = speed * np.exp(self._variation.service * noise.service)
        # Cold starts and hiccups add time but use no capacity.
        extra_time = (stall * noise.hiccup - 1.0) * (usual.cpu_time + usual.delay)
        now = replace(
            usual,
            entry=shift_traffic(self.mesh.topology, self._shifts, index, usual.entry * load),
            calls_per_request=usual.calls_per_request * np.exp(self._variation.call * noise.call),
            cpu_time=usual.cpu_time * pace,
            delay=(usual.delay + extra_time) * pace,
            replicas=replicas,
            attempts=run.attempts,
            injected_errors=version_errors(fleet),
        )
        slot = index // slot_ticks(self.spec)
        if slot not in self._crowds:
            self._crowds = {slot: draw_crowds(self.spec, self.mesh, slot)}
        now = surge(self.mesh, self._crowds[slot], self._batches, index, now)
        now = rewire(self.mesh, self._calls, self._wiring, index, self._position, now)
        now = do_work(self.mesh.topology, self._work, index, self._position, now)
        now = apply_faults(self._faults, index, self.mesh, self._position, now)
        truth = respond(self.mesh, now)
        fleet = advance(self.mesh, fleet, truth.utilisation, self.interval_seconds)
        return MeshRun(fleet, noise, truth.attempts), now, truth, replicas

    def _observe(
        self,
        run: MeshRun,
        index: int,
        now: Conditions,
        truth: Response,
        replicas: Floats,
        changes: Sequence[BenignChange],
        rng: np.random.Generator,
    ) -> MeshSnapshot:
        memory = np.minimum(memory_now(self.mesh, run.fleet, self._variation, run.noise) + now.leak, 0.995)
        nodes, edges = measure(self.mesh, now, truth, replicas, memory, self._coverage, self.spec, rng)
        source, destination = self._edge_index
        present = now.alive[source] & now.alive[destination] & (now.carried > 0)
        row = np.cumsum(now.alive) - 1
        return MeshSnapshot.create(
            node_ids=tuple(compress(self.node_ids, now.alive)),
            edge_index=row[self._edge_index[:, present]],
            node_features=nodes[now.alive],
            edge_features=edges[present],
            observed_at=self.spec.time_of(index),
            changes=[PlannedChange(c.kind, c.service, c.reason) for c in changes],
        )
