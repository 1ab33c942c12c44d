"""What is remembered of incidents, planned changes and mesh scores."""

from dataclasses import replace

import numpy as np
import pytest

from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import REOPENS_SECONDS
from model.incidents.threshold import LASTING_DECADES, SETTLES_SECONDS, Track
from model.snapshot import DELETIONS, PlannedChange
from model.verdict import NearbyChange, Severity
from tests.builders import START, open_incident
from tests.model.decision.verdict_cases import LEVEL, POLICY
from tests.model.incidents.incident_cases import NAMES, Watch, group
from tests.model.model_cases import at

WATCHED = LEVEL - LASTING_DECADES


def test_services_of_an_open_incident_are_not_learned_from() -> None:
    watch = Watch()
    watch.see(group(1, 3))
    np.testing.assert_array_equal(watch.memory.is_in_incident(NAMES), [i in (1, 3) for i in range(8)])
    assert not IncidentMemory().is_in_incident(NAMES).any()


def test_a_service_is_above_the_threshold_if_it_was_so_lately() -> None:
    tracks = {NAMES[2]: Track((0.0, 0.0, LEVEL), at(0), at(0)), NAMES[3]: Track((LEVEL - 1,), at(0))}
    np.testing.assert_array_equal(IncidentMemory(tracks=tracks).is_above_threshold(NAMES), [i == 2 for i in range(8)])


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


def test_a_change_settles_in_the_last_snapshot_in_which_it_is_remembered() -> None:
    deploy, retire = PlannedChange("deploy", NAMES[0]), PlannedChange("deletion", NAMES[2])
    memory = IncidentMemory().advance_changes([deploy, retire], 3)
    settled = []
    for _ in range(4):
        settled.append([NAMES.index(name) for name in sorted(memory.expiring_changes)])
        memory = memory.advance_changes([], 3, 10)
    assert settled == [[], [], [0], []]


def test_a_change_that_may_bring_a_new_version_is_remembered_longer() -> None:
    """Scalings are soon over. A rollout restarts one replica after the other, which its callers hardly notice."""
    deploy, scale = PlannedChange("deploy", NAMES[0]), PlannedChange("scale_out", NAMES[1])
    memory = IncidentMemory().advance_changes([deploy, scale], 3, 0, 6)
    remembered, late, settled = [], [], []
    for _ in range(7):
        remembered.append(memory.has_new_version(NAMES, but=DELETIONS).nonzero()[0].tolist())
        late.append([NAMES.index(name) for name in sorted(memory.late)])
        settled.append([NAMES.index(name) for name in sorted(memory.expiring_changes)])
        memory = memory.advance_changes([], 3, 0, 6)
    assert remembered == [[0, 1]] * 3 + [[0]] * 3 + [[]]
    assert late == [[]] * 3 + [[0]] * 3 + [[]]
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
    settled = [(memory := memory.advance_changes([], 3)).expiring_changes for _ in range(3)]
    assert settled == [frozenset(), {NAMES[0]}, frozenset()]


def test_deletions_are_remembered_while_the_service_counts_as_missing() -> None:
    memory = IncidentMemory().advance_changes(
        [PlannedChange("deletion", NAMES[0]), PlannedChange("deploy", NAMES[1])], 2, 5
    )
    lengths = []
    for _ in range(6):
        lengths.append(len(memory.changes))
        memory = memory.advance_changes([], 2, 5)
    assert lengths == [2, 2, 1, 1, 1, 0]


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


@pytest.mark.parametrize(
    ("track", "suspicious"),
    [
        (Track((WATCHED, WATCHED), SINCE), True),
        (Track((WATCHED, 0.0, WATCHED), SINCE), True),
        (Track((WATCHED,), SINCE), False),
        (Track((WATCHED, 0.0, 0.0, WATCHED), SINCE), False),
        (Track((0.0, WATCHED, WATCHED), SINCE), False),
        (Track((WATCHED - 0.1, WATCHED - 0.1), SINCE), False),
    ],
)
def test_a_service_is_suspicious_that_is_unusual_and_was_so_shortly_before(track: Track, suspicious: bool) -> None:
    memory = IncidentMemory(threshold=(LEVEL, 0.0), tracks={NAMES[2]: track})
    assert memory.is_suspicious(NAMES, at(2)).tolist() == [suspicious and i == 2 for i in range(8)]
    assert not replace(memory, threshold=None).is_suspicious(NAMES, at(2)).any()


def test_an_alert_that_ended_is_remembered_for_some_minutes() -> None:
    ended = open_incident(*NAMES[:1], since=SINCE, severity=Severity.MAJOR)
    memory = IncidentMemory().end([ended], at(10))
    assert memory.ended == (replace(ended, ended_at=at(10)),)
    last = 10 + int(REOPENS_SECONDS / 15)
    assert memory.ended_lately(at(last)) == memory.ended
    assert memory.ended_lately(at(last + 1)) == ()
    assert memory.end([], at(last)).ended == memory.ended
    assert memory.end([], at(last + 1)).ended == ()
    other = replace(ended, id="y")
    assert [one.id for one in memory.end([other], at(11)).ended] == ["x", "y"]
    assert replace(memory, open=(ended,)).end([], at(11)).ended == (), "it is open again"


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


def test_a_planned_change_exposes_its_service_while_it_is_remembered() -> None:
    memory = IncidentMemory().advance_changes([PlannedChange("deploy", "shop/b", "v2")], POLICY.change_memory)
    names = ["shop/a", "shop/b"]
    exposed = []
    for _ in range(POLICY.change_intervals + 2):
        exposed.append(memory.has_new_version(names, but=DELETIONS).tolist())
        memory = memory.advance_changes((), POLICY.change_memory)
    assert exposed == [[False, True]] * (POLICY.change_intervals + 1) + [[False, False]]
    retired = IncidentMemory().advance_changes([PlannedChange("deletion", "shop/b", "")], POLICY.change_memory)
    assert not retired.has_new_version(names, but=DELETIONS).any()
