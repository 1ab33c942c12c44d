import numpy as np
import pytest

from model.drift.call_sample import MAX_CALLS, SLOTS, CallSample, Hashes, hash_ends

WEEK = 7 * SLOTS


def calls_between(services: int, seed: int = 0, count: int = 2000) -> Hashes:
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(services * services)[:count]
    return hash_ends([f"shop/s{i}" for i in range(services)], np.stack([pairs // services, pairs % services]))


def calls(*pairs: str) -> Hashes:
    """Calls by the letters of their ends: ``ab``."""
    names = sorted(set("".join(pairs)))
    return hash_ends(names, np.array([[names.index(end) for end in pair] for pair in pairs]).T.reshape(2, -1))


def after_a_week(*pairs: str) -> CallSample:
    sample = CallSample()
    for block in range(WEEK):
        sample = sample.add(calls(*pairs), block, 0)
    return sample


def test_the_hash_of_a_call_depends_on_its_names_and_its_direction_alone() -> None:
    names, edges = ["a/x", "a/y", "b/z"], np.array([[0, 1, 0], [1, 0, 2]])
    ends = hash_ends(names, edges)
    assert len(set(map(tuple, ends.T.tolist()))) == 3
    moved = hash_ends(["b/z", "a/y", "a/x"], np.array([[2, 1, 2], [1, 2, 0]]))
    np.testing.assert_array_equal(ends, moved)


def test_the_share_of_new_calls_of_a_large_mesh_is_estimated_from_a_bounded_sample() -> None:
    ends = calls_between(300)
    sample = CallSample().add(ends[:, :1500], 1, 0)
    assert len(sample.seen) == MAX_CALLS
    after = sample.add(ends, 2, 0)
    assert after.new_share(2, since=2) == pytest.approx(0.25, abs=0.08)
    assert len(after.seen) <= MAX_CALLS
    assert after.add(ends, 3, 0).new_share(3, since=3) == 0
    assert after.add(ends, 3, 0).new_share(3, since=2) == after.new_share(2, since=2)


def test_calls_leave_the_sample_when_they_were_not_seen_for_a_week() -> None:
    ends = calls_between(20, count=40)
    sample = CallSample().add(ends, 1, 0).add(ends[:, :30], 5, 2)
    assert sample.new_share(5, since=2) == 0
    assert len(sample.seen) == 30
    assert 0.1 < sample.add(ends, 6, 2).new_share(6, since=6) <= 0.25


def test_a_mesh_without_calls_has_no_share() -> None:
    sample = CallSample().add(np.zeros((2, 0), np.uint32), 1, 0)
    assert np.isnan(sample.new_share(1, since=1))
    assert sample.changed_shares(1, WEEK) == (0, 0)


def test_the_calls_of_one_new_service_are_no_new_calls() -> None:
    sample = after_a_week("ab", "bc", "cd")
    assert sample.add(calls("ab", "bc", "cd", "xb", "xc", "xd"), WEEK, 0).new_share(WEEK, since=WEEK) == 0
    two = sample.add(calls("ab", "bc", "cd", "xb", "yc"), WEEK, 0)
    assert two.new_share(WEEK, since=WEEK) == pytest.approx(0.2), "1 of 5 calls"


def test_a_service_that_left_can_have_moved_its_neighbours_and_their_calls() -> None:
    sample = after_a_week("ab", "bx", "xc", "cd", "ad").add(calls("ab", "cd", "ad"), WEEK, 0)
    services, of_calls = sample.changed_shares(WEEK, WEEK)
    assert services == pytest.approx(3 / 5, abs=0.05), "b, x and c, but neither a nor d"
    assert of_calls == pytest.approx(4 / 5, abs=0.05), "all but the one from a to d"


def test_a_change_counts_less_as_it_becomes_part_of_the_week() -> None:
    sample, shares = after_a_week("ab", "bx"), []
    for block in range(WEEK, 2 * WEEK):
        sample = sample.add(calls("ab"), block, block - WEEK)
        shares.append(sample.changed_shares(block, WEEK)[0])
    assert shares == sorted(shares, reverse=True)
    assert shares[WEEK // 2] == pytest.approx(shares[0] / 2, abs=0.1)
    assert shares[-1] == 0


def test_a_new_service_can_have_moved_itself_but_not_its_callers() -> None:
    services, of_calls = after_a_week("ab", "bc").add(calls("ab", "bc", "ax"), WEEK, 0).changed_shares(WEEK, WEEK)
    assert services == pytest.approx(1 / 4)
    assert of_calls == pytest.approx(1 / 3)


def test_a_nightly_call_has_not_ended_by_day() -> None:
    sample = CallSample()
    for block in range(WEEK + 1):
        sample = sample.add(calls("ab", "nb") if block % SLOTS == 2 else calls("ab"), block, 0)
        assert block < SLOTS or sample.changed_shares(block, WEEK)[0] == pytest.approx(0, abs=0.2)
    assert sample.changed_shares(WEEK, WEEK) == (0, 0)


def test_a_young_mesh_has_no_new_services() -> None:
    sample = CallSample()
    for block in range(5 * SLOTS):
        sample = sample.add(calls("ab", "bc"), block, 0)
    assert sample.changed_shares(5 * SLOTS - 1, WEEK) == (0, 0)
