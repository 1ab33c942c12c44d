"""Weak faults of many services at once."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from lab.simulator.events.widespread import WIDESPREAD, WidespreadKind, widespread
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import NodeMetric

SPEC = MeshSpec(services=60, seed=4)
MESH = build_mesh(SPEC)


@pytest.mark.parametrize("kind", get_args(WidespreadKind))
def test_many_services_have_the_same_small_fault(kind: WidespreadKind) -> None:
    fault, sizes = WIDESPREAD[kind]
    found = widespread(MESH, kind, 20, 30, sizes[0], seed=1)
    assert len({one.service for one in found}) == len(found) > 3
    assert {(one.kind, one.start, one.end, one.size) for one in found} == {(fault, 20, 30, sizes[0])}
    assert found == widespread(MESH, kind, 20, 30, sizes[0], seed=1)


def test_another_seed_chooses_other_hosts() -> None:
    chosen = [{one.service for one in widespread(MESH, "noisy_hosts", 20, 30, 0.1, seed)} for seed in range(4)]
    assert any(one != chosen[0] for one in chosen[1:])


def test_a_slow_zone_slows_its_services() -> None:
    faults = widespread(MESH, "slow_zone", 10, 20, 0.5, seed=1)
    faulty, calm = (list(Simulator(SPEC, of, snapshots=14).snapshots())[12] for of in (faults, ()))
    rows = np.array([calm.node_ids.index(one.service) for one in faults])
    slower = faulty.node_features[rows, NodeMetric.P50_LATENCY] / calm.node_features[rows, NodeMetric.P50_LATENCY]
    assert np.median(slower) > 1.3


def test_a_mesh_without_such_services_is_refused() -> None:
    chain = build_mesh(MeshSpec(services=20, calls_per_service=1.0, seed=2))
    nowhere = replace(chain, host=np.zeros_like(chain.host))  # one zone has all services, the others none
    seed = next(seed for seed in range(20) if np.random.default_rng(seed).integers(3))
    with pytest.raises(ValueError, match="expected a mesh with services for partial_partition"):
        widespread(nowhere, "lossy_zone", 1, 2, 0.01, seed)
