"""The reference of the training meshes: what it has of each mesh, and that the shipped weights have one."""

import numpy as np
import pytest

from lab.training.meshes import TrainingMeshes, simulated_runs
from lab.training.reference import join_meshes, reference_of, summarise_run
from model.checkpoint import load
from model.drift.measures import population_stability_index
from model.drift.populations import BINS, POPULATIONS
from tests.model.model_cases import network


@pytest.mark.timeout(120)
def test_a_reference_describes_the_normal_traffic_of_the_runs() -> None:
    runs = simulated_runs(TrainingMeshes(count=3, snapshots=80, seed=5))
    net, calls = network(norms=False), []
    reference = reference_of(net, runs, progress=lambda *step: calls.append(step))
    assert [step[1:] for step in calls] == [(1, 3), (2, 3), (3, 3)]
    assert reference.shares.shape == (len(POPULATIONS), BINS)
    np.testing.assert_allclose(reference.shares.sum(axis=1)[reference.shares.any(axis=1)], 1, rtol=1e-3)
    shares = summarise_run(net, runs[0])
    has_limit = ~np.isnan(reference.limits) & (shares.sum(axis=1) > 0)
    assert (population_stability_index(shares, reference.shares)[has_limit] <= reference.limits[has_limit] + 1e-3).all()


def test_a_run_without_normal_traffic_has_no_part() -> None:
    (run,) = simulated_runs(TrainingMeshes(count=1, snapshots=20, seed=5))
    shares = summarise_run(network(norms=False), run)
    assert not shares.any()
    assert np.isnan(join_meshes([shares]).limits).all()


def test_the_shipped_weights_have_a_reference() -> None:
    reference = load().reference
    assert reference is not None
    assert not np.isnan(reference.limits).any()
