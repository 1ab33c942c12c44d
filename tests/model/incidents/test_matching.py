"""Incidents begin, grow, merge and stay apart."""

from dataclasses import replace

import pytest

from model.incidents.matching import AT_ONCE_SECONDS, Culprit
from model.incidents.open_incident import ONSET_SECONDS, RETURNED, OpenIncident
from model.verdict import Severity
from tests.model.incidents.incident_cases import NAMES, Watch, at, group, suspects


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
