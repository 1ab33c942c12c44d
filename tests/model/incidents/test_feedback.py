from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.evidence.kinds import EvidenceKind, K, page_score, symptoms
from model.evidence.level_shifts import MARGIN, apply_level_shifts, excess
from model.incidents.feedback import (
    LOWERED,
    LOWERED_AT_MOST,
    PREFERENCE,
    Feedback,
    PastIncident,
    moves_of_missed,
    preference,
)
from model.incidents.memory import REMEMBERED, IncidentMemory
from model.incidents.threshold import Track
from model.verdict import Severity
from tests.builders import open_incident
from tests.model.incidents.incident_cases import feedback_on
from tests.model.model_cases import at

NAMES = ("shop/cart", "shop/store", "shop/pay", "shop/front")
LEVEL = 5.0
CART = Track((6.0,), at(20), at(20))
PAGED = PastIncident("i-1", at(5), at(9), NAMES[:2], {"shop/cart": (1.4, 0.1, 0.0, 0.0)})
OPEN = PastIncident("i-2", at(16), at(20), NAMES[2:], {"shop/pay": (0.0, 1.8, 0.0, 0.0)})
MEMORY = IncidentMemory(
    scores=tuple(float(i) for i in range(1, 9)),
    times=tuple(at(i).timestamp() for i in (0, 1, 2, 3, 10, 11, 12, 13)),
    incident_scores=tuple((at(i).timestamp(), 50.0 + i) for i in (5, 6, 7, 8, 9, 16, 17, 18, 19, 20)),
    tracks={"shop/pay": Track((6.0, 7.0, 6.0), at(15), at(15)), "shop/cart": CART},
    open=(open_incident(*NAMES[2:], id="i-2", since=at(16), severity=Severity.MAJOR),),
    past=(PAGED, OPEN),
)
Symptoms = tuple[float, float, float]
surprise = st.floats(0, 15, width=32)
shown = st.tuples(surprise, surprise, surprise)
quick = settings(max_examples=60)


def missed(*services: str, since: float, until: float) -> Feedback:
    return Feedback(
        incident=f"m-{since}", was_incident=True, services=services, since=at(since), until=at(until),
        given_at=at(20), moves=moves_of_missed(services), missed=True,
    )  # fmt: skip


NONE = feedback_on(PAGED, was_incident=False)


def memory_with(*feedback: Feedback) -> IncidentMemory:
    memory = MEMORY
    for one in feedback:
        memory = memory.add_feedback(one)
    return memory


def showing(symptoms: Symptoms) -> np.ndarray:
    kinds = np.zeros((1, K), np.float32)
    kinds[0, [EvidenceKind.LATENCY, EvidenceKind.ERROR, EvidenceKind.VANISHED]] = symptoms
    return kinds


def page(symptoms: Symptoms, memory: IncidentMemory, name: str = "shop/cart") -> float:
    return float(page_score(apply_level_shifts(showing(symptoms), memory, [name]))[0])


def after(symptoms: Symptoms) -> IncidentMemory:
    """Return a memory in which an incident with these symptoms was a false alarm."""
    unspoken = replace(MEMORY, past=(PAGED, replace(OPEN, excess={})))
    noted = unspoken.record_open(["shop/pay"], excess(showing(symptoms), LEVEL), at(21))
    return noted.add_feedback(feedback_on(noted.past[-1], was_incident=False))


@quick
@given(shown, st.floats(0, 1, width=32))
def test_symptoms_up_to_a_false_alarm_raise_no_more_alerts(symptoms: Symptoms, share: float) -> None:
    memory = after(symptoms)
    less = (symptoms[0] * share, symptoms[1], symptoms[2] * share)
    for one in (symptoms, less):
        assert page(one, memory, "shop/pay") < LEVEL
    assert page(symptoms, memory) == pytest.approx(page(symptoms, MEMORY)), "no feedback is about that service"


@quick
@given(shown)
def test_more_unusual_evidence_than_a_false_alarm_raises_an_alert(symptoms: Symptoms) -> None:
    if page(symptoms, MEMORY) > LEVEL:
        stronger = (symptoms[0] + 2 * MARGIN, symptoms[1] + 2 * MARGIN, symptoms[2] + 2 * MARGIN)
        assert page(stronger, after(symptoms), "shop/pay") > LEVEL


def test_another_symptom_raises_alerts_as_before() -> None:
    memory = after((0.0, 9.0, 0.0))
    assert page((0.0, 9.0, 0.0), memory, "shop/pay") < LEVEL
    for other in ((5.1, 0.0, 0.0), (0.0, 0.0, 5.1)):
        assert page(other, memory, "shop/pay") > LEVEL


def test_below_level_zero_no_symptom_is_permitted() -> None:
    """Levels are below 0 when snapshots are years apart: chance then reaches every score within the budget."""
    kinds = np.concatenate([showing((0.0, 0.0, 0.0)), showing((4.0, 0.0, 2.0))])
    np.testing.assert_array_equal(excess(kinds, np.array([-3.5, -3.5], np.float32)), symptoms(kinds))


def test_missed_incidents_lower_the_level_up_to_a_bound() -> None:
    reports = [missed("shop/cart", since=i, until=i) for i in (1, 2, 11)]
    assert page((4.6, 0.0, 0.0), memory_with(reports[0])) == pytest.approx(4.6 + LOWERED)
    assert page((4.6, 0.0, 0.0), memory_with(*reports)) == pytest.approx(4.6 + LOWERED_AT_MOST)
    assert page((0.0, 0.0, 0.0), memory_with(*reports)) == 0, "without symptoms the score stays zero"
    assert page((4.6, 0.0, 0.0), memory_with(NONE, reports[0])) == pytest.approx(4.6 + LOWERED), (
        "a report of a missed incident removes a raise first"
    )
    assert page((4.6, 0.0, 0.0), memory_with(reports[0], NONE)) == pytest.approx(4.6 - 1.4), "the later feedback counts"


def test_a_false_alarm_closes_the_incident_and_its_services_learn_again() -> None:
    memory = memory_with(feedback_on(OPEN, was_incident=False))
    assert (memory.open, memory.tracks) == ((), {"shop/cart": CART})
    assert not memory.is_in_incident(NAMES).any()
    assert memory_with(feedback_on(OPEN, was_incident=True)).open == MEMORY.open


def test_the_last_feedback_on_an_incident_counts_until_it_is_removed() -> None:
    other = feedback_on(OPEN, was_incident=True, culprit="shop/pay")
    memory = memory_with(NONE, other, feedback_on(PAGED, was_incident=True))
    assert [(one.incident, one.was_incident) for one in memory.feedback] == [("i-2", True), ("i-1", True)]
    assert memory.remove_feedback("i-1").feedback == (other,)
    assert MEMORY.remove_feedback("i-1") == MEMORY


def test_normal_scores_include_those_of_false_alarms_and_exclude_missed_incidents() -> None:
    assert MEMORY.normal_scores().max() == 8.0
    assert memory_with(NONE).normal_scores().max() == 59.0
    assert memory_with(feedback_on(PAGED, was_incident=True)).normal_scores().max() == 8.0
    assert memory_with(missed("shop/front", since=12, until=14)).normal_scores().max() == 6.0
    crossed = replace(MEMORY, past=(PAGED, replace(OPEN, since=at(7))))
    assert crossed.add_feedback(NONE).normal_scores().max() == 56.0, "another incident was open from 7 on"


def test_a_limited_number_of_scores_is_kept_with_their_times() -> None:
    memory = IncidentMemory()
    for i in range(5):
        memory = memory.add_score(float(i), at(i), normal=i % 2 == 0, keep=2)
    assert (memory.scores, memory.times) == ((2.0, 4.0), (at(2).timestamp(), at(4).timestamp()))
    assert memory.incident_scores == ((at(1).timestamp(), 1.0), (at(3).timestamp(), 3.0))


def test_normal_scores_up_to_a_time() -> None:
    memory = IncidentMemory()
    for i in range(8):
        memory = memory.add_score(float(i), at(i), normal=True, keep=20)
    assert memory.normal_scores(at(4).timestamp()).tolist() == [0, 1, 2, 3, 4]
    assert memory.normal_scores().tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_culprit_is_preferred_in_groups_alike() -> None:
    memory = memory_with(feedback_on(PAGED, was_incident=True, culprit="shop/pay"))

    def added(*members: str) -> float:
        nats = preference(memory.feedback, NAMES, [members])
        assert not nats[[0, 1, 3]].any()
        return float(nats[2])

    assert added("shop/cart", "shop/store") == PREFERENCE
    assert added("shop/cart", "shop/store", "shop/front") == pytest.approx(PREFERENCE * 2 / 3)
    assert added("shop/front") == added() == 0
    assert page((6.0, 0.0, 0.0), memory) == pytest.approx(6.0), "feedback on the culprit does not change the page score"


def test_past_incidents_keep_their_strongest_symptoms_and_are_limited_in_number() -> None:
    memory = MEMORY
    for i, errors in enumerate((6.0, 7.0, 5.0)):
        memory = memory.record_open(
            ["shop/pay", "shop/cart"], np.array([[0, errors, 0], [9, 9, 9]], np.float32), at(30 + i)
        )
    assert memory.past == (PAGED, PastIncident("i-2", at(16), at(32), NAMES[2:], {"shop/pay": (0.0, 7.0, 0.0)}))
    for i in range(REMEMBERED):
        born = open_incident(*NAMES[:1], id=f"i-{100 + i}", since=at(i))
        memory = replace(memory, open=(born,)).record_open((), np.zeros((0, 3), np.float32), at(i))
    assert [one.id for one in memory.past] == [f"i-{100 + i}" for i in range(REMEMBERED)]


def test_without_feedback_the_evidence_is_unchanged() -> None:
    kinds = showing((6.0, 1.0, 0.0))
    assert apply_level_shifts(kinds, MEMORY, ["shop/cart"]) is kinds
