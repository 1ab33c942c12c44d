import numpy as np
import pytest

from model.drift.call_sample import MOST_CALLS, CallSample, hash_calls


def calls_between(services: int, seed: int = 0, count: int = 2000) -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(services * services)[:count]
    return [f"shop/s{i}" for i in range(services)], np.stack([pairs // services, pairs % services])


def test_the_hash_of_a_call_depends_on_its_names_and_its_direction_alone() -> None:
    names, edges = ["a/x", "a/y", "b/z"], np.array([[0, 1, 0], [1, 0, 2]])
    hashes = hash_calls(names, edges)
    assert len(set(hashes.tolist())) == 3
    moved = hash_calls(["b/z", "a/y", "a/x"], np.array([[2, 1, 2], [1, 2, 0]]))
    np.testing.assert_array_equal(hashes, moved)


def test_the_share_of_new_calls_of_a_large_mesh_is_estimated_from_a_bounded_sample() -> None:
    hashes = hash_calls(*calls_between(300))
    sample = CallSample().add(hashes[:1500], 1, 0)
    assert len(sample.hashes) == MOST_CALLS
    after = sample.add(hashes, 2, 0)
    assert after.new_share(2, since=2) == pytest.approx(0.25, abs=0.08)
    assert len(after.hashes) <= MOST_CALLS
    assert after.add(hashes, 3, 0).new_share(3, since=3) == 0
    assert after.add(hashes, 3, 0).new_share(3, since=2) == after.new_share(2, since=2)


def test_calls_leave_the_sample_when_they_were_not_seen_for_a_week() -> None:
    hashes = hash_calls(*calls_between(20, count=40))
    sample = CallSample().add(hashes, 1, 0).add(hashes[:30], 5, 2)
    assert sample.new_share(5, since=2) == 0
    assert len(sample.hashes) == 30
    assert sample.add(hashes, 6, 2).new_share(6, since=6) == pytest.approx(0.25)


def test_a_mesh_without_calls_has_no_share() -> None:
    assert np.isnan(CallSample().add(np.zeros(0, np.uint32), 1, 0).new_share(1, since=1))
