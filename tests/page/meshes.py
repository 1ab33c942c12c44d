"""A simulated mesh that goes through every state, and helpers that push its snapshots to a service."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from model.snapshot import MeshSnapshot
from serve_app.api.client import Client
from serve_app.simulator.events.faults import Fault, FaultKind, candidates
from serve_app.simulator.mesh.topology import MeshSpec
from serve_app.simulator.simulator import Simulator
from tests.timing import PATIENCE_SECONDS

SPEC = MeshSpec(services=40, seed=2, interval_seconds=60.0)
LEAK_FROM, ERRORS_FROM, ERRORS_TO, SILENT_FROM, LENGTH = 40, 75, 81, 92, 96
BEFORE, NOTICED, ALERTED, RECOVERING, SILENT = 30, 60, 78, 81, 94  # snapshots that tests show


def culprit(kind: FaultKind, share: float) -> str:
    """Return a service at which this kind of fault can occur."""
    simulator = Simulator(SPEC)
    able = candidates(simulator.mesh, kind)
    return simulator.node_ids[able[int(share * len(able))]]


LEAKING, FAILING = culprit("slow_leak", 0.87), culprit("error_burst", 0.5)


def recording() -> list[MeshSnapshot]:
    simulator = Simulator(SPEC, snapshots=LENGTH)
    simulator.schedule(Fault("slow_leak", LEAKING, LEAK_FROM, LENGTH + 14, 0.7))
    simulator.schedule(Fault("error_burst", FAILING, ERRORS_FROM, ERRORS_TO, 0.9))
    snapshots = list(simulator.snapshots())
    return [*snapshots[:SILENT_FROM], *(without_telemetry(one, services=6) for one in snapshots[SILENT_FROM:])]


def without_telemetry(snapshot: MeshSnapshot, services: int) -> MeshSnapshot:
    """Return the snapshot without telemetry of some services. The leaking service still reports."""
    silent = [i for i, name in enumerate(snapshot.node_ids) if name != LEAKING][-services:]
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
PUSH_SECONDS = 5 * PATIENCE_SECONDS  # in which a busy service takes one snapshot


def push_all(base: str, mesh: str, snapshots: Sequence[MeshSnapshot]) -> dict[str, Any]:
    """Push snapshots, and return the last verdict. What a busy service refuses is sent again."""
    verdict: dict[str, Any] = {}
    with Client(base, timeout_seconds=PATIENCE_SECONDS, patience_seconds=PUSH_SECONDS) as client:
        for snapshot in snapshots:
            verdict = client.push(mesh, snapshot).model_dump(mode="json")
    return verdict
