"""Incidents begin, grow, merge and stay apart."""

from dataclasses import replace

import pytest

from model.incidents.matching import AT_ONCE_SECONDS, Culprit, Group
from model.incidents.open_incident import ONSET_SECONDS, REOPENS_SECONDS, RETURNED, OpenIncident
from model.verdict import Severity
from tests.model.incidents.incident_cases import NAMES, Watch, group, suspects
from tests.model.model_cases import at


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
    assert other.id != born.id, "no suspect shows that it is the same fault"


def test_services_that_are_back_to_normal_leave_and_the_incident_goes_on() -> None:
    watch = Watch()
    (born,) = watch.see(group(1, 2))
    for _ in range(RETURNED - 1):
        (held,) = watch.see(group(2))
        assert held.members == (NAMES[1], NAMES[2])
    (left,) = watch.see(group(2))
    assert (left.id, left.members, left.normal_for) == (born.id, (NAMES[2],), {})
    (back,) = watch.see(group(1, 2))
    assert (back.id, back.members) == (born.id, (NAMES[2], NAMES[1]))


def test_a_service_near_its_level_stays_without_a_group() -> None:
    watch = Watch()
    watch.see(group(1, 2))
    for _ in range(2 * RETURNED):
        (held,) = watch.see(group(2), deviating={NAMES[1], NAMES[2]})
    assert held.members == (NAMES[1], NAMES[2])


def test_services_of_two_incidents_are_counted_apart() -> None:
    watch = Watch()
    _, second = watch.see(group(1, 2), group(5))
    for _ in range(RETURNED):
        watch.see(group(5))
    assert [one.id for one in watch.memory.open] == [second.id]
    assert [one.members for one in watch.ended] == [(NAMES[1], NAMES[2])]


def watch_with_ended(service: str = NAMES[1], *found: Group) -> tuple[Watch, OpenIncident]:
    """Return an incident that suspects a service and ended with the newest snapshot."""
    watch = Watch()
    (born,) = watch.see(*(found or (group(1),)))
    born = born.with_strongest(9.0, suspects(service), at(0), 15.0)
    watch.memory = replace(watch.memory, open=(born,))
    for _ in range(RETURNED):
        watch.see()
    assert watch.memory.open == ()
    (ended,) = watch.memory.ended
    assert (ended.id, ended.ended_at) == (born.id, at(watch.index - 1))
    return watch, ended


MINUTES = int(REOPENS_SECONDS / 15)  # snapshots in which a fault that returns is the same one


@pytest.mark.parametrize(("snapshots", "same"), [(1, True), (MINUTES, True), (MINUTES + 1, False)])
def test_a_fault_that_returns_within_six_minutes_is_the_same_incident(snapshots: int, same: bool) -> None:
    watch, ended = watch_with_ended()
    assert ended.ended_at is not None
    watch.index = round((ended.ended_at - at(0)).total_seconds() / 15) + snapshots
    (again,) = watch.see(group(1, 3))
    assert (again.id == ended.id, again.recurrences) == (same, int(same))
    assert again.since == (ended.since if same else at(watch.index - 1))
    assert (again.members, again.quiet, again.ended_at) == ((NAMES[1], NAMES[3]), 0, None)
    assert again.id not in {one.id for one in watch.memory.end((), at(watch.index)).ended}


@pytest.mark.parametrize(
    ("rows", "culprit", "same"),
    [
        ((2, 3), Culprit(), False),  # other services
        ((2, 3), Culprit(NAMES[1]), True),  # which the same one made fail
        ((1, 2), Culprit(NAMES[2]), False),  # another first suspect
        ((1, 2), Culprit(NAMES[1]), True),
    ],
)
def test_a_fault_of_another_suspect_is_another_incident(rows: tuple[int, ...], culprit: Culprit, same: bool) -> None:
    watch, ended = watch_with_ended()
    (other,) = watch.see(group(*rows), culprits=(culprit,))
    assert (other.id == ended.id, other.recurrences) == (same, int(same))


def test_an_unconfirmed_group_reopens_nothing() -> None:
    watch, _ = watch_with_ended()
    assert watch.see(group(1, confirmed=False)) == ()


def test_a_fault_that_returns_again_and_again_is_counted() -> None:
    watch, ended = watch_with_ended()
    for number in (1, 2, 3):
        (again,) = watch.see(group(1))
        assert (again.id, again.recurrences) == (ended.id, number)
        for _ in range(RETURNED):
            watch.see()
        assert watch.memory.open == ()


def test_an_incident_that_goes_on_is_not_joined_by_one_that_ended() -> None:
    watch, ended = watch_with_ended()
    (other,) = watch.see(group(4))
    (going_on,) = watch.see(group(1, 4))
    assert (going_on.id, going_on.recurrences) == (other.id, 0)
    assert other.id != ended.id


def test_an_unconfirmed_group_keeps_its_services_but_the_incident_still_ends() -> None:
    watch = Watch()
    watch.see(group(1))
    for _ in range(RETURNED - 1):
        (open_incident,) = watch.see(group(1, 2, confirmed=False))
        assert watch.now[open_incident.id].rows.tolist() == [1, 2]
    assert watch.see(group(1, 2, confirmed=False)) == ()


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
    assert watch.now[old.id].is_confirmed


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


def test_severity_only_rises() -> None:
    watch = Watch()
    severities = [
        watch.see(group(1), severity=s)[0].severity
        for s in (Severity.MINOR, Severity.CRITICAL, Severity.MAJOR, Severity.MINOR)
    ]
    assert severities == [Severity.MINOR, Severity.CRITICAL, Severity.CRITICAL, Severity.CRITICAL]


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
