"""What is remembered of incidents, planned changes and mesh scores."""

from collections.abc import Set as AbstractSet

import numpy as np

from model.incidents.memory import IncidentMemory
from model.incidents.threshold import SETTLES_SECONDS, Track
from model.snapshot import DELETIONS, PlannedChange
from model.verdict import NearbyChange, Severity
from tests.builders import START, open_incident
from tests.model.decision.verdict_cases import LEVEL
from tests.model.incidents.incident_cases import NAMES, Watch, group
from tests.model.model_cases import at


def test_services_of_an_open_incident_are_not_learned_from() -> None:
    watch = Watch()
    watch.see(group(1, 3))
    np.testing.assert_array_equal(watch.memory.is_in_incident(NAMES), [i in (1, 3) for i in range(8)])
    assert not IncidentMemory().is_in_incident(NAMES).any()


def test_a_service_is_alerted_after_a_change_of_its_own_for_some_time() -> None:
    def near(kind: str, service: str = NAMES[0]) -> NearbyChange:
        return NearbyChange(PlannedChange(kind, service, "v2"), at(0))

    def alerted(snapshots: int, *changes: NearbyChange, severity: Severity = Severity.MAJOR) -> list[str]:
        opened = open_incident(*NAMES[:2], severity=severity, changes=changes)
        found = IncidentMemory(open=(opened,)).is_alerted_after_change(NAMES, at(snapshots), 600.0)
        return [name for name, is_it in zip(NAMES, found.tolist(), strict=True) if is_it]

    assert alerted(40, near("deploy")) == [NAMES[0]]
    assert alerted(41, near("deploy")) == []
    assert alerted(0) == alerted(0, near("scale_out")) == alerted(0, near("deletion")) == []
    assert alerted(0, near("deploy", NAMES[3])) == [], "it is no member"
    assert alerted(0, near("deploy"), severity=Severity.NOTICE) == []


def test_changes_are_remembered_for_a_number_of_snapshots() -> None:
    deploy, scale = PlannedChange("deploy", NAMES[0]), PlannedChange("scale_out", NAMES[1])
    memory = IncidentMemory().advance_changes([deploy], 3)
    assert memory.changes == ((deploy, 0),)
    memory = memory.advance_changes([scale], 3)
    assert memory.changes == ((deploy, 1), (scale, 0))
    assert memory.advance_changes([], 3).advance_changes([], 3).changes == ((scale, 2),)


def follow(memory: IncidentMemory, count: int, *lengths: int) -> list[IncidentMemory]:
    """Return the memory, and what it is after each further snapshot without a change: ``count`` in all."""
    found = [memory]
    while len(found) < count:
        found.append(found[-1].advance_changes([], *lengths))
    return found


def rows_of(names: AbstractSet[str]) -> list[int]:
    return [NAMES.index(name) for name in sorted(names)]


def test_a_change_settles_in_the_last_snapshot_in_which_it_is_remembered() -> None:
    deploy, retire = PlannedChange("deploy", NAMES[0]), PlannedChange("deletion", NAMES[2])
    memory = IncidentMemory().advance_changes([deploy, retire], 3)
    assert [rows_of(one.expiring_changes) for one in follow(memory, 4, 3, 10)] == [[], [], [0], []]


def test_a_change_that_may_bring_a_new_version_is_remembered_longer() -> None:
    """Scalings are soon over. A rollout restarts one replica after the other, which its callers hardly notice."""
    deploy, scale = PlannedChange("deploy", NAMES[0]), PlannedChange("scale_out", NAMES[1])
    course = follow(IncidentMemory().advance_changes([deploy, scale], 3, 0, 6), 7, 3, 0, 6)
    remembered = [one.has_new_version(NAMES, but=DELETIONS).nonzero()[0].tolist() for one in course]
    assert remembered == [[0, 1]] * 3 + [[0]] * 3 + [[]]
    assert [rows_of(one.late) for one in course] == [[]] * 3 + [[0]] * 3 + [[]]
    settled = [rows_of(one.expiring_changes) for one in course]
    assert settled == [[], [], [0, 1], [], [], [0], []], "once for its neighbours, and once for itself"


def test_a_scaling_after_a_deploy_is_early_again() -> None:
    deploy, scale = PlannedChange("deploy", NAMES[0]), PlannedChange("scale_out", NAMES[0])
    memory = IncidentMemory().advance_changes([deploy], 2, 0, 6)
    for changes in ([], [], [scale]):
        memory = memory.advance_changes(changes, 2, 0, 6)
    assert not memory.late
    for _ in range(2):
        memory = memory.advance_changes([], 2, 0, 6)
    assert memory.late == {NAMES[0]}, "the deploy is still remembered"


def test_a_change_settles_after_the_newest_of_its_service() -> None:
    deploy = PlannedChange("deploy", NAMES[0])
    memory = IncidentMemory().advance_changes([deploy], 3).advance_changes([], 3).advance_changes([deploy], 3)
    assert [rows_of(one.expiring_changes) for one in follow(memory, 4, 3)] == [[], [], [0], []]


def test_deletions_are_remembered_while_the_service_counts_as_missing() -> None:
    memory = IncidentMemory().advance_changes(
        [PlannedChange("deletion", NAMES[0]), PlannedChange("deploy", NAMES[1])], 2, 5
    )
    assert not memory.has_new_version(NAMES, but=DELETIONS)[0]
    assert [len(one.changes) for one in follow(memory, 6, 2, 5)] == [2, 2, 1, 1, 1, 0]


def test_the_threshold_is_settled_after_an_hour_of_scores() -> None:
    def threshold_after(seconds: float, scores: int = 1) -> tuple[float, float] | None:
        times = (START.timestamp(),) * scores
        newest = (LEVEL, START.timestamp() + seconds)
        return IncidentMemory(scores=(1.0,) * scores, times=times, threshold=newest).last_threshold()

    assert threshold_after(SETTLES_SECONDS - 1) is None
    assert threshold_after(SETTLES_SECONDS) == (LEVEL, START.timestamp() + SETTLES_SECONDS)
    assert threshold_after(SETTLES_SECONDS, scores=0) is None
    assert IncidentMemory(scores=(1.0,), times=(START.timestamp(),)).last_threshold() is None


SINCE = at(0)


def test_the_tracks_of_services_whose_alerts_all_ended_are_forgotten() -> None:
    """What they do next lasts from then on."""
    one, other = (
        open_incident(*names, id=i, since=SINCE, severity=Severity.MAJOR)
        for i, names in (("x", NAMES[:2]), ("y", NAMES[1:3]))
    )
    notice = open_incident(*NAMES[3:4], id="z", since=SINCE, severity=Severity.NOTICE)
    of_traffic = open_incident(*NAMES[4:5], id="w", since=SINCE, severity=Severity.MAJOR, scope="*")
    tracks = {name: Track((9.0,), SINCE, SINCE) for name in NAMES}
    memory = IncidentMemory(tracks=tracks, open=(one, other, notice, of_traffic))
    assert memory.forget_ended([other]).tracks.keys() == tracks.keys() - {NAMES[0]}
    assert memory.forget_ended([]).tracks.keys() == tracks.keys() - set(NAMES[:3])
