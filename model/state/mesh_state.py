"""The memory of one mesh: O(1) filters per service and call, and the ring of the last W snapshots.

State is an argument and a return value, never a buffer of a module. :func:`model.state.observe.observe` is the only
step from one state to the next.
"""

from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from model.drift.sketch import DriftSketch
from model.features import EDGE_CHANNELS, NODE_CHANNELS, Array
from model.incidents.memory import NOT_STORED, IncidentMemory
from model.snapshot import BoolArray, IntArray, MeshSnapshot
from model.state.change_impact import no_impact
from model.state.few_requests import Counts
from model.state.filters import SLOTS, Deviation
from model.state.history import History, new_history
from model.state.presence import Presence
from model.state.topology import Topology
from model.state.traffic import EntryTraffic


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshState:
    """The state of a mesh between two snapshots.

    Attributes:
        node_ids: N known services, in the order they were first seen; absent ones stay for W snapshots.
        edge_index: int64 ``[2, E]`` known calls of the window, present or vanished.
        node_filters, edge_filters: float32 ``[13, N, 9]`` and ``[13, E, 5]``: one filter per channel.
        node_impact, edge_impact: float32 ``[4, EXPOSURES, SCALES, C]``: effect of planned changes, see
            ``change_impact.py``.
        node_absent, edge_absent: int32, snapshots since last present.
        node_unmeasured: int32, snapshots since a metric of the service was last observed; 0 if none ever was.
        node_counts, edge_counts: failures and requests, see ``few_requests.py``.
        node_history: float16 ``[BLOCKS, N, 3]``, see ``history.py``.
        attended_callers, attended_callees: bool ``[E]``: whether the destination attends to this caller, and the source
            to this callee.
        learned: snapshots that baselines learned from, warm-up included.
        observed_at: time of the newest counted snapshot.
        learned_at: time of the newest snapshot learned from.
        window: the last W snapshots, oldest first; stored separately.
        memory: open incidents, and what alerting and the threshold remember.
        topology: what follows from the calls, as far as it was computed; not stored. See :func:`topology_of`.
    """

    node_ids: tuple[str, ...] = ()
    edge_index: IntArray = field(default_factory=lambda: np.zeros((2, 0), np.int64))
    node_filters: Array = field(default_factory=lambda: np.zeros((SLOTS, 0, len(NODE_CHANNELS)), np.float32))
    edge_filters: Array = field(default_factory=lambda: np.zeros((SLOTS, 0, len(EDGE_CHANNELS)), np.float32))
    node_impact: Array = field(default_factory=lambda: no_impact(len(NODE_CHANNELS)))
    edge_impact: Array = field(default_factory=lambda: no_impact(len(EDGE_CHANNELS)))
    node_absent: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    edge_absent: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    node_unmeasured: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    node_counts: Counts = field(default_factory=lambda: Counts.none(0))
    edge_counts: Counts = field(default_factory=lambda: Counts.none(0))
    node_history: History = field(default_factory=lambda: new_history(0))
    attended_callers: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    attended_callees: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    sequence: int = 0
    learned: int = 0
    observed_at: datetime | None = None
    learned_at: datetime | None = None
    interval_seconds: float = 15.0
    window: tuple[MeshSnapshot, ...] = field(default=(), metadata=NOT_STORED)
    memory: IncidentMemory = field(default_factory=IncidentMemory)
    traffic: EntryTraffic = field(default_factory=EntryTraffic)
    drift: DriftSketch = field(default_factory=DriftSketch)
    topology: Topology | None = field(default=None, compare=False, repr=False, metadata=NOT_STORED | {"derived": True})

    @property
    def entry_points(self) -> tuple[str, ...]:
        """The node ids of the front door, those that the settings name included; see :mod:`model.front_door`."""
        return self.traffic.names


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A snapshot aligned with the table of a mesh: the inputs of scoring, for the whole mesh, before any cut.

    Attributes:
        node, edge: deviations of services ``[N, 9]`` and calls ``[E, 5]``.
        standing: float32 ``[N, 9]``: robust z-score among the mesh's services now, clipped at ±8.
        node_present, edge_present: bool: in this snapshot.
        presence: which services are measured, gone or silent, and which calls stopped.
        node_exposure, edge_exposure: to planned changes, see ``change_impact.py``.
        node_impact, edge_impact: ``[4, EXPOSURES, SCALES, C]``, effect of earlier changes in this mesh.
        node_failures, edge_failures: ``[N]``, ``[E]`` surprise of failures among few requests, see ``few_requests.py``.
    """

    node: Deviation
    edge: Deviation
    standing: Array
    node_present: BoolArray
    edge_present: BoolArray
    presence: Presence
    node_exposure: IntArray
    edge_exposure: IntArray
    node_impact: Array
    edge_impact: Array
    node_failures: Array
    edge_failures: Array


def topology_of(state: MeshState) -> Topology:
    """Return what follows from the calls of a mesh: the state's own if its calls are still the same."""
    parts = len(state.node_ids), state.edge_index, state.attended_callers, state.attended_callees
    topology = state.topology
    return topology if topology is not None and topology.is_of(*parts) else Topology(*parts)
