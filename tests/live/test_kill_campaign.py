"""Which kill a time without a verdict belongs to."""

from tests.live.kill_campaign import Gap, longest_gaps
from tests.live.loaded_cluster import Sender
from tests.live.random_kills import Kill


def gaps(kills: list[float], answered: list[float]) -> list[Gap]:
    """Return the gaps of kills at some moments, with one mesh that was answered at others."""
    return longest_gaps([Kill("session", 1, at) for at in kills], [Sender("mesh", [], answered=answered)])


def test_a_gap_begins_with_the_first_kill_during_it() -> None:
    assert gaps([1.5, 2.5], [1.0, 4.0, 5.0]) == [Gap(2.5, 2), Gap(1.0, 1)]


def test_a_later_gap_belongs_to_the_newest_kill() -> None:
    assert gaps([1.5], [1.0, 2.0, 9.0]) == [Gap(7.0, 1)]


def test_a_gap_before_all_kills_belongs_to_none() -> None:
    assert gaps([8.0], [1.0, 7.0, 8.5]) == [Gap(0.5, 1)]
