"""An open incident keeps its best suspects, recovers and ends."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.incidents.open_incident import (
    ONSET_SECONDS,
    RECOVERS,
    RETURNED,
    OpenIncident,
    advance_quiet,
    is_over,
    is_recovering,
)
from model.snapshot import PlannedChange
from model.verdict import NearbyChange, Severity
from tests.model.incidents.incident_cases import CLEAR, NAMES, Watch, at, group, suspects


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
