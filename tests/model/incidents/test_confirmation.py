"""Services above a level, and how many snapshots confirm them."""

import pytest

from model.incidents.confirmation import Streaks, follow_streaks, is_confirmed
from model.incidents.matching import FoundGroup, match_incidents
from model.incidents.memory import IncidentMemory
from model.verdict import Severity
from tests.builders import open_incident
from tests.model.decision.verdict_cases import LEVEL, POLICY
from tests.model.incidents.incident_cases import CLEAR, NAMES, group
from tests.model.model_cases import at


@pytest.mark.parametrize(
    ("hot", "confirmed"),
    [
        ([1], [False]),
        ([1, 1], [False, True]),
        ([1, 0, 1], [False, False, True]),
        ([1, 0, 0, 1], [False, False, False, False]),
        ([1, 1, 0, 0], [False, True, False, False]),
    ],
)
def test_services_above_the_level_are_confirmed_by_k_of_the_last_n_snapshots(
    hot: list[int], confirmed: list[bool]
) -> None:
    bits: Streaks = {}
    found = []
    for i, warm in enumerate(hot):
        bits = follow_streaks(bits, NAMES[:warm], POLICY.confirm_of, at(i))
        found.append(is_confirmed(bits, NAMES[0], POLICY))
    assert found == confirmed


def test_a_streak_has_its_beginning_and_is_forgotten_at_its_end() -> None:
    bits: Streaks = {}
    began = []
    for i, score in enumerate([9, 0, 9, 0, 0, 0, 9]):
        bits = follow_streaks(bits, NAMES[: score > LEVEL], POLICY.confirm_of, at(i))
        began.append(bits[NAMES[0]][1] if bits else None)
    assert began == [at(0), at(0), at(0), at(0), at(0), None, at(6)]


def test_a_service_that_is_no_candidate_cools_down_too() -> None:
    bits: Streaks = {NAMES[0]: (0b001, at(0))}
    for i in range(1, 4):
        bits = follow_streaks(bits, NAMES[1:2], POLICY.confirm_of, at(i))
    assert bits.keys() == set(NAMES[1:2])


def test_the_argument_is_unchanged() -> None:
    memory = IncidentMemory(above_notice={NAMES[0]: (1, at(0))}, open=(open_incident(*NAMES[:1]),))
    follow_streaks(memory.above_notice, NAMES, POLICY.confirm_of, at(1))
    match_incidents(memory.open, [FoundGroup(group(0, 1), at(1), Severity.CRITICAL)], NAMES, CLEAR)
    assert memory.above_notice == {NAMES[0]: (1, at(0))}
    assert memory.open == (open_incident(*NAMES[:1]),)
