"""Which kill a time without a verdict belongs to."""

import pytest

from tests.live.kill_campaign import Gap, longest_gaps
from tests.live.loaded_cluster import Sender
from tests.live.random_kills import Kill


@pytest.mark.parametrize(
    ("what", "kills", "answered", "gaps"),
    [
        ("a gap begins with the first kill during it", [1.5, 2.5], [1.0, 4.0, 5.0], [Gap(2.5, 2), Gap(1.0, 1)]),
        ("a later gap belongs to the newest kill", [1.5], [1.0, 2.0, 9.0], [Gap(7.0, 1)]),
        ("a gap before all kills belongs to none", [8.0], [1.0, 7.0, 8.5], [Gap(0.5, 1)]),
    ],
)
def test_which_kill_begins_a_gap(what: str, kills: list[float], answered: list[float], gaps: list[Gap]) -> None:
    found = longest_gaps([Kill("session", 1, at) for at in kills], [Sender("mesh", [], answered=answered)])
    assert found == gaps, what
