"""From evidence to the verdict: status, incidents, severity, threshold."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.decision.verdict_building import add_reconstruction, build_verdict
from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import RECOVERS, RETURNED
from model.incidents.policy import AlertPolicy
from model.incidents.threshold import CLOSES, LASTING_DECADES, SEVERE
from model.snapshot import PlannedChange
from model.verdict import NearbyChange, Severity, Status, Verdict
from tests.model.decision.verdict_cases import LEVEL, MODERATE, POLICY, evidence, judge, meta, when
from tests.model.model_cases import at


def test_during_warm_up_there_are_no_alerts_and_no_normal_verdicts() -> None:
    verdicts, memory = judge(*[evidence(12.0, 1.0)] * 4, learned=POLICY.warm_up - 1)
    assert {v.status for v in verdicts} == {Status.WARMING_UP}
    assert all(v.incidents == () for v in verdicts)
    assert memory.tracks == {}
    assert {v.mesh_score for v in verdicts} == {0.0}, "nothing counts yet"
    assert verdicts[0].suspects


def test_a_verdict_without_all_parts_is_not_normal() -> None:
    (verdict,), _ = judge(evidence(1.0, services=15), missing=(2,))
    assert (verdict.status, verdict.coverage, verdict.missing_parts) == (Status.PARTIAL, 0.75, (2,))


def test_warming_up_precedes_partial_and_anomalous_precedes_both() -> None:
    (verdict,), _ = judge(evidence(1.0, services=15), learned=3)
    assert verdict.status is Status.WARMING_UP
    verdicts, _ = judge(*[evidence(9.0, services=15)] * 2)
    assert [v.status for v in verdicts] == [Status.PARTIAL, Status.ANOMALOUS]


@pytest.mark.parametrize(
    ("page", "snapshots"), [((LEVEL + 1,), 5), ((SEVERE * LEVEL + 1,), 3), ((LEVEL + 1, SEVERE * LEVEL + 1), 3)]
)
def test_evidence_near_the_level_has_to_last_two_snapshots_longer(page: tuple[float, ...], snapshots: int) -> None:
    verdicts, _ = judge(*[evidence(*page)] * 6, policy=AlertPolicy())
    assert [bool(v.incidents) for v in verdicts] == [i + 1 >= snapshots for i in range(6)]


def test_an_alert_needs_k_of_n_snapshots_and_has_its_start() -> None:
    verdicts, _ = judge(evidence(1.0), evidence(9.0), evidence(9.5))
    assert [len(v.incidents) for v in verdicts] == [0, 0, 1]
    (incident,) = verdicts[2].incidents
    assert incident.since == at(1)
    assert incident.score == 9.5
    assert incident.affected == ("a/s0",)


def test_an_incident_recovers_while_its_services_are_quiet() -> None:
    quiet, alerting = evidence(1.0), evidence(9.0)
    verdicts, _ = judge(alerting, alerting, *[quiet] * RECOVERS, alerting, alerting)
    found = [v.incidents[0] for v in verdicts[1:]]
    expected = [False, *[False] * (RECOVERS - 1), True, False, False]
    assert [incident.recovering for incident in found] == expected, "a relapse needs no confirmation"
    assert len({incident.id for incident in found}) == 1


def test_a_deviation_below_the_threshold_does_not_stop_a_recovery() -> None:
    quiet, weak = evidence(1.0), evidence((CLOSES + 0.1) * LEVEL)
    verdicts, _ = judge(*[evidence(9.0)] * 2, *[quiet] * RECOVERS, weak, weak)
    assert [i.recovering for v in verdicts[1 + RECOVERS :] for i in v.incidents] == [True]
    held, _ = judge(*[evidence(9.0)] * 2, *[quiet] * (RECOVERS - 1), *[weak] * RETURNED)
    assert [i.recovering for i in held[-1].incidents] == [False]


def test_an_incident_is_over_after_snapshots_in_which_its_services_are_back_to_normal() -> None:
    verdicts, _ = judge(*[evidence(9.0)] * 2, *[evidence(1.0)] * RETURNED)
    assert [len(v.incidents) for v in verdicts] == [0, *[1] * RETURNED, 0]
    assert [v.status for v in verdicts[-2:]] == [Status.ANOMALOUS, Status.NORMAL]


@pytest.mark.parametrize(("share", "recovers"), [(CLOSES + 0.05, False), (CLOSES - 0.05, True)])
def test_services_below_half_of_the_level_are_back_to_normal(share: float, recovers: bool) -> None:
    verdicts, _ = judge(*[evidence(9.0)] * 2, *[evidence(share * LEVEL)] * RECOVERS)
    assert [i.recovering for i in verdicts[-1].incidents] == [recovers]


def test_a_service_that_still_deviates_holds_its_incident_open() -> None:
    """It deviates in every other snapshot, and is never above the level."""
    both, one, none = (evidence(*page, calls=((0, 1),)) for page in ((9.0, 8.0), (1.0, 0.7 * LEVEL), (1.0, 1.0)))
    verdicts, _ = judge(*[both] * 2, *[one, none] * 2 * POLICY.clear, *[none] * (RECOVERS - 1))
    held = verdicts[1 : 1 - RECOVERS]
    assert [[i.recovering for i in v.incidents] for v in held] == [[False]] * len(held)
    assert len({i.id for v in held for i in v.incidents}) == 1
    assert [len(v.incidents) for v in verdicts[1 - RECOVERS :]] == [1, 0], "after a long quiet time it ends at once"


def test_a_service_of_another_incident_holds_an_incident_open_no_longer() -> None:
    verdicts, _ = judge(*[evidence(9.0, 9.0)] * 2, *[evidence(9.0, 1.0)] * RETURNED)
    assert [sorted(i.affected for i in v.incidents) for v in verdicts[1::RETURNED]] == [
        [("a/s0",), ("a/s1",)],
        [("a/s0",)],
    ]


def test_services_that_call_each_other_directly_are_one_incident_and_others_another() -> None:
    scene = evidence(9.0, 8.0, 7.0, 1.0, calls=((0, 1), (1, 3), (3, 2)))
    (_, verdict), _ = judge(scene, scene)
    assert sorted(i.affected for i in verdict.incidents) == [("a/s0", "a/s1"), ("a/s2",)]


def test_affected_neighbours_belong_to_the_incident_and_raise_no_alert_alone() -> None:
    weak = 0.7 * LEVEL
    scene = evidence(9.0, weak, weak, calls=((1, 0),))
    (_, verdict), _ = judge(scene, scene)
    (incident,) = verdict.incidents
    assert incident.affected == ("a/s0", "a/s1")


def test_a_new_alert_is_minor_until_its_harm_is_known() -> None:
    scene = evidence(11.0, 6.0, 6.0, calls=((0, 1), (1, 2)))
    (_, verdict), _ = judge(scene, scene)
    assert [i.severity for i in verdict.incidents] == [Severity.MINOR]


def test_a_change_at_its_services_is_attached_to_the_incident_and_stays() -> None:
    mine, other = PlannedChange("deploy", "a/s0", "v2"), PlannedChange("deploy", "a/s1")
    memory = IncidentMemory().advance_changes([mine, other], 3)
    changes = []
    for i in range(1, 8):
        memory = memory.advance_changes([], 3)
        verdict, memory = build_verdict(meta(), evidence(9.0, 1.0), memory, POLICY, when(i))
        changes += [incident.changes for incident in verdict.incidents]
    assert changes == [(NearbyChange(mine, at(0)),)] * 6, "from the second snapshot on, when the incident opens"


def test_a_notice_teaches_the_threshold_nothing() -> None:
    scene = evidence(4.0)
    short = replace(scene, notice=np.array([LEVEL + 1], np.float32))
    verdicts, memory = judge(scene, scene, *[short] * 4)
    assert [bool(v.notices) for v in verdicts] == [False] * 4 + [True] * 2
    assert len(memory.scores) == 4
    assert [score for _, score in memory.incident_scores] == [4.0] * 2


def test_the_scores_of_snapshots_with_an_alert_are_kept_apart() -> None:
    verdicts, memory = judge(*[evidence(float(x)) for x in (1, 2, 3)], *[evidence(9.0)] * 3)
    assert [v.mesh_score for v in verdicts] == [0.0, 0.0, 2.0, 3.0, 9.0, 9.0], "now, and in the snapshot before"
    assert memory.scores == (0.0, 0.0, 2.0, 3.0)
    assert [score for _, score in memory.incident_scores] == [9.0, 9.0]
    assert {v.threshold for v in verdicts} == {LEVEL}
    assert memory.threshold == (LEVEL, at(5).timestamp())


@given(st.lists(st.lists(st.floats(0, 14), min_size=3, max_size=3), min_size=1, max_size=24))
@settings(max_examples=60)
def test_an_alert_opens_if_and_only_if_the_mesh_score_reaches_the_threshold(pages: list[list[float]]) -> None:
    verdicts, _ = judge(*(evidence(*page) for page in pages))
    known: set[str] = set()
    for verdict in verdicts:
        decides = verdict.mesh_score >= verdict.threshold
        opened = {i.id for i in verdict.incidents}
        assert bool(opened) >= decides
        assert decides or opened <= known
        assert (verdict.status is Status.ANOMALOUS) == bool(opened)
        known |= opened


def test_a_moderate_deviation_that_lasts_raises_an_alert() -> None:
    verdicts, memory = judge(*[evidence(1.0)] * 3, *[evidence(MODERATE)] * 14)
    assert [bool(v.incidents) for v in verdicts] == [False] * (2 + POLICY.lasting) + [True] * 3
    (incident,) = verdicts[-1].incidents
    assert incident.since == at(3), "it began with the first snapshot that counts"
    assert incident.score == pytest.approx(MODERATE)
    assert verdicts[-1].mesh_score == pytest.approx(MODERATE + LASTING_DECADES)
    (past,) = memory.past
    raised = evidence(max(MODERATE - max(past.excess["a/s0"]), 0.0))
    assert not judge(*[raised] * 20)[0][-1].incidents, "after feedback the same evidence raises no alert"


@pytest.mark.parametrize("times", [8, POLICY.lasting - 1])
def test_an_intermittent_moderate_deviation_raises_no_alert(times: int) -> None:
    order = np.random.default_rng(0).permutation(POLICY.lasting_of).tolist()
    scenes = [evidence(MODERATE if i < times else 1.0) for i in order * 4]
    assert not any(v.incidents for v in judge(*scenes)[0])


def test_the_duration_of_a_rollout_does_not_count() -> None:
    rolling = replace(evidence(MODERATE), rolling=np.array([True]))
    verdicts, memory = judge(*[rolling] * 24)
    assert not any(v.incidents for v in verdicts)
    (verdict,), _ = judge(evidence(MODERATE), memory=memory, first=24)
    assert verdict.incidents, "afterwards it does"


def test_duration_does_not_rank_suspects() -> None:
    scene = evidence(MODERATE, 1.0, calls=((0, 1),))
    verdicts, _ = judge(scene, *[scene] * 13)
    before, after = ([s.score for s in v.suspects] for v in (verdicts[5], verdicts[-1]))
    assert verdicts[-1].incidents
    np.testing.assert_allclose(before, after, rtol=1e-6)


def test_a_mesh_without_candidates_has_a_verdict() -> None:
    (verdict,), _ = judge(evidence(services=0, total=0))
    assert (verdict.mesh_score, verdict.suspects, verdict.coverage) == (0.0, (), 1.0)
    assert 0 <= verdict.probability <= 1


def whole(mode: Literal["context", "alert"], losses: Sequence[float]) -> list[Verdict]:
    """Return the verdicts on a calm mesh with these reconstruction losses."""
    policy, memory, verdicts = AlertPolicy(reconstruction=mode), IncidentMemory(), []
    for index, loss in enumerate(losses):
        verdict, memory = build_verdict(meta(), evidence(0.1), memory, policy, when(index))
        verdict, memory = add_reconstruction(verdict, memory, loss, np.ones(4, np.float32), policy, when(index))
        verdicts.append(verdict)
    return verdicts


HIGH_LOSSES = [*np.random.default_rng(0).normal(0.07, 0.001, 40).tolist(), *[0.2] * 8]


def test_a_mesh_that_is_unusual_as_a_whole_is_context_unless_the_policy_says_alert() -> None:
    context, alert = whole("context", HIGH_LOSSES), whole("alert", HIGH_LOSSES)
    exceeded = [v.reconstruction is not None and v.reconstruction.exceeded for v in context]
    assert exceeded == [False] * 45 + [True] * 3
    assert {v.status for v in context} == {Status.NORMAL}
    assert [v.status is Status.ANOMALOUS for v in alert] == exceeded
    assert not alert[-1].incidents, "no service is to blame"


def test_other_weights_start_a_new_history() -> None:
    policy, memory = AlertPolicy(), IncidentMemory()
    for index, loss in enumerate(HIGH_LOSSES[:40]):
        verdict = replace(build_verdict(meta(), evidence(0.1), memory, policy, when(index))[0], model_digest="old")
        _, memory = add_reconstruction(verdict, memory, loss, np.ones(4, np.float32), policy, when(index))
    assert memory.reconstruction.snapshots == 40
    verdict = replace(verdict, model_digest="new")
    after, memory = add_reconstruction(verdict, memory, 0.2, np.ones(4, np.float32), policy, when(40))
    assert after.reconstruction is not None
    assert after.reconstruction.loss_threshold is None
    assert (memory.reconstruction.model, memory.reconstruction.past[1].tolist()) == ("new", [0.2])


def test_an_unknown_loss_is_not_learned() -> None:
    policy, memory = AlertPolicy(), IncidentMemory()
    verdict, memory = build_verdict(meta(), evidence(0.1), memory, policy, when(0))
    verdict, after = add_reconstruction(verdict, memory, None, np.ones(4, np.float32), policy, when(0))
    assert verdict.reconstruction is None
    assert after.reconstruction.snapshots == 0
