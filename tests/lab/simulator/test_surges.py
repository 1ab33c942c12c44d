"""Flash crowds and batches are visible, and harm no service."""

from dataclasses import replace

import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator

SPEC = MeshSpec(services=80, seed=3, hiccups_per_hour=0.0, dropout=0.0)


@pytest.mark.parametrize("seed", [1, 3, 6])
def test_crowds_and_batches_are_visible_and_cause_no_brownout(seed: int) -> None:
    spec = replace(SPEC, seed=seed)
    calm = np.stack([s.node_features for s in Simulator(spec, snapshots=240).snapshots()])
    busy = np.stack(
        [
            s.node_features
            for s in Simulator(replace(spec, crowds_per_day=24.0, batches=0.05), snapshots=240).snapshots()
        ]
    )
    used = calm[:, :, 0].mean(axis=0) > 2
    assert (busy[:, used, 0] > 1.4 * calm[:, used, 0]).any()
    assert np.abs((busy - calm)[:, used, 1].mean(axis=0)).max() < 5e-3
    assert (np.median(busy[:, used, 2], axis=0) < 1.5 * np.median(calm[:, used, 2], axis=0)).all()
