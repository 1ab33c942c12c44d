from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.incidents.tracking import (
    AT_ONCE_SECONDS,
    ONSET_SECONDS,
    RECOVERS,
    RETURNED,
    AlertPolicy,
    Culprit,
    Group,
    IncidentMemory,
    OpenIncident,
    advance_quiet,
    confirm_services,
    groups,
    is_over,
    is_recovering,
    match_incidents,
)
from model.snapshot import PlannedChange
from model.verdict import NearbyChange, Severity, Suspect
from tests.model.model_cases import START

NAMES = tuple(f"a/s{i}" for i in range(8))
POLICY = AlertPolicy(confirm=2, confirm_of=3, doubtful=0)  # of two snapshots, to keep the tests short
LEVEL = 5.0
CLEAR = POLICY.at_interval(15.0).clear


def at(index: int) -> datetime:
    return START + timedelta(seconds=15 * index)


def group(*rows: int, confirmed: bool = True) -> Group:
    return Group(np.array(rows), confirmed)


class Watch:
    """Incidents that are tracked from snapshot to snapshot."""

    def __init__(self, names: tuple[str, ...] = NAMES) -> None:
        self.names = names
        self.memory = IncidentMemory()
        self.index = 0
        self.now: dict[str, Group] = {}

    def see(
        self,
        *found: Group,
        severity: Severity = Severity.MINOR,
        culprits: tuple[Culprit, ...] = (),
        deviates: bool = False,
    ) -> tuple[OpenIncident, ...]:
        """Follow these groups. ``deviates``: services of the open incidents are not back to normal."""
        ordered = sorted(found, key=lambda g: not g.confirmed)
        count = len(found)
        alive, self.now = match_incidents(
            self.memory.open,
            ordered,
            self.names,
            [at(self.index)] * count,
            [severity] * count,
            culprits or [Culprit()] * count,
            CLEAR,
            deviating={one.id for one in self.memory.open} if deviates else frozenset(),
        )
        self.memory = replace(self.memory, open=alive)
        self.index += 1
        return alive


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
    memory, found = IncidentMemory(), []
    for i, warm in enumerate(hot):
        bits, sure = confirm_services(
            memory.above_level, NAMES[:1], np.array([LEVEL + 1 if warm else 1.0]), LEVEL, POLICY, at(i)
        )
        memory = replace(memory, above_level=bits)
        found.append(bool(sure[0]))
    assert found == confirmed


def test_a_streak_has_its_beginning_and_is_forgotten_at_its_end() -> None:
    memory = IncidentMemory()
    began = []
    for i, score in enumerate([9, 0, 9, 0, 0, 0, 9]):
        bits, _ = confirm_services(memory.above_level, NAMES[:1], np.array([float(score)]), LEVEL, POLICY, at(i))
        memory = replace(memory, above_level=bits)
        began.append(bits[NAMES[0]][1] if bits else None)
    assert began == [at(0), at(0), at(0), at(0), at(0), None, at(6)]


def test_a_service_that_is_no_candidate_cools_down_too() -> None:
    memory = IncidentMemory(above_level={NAMES[0]: (0b001, at(0))})
    for i in range(1, 4):
        bits, _ = confirm_services(memory.above_level, NAMES[1:2], np.array([0.0]), LEVEL, POLICY, at(i))
        memory = replace(memory, above_level=bits)
    assert memory.above_level == {}


def test_groups_are_connected_by_direct_calls_between_members() -> None:
    member = np.array([True, True, False, True, True, True, True, False])
    confirmed = np.zeros(8, bool)
    confirmed[5] = True
    # 0-1 are connected directly; 1-2-3 only through 2, which is no member; 4 is alone; 5-6 is confirmed by 5.
    calls = np.array([[0, 1, 2, 6], [1, 2, 3, 5]])
    found = groups(member, confirmed, calls)
    assert found[0].confirmed
    assert found[0].rows.tolist() == [5, 6]
    assert sorted(g.rows.tolist() for g in found[1:]) == [[0, 1], [3], [4]]
    assert not any(g.confirmed for g in found[1:])


def test_no_services_make_no_groups() -> None:
    assert groups(np.zeros(3, bool), np.zeros(3, bool), np.array([[0], [1]])) == []
    assert groups(np.zeros(0, bool), np.zeros(0, bool), np.zeros((2, 0), np.int64)) == []


def test_an_unconfirmed_group_begins_no_incident() -> None:
    assert Watch().see(group(1, 2, confirmed=False)) == ()


def test_an_incident_begins_grows_and_ends_with_one_id() -> None:
    watch = Watch()
    (born,) = watch.see(group(1))
    assert born.since == at(0)
    (grown,) = watch.see(group(1, 2, 3))
    assert (grown.id, grown.since) == (born.id, born.since)
    assert grown.members == (NAMES[1], NAMES[2], NAMES[3])
    (shrunk,) = watch.see(group(2))
    assert shrunk.members == grown.members
    assert watch.now[born.id].rows.tolist() == [2]
    for _ in range(RETURNED - 1):
        (quiet,) = watch.see()
        assert quiet.id == born.id
    assert watch.see() == ()
    (other,) = watch.see(group(1))
    assert other.id != born.id


def test_an_unconfirmed_group_keeps_its_services_but_the_incident_still_ends() -> None:
    watch = Watch()
    watch.see(group(1))
    for _ in range(RETURNED - 1):
        (open_incident,) = watch.see(group(1, 2, confirmed=False))
        assert watch.now[open_incident.id].rows.tolist() == [1, 2]
    assert watch.see(group(1, 2, confirmed=False)) == ()


def test_an_incident_recovers_after_snapshots_in_which_its_services_are_back_to_normal() -> None:
    watch = Watch()
    watch.see(group(1))
    recovering = [is_recovering(watch.see()[0], CLEAR) for _ in range(RETURNED - 1)]
    assert recovering == [number >= RECOVERS for number in range(1, RETURNED)]


def test_services_that_still_deviate_hold_an_incident_open() -> None:
    watch = Watch()
    (born,) = watch.see(group(1))
    for _ in range(5 * CLEAR):
        (held,) = watch.see(deviates=True)
        assert (held.id, held.returned, is_recovering(held, CLEAR)) == (born.id, 0, False)
    for _ in range(RECOVERS - 1):
        assert [is_recovering(one, CLEAR) for one in watch.see()] == [False]
    assert watch.see() == (), "quiet for long before, it ends as soon as it recovers"


def test_a_snapshot_that_deviates_starts_the_count_again() -> None:
    watch = Watch()
    watch.see(group(1))
    for _ in range(RECOVERS):
        (recovering,) = watch.see()
    assert is_recovering(recovering, CLEAR)
    (relapsed,) = watch.see(deviates=True)
    assert (relapsed.returned, relapsed.quiet, is_recovering(relapsed, CLEAR)) == (0, RECOVERS + 1, False)


@pytest.mark.parametrize(("clear", "recovers", "ends"), [(8, 3, 6), (6, 3, 6), (4, 3, 4), (2, 1, 2), (1, 1, 1)])
def test_an_incident_of_a_longer_interval_recovers_and_ends_after_fewer_snapshots(
    clear: int, recovers: int, ends: int
) -> None:
    incident = OpenIncident("x", at(0), Severity.MINOR, NAMES[:1])
    recovered, over = [], []
    for number in range(1, 9):
        incident = advance_quiet(incident, is_confirmed=False, deviates=False, clear_after=clear)
        recovered += [number] * is_recovering(incident, clear)
        over += [number] * is_over(incident, clear)
    assert (recovered[0], over[0]) == (recovers, ends)


@given(st.lists(st.sampled_from(["confirmed", "deviates", "normal"]), max_size=30), st.integers(1, 8))
def test_an_incident_ends_only_while_it_recovers(course: list[str], clear: int) -> None:
    incident = OpenIncident("x", at(0), Severity.MINOR, NAMES[:1])
    for what in course:
        incident = advance_quiet(incident, what == "confirmed", what == "deviates", clear)
        if what != "normal":
            assert not is_recovering(incident, clear)
        if is_over(incident, clear):
            assert is_recovering(incident, clear)
            assert incident.quiet >= min(RETURNED, clear)


def test_missing_snapshots_count_as_quiet_if_the_next_one_is() -> None:
    incident = OpenIncident("x", at(0), Severity.MINOR, NAMES[:1], quiet=1, returned=1, unseen=4)
    confirmed = advance_quiet(incident, is_confirmed=True, deviates=True, clear_after=CLEAR)
    assert (confirmed.quiet, confirmed.returned, confirmed.unseen) == (0, 0, 0)
    deviating = advance_quiet(incident, is_confirmed=False, deviates=True, clear_after=CLEAR)
    assert (deviating.quiet, deviating.returned, deviating.unseen) == (6, 0, 0)
    normal = advance_quiet(incident, is_confirmed=False, deviates=False, clear_after=CLEAR)
    assert (normal.quiet, normal.returned, normal.unseen) == (6, 2, 0)


def test_an_incident_that_may_have_ended_in_a_long_gap_ends_with_the_first_normal_snapshot() -> None:
    incident = OpenIncident("x", at(0), Severity.MINOR, NAMES[:1], unseen=CLEAR)
    after = advance_quiet(incident, is_confirmed=False, deviates=False, clear_after=CLEAR)
    assert (after.returned, is_over(after, CLEAR)) == (RECOVERS, True)
    deviating = advance_quiet(incident, is_confirmed=False, deviates=True, clear_after=CLEAR)
    assert (deviating.returned, is_over(deviating, CLEAR)) == (0, False)


def test_a_relapse_keeps_an_incident_open() -> None:
    watch = Watch()
    (born,) = watch.see(group(1))
    for _ in range(5):
        for _ in range(RETURNED - 1):
            watch.see()
        (again,) = watch.see(group(1))
        assert (again.id, again.quiet) == (born.id, 0)


def test_incidents_that_meet_merge_into_the_oldest() -> None:
    watch = Watch()
    (old,) = watch.see(group(1))
    assert len(watch.see(group(1), group(5), severity=Severity.MAJOR)) == 2
    (merged,) = watch.see(group(1, 3, 5))
    assert (merged.id, merged.since) == (old.id, old.since)
    assert merged.members == (NAMES[1], NAMES[3], NAMES[5])
    assert merged.severity is Severity.MAJOR


def test_a_merged_incident_keeps_the_current_groups_of_both() -> None:
    """The younger incident's own group is matched first. Then a weak group connects it to the older one."""
    watch = Watch()
    (old,) = watch.see(group(1))
    watch.see(group(1), group(4, 5))
    (merged,) = watch.see(group(4), group(1, 5, confirmed=False))
    assert merged.id == old.id
    assert merged.quiet == 0, "one of its services is confirmed"
    assert sorted(watch.now[old.id].rows.tolist()) == [1, 4, 5]
    assert watch.now[old.id].confirmed


def test_separate_incidents_stay_separate() -> None:
    watch = Watch()
    watch.see(group(1), group(5))
    first, second = watch.see(group(1), group(5))
    assert first.id != second.id
    assert {first.members, second.members} == {(NAMES[1],), (NAMES[5],)}


TWO_NAMESPACES = (*(f"a/s{i}" for i in range(5)), *(f"b/s{i}" for i in range(5)))


def test_groups_that_begin_at_once_in_a_namespace_are_one_incident() -> None:
    watch = Watch(TWO_NAMESPACES)
    assert [i.members for i in watch.see(group(0), group(2, 3), group(6))] == [("a/s0", "a/s2", "a/s3"), ("b/s1",)]
    first, other = watch.see(group(0), group(4, 5, 3))
    assert first.members == ("a/s0", "a/s2", "a/s3", "a/s4", "b/s0"), "most of its services are in this namespace"
    assert other.members == ("b/s1",)


def test_groups_of_a_namespace_that_begin_later_and_notices_stay_separate() -> None:
    watch = Watch(TWO_NAMESPACES)
    watch.see(group(0))
    watch.index += int(AT_ONCE_SECONDS / 15)
    assert len(watch.see(group(0), group(3))) == 2
    assert len(Watch(TWO_NAMESPACES).see(group(0), group(3), severity=Severity.NOTICE)) == 2


def suspects(service: str) -> tuple[Suspect, ...]:
    return (Suspect(service, 1.0),)


def test_an_incident_keeps_the_suspects_of_its_strongest_snapshot() -> None:
    incident = OpenIncident("x", at(0), Severity.MINOR, NAMES[:1])
    for index, (score, service) in enumerate([(7.0, "early"), (9.0, "cause"), (8.0, "victim"), (0.0, "quiet")]):
        incident = incident.with_strongest(score, suspects(service), at(index), 15.0)
    assert (incident.peak, incident.suspects, incident.suspects_at) == (9.0, suspects("cause"), at(1))


def test_after_the_onset_only_a_far_stronger_snapshot_names_other_suspects() -> None:
    incident = OpenIncident("x", at(0), Severity.MINOR, NAMES[:1]).with_strongest(9.0, suspects("cause"), at(0), 15.0)
    late = int(ONSET_SECONDS / 15) + 1
    assert incident.with_strongest(9.5, suspects("other"), at(late), 15.0).suspects == suspects("cause")
    assert incident.with_strongest(9.5, suspects("other"), at(late - 1), 15.0).suspects == suspects("other")
    assert incident.with_strongest(12.0, suspects("other"), at(late), 15.0).suspects == suspects("other")


def test_an_incident_without_suspects_takes_the_first() -> None:
    """A state that an older version stored has no suspects."""
    incident = OpenIncident("x", at(0), Severity.MINOR, NAMES[:1])
    assert incident.with_strongest(0.0, suspects("cause"), at(500), 15.0).suspects == suspects("cause")


def test_a_notice_has_the_newest_forecast_until_it_recovers() -> None:
    notice = OpenIncident("x", at(0), Severity.NOTICE, NAMES[:1])
    for index in range(100):
        notice = notice.with_strongest(8.0, suspects(f"at {index}"), at(index), 15.0)
    assert notice.suspects == suspects("at 99")
    recovering = replace(notice, quiet=1)
    assert recovering.with_strongest(0.0, suspects("nothing left"), at(100), 15.0) == recovering


def test_severity_only_rises() -> None:
    watch = Watch()
    severities = [
        watch.see(group(1), severity=s)[0].severity
        for s in (Severity.MINOR, Severity.CRITICAL, Severity.MAJOR, Severity.MINOR)
    ]
    assert severities == [Severity.MINOR, Severity.CRITICAL, Severity.CRITICAL, Severity.CRITICAL]


def test_services_of_an_open_incident_are_not_learned_from() -> None:
    watch = Watch()
    watch.see(group(1, 3))
    np.testing.assert_array_equal(watch.memory.is_in_incident(NAMES), [i in (1, 3) for i in range(8)])
    assert not IncidentMemory().is_in_incident(NAMES).any()


def test_a_service_is_above_its_level_if_it_was_so_lately() -> None:
    memory = IncidentMemory(above_level={NAMES[2]: (0b100, at(0))})
    np.testing.assert_array_equal(memory.is_above_level(NAMES), [i == 2 for i in range(8)])


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
        settled.append(memory.has_expiring_change(NAMES).nonzero()[0].tolist())
        memory = memory.advance_changes([], 3, 10)
    assert settled == [[], [], [0], []]


def test_a_change_that_may_bring_a_new_version_is_remembered_longer() -> None:
    """Scalings are soon over. A rollout restarts one replica after the other, which its callers hardly notice."""
    deploy, scale = PlannedChange("deploy", NAMES[0]), PlannedChange("scale_out", NAMES[1])
    memory = IncidentMemory().advance_changes([deploy, scale], 3, 0, 6)
    remembered, late, settled = [], [], []
    for _ in range(7):
        remembered.append(memory.has_planned_change(NAMES).nonzero()[0].tolist())
        late.append(memory.has_late_change(NAMES).nonzero()[0].tolist())
        settled.append(memory.has_expiring_change(NAMES).nonzero()[0].tolist())
        memory = memory.advance_changes([], 3, 0, 6)
    assert remembered == [[0, 1]] * 3 + [[0]] * 3 + [[]]
    assert late == [[]] * 3 + [[0]] * 3 + [[]]
    assert settled == [[], [], [0, 1], [], [], [0], []], "once for its neighbours, and once for itself"


def test_a_scaling_after_a_deploy_is_early_again() -> None:
    deploy, scale = PlannedChange("deploy", NAMES[0]), PlannedChange("scale_out", NAMES[0])
    memory = IncidentMemory().advance_changes([deploy], 2, 0, 6)
    for changes in ([], [], [scale]):
        memory = memory.advance_changes(changes, 2, 0, 6)
    assert not memory.has_late_change(NAMES).any()
    for _ in range(2):
        memory = memory.advance_changes([], 2, 0, 6)
    assert memory.late == {NAMES[0]}, "the deploy is still remembered"


def test_a_change_settles_after_the_newest_of_its_service() -> None:
    deploy = PlannedChange("deploy", NAMES[0])
    memory = IncidentMemory().advance_changes([deploy], 3).advance_changes([], 3).advance_changes([deploy], 3)
    settled = [(memory := memory.advance_changes([], 3)).expiring_changes for _ in range(3)]
    assert settled == [frozenset(), {NAMES[0]}, frozenset()]


def test_an_incident_keeps_nearby_changes_longer_than_the_memory_does() -> None:
    watch = Watch()
    mine, elsewhere = PlannedChange("deploy", NAMES[1], "v2"), PlannedChange("deploy", NAMES[7])
    watch.memory = watch.memory.advance_changes([mine, elsewhere], 3).advance_changes([], 3)
    watch.see(group(1, 3))
    watch.memory = watch.memory.attach_changes(at(10), 15.0)
    (incident,) = watch.memory.open
    assert incident.changes == (NearbyChange(mine, at(9)),)
    later = PlannedChange("scale_out", NAMES[3])
    watch.memory = (
        watch.memory.advance_changes([later], 3)
        .attach_changes(at(11), 15.0)
        .advance_changes([], 1)
        .attach_changes(at(12), 15.0)
    )
    assert watch.memory.changes == ()
    assert watch.memory.open[0].changes == (NearbyChange(later, at(11)), NearbyChange(mine, at(9)))


def test_deletions_are_remembered_while_the_service_counts_as_missing() -> None:
    memory = IncidentMemory().advance_changes(
        [PlannedChange("deletion", NAMES[0]), PlannedChange("deploy", NAMES[1])], 2, 5
    )
    lengths = []
    for _ in range(6):
        lengths.append(len(memory.changes))
        memory = memory.advance_changes([], 2, 5)
    assert lengths == [2, 2, 1, 1, 1, 0]


def test_the_threshold_is_a_percentile_of_scores_without_alerts() -> None:
    assert IncidentMemory().threshold(99, LEVEL) == 0
    scores = np.random.default_rng(0).permutation(101)
    assert IncidentMemory(scores=tuple(scores.astype(float))).threshold(99, suspicious=100.0) == 99


@pytest.mark.parametrize(
    ("scores", "highest"),
    [
        ((1, 9, 1), 9),  # by chance
        ((1, 9, 8, 1), 9),
        ((1, 9, 8, 7, 1), 1),  # an anomaly that raised no alert
        ((1, LEVEL, LEVEL, LEVEL, 1), LEVEL),  # not above it
        ((2, 1, 9), 2),  # it may become one
        ((2, 1, 9, 8), 2),
        ((9, 9, 9, 2, 9, 1), 9),
        ((9, 9), 0),
    ],
)
def test_runs_of_suspicious_scores_and_the_newest_run_do_not_count_for_the_threshold(
    scores: tuple[float, ...], highest: float
) -> None:
    assert IncidentMemory(scores=tuple(map(float, scores))).threshold(100, LEVEL) == highest


@given(st.lists(st.floats(0, 4), min_size=1, max_size=30), st.integers(1, 40))
def test_the_threshold_holds_still_during_an_anomaly(usual: list[float], length: int) -> None:
    before = IncidentMemory(scores=tuple(usual)).threshold(99, LEVEL)
    assert IncidentMemory(scores=(*usual, *[9.0] * length)).threshold(99, LEVEL) == before


def test_the_page_level_follows_the_budget() -> None:
    # 50 services at 15 s are 288,000 scores a day; one false alert a day is one in 10^5.46.
    assert POLICY.page_level(50, 15.0) == pytest.approx(np.log10(288_000))
    assert POLICY.page_level(50, 60.0) == pytest.approx(np.log10(72_000))
    assert replace(POLICY, false_pages_per_day=10.0).page_level(50, 15.0) == pytest.approx(np.log10(28_800))
    assert [POLICY.budget(n) for n in (5, 50, 300, 5000)] == [1, 1, 6, 100]


@pytest.mark.parametrize(
    ("interval", "confirm", "confirm_of", "clear"),
    [(5.0, 3, 4, 8), (15.0, 3, 4, 8), (20.0, 2, 3, 6), (30.0, 2, 3, 4), (60.0, 2, 3, 2), (300.0, 2, 3, 2)],
)
def test_an_alert_needs_45_seconds_and_ends_after_two_minutes_but_both_need_two_snapshots(
    interval: float, confirm: int, confirm_of: int, clear: int
) -> None:
    policy = AlertPolicy().at_interval(interval)
    assert (policy.confirm, policy.confirm_of, policy.clear) == (confirm, confirm_of, clear)
    assert policy.at_interval(interval) == policy


def test_settings_of_single_snapshots_hold_at_every_interval() -> None:
    policy = AlertPolicy(confirm=1, confirm_of=1, clear=1).at_interval(15.0)
    assert (policy.confirm, policy.confirm_of, policy.clear) == (1, 1, 1)


def test_the_argument_is_unchanged() -> None:
    memory = IncidentMemory(
        above_level={NAMES[0]: (1, at(0))}, open=(OpenIncident("x", at(0), Severity.MINOR, NAMES[:1]),)
    )
    confirm_services(memory.above_level, NAMES, np.full(8, 9.0), LEVEL, POLICY, at(1))
    match_incidents(memory.open, [group(0, 1)], NAMES, [at(1)], [Severity.CRITICAL], [Culprit()], CLEAR)
    assert memory.above_level == {NAMES[0]: (1, at(0))}
    assert memory.open == (OpenIncident("x", at(0), Severity.MINOR, NAMES[:1]),)


def test_a_planned_change_exposes_its_service_while_it_is_remembered() -> None:
    memory = IncidentMemory().advance_changes([PlannedChange("deploy", "shop/b", "v2")], POLICY.change_memory)
    names = ["shop/a", "shop/b"]
    exposed = []
    for _ in range(POLICY.change_intervals + 2):
        exposed.append(memory.has_planned_change(names).tolist())
        memory = memory.advance_changes((), POLICY.change_memory)
    assert exposed == [[False, True]] * (POLICY.change_intervals + 1) + [[False, False]]
    retired = IncidentMemory().advance_changes([PlannedChange("deletion", "shop/b", "")], POLICY.change_memory)
    assert not retired.has_planned_change(names).any()


def test_groups_with_one_culprit_are_one_incident() -> None:
    watch = Watch()
    (one,) = watch.see(group(1), group(5), culprits=(Culprit("a/s7"), Culprit("a/s7")))
    assert one.members == (NAMES[1], NAMES[5])


def test_a_group_whose_culprit_is_in_another_incident_joins_it() -> None:
    watch = Watch()
    (old,) = watch.see(group(1))
    (joined,) = watch.see(group(1), group(5), culprits=(Culprit(), Culprit(NAMES[1])))
    assert joined.id == old.id
    assert joined.members == (NAMES[1], NAMES[5])
    assert len(watch.see(group(1), group(6), culprits=(Culprit(), Culprit("a/s7")))) == 2, (
        "a group without a culprit joins no incident"
    )


LATE = int(ONSET_SECONDS / 15) + 1  # snapshots after which the onset of an incident is over


def watch_with_incident(service: str) -> tuple[Watch, OpenIncident]:
    """Return an incident of the first services that has been open for long and suspects ``service``."""
    watch = Watch()
    (old,) = watch.see(group(0, 1))
    old = old.with_strongest(9.0, suspects(service), at(0), 15.0)
    watch.memory = replace(watch.memory, open=(old,))
    watch.index = LATE + 4
    return watch, old


def test_another_severe_fault_at_a_service_of_an_open_incident_is_an_incident_of_its_own() -> None:
    watch, old = watch_with_incident(NAMES[0])
    culprit = Culprit(NAMES[2], at(LATE + 2))
    first, second = watch.see(group(0, 1, 2), culprits=(culprit,))
    assert (first.id, first.quiet) == (old.id, 0), "its suspect still deviates"
    assert (second.since, second.members) == (culprit.arose, NAMES[:3])
    second = second.with_strongest(12.0, suspects(NAMES[2]), at(watch.index), 15.0)
    watch.memory = replace(watch.memory, open=(first, second))
    again = watch.see(group(0, 1, 2), culprits=(culprit,))
    assert [incident.id for incident in again] == [first.id, second.id], "the two do not merge"
    recovering, going_on = watch.see(group(1, 2), culprits=(culprit,))
    assert (recovering.id, recovering.quiet, going_on.quiet) == (old.id, 1, 0)


@pytest.mark.parametrize(
    "culprit",
    [
        Culprit(NAMES[2]),  # not severe
        Culprit(NAMES[2], at(LATE - 2)),  # during the onset
        Culprit(NAMES[0], at(LATE + 2)),  # already a suspect
    ],
)
def test_a_group_that_an_open_incident_may_explain_belongs_to_it(culprit: Culprit) -> None:
    watch, old = watch_with_incident(NAMES[0])
    (incident,) = watch.see(group(0, 1, 2), culprits=(culprit,))
    assert (incident.id, incident.members) == (old.id, NAMES[:3])
