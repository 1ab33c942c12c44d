"""Services above a level, and how many snapshots confirm them."""

import numpy as np
import pytest

from model.incidents.matching import FoundGroup, match_incidents
from model.incidents.memory import IncidentMemory
from model.incidents.threshold import Streaks, confirm_services
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
        bits, sure = confirm_services(bits, NAMES[:1], np.array([LEVEL + 1 if warm else 1.0]), LEVEL, POLICY, at(i))
        found.append(bool(sure[0]))
    assert found == confirmed


def test_a_streak_has_its_beginning_and_is_forgotten_at_its_end() -> None:
    bits: Streaks = {}
    began = []
    for i, score in enumerate([9, 0, 9, 0, 0, 0, 9]):
        bits, _ = confirm_services(bits, NAMES[:1], np.array([float(score)]), LEVEL, POLICY, at(i))
        began.append(bits[NAMES[0]][1] if bits else None)
    assert began == [at(0), at(0), at(0), at(0), at(0), None, at(6)]


def test_a_service_that_is_no_candidate_cools_down_too() -> None:
    bits: Streaks = {NAMES[0]: (0b001, at(0))}
    for i in range(1, 4):
        bits, _ = confirm_services(bits, NAMES[1:2], np.array([0.0]), LEVEL, POLICY, at(i))
    assert bits == {}


def test_the_argument_is_unchanged() -> None:
    memory = IncidentMemory(above_notice={NAMES[0]: (1, at(0))}, open=(open_incident(*NAMES[:1]),))
    confirm_services(memory.above_notice, NAMES, np.full(8, 9.0), LEVEL, POLICY, at(1))
    match_incidents(memory.open, [FoundGroup(group(0, 1), at(1), Severity.CRITICAL)], NAMES, CLEAR)
    assert memory.above_notice == {NAMES[0]: (1, at(0))}
    assert memory.open == (open_incident(*NAMES[:1]),)
