"""Unusual services that raise no alert yet."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.incidents.memory import IncidentMemory
from model.incidents.mutes import Mute, active_mutes
from model.incidents.open_incident import OpenIncident
from model.incidents.policy import LASTING_DECADES, AlertPolicy
from model.scoring.kinds import EvidenceKind
from model.scoring.lasting import SEVERE
from model.scoring.verdict_building import build_verdict
from model.scoring.watching import LEAST_SEEN, MOST_WATCHED, watch
from model.verdict import Reason, Severity, Status, Watched
from tests.model.model_cases import START, at
from tests.model.scoring.verdict_cases import LEVEL, MODERATE, POLICY, evidence, judge, meta, when

SHIPPED = AlertPolicy()
REASON = Reason("error_rate", 0.25, 0.01, START)


def watch_list(
    page: dict[str, float], memory: IncidentMemory, *clear: str, policy: AlertPolicy = SHIPPED
) -> tuple[Watched, ...]:
    return watch(page, {name: name in clear for name in page}, memory, LEVEL, policy, lambda name: (REASON,))


def test_a_service_above_the_level_is_watched_until_it_is_confirmed() -> None:
    memory, seen = IncidentMemory(), []
    for i in range(5):
        verdict, memory = build_verdict(meta(), evidence(LEVEL + 1), memory, SHIPPED, when(i))
        seen.append([(one.service, one.seen, one.needed, one.since) for one in verdict.watching])
        assert bool(verdict.incidents) != bool(verdict.watching)
    assert seen == [[("a/s0", i + 1, 4, at(0))] for i in range(3)] + [[], []]


def test_a_service_far_above_the_level_needs_a_snapshot_less() -> None:
    memory = IncidentMemory()
    verdict, memory = build_verdict(meta(), evidence(SEVERE * LEVEL + 1), memory, SHIPPED, when(0))
    assert [(one.seen, one.needed, one.level) for one in verdict.watching] == [(1, 3, LEVEL)]


def test_a_moderate_deviation_is_watched_from_the_second_snapshot_until_it_lasts() -> None:
    verdicts, _ = judge(*[evidence(MODERATE)] * 13)
    seen = [[(one.seen, one.needed, one.level) for one in v.watching] for v in verdicts]
    expected = [[(i + 1, POLICY.lasting, LEVEL - LASTING_DECADES)] for i in range(POLICY.lasting - 1)]
    assert seen[1 : POLICY.lasting - 1] == expected[1:]
    assert seen[0] == []
    (last,) = verdicts[POLICY.lasting - 1].watching
    assert last.score == pytest.approx(MODERATE), "without the decades for its duration"
    assert verdicts[-1].watching == ()
    assert verdicts[-1].incidents


def test_what_is_watched_changes_no_status_and_has_its_reasons() -> None:
    (first, verdict), _ = judge(evidence(MODERATE), evidence(MODERATE))
    assert (first.status, verdict.status) == (Status.NORMAL, Status.NORMAL)
    (one,) = verdict.watching
    assert [(reason.metric, reason.observed) for reason in one.reasons] == [("error_rate", 0.25)]
    assert verdict.suspects[0].service == one.service


def test_usual_services_are_not_watched_and_nothing_is_while_the_mesh_warms_up() -> None:
    assert not any(v.watching for v in judge(*[evidence(1.0, 0.5)] * 5)[0])
    assert not any(v.watching for v in judge(*[evidence(9.0)] * 5, learned=POLICY.warm_up - 1)[0])


def test_a_service_that_is_usual_again_is_not_watched() -> None:
    verdicts, _ = judge(evidence(LEVEL + 1), evidence(1.0))
    assert [len(v.watching) for v in verdicts] == [1, 0]


def test_members_of_an_incident_are_not_watched_and_other_services_are() -> None:
    scene = evidence(9.0, LEVEL + 1)
    memory = IncidentMemory()
    for i in range(3):
        verdict, memory = build_verdict(meta(), scene, memory, SHIPPED, when(i))
    assert [incident.affected for incident in verdict.incidents] == [("a/s0",)]
    assert [one.service for one in verdict.watching] == ["a/s1"]


def test_members_of_an_incident_of_traffic_are_watched() -> None:
    incident = OpenIncident("x", START, Severity.CRITICAL, ("a/s0",))
    memory = IncidentMemory(above_level={"a/s0": (1, START)}, open=(incident,))
    assert watch_list({"a/s0": LEVEL + 1}, memory) == ()
    of_traffic = replace(memory, open=(replace(incident, scope="*"),))
    assert [one.service for one in watch_list({"a/s0": LEVEL + 1}, of_traffic)] == ["a/s0"]


def test_muted_services_are_not_watched() -> None:
    mute = Mute("m", ("a/s0",), START, START + timedelta(hours=1), "a test", START)
    memory = IncidentMemory(
        above_level={"a/s0": (1, START), "a/s1": (1, START)}, active_mutes=active_mutes([mute], (), (), at(1))
    )
    assert [one.service for one in watch_list({"a/s0": 9.0, "a/s1": 9.0}, memory)] == ["a/s1"]


def test_a_service_above_both_levels_counts_towards_the_page_level() -> None:
    memory = IncidentMemory(above_level={"a/s0": (1, at(5))}, above_lasting={"a/s0": (0b111111, START)})
    (one,) = watch_list({"a/s0": LEVEL + 1}, memory)
    assert (one.level, one.seen, one.needed, one.since) == (LEVEL, 1, 4, at(5))


@given(
    st.dictionaries(st.sampled_from([f"a/s{i}" for i in range(12)]), st.tuples(st.integers(1, 15), st.floats(5, 20))),
    st.integers(0, 15),
)
def test_the_most_unusual_services_are_listed_first_and_few_of_them(
    above: dict[str, tuple[int, float]], lasting: int
) -> None:
    page = {name: score for name, (_, score) in above.items()}
    memory = IncidentMemory(
        above_level={name: (bits, START) for name, (bits, _) in above.items()},
        above_lasting=dict.fromkeys(above, (lasting, START)) if lasting else {},
    )
    found = watch_list(page, memory)
    assert len(found) <= MOST_WATCHED
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    newest = {name for name, (bits, _) in above.items() if bits & 1}
    assert newest or not any(one.level == LEVEL for one in found)
    for one in found:
        assert one.reasons == (REASON,)
        assert 1 <= one.seen < one.needed
        assert one.level == LEVEL or one.seen >= LEAST_SEEN
    if len(newest) <= MOST_WATCHED and not lasting & 1:
        assert {one.service for one in found} == newest


def test_a_resource_alone_is_watched_as_a_moderate_deviation_that_never_lasts() -> None:
    scene = evidence(MODERATE)
    kinds = scene.kinds.copy()
    kinds[:, EvidenceKind.ERROR], kinds[:, EvidenceKind.RESOURCES] = 0, MODERATE / 0.6
    verdicts, _ = judge(*[replace(scene, kinds=kinds)] * 20)
    assert not any(v.incidents for v in verdicts)
    (one,) = verdicts[-1].watching
    assert one.seen == one.needed - 1
