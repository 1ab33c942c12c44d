"""Plans benign changes."""

import numpy as np

from lab.simulator.events.operations import SAFE, BenignChange, ChangeKind
from lab.simulator.events.wiring import eligible_services
from lab.simulator.physics.propagation import MeshPhysics

MIX: dict[ChangeKind, float] = {
    "deploy": 0.46,
    "scale_out": 0.18,
    "scale_in": 0.12,
    "new_service": 0.06,
    "deletion": 0.04,
    "canary": 0.08,
    "node_drain": 0.06,
}
FACTORS: dict[ChangeKind, tuple[float, float]] = {
    "deploy": (0.96, 1.05),
    "scale_out": (1.2, 1.8),
    "scale_in": (0.6, 0.85),
}
ROLLED_BACK = 0.1  # share of deploys that are rolled back
SLOW_VERSION = (1.08, 1.2)  # factor on a rolled-back version's service time
ROLLBACK_AFTER = (12, 30)  # snapshots
MOST_RETIRED = 0.05  # maximum share of the services


def plan_churn(
    mesh: MeshPhysics, rng: np.random.Generator, snapshots: int, expected: float
) -> tuple[BenignChange, ...]:
    """Draw about ``expected`` benign changes, independent of faults. A latent service joins at most once."""
    services = mesh.services
    can_shrink = ~mesh.topology.latent & (services.replicas >= 3) & (mesh.usual_utilisation * 1.4 / 0.7 < SAFE)
    pools = {
        kind: list(rng.permutation(eligible_services(mesh, kind))) for kind in ("new_service", "deletion", "canary")
    }
    pools["deletion"] = pools["deletion"][: max(1, round(MOST_RETIRED * len(pools["deletion"])))]
    leaving = {mesh.topology.node_ids[i] for i in pools["deletion"]}
    kinds = list(MIX)
    changes: list[BenignChange] = []
    for at in np.sort(rng.integers(0, snapshots, rng.poisson(expected))):
        kind = kinds[int(rng.choice(len(kinds), p=list(MIX.values())))]
        eligible = (
            np.flatnonzero(can_shrink) if kind == "scale_in" and can_shrink.any() else eligible_services(mesh, "deploy")
        )
        low, high = FACTORS.get(kind, (1.0, 1.0))
        size, row, rollback_draw, shape_draw = float(rng.uniform(low, high)), int(rng.choice(eligible)), *rng.random(2)
        if kind in pools:
            if not pools[kind]:
                continue
            row = int(pools[kind].pop())
        service = mesh.topology.node_ids[row]
        if kind not in pools and service in leaving:
            continue
        if kind == "deploy" and rollback_draw < ROLLED_BACK:
            slow = SLOW_VERSION[0] + shape_draw * (SLOW_VERSION[1] - SLOW_VERSION[0])
            after = int(at) + ROLLBACK_AFTER[0] + int(shape_draw * (ROLLBACK_AFTER[1] - ROLLBACK_AFTER[0]))
            changes.append(BenignChange("deploy", service, int(at), slow))
            changes.append(BenignChange("deploy", service, after, 1.0 / slow, "rollback to the previous image"))
            continue
        changes.append(BenignChange(kind, service, int(at), size))
    return tuple(sorted(changes, key=lambda change: change.at))
