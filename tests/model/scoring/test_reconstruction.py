"""The reconstruction loss by its formula, and its samples."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model.scoring.reconstruction import (
    MAX_SAMPLED,
    NON_CALLS,
    reconstruction_input,
    reconstruction_loss,
    sample_services,
)
from model.state.mesh_state import MeshState
from tests.model.model_cases import at, network

NET = network()


def mesh(services: int, calls: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return random embeddings, and calls without repetition."""
    rng = np.random.default_rng(seed)
    ends = rng.choice(services * services, calls, replace=False)
    return rng.standard_normal((services, 64)).astype(np.float32), np.stack(np.divmod(ends, services))


def logits(z: np.ndarray, ends: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return NET.structure(torch.from_numpy(z), torch.from_numpy(z), *torch.from_numpy(ends)).numpy()


def loss(z: np.ndarray, ends: np.ndarray, present: np.ndarray, sampled: np.ndarray) -> float | None:
    given = reconstruction_input(sampled, ends, present, logits(z, ends), z[sampled], z.mean(axis=0))
    return reconstruction_loss(NET, given)


def by_formula(z: np.ndarray, ends: np.ndarray, present: np.ndarray) -> float:
    """Compute the loss pair by pair."""
    count = len(z)
    every = np.stack(np.divmod(np.arange(count * count), count))
    p = 1 / (1 + np.exp(-logits(z, every).astype(np.float64))).reshape(count, count)
    called = {tuple(pair) for pair in ends.T.tolist()}
    made = [p[i, j] for (i, j), there in zip(ends.T.tolist(), present, strict=True) if there and i != j]
    never = [p[i, j] for i in range(count) for j in range(count) if i != j and (i, j) not in called]
    of_calls, of_pairs = np.mean((1 - np.array(made)) ** 2), np.mean(np.array(never) ** 2)
    return float((of_calls + NON_CALLS * of_pairs) / (1 + NON_CALLS))


def test_the_loss_of_a_small_mesh_is_the_formula_over_all_pairs() -> None:
    z, ends = mesh(30, 120)
    present = np.arange(120) % 7 > 0
    assert loss(z, ends, present, np.arange(30)) == pytest.approx(by_formula(z, ends, present), rel=1e-5)


def test_a_sample_estimates_the_loss_over_all_pairs() -> None:
    z, ends = mesh(400, 1200)
    present = np.ones(1200, bool)
    exact = loss(z, ends, present, np.arange(400))
    state = replace(MeshState(), node_ids=tuple(f"a/s{i}" for i in range(400)), edge_index=ends)
    estimates = []
    for index in range(20):
        sampled = sample_services(replace(state, learned_at=at(index)))
        pairs = len(sampled) * (len(sampled) - 1)
        assert NON_CALLS * 1200 <= pairs < 1.1 * NON_CALLS * 1200, "five pairs for each call"
        estimates.append(loss(z, ends, present, sampled))
    assert np.mean(estimates) == pytest.approx(exact, rel=0.02)  # type: ignore[arg-type]


def test_calls_between_parts_count_as_calls_within_one() -> None:
    z, ends = mesh(30, 120)
    present, between = np.ones(120, bool), np.arange(120) < 40
    between &= ends[0] != ends[1]
    structure = logits(z, ends)
    unknown = np.where(between, np.nan, structure).astype(np.float32)
    within = reconstruction_input(np.arange(30), ends, present, unknown, z, z.mean(axis=0))
    given = replace(within, boundary=z, crossing=ends[:, between])
    assert reconstruction_loss(NET, given) == pytest.approx(loss(z, ends, present, np.arange(30)), rel=1e-5)


def test_a_sample_is_the_same_for_a_repeated_snapshot_and_changes_with_time() -> None:
    _, ends = mesh(MAX_SAMPLED, 300)
    state = MeshState(node_ids=tuple(f"a/s{i}" for i in range(MAX_SAMPLED)), edge_index=ends, learned_at=at(1))
    again = sample_services(replace(state, learned_at=at(1)))
    np.testing.assert_array_equal(sample_services(state), again)
    assert len({sample_services(replace(state, learned_at=at(i))).tobytes() for i in range(20)}) > 1
    assert (np.diff(again) > 0).all()
    assert 0 <= again[0] <= again[-1] < MAX_SAMPLED


def test_all_services_of_a_small_mesh_are_in_the_sample() -> None:
    count = MAX_SAMPLED - 1
    _, ends = mesh(count, 300)
    state = MeshState(node_ids=tuple(f"a/s{i}" for i in range(count)), edge_index=ends, learned_at=at(1))
    np.testing.assert_array_equal(sample_services(state), np.arange(count))


def test_without_calls_the_loss_is_unknown() -> None:
    z, _ = mesh(3, 1)
    none = np.zeros((2, 0), np.int64)
    assert loss(z, none, np.zeros(0, bool), np.arange(3)) is None
    assert loss(z, np.array([[1], [1]]), np.ones(1, bool), np.arange(3)) is None, "a service that calls itself"
    assert loss(z, np.array([[0], [1]]), np.zeros(1, bool), np.arange(3)) is None, "a call that was not made"


def test_a_sample_of_the_first_services_has_no_calls_to_the_others() -> None:
    embeddings, edge_index = np.zeros((3, 2), np.float32), np.array([[0, 1, 3], [1, 3, 0]])
    given = reconstruction_input(
        np.arange(3), edge_index, np.ones(3, bool), np.zeros(3, np.float32), embeddings, embeddings.mean(axis=0)
    )
    assert given.pairs.tolist() == [[0], [1]]
    assert given.calls == 3
