"""The page level follows the budget, and the number of snapshots the interval."""

from dataclasses import replace

import numpy as np
import pytest

from model.incidents.policy import AlertPolicy
from tests.model.decision.verdict_cases import POLICY


def test_the_page_level_follows_the_budget() -> None:
    # 50 services at 15 s are 288,000 scores a day; one false alert a day is one in 10^5.46.
    assert POLICY.page_level(50, 15.0) == pytest.approx(np.log10(288_000))
    assert POLICY.page_level(50, 60.0) == pytest.approx(np.log10(72_000))
    assert replace(POLICY, false_pages_per_day=10.0).page_level(50, 15.0) == pytest.approx(np.log10(28_800))
    assert [POLICY.budget(n) for n in (5, 50, 300, 5000)] == [1, 1, 6, 100]


@pytest.mark.parametrize(
    ("interval", "confirm", "confirm_of", "doubtful", "clear"),
    [(5.0, 3, 4, 2, 4), (15.0, 3, 4, 2, 4), (20.0, 2, 3, 1, 3), (30.0, 2, 3, 0, 2), (60.0, 2, 3, 0, 2)],
)
def test_an_alert_needs_45_seconds_and_ends_after_a_minute_but_both_need_two_snapshots(
    interval: float, confirm: int, confirm_of: int, doubtful: int, clear: int
) -> None:
    """A doubtful one needs 75 s."""
    policy = AlertPolicy().at_interval(interval)
    found = policy.confirm, policy.confirm_of, policy.doubtful, policy.clear
    assert found == (confirm, confirm_of, doubtful, clear)
    assert policy.at_interval(interval) == policy


def test_settings_of_single_snapshots_hold_at_every_interval() -> None:
    policy = AlertPolicy(confirm=1, confirm_of=1, clear=1).at_interval(15.0)
    assert (policy.confirm, policy.confirm_of, policy.clear) == (1, 1, 1)
