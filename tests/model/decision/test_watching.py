"""Unusual services that raise no alert yet."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.decision.verdict_building import MAX_WATCHED, MIN_SEEN, watch
from model.incidents.memory import IncidentMemory
from model.incidents.mutes import Mute, active_mutes
from model.incidents.policy import AlertPolicy
from model.incidents.threshold import LASTING_DECADES, SEVERE, Track, Tracks
from model.verdict import Severity, Status, Watched
from tests.builders import START, open_incident
from tests.model.decision.verdict_cases import LEVEL, MODERATE, POLICY, evidence, judge, short_of_resources
from tests.model.model_cases import at

SHIPPED = AlertPolicy()


def watch_list(memory: IncidentMemory, *names: str) -> tuple[Watched, ...]:
    """Return what is watched if these are the candidates; by default all that are remembered."""
    return watch(names or tuple(memory.tracks), memory, LEVEL, SHIPPED)


def above(*scores: float) -> Track:
    """Return a track of a service that was above the threshold."""
    return Track(scores, START, START)


def test_a_service_above_the_level_is_watched_until_it_is_confirmed() -> None:
    verdicts, _ = judge(*[evidence(LEVEL + 1)] * 6, policy=SHIPPED)
    seen = [[(one.service, one.seen, one.needed, one.since) for one in v.watching] for v in verdicts]
    assert [bool(v.incidents) for v in verdicts] == [not v.watching for v in verdicts]
    assert seen == [[("a/s0", i + 1, 5, at(0))] for i in range(4)] + [[], []]


def test_a_service_far_above_the_level_needs_fewer_snapshots() -> None:
    (verdict,), _ = judge(evidence(SEVERE * LEVEL + 1), policy=SHIPPED)
    assert [(one.seen, one.needed, one.level) for one in verdict.watching] == [(1, 3, LEVEL)]


def test_a_moderate_deviation_is_watched_from_the_second_snapshot_until_it_lasts() -> None:
    verdicts, _ = judge(*[evidence(MODERATE)] * 13)
    seen = [[(one.seen, one.needed, one.level) for one in v.watching] for v in verdicts]
    expected = [[(i + 1, POLICY.lasting, LEVEL - LASTING_DECADES)] for i in range(POLICY.lasting - 1)]
    assert seen[1 : POLICY.lasting - 1] == expected[1:]
    assert seen[0] == []
    (last,) = verdicts[POLICY.lasting - 2].watching
    assert last.score == pytest.approx(MODERATE), "without the decades for its duration"
    assert [(v.watching, len(v.incidents)) for v in verdicts[POLICY.lasting - 1 :]] == [((), 1)] * 2


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
    (*_, verdict), _ = judge(*[evidence(9.0, LEVEL + 1)] * 3, policy=SHIPPED)
    assert [incident.affected for incident in verdict.incidents] == [("a/s0",)]
    assert [one.service for one in verdict.watching] == ["a/s1"]


def test_members_of_an_incident_of_traffic_are_watched() -> None:
    incident = open_incident("a/s0", severity=Severity.CRITICAL)
    memory = IncidentMemory(tracks={"a/s0": above(LEVEL + 1)}, open=(incident,))
    assert watch_list(memory) == ()
    of_traffic = replace(memory, open=(replace(incident, scope="*"),))
    assert [one.service for one in watch_list(of_traffic)] == ["a/s0"]


def test_muted_services_are_not_watched() -> None:
    mute = Mute("m", ("a/s0",), START, START + timedelta(hours=1), "a test", START)
    tracks = dict.fromkeys(("a/s0", "a/s1"), above(9.0))
    memory = IncidentMemory(tracks=tracks, active_mutes=active_mutes([mute], (), (), at(1)))
    assert [one.service for one in watch_list(memory)] == ["a/s1"]


def test_a_service_that_is_no_candidate_is_not_watched() -> None:
    memory = IncidentMemory(tracks=dict.fromkeys(("a/s0", "a/s1"), above(9.0)))
    assert [one.service for one in watch_list(memory, "a/s1")] == ["a/s1"]


def test_a_service_above_the_threshold_counts_towards_that() -> None:
    track = Track((LEVEL + 1, *[MODERATE] * 5), START, at(5))
    (one,) = watch_list(IncidentMemory(tracks={"a/s0": track}))
    assert (one.level, one.seen, one.needed, one.since) == (LEVEL, 1, 5, at(5))


@given(
    st.dictionaries(
        st.sampled_from([f"a/s{i}" for i in range(12)]),
        st.lists(st.floats(0, 20), min_size=1, max_size=SHIPPED.lasting_of).map(tuple),
    )
)
def test_the_most_unusual_services_are_listed_first_and_few_of_them(scores: dict[str, tuple[float, ...]]) -> None:
    tracks: Tracks = {name: above(*of) for name, of in scores.items()}
    found = watch_list(IncidentMemory(tracks=tracks))
    assert len(found) <= MAX_WATCHED
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    for one in found:
        assert 1 <= one.seen < one.needed
        assert one.score == scores[one.service][0] >= one.level
        assert one.level == LEVEL or one.seen >= MIN_SEEN
        assert (one.level == LEVEL) == (one.score >= LEVEL)
    high = {name for name, of in scores.items() if of[0] >= LEVEL}
    assert len(found) == MAX_WATCHED or high <= {one.service for one in found}


def test_a_resource_alone_is_watched_as_a_moderate_deviation_that_never_lasts() -> None:
    verdicts, _ = judge(*[short_of_resources(MODERATE)] * 20)
    assert not any(v.incidents for v in verdicts)
    assert verdicts[-1].mesh_score == pytest.approx(MODERATE), "its duration does not count"
    (one,) = verdicts[-1].watching
    assert one.seen == one.needed - 1
