"""A simulated mesh that goes through every state."""

from collections.abc import Collection

import numpy as np

from lab.simulator.events.faults import Fault, FaultKind, candidates
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from tests.serve_app.running import record_simulation

SPEC = MeshSpec(services=40, seed=2, interval_seconds=60.0)
LEAK_FROM, ERRORS_FROM, ERRORS_TO, SILENT_FROM, LENGTH = 40, 75, 81, 92, 96
BEFORE, NOTICED, ALERTED, RECOVERING, SILENT = 30, 60, 78, 81, 94  # snapshots that tests show


def culprit(kind: FaultKind, share: float) -> str:
    """Return a service at which this kind of fault can occur."""
    simulator = Simulator(SPEC)
    able = candidates(simulator.mesh, kind)
    return simulator.node_ids[able[int(share * len(able))]]


LEAKING, FAILING = culprit("slow_leak", 0.87), culprit("error_burst", 0.2)


def recording() -> list[MeshSnapshot]:
    simulator = Simulator(SPEC, snapshots=LENGTH)
    simulator.schedule(Fault("slow_leak", LEAKING, LEAK_FROM, LENGTH + 14, 0.7))
    simulator.schedule(Fault("error_burst", FAILING, ERRORS_FROM, ERRORS_TO, 0.9))
    snapshots = list(simulator.snapshots())
    silent = [name for name in snapshots[-1].node_ids if name != LEAKING][-6:]
    return [*snapshots[:SILENT_FROM], *(without_telemetry(one, silent) for one in snapshots[SILENT_FROM:])]


def without_telemetry(snapshot: MeshSnapshot, services: Collection[str]) -> MeshSnapshot:
    """Return the snapshot without telemetry of these services: no metrics of their own, and no calls that they make."""
    silent = [i for i, name in enumerate(snapshot.node_ids) if name in services]
    nodes, kept = snapshot.node_features.copy(), ~np.isin(snapshot.edge_index[0], silent)
    nodes[silent] = np.nan
    return MeshSnapshot.create(
        node_ids=snapshot.node_ids,
        edge_index=snapshot.edge_index[:, kept],
        node_features=nodes,
        edge_features=snapshot.edge_features[kept],
        observed_at=snapshot.observed_at,
    )


SNAPSHOTS = recording()
INCIDENT = record_simulation(MeshSpec(services=40, seed=2), 48, fault_from=40)  # a smaller one: a service fails
