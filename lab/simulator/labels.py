"""Labels from measured effects, by comparison of a run with faults to the same run without them.

Both runs have the same noise, so the fault causes every difference. For each metric of each service and call, the
effect in one snapshot is ``|f(x) - f(x')| / s``. f is the logarithm for rates, latencies and connections, and the
identity for shares. x' is the value without the fault. s is the metric's spread in the run without faults: 1.2533 times
the mean absolute deviation from its moving average (half-life ``HALF_LIFE`` snapshots), at least ``FLOOR``. An effect
is the smaller value of two consecutive snapshots, so a single snapshot does not count. Memory does not grow with the
length of the run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.simulator.events.faults import CATALOGUE, Fault, possible_culprits
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.physics.propagation import MeshPhysics
from lab.simulator.physics.queueing import Floats
from model.snapshot import EDGE_METRICS, NODE_METRICS, RATIOS, MeshSnapshot

HALF_LIFE = 20  # snapshots
FLOOR = {"log": 0.03, "share": 0.005}  # smallest spread: 3% of a value, half a percentage point of a share
MOST = 999.0  # maximum effect, sigmas
ABSENT = 100.0  # effect on a service or call that exists in one run only, sigmas
AFTERMATH = 8  # snapshots after a fault's end that still count as its effect
AFFECTED = 5.0  # sigmas above which a service counts as affected
SYMPTOMS = ("error_rate", "p50_latency", "p99_latency")
SMALLEST = 1e-6  # lower limit before a logarithm


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of one fault.

    Attributes:
        sigmas: largest effect on any metric.
        user_sigmas: largest effect on errors and latencies; below ``AFFECTED`` if users do not suffer.
        affected: affected services, worst first.
        recovered: index of the first snapshot after the fault's end without symptoms.
    """

    sigmas: float
    user_sigmas: float
    affected: tuple[str, ...]
    recovered: int


@dataclass(slots=True)
class _Series:
    """Running comparison of one table, ``[rows, metrics]``: moving average, sum of absolute deviations from it, number
    of values, and the previous snapshot's difference."""

    names: Sequence[str]
    mean: Floats
    deviation: Floats
    count: Floats
    before: Floats

    @classmethod
    def empty(cls, rows: int, names: Sequence[str]) -> "_Series":
        def zeros() -> Floats:
            return np.zeros((rows, len(names)))

        return cls(names, np.full((rows, len(names)), np.nan), zeros(), zeros(), zeros())

    def spread(self) -> Floats:
        floor = [FLOOR["share" if name in RATIOS else "log"] for name in self.names]
        return np.maximum(1.2533 * self.deviation / np.maximum(self.count, 1.0), floor)

    def compare(self, values: Floats, reference: Floats, only_one: Floats) -> Floats:
        """Return the difference that lasts for two snapshots, before division by the spread. ``only_one`` marks rows
        that exist in one run only."""
        ours, theirs = _on_scale(values, self.names), _on_scale(reference, self.names)
        is_known = ~np.isnan(theirs)
        self.mean = np.where(np.isnan(self.mean), theirs, self.mean)
        distance = np.where(is_known, theirs - self.mean, 0.0)
        self.deviation += np.abs(distance)
        self.count += is_known
        self.mean = self.mean + (1.0 - 0.5 ** (1.0 / HALF_LIFE)) * distance
        difference = np.abs(ours - theirs)
        difference = np.where(
            only_one[:, None], ABSENT * self.spread(), np.where(np.isnan(difference), 0.0, difference)
        )
        lasting = np.minimum(difference, self.before)
        self.before = difference
        return lasting


@dataclass(slots=True)
class _Window:
    """The current fault.

    Attributes:
        until: index at which the next fault begins.
        nodes, calls: largest effects since the start.
        nodes_before, calls_before: cells in which the previous fault still shows; they do not count.
        last_symptom: index of the last snapshot with a symptom.
    """

    fault: Fault
    until: int
    nodes: Floats
    calls: Floats
    nodes_before: NDArray[np.bool_]
    calls_before: NDArray[np.bool_]
    last_symptom: int


class Comparison:
    """Compares two runs snapshot by snapshot, and returns the effects at the end. Faults must not overlap."""

    def __init__(self, spec: MeshSpec, mesh: MeshPhysics, faults: Sequence[Fault]) -> None:
        self._spec = spec
        topology = mesh.topology
        count, calls = len(topology.node_ids), len(topology.source)
        self._mesh = mesh
        self._pending = sorted(faults, key=lambda f: f.start)
        self._nodes, self._calls = _Series.empty(count, NODE_METRICS), _Series.empty(calls, EDGE_METRICS)
        self._position = {name: i for i, name in enumerate(topology.node_ids)}
        self._keys = topology.source * count + topology.destination
        self._open: _Window | None = None
        self._effects: dict[Fault, Effect] = {}

    def observe(self, snapshot: MeshSnapshot, reference: MeshSnapshot) -> None:
        index = round((snapshot.observed_at - self._spec.start).total_seconds() / self._spec.interval_seconds)
        nodes, calls, here = self._whole(snapshot)
        nodes_without, calls_without, there = self._whole(reference)
        node = self._nodes.compare(nodes, nodes_without, here[0] != there[0]) / self._nodes.spread()
        call = self._calls.compare(calls, calls_without, here[1] != there[1]) / self._calls.spread()
        if self._pending and self._pending[0].start <= index:
            self._begin(self._pending.pop(0), node, call)
        window = self._open
        if window is not None and index < window.fault.end + AFTERMATH:
            np.maximum(window.nodes, np.where(window.nodes_before, 0.0, node), out=window.nodes)
            np.maximum(window.calls, np.where(window.calls_before, 0.0, call), out=window.calls)
        if window is not None and index >= window.fault.end and _symptoms(node, call):
            window.last_symptom = index

    def effects(self) -> dict[Fault, Effect]:
        self._close()
        return self._effects

    def _begin(self, fault: Fault, node: Floats, call: Floats) -> None:
        self._close()
        until = self._pending[0].start if self._pending else 2**62
        zeros = np.zeros_like(node), np.zeros_like(call)
        self._open = _Window(fault, until, *zeros, node >= AFFECTED, call >= AFFECTED, fault.end - 1)

    def _close(self) -> None:
        if self._open is not None:
            self._effects[self._open.fault] = self._effect(self._open)
        self._open = None

    def _whole(self, snapshot: MeshSnapshot) -> tuple[Floats, Floats, tuple[Any, Any]]:
        """Return the features at the mesh's own positions, NaN where not observed, and whether services and
        calls exist."""
        at = np.array([self._position[name] for name in snapshot.node_ids])
        count = len(self._position)
        source, destination = at[snapshot.edge_index]
        edge = np.searchsorted(self._keys, source * count + destination)  # the calls of a topology are sorted this way
        call_count = len(self._keys)
        nodes, calls = np.full((count, len(NODE_METRICS)), np.nan), np.full((call_count, len(EDGE_METRICS)), np.nan)
        nodes[at] = np.where(snapshot.node_observed, snapshot.node_features, np.nan)
        calls[edge] = np.where(snapshot.edge_observed, snapshot.edge_features, np.nan)
        exists, is_called = np.zeros(count, np.bool_), np.zeros(call_count, np.bool_)
        exists[at], is_called[edge] = True, True
        return nodes, calls, (exists, is_called)

    def _effect(self, window: _Window) -> Effect:
        topology = self._mesh.topology
        effect = np.minimum(window.nodes, MOST).max(axis=1)
        calls = np.minimum(window.calls, MOST).max(axis=1)
        np.maximum.at(effect, topology.destination, calls)  # a call is evidence about its callee
        worst = np.argsort(-effect, kind="stable")
        affected = tuple(topology.node_ids[i] for i in worst[: int((effect >= AFFECTED).sum())])
        user_effect = max(
            float(np.minimum(effects[:, _symptom_columns(names)], MOST).max(initial=0.0))
            for effects, names in ((window.nodes, NODE_METRICS), (window.calls, EDGE_METRICS))
        )
        return Effect(float(effect.max()), user_effect, affected, min(window.last_symptom + 1, window.until))


def _symptoms(node: Floats, call: Floats) -> bool:
    return any(
        (lasting[:, _symptom_columns(names)] >= AFFECTED).any()
        for lasting, names in ((node, NODE_METRICS), (call, EDGE_METRICS))
    )


def _symptom_columns(names: Sequence[str]) -> list[int]:
    return [i for i, name in enumerate(names) if name in SYMPTOMS]


def incidents(
    faults: Sequence[Fault], spec: MeshSpec, mesh: MeshPhysics, effects: Mapping[Fault, Effect]
) -> list[dict[str, Any]]:
    """Return the rows of incidents.parquet. ``start`` is the first snapshot with the fault, ``end`` the first without
    it, ``recovered`` the first without symptoms. Each of ``candidates`` is a correct answer."""
    position = {name: i for i, name in enumerate(mesh.topology.node_ids)}

    return [
        {
            "start": spec.time_of(fault.start),
            "end": spec.time_of(fault.end),
            "recovered": spec.time_of(effects[fault].recovered),
            "kind": fault.kind,
            "severity": fault.level,
            "size": fault.size,
            "effect_sigmas": round(effects[fault].sigmas, 1),
            "user_sigmas": round(effects[fault].user_sigmas, 1),
            "root_cause_service": fault.service.split("/", 1)[1],
            "root_cause_namespace": fault.service.split("/", 1)[0],
            "root_cause_metric": CATALOGUE[fault.kind].metric,
            "candidates": [mesh.topology.node_ids[i] for i in possible_culprits(mesh, position, fault)],
            "affected": list(effects[fault].affected),
        }
        for fault in sorted(faults, key=lambda f: f.start)
    ]


def compare_runs(
    snapshots: Iterable[MeshSnapshot], reference: Iterable[MeshSnapshot], comparison: Comparison
) -> Iterator[MeshSnapshot]:
    """Yield the snapshots of the run with faults, and compare each with the run without them."""
    for snapshot, without in zip(snapshots, reference, strict=True):
        comparison.observe(snapshot, without)
        yield snapshot


def _on_scale(values: Floats, names: Sequence[str]) -> Floats:
    result = values.copy()
    columns = [i for i, name in enumerate(names) if name not in RATIOS]
    result[:, columns] = np.log(np.maximum(values[:, columns], SMALLEST))
    return result
