from dataclasses import replace

import numpy as np
import pytest
import torch

from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import RECOVERS, RETURNED
from model.incidents.policy import LASTING_DECADES, RETURNED_SHARE, SUSPICIOUS_SHARE, AlertPolicy
from model.scoring.crossing import CrossingCalls, decode_crossing, with_crossing
from model.scoring.evidence import Evidence
from model.scoring.explanations import OWN, SERIES, Explanation
from model.scoring.kinds import EvidenceKind, K
from model.scoring.lasting import SEVERE
from model.scoring.meta_inputs import COUNTERPARTS, rank_exchange, rank_inputs
from model.scoring.meta_model import MetaModel
from model.scoring.ranking import MOST_DECADES, PAGE_NATS, page_nats, with_neighbours
from model.scoring.suspects import suspects
from model.scoring.verdict_building import build_verdict
from model.scoring.verdict_context import VerdictContext
from model.snapshot import PlannedChange
from model.verdict import MOVED, NearbyChange, Severity, Status, Verdict
from tests.model.model_cases import at, network

LEVEL = 5.0
POLICY = AlertPolicy(confirm=2, confirm_of=3, doubtful=0)  # of two snapshots, to keep the tests short


def meta() -> MetaModel:
    torch.manual_seed(0)
    return MetaModel().eval()


def evidence(*page: float, calls: tuple[tuple[int, int], ...] = (), services: int = 20, total: int = 20) -> Evidence:
    """Return candidates with these page scores, due to errors."""
    count = len(page)
    kinds = np.zeros((count, K), np.float32)
    kinds[:, EvidenceKind.ERROR] = page
    series = np.full((count, 3), -1)
    series[:, 0] = SERIES.index("error_rate")
    observed, expected = np.zeros((count, 3), np.float32), np.zeros((count, 3), np.float32)
    observed[:, 0], expected[:, 0] = 0.25, 0.01
    return Evidence(
        tuple(f"a/s{i}" for i in range(count)),
        kinds,
        np.zeros(count, bool),
        np.zeros(count, np.float32),
        np.array(page, np.float32),
        np.array(page, np.float32),
        np.array(calls, np.int64).reshape(-1, 2).T,
        Explanation(
            series,
            np.full((count, 3), -1),
            observed,
            expected,
            np.zeros(count, np.int64),
            np.ones(count, np.float32),
            (),
            {},
        ),
        tuple(int((np.array(page) > x).sum()) for x in (2, 3, 5)),  # type: ignore[arg-type]
        services,
        total,
        np.zeros(count, np.float32),
    )


def when(index: int, learned: int = 100, missing: tuple[int, ...] = ()) -> VerdictContext:
    return VerdictContext(at(index), index + 1, learned, 15.0, LEVEL, LEVEL, missing)


def judge(*scenes: Evidence, learned: int = 100, missing: tuple[int, ...] = ()) -> tuple[list[Verdict], IncidentMemory]:
    memory, verdicts = IncidentMemory(), []
    for i, scene in enumerate(scenes):
        verdict, memory = build_verdict(meta(), scene, memory, POLICY, when(i, learned, missing))
        verdicts.append(verdict)
    return verdicts, memory


def test_during_warm_up_there_are_no_alerts_and_no_normal_verdicts() -> None:
    verdicts, memory = judge(*[evidence(12.0, 1.0)] * 4, learned=POLICY.warm_up - 1)
    assert {v.status for v in verdicts} == {Status.WARMING_UP}
    assert all(v.incidents == () for v in verdicts)
    assert memory.above_level == {}
    assert verdicts[0].mesh_score == 12.0
    assert verdicts[0].suspects


def test_a_verdict_without_all_parts_is_not_normal() -> None:
    (verdict,), _ = judge(evidence(1.0, services=15), missing=(2,))
    assert (verdict.status, verdict.coverage, verdict.missing_parts) == (Status.PARTIAL, 0.75, (2,))


def test_warming_up_precedes_partial_and_anomalous_precedes_both() -> None:
    (verdict,), _ = judge(evidence(1.0, services=15), learned=3)
    assert verdict.status is Status.WARMING_UP
    verdicts, _ = judge(*[evidence(9.0, services=15)] * 2)
    assert [v.status for v in verdicts] == [Status.PARTIAL, Status.ANOMALOUS]


MODERATE = LEVEL - LASTING_DECADES + 0.5


def test_a_moderate_deviation_that_lasts_raises_an_alert() -> None:
    verdicts, memory = judge(*[evidence(1.0)] * 3, *[evidence(MODERATE)] * 14)
    assert [bool(v.incidents) for v in verdicts] == [False] * (3 + POLICY.lasting) + [True] * 2
    (incident,) = verdicts[-1].incidents
    assert incident.since == at(3), "it began with the first snapshot that counts"
    assert incident.score == verdicts[-1].mesh_score == pytest.approx(MODERATE + LASTING_DECADES)
    (past,) = memory.past
    raised = evidence(max(MODERATE - max(past.excess["a/s0"]), 0.0))
    assert not judge(*[raised] * 20)[0][-1].incidents, "after feedback the same evidence raises no alert"


@pytest.mark.parametrize(
    ("page", "snapshots"), [((LEVEL + 1,), 4), ((SEVERE * LEVEL + 1,), 3), ((LEVEL + 1, SEVERE * LEVEL + 1), 3)]
)
def test_evidence_near_the_level_has_to_last_a_snapshot_longer(page: tuple[float, ...], snapshots: int) -> None:
    memory, policy, opened = IncidentMemory(), AlertPolicy(), []
    for i in range(6):
        verdict, memory = build_verdict(meta(), evidence(*page), memory, policy, when(i))
        opened.append(bool(verdict.incidents))
    assert opened == [i + 1 >= snapshots for i in range(6)]


@pytest.mark.parametrize("times", [8, POLICY.lasting - 1])
def test_an_intermittent_moderate_deviation_raises_no_alert(times: int) -> None:
    order = np.random.default_rng(0).permutation(POLICY.lasting_of).tolist()
    scenes = [evidence(MODERATE if i < times else 1.0) for i in order * 4]
    assert not any(v.incidents for v in judge(*scenes)[0])


def test_duration_during_warm_up_does_not_count() -> None:
    memory = IncidentMemory()
    for i in range(20):
        _, memory = build_verdict(meta(), evidence(MODERATE), memory, POLICY, when(i, POLICY.warm_up - 1))
    assert memory.above_lasting == {}


def test_the_duration_of_a_rollout_does_not_count() -> None:
    rolling = replace(evidence(MODERATE), rolling=np.array([True]))
    verdicts, memory = judge(*[rolling] * 24, *[evidence(MODERATE)] * (POLICY.lasting - 1))
    assert not any(v.incidents for v in verdicts)
    assert memory.above_lasting["a/s0"][0].bit_count() == POLICY.lasting - 1


def test_a_large_deviation_does_not_score_higher_if_it_lasts() -> None:
    large = LEVEL + LASTING_DECADES + 1
    scores = [v.mesh_score for v in judge(*[evidence(large)] * 20)[0]]
    assert scores == pytest.approx([large] * 20)


def test_duration_does_not_rank_suspects() -> None:
    scene = evidence(MODERATE, 1.0, calls=((0, 1),))
    verdicts, _ = judge(*[scene] * 14)
    before, after = ([s.score for s in v.suspects] for v in (verdicts[5], verdicts[-1]))
    assert verdicts[-1].incidents
    np.testing.assert_allclose(before, after, rtol=1e-6)


def test_an_alert_needs_k_of_n_snapshots_and_has_its_start() -> None:
    verdicts, _ = judge(evidence(1.0), evidence(9.0), evidence(9.5))
    assert [len(v.incidents) for v in verdicts] == [0, 0, 1]
    (incident,) = verdicts[2].incidents
    assert incident.since == at(1)
    assert incident.score == 9.5
    assert incident.affected == ("a/s0",)


def test_an_incident_recovers_while_its_services_are_quiet() -> None:
    quiet, alerting = evidence(1.0), evidence(9.0)
    verdicts, _ = judge(alerting, alerting, *[quiet] * (RECOVERS + 1), alerting, alerting)
    found = [v.incidents[0] for v in verdicts[1:]]
    expected = [False, *[False] * (RECOVERS - 1), True, True, False, False]
    assert [incident.recovering for incident in found] == expected, "a relapse needs no confirmation"
    assert len({incident.id for incident in found}) == 1


def test_an_incident_is_over_after_snapshots_in_which_its_services_are_back_to_normal() -> None:
    verdicts, _ = judge(*[evidence(9.0)] * 2, *[evidence(1.0)] * RETURNED)
    assert [len(v.incidents) for v in verdicts] == [0, *[1] * RETURNED, 0]
    assert [v.status for v in verdicts[-2:]] == [Status.ANOMALOUS, Status.NORMAL]


@pytest.mark.parametrize(("share", "recovers"), [(RETURNED_SHARE + 0.05, False), (RETURNED_SHARE - 0.05, True)])
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


def test_connected_services_are_one_incident_and_others_another() -> None:
    scene = evidence(9.0, 8.0, 7.0, 1.0, calls=((0, 1),))
    (_, verdict), _ = judge(scene, scene)
    assert sorted(i.affected for i in verdict.incidents) == [("a/s0", "a/s1"), ("a/s2",)]


def test_affected_neighbours_belong_to_the_incident_and_raise_no_alert_alone() -> None:
    weak = 0.7 * LEVEL
    scene = evidence(9.0, weak, weak, calls=((1, 0),))
    (_, verdict), _ = judge(scene, scene)
    (incident,) = verdict.incidents
    assert incident.affected == ("a/s0", "a/s1")


@pytest.mark.parametrize(
    ("page", "severity"),
    [
        ((6.0,), Severity.MINOR),
        ((11.0,), Severity.MAJOR),
        ((6.0, 6.0, 6.0), Severity.MAJOR),
        ((11.0, 6.0, 6.0), Severity.CRITICAL),
    ],
)
def test_severity_depends_on_score_and_number_of_services(page: tuple[float, ...], severity: Severity) -> None:
    scene = evidence(*page, calls=tuple((i, i + 1) for i in range(len(page) - 1)))
    (_, verdict), _ = judge(scene, scene)
    assert [i.severity for i in verdict.incidents] == [severity]


def test_suspects_are_filled_without_any_incident() -> None:
    (verdict,), _ = judge(evidence(0.5, 0.2, 0.1))
    assert verdict.status is Status.NORMAL
    assert {s.service for s in verdict.suspects} == {"a/s0", "a/s1", "a/s2"}
    assert sum(s.score for s in verdict.suspects) == pytest.approx(1, abs=1e-5)


def test_unusual_services_are_suspected_for_any_ranking() -> None:
    """Of two services with equal evidence, the one with a page score a decade higher has e times the root-cause score.

    If both page scores are at the maximum, the root-cause scores are equal.
    """
    no_preference = np.zeros(2, np.float32)
    for lower, nats in ((4.0, PAGE_NATS), (MOST_DECADES, 0.0)):
        scene = replace(evidence(4.0, 4.0), page=np.array([lower, lower + 1], np.float32))
        found = {
            s.service: s.score for s in suspects(meta(), scene, np.arange(2), IncidentMemory(), when(8), no_preference)
        }
        assert found["a/s1"] / found["a/s0"] == pytest.approx(np.exp(nats), rel=1e-4)


def test_a_service_that_is_missed_counts_as_much_as_the_damage_that_it_does() -> None:
    scene = replace(evidence(4.0, 4.0), page=np.array([4.0, 15.0], np.float32))
    kinds = scene.kinds.copy()
    kinds[0, EvidenceKind.VANISHED] = 4.0
    nats = page_nats(replace(scene, kinds=kinds), np.arange(2))
    assert nats[0] == nats[1] == PAGE_NATS * MOST_DECADES
    assert page_nats(scene, np.arange(2))[0] == PAGE_NATS * 4


def test_exchange_gives_the_inputs_with_latency_and_errors_swapped() -> None:
    original = evidence(4.0, 2.0, 1.0)
    kinds = np.random.default_rng(3).uniform(0, 9, original.kinds.shape).astype(np.float32)
    exchanged = kinds.copy()
    for latency, error in COUNTERPARTS.items():
        pair = [latency, error]
        exchanged[:, pair] = kinds[:, pair[::-1]]
    before, after = (rank_inputs(replace(original, kinds=k), np.arange(3)) for k in (kinds, exchanged))
    assert not torch.equal(before, after)
    assert torch.equal(before[:, rank_exchange()], after)


def test_reasons_are_in_the_metrics_unit() -> None:
    scene = evidence(9.0, 8.0, calls=((1, 0),))
    explanation = replace(scene.explanation, peers=("a/s1",))
    explanation.series[0, 1:] = SERIES.index("p99_latency", OWN), SERIES.index(MOVED)
    explanation.peer[0, 1:] = 0
    explanation.observed[0, 1:], explanation.expected[0, 1:] = (1.5, 40.0), (0.2, 0.0)
    explanation.load[0], explanation.gone[0] = 1.4, 4
    scene = replace(scene, explanation=explanation)
    no_preference = np.zeros(2, np.float32)
    found = {s.service: s for s in suspects(meta(), scene, np.arange(2), IncidentMemory(), when(8), no_preference)}
    own, call, moved = found["a/s0"].reasons
    assert (own.metric, own.source) == ("error_rate", "")
    assert (own.observed, own.expected) == pytest.approx((0.25, 0.01))
    assert (call.metric, call.source) == ("p99_latency", "a/s1")
    assert (call.observed, call.expected) == pytest.approx((1.5, 0.2))
    assert (moved.source, moved.destination, moved.observed) == ("", "a/s1", 40.0), "a call that the service makes"
    assert [reason.since for reason in found["a/s0"].reasons] == [at(5)] * 3, "gone for three snapshots before this one"
    assert [reason.load for reason in found["a/s0"].reasons] == pytest.approx([1.4, 1.0, 1.0]), "the load is shown once"
    assert len(found["a/s1"].reasons) == 1


def test_a_change_at_its_services_is_attached_to_the_incident_and_stays() -> None:
    mine, other = PlannedChange("deploy", "a/s0", "v2"), PlannedChange("deploy", "a/s1")
    memory = IncidentMemory().advance_changes([mine, other], 3)
    changes = []
    for i in range(1, 8):
        memory = memory.advance_changes([], 3)
        verdict, memory = build_verdict(meta(), evidence(9.0, 1.0), memory, POLICY, when(i))
        changes += [incident.changes for incident in verdict.incidents]
    assert changes == [(NearbyChange(mine, at(0)),)] * 6, "from the second snapshot on, when the incident opens"


def test_a_group_is_suspected_with_its_neighbours() -> None:
    calls = np.array([[0, 1, 3], [1, 2, 4]])
    assert with_neighbours(np.array([1]), calls).tolist() == [0, 1, 2]
    assert with_neighbours(np.array([5]), calls).tolist() == [5]


def test_the_threshold_leaves_snapshots_with_alerts_out() -> None:
    quiet = [evidence(float(x)) for x in (1, 2, 3)]
    verdicts, memory = judge(*quiet, evidence(9.0), evidence(9.0), evidence(9.0))
    assert verdicts[0].threshold == 0
    assert memory.scores == (1.0, 2.0, 3.0, 9.0)  # the first snapshot above the level had raised no alert yet
    assert verdicts[-1].threshold == pytest.approx(np.percentile([1, 2, 3], 99)), "the newest run does not count"


def test_the_threshold_does_not_follow_an_anomaly_that_raises_no_alert() -> None:
    unusual, usual = evidence(SUSPICIOUS_SHARE * LEVEL + 0.1), evidence(1.0)
    verdicts, memory = judge(usual, *[unusual] * 8, usual, usual)
    assert not any(v.incidents for v in verdicts)
    assert len(memory.scores) == len(verdicts)
    assert [v.threshold for v in verdicts[1:]] == [1.0] * (len(verdicts) - 1)
    verdicts, _ = judge(usual, *[unusual] * 2, usual, usual)
    assert verdicts[-1].threshold > SUSPICIOUS_SHARE * LEVEL, "two such scores are chance"


def test_a_mesh_without_candidates_has_a_verdict() -> None:
    (verdict,), _ = judge(evidence(services=0, total=0))
    assert (verdict.mesh_score, verdict.suspects, verdict.coverage) == (0.0, (), 1.0)
    assert 0 <= verdict.probability <= 1


def test_calls_between_parts_are_decoded_as_in_one_part() -> None:
    net = network()
    z = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    ends = np.array([[0, 3, 5, 1], [4, 1, 2, 3]])
    crossing = CrossingCalls(z, ends, np.full((2, 4), -1), np.ones(4, bool))
    with torch.inference_mode():
        whole = net.structure(torch.from_numpy(z), torch.from_numpy(z), *torch.from_numpy(ends))
    np.testing.assert_allclose(decode_crossing(net, crossing), whole.numpy(), atol=1e-5)


def test_an_unlikely_young_call_between_parts_is_evidence_against_both_ends() -> None:
    scene = evidence(1.0, 1.0, 1.0, 1.0)
    ends = np.array([[0, 1, 2], [3, 3, -1]])
    crossing = CrossingCalls(np.zeros((4, 64), np.float32), ends, ends, np.array([True, False, True]))
    logits = np.array([-6.0, -20.0, 6.0], np.float32)
    surprises = with_crossing(scene, crossing, logits).kinds[:, EvidenceKind.STRUCTURE]
    assert surprises[0] == surprises[3] == pytest.approx(np.log10(1 + np.exp(6.0)), rel=1e-5)
    assert surprises[1] == 0, "a settled call is not evidence"
    assert surprises[2] == pytest.approx(np.log10(1 + np.exp(-6.0)), rel=1e-4)
    assert (scene.kinds[:, EvidenceKind.STRUCTURE] == 0).all()
