"""An open incident keeps its best suspects, recovers and ends."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.incidents.open_incident import (
    FADED_SECONDS,
    ONSET_SECONDS,
    RECOVERS,
    RETURNED,
    advance_members,
    advance_quiet,
    is_over,
    is_recovering,
    reopen,
)
from model.snapshot import PlannedChange
from model.verdict import MOVED, NearbyChange, Severity, Suspect
from tests.builders import open_incident, reason
from tests.model.incidents.incident_cases import CLEAR, NAMES, Watch, group, suspects
from tests.model.model_cases import at


def test_an_incident_ends_after_ten_minutes_without_a_confirmed_service() -> None:
    """Nothing holds an alert open for long that would not open one now."""
    watch = Watch()
    watch.see(group(1))
    faded = int(FADED_SECONDS / 15)
    held = [len(watch.see(group(1, confirmed=False), deviating={NAMES[1]})) for _ in range(faded)]
    assert held == [*[1] * (faded - 1), 0]
    (born,) = watch.see(group(1))
    for confirmed in [*[False] * (faded - 1), True] * 2:
        (again,) = watch.see(group(1, confirmed=confirmed), deviating={NAMES[1]})
        assert again.id == born.id, "a confirmed snapshot starts the ten minutes again"


def test_an_incident_of_which_nothing_is_seen_does_not_fade() -> None:
    watch = Watch()
    (born,) = watch.see(group(1))
    for _ in range(2 * int(FADED_SECONDS / 15)):
        (held,) = watch.see(unseen={born.id})
    assert (held.id, held.members, held.normal_for, held.returned) == (born.id, (NAMES[1],), {}, 0)
    (still,) = watch.see(group(1), deviating={NAMES[1]})
    assert (still.id, still.quiet) == (born.id, 0), "seen again, it continues"


def test_a_service_that_is_back_to_normal_leaves_after_four_snapshots() -> None:
    incident = open_incident(*NAMES[:3], peak=9.0, suspects=suspects(NAMES[0]))
    for number in range(1, RETURNED):
        incident = advance_members(incident, {NAMES[0], NAMES[2]})
        assert (incident.members, incident.normal_for) == (NAMES[:3], {NAMES[1]: number})
    incident = advance_members(incident, {NAMES[0]})
    assert (incident.members, incident.normal_for) == ((NAMES[0], NAMES[2]), {NAMES[2]: 1})
    incident = advance_members(incident, {NAMES[0], NAMES[2]})
    assert incident.normal_for == {}, "a snapshot that deviates starts the count again"
    assert (incident.peak, incident.suspects) == (9.0, suspects(NAMES[0])), "its first suspect still deviates"


def test_with_its_first_suspect_an_incident_loses_its_suspects() -> None:
    incident = open_incident(*NAMES[:2], peak=9.0, suspects=suspects(NAMES[0]))
    for _ in range(RETURNED):
        assert incident.peak == 9.0
        incident = advance_members(incident, {NAMES[1]})
    assert (incident.members, incident.peak) == ((NAMES[1],), 0.0)
    late = int(ONSET_SECONDS / 15) + 1
    assert incident.with_strongest(6.0, suspects(NAMES[1]), at(late), 15.0).suspects == suspects(NAMES[1])


def test_the_last_services_of_an_incident_stay_until_it_ends() -> None:
    incident = open_incident(*NAMES[:2], peak=9.0, suspects=suspects(NAMES[0]))
    for _ in range(RETURNED + 2):
        incident = advance_members(incident, set())
    assert (incident.members, incident.normal_for) == (NAMES[:2], dict.fromkeys(NAMES[:2], RETURNED + 2))
    assert incident.peak == 9.0


def test_an_incident_that_begins_again_keeps_its_id_beginning_and_suspects() -> None:
    kept = {"severity": Severity.MAJOR, "suspects": suspects("cause")}
    counts = {
        "normal_for": dict.fromkeys(NAMES[:2], 4),
        "quiet": 5,
        "returned": 4,
        "unseen": 1,
        "peak": 9.0,
        "ended_at": at(9),
    }
    ended = open_incident(*NAMES[:2], **kept, **counts)
    again = reopen(ended)
    assert again == open_incident(**kept, recurrences=1)
    assert reopen(again).recurrences == 2


@pytest.mark.parametrize(("clear", "recovers", "ends"), [(8, 3, 8), (6, 3, 6), (4, 3, 4), (2, 1, 2), (1, 1, 1)])
def test_an_incident_of_a_longer_interval_recovers_and_ends_after_fewer_snapshots(
    clear: int, recovers: int, ends: int
) -> None:
    incident = open_incident(*NAMES[:1])
    recovered, over = [], []
    for number in range(1, 9):
        incident = advance_quiet(incident, is_confirmed=False, deviates=False, clear_after=clear)
        recovered += [number] * is_recovering(incident, clear)
        over += [number] * is_over(incident, clear)
    assert (recovered[0], over[0]) == (recovers, ends)


@given(st.lists(st.sampled_from(["confirmed", "deviates", "normal"]), max_size=30), st.integers(1, 8))
def test_an_incident_ends_only_while_it_recovers(course: list[str], clear: int) -> None:
    incident = open_incident(*NAMES[:1])
    for what in course:
        incident = advance_quiet(incident, what == "confirmed", what == "deviates", clear)
        if what != "normal":
            assert not is_recovering(incident, clear)
        if is_over(incident, clear):
            assert is_recovering(incident, clear)
            assert incident.quiet >= min(RETURNED, clear)


def test_missing_snapshots_count_as_quiet_if_the_next_one_is() -> None:
    incident = open_incident(*NAMES[:1], quiet=1, returned=1, unseen=CLEAR - 1)
    confirmed = advance_quiet(incident, is_confirmed=True, deviates=True, clear_after=CLEAR)
    assert (confirmed.quiet, confirmed.returned, confirmed.unseen) == (0, 0, 0)
    deviating = advance_quiet(incident, is_confirmed=False, deviates=True, clear_after=CLEAR)
    assert (deviating.quiet, deviating.returned, deviating.unseen) == (CLEAR + 1, 0, 0)
    normal = advance_quiet(incident, is_confirmed=False, deviates=False, clear_after=CLEAR)
    assert (normal.quiet, normal.returned, normal.unseen) == (CLEAR + 1, 2, 0)


def test_an_incident_that_may_have_ended_in_a_long_gap_ends_with_the_first_normal_snapshot() -> None:
    incident = open_incident(*NAMES[:1], unseen=CLEAR)
    after = advance_quiet(incident, is_confirmed=False, deviates=False, clear_after=CLEAR)
    assert (after.returned, is_over(after, CLEAR)) == (RECOVERS, True)
    deviating = advance_quiet(incident, is_confirmed=False, deviates=True, clear_after=CLEAR)
    assert (deviating.returned, is_over(deviating, CLEAR)) == (0, False)


def test_an_incident_keeps_the_suspects_of_its_strongest_snapshot() -> None:
    incident = open_incident(*NAMES[:1])
    for index, (score, service) in enumerate([(7.0, "early"), (9.0, "cause"), (8.0, "victim"), (0.0, "quiet")]):
        incident = incident.with_strongest(score, suspects(service), at(index), 15.0)
    assert (incident.peak, incident.suspects, incident.suspects_at) == (9.0, suspects("cause"), at(1))


def test_after_the_onset_only_a_far_stronger_snapshot_names_other_suspects() -> None:
    late = int(ONSET_SECONDS / 15) + 1
    cause = (Suspect("cause", 1.0, (reason("error_rate", 0.5, 0.01),)),)
    incident = open_incident(*NAMES[:1]).with_strongest(9.0, cause, at(0), 15.0)
    assert incident.with_strongest(9.5, suspects("other"), at(late - 1), 15.0).suspects == suspects("other")
    newer = (replace(cause[0], reasons=(reason("error_rate", 0.4, 0.01),)),)
    incident = incident.with_strongest(8.0, newer, at(late - 2), 15.0)
    assert incident.with_strongest(9.5, suspects("other"), at(late), 15.0).suspects == newer
    assert incident.with_strongest(12.0, suspects("other"), at(late), 15.0).suspects == suspects("other")


def test_a_suspect_whose_symptom_has_been_gone_for_an_onset_leads_no_longer() -> None:
    incident = open_incident(*NAMES[:1]).with_strongest(16.0, suspects("cause"), at(0), 15.0)
    late = int(ONSET_SECONDS / 15) + 1
    assert incident.with_strongest(7.0, suspects("other"), at(late), 15.0).suspects == suspects("other")
    quiet = replace(incident, quiet=1)
    assert quiet.with_strongest(7.0, suspects("other"), at(late), 15.0).suspects == suspects("cause")


def test_the_numbers_of_a_suspect_are_the_newest_ones_of_the_same_symptom() -> None:
    def failing(errors: float, metric: str = "error_rate") -> tuple[Suspect, ...]:
        return (Suspect("cause", 1.0, (reason(metric, errors, 0.01),)),)

    incident = open_incident(*NAMES[:1]).with_strongest(9.0, failing(0.5), at(0), 15.0)
    weaker = incident.with_strongest(7.0, failing(0.3), at(1), 15.0)
    assert (weaker.suspects, weaker.suspects_at, weaker.peak) == (failing(0.3), at(1), 9.0)
    other = weaker.with_strongest(7.0, failing(0.4, "p99_latency"), at(2), 15.0)
    assert (other.suspects, other.suspects_at) == (failing(0.3), at(1)), "another symptom says nothing about this one"
    quiet = replace(weaker, quiet=1).with_strongest(2.0, failing(0.02), at(2), 15.0)
    assert quiet.suspects == failing(0.3), "a recovering incident shows what it was about"


def test_an_incident_without_suspects_takes_the_first() -> None:
    """A state that an older version stored has no suspects."""
    incident = open_incident(*NAMES[:1])
    assert incident.with_strongest(0.0, suspects("cause"), at(500), 15.0).suspects == suspects("cause")


def test_a_notice_has_the_newest_forecast_until_it_recovers() -> None:
    notice = open_incident(*NAMES[:1], severity=Severity.NOTICE)
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


def test_calls_that_moved_stay_a_reason_while_the_incident_lasts() -> None:
    """What the service called before is soon no longer its usual traffic, but the route is still wrong."""
    failing = reason("error_rate", 0.2, 0.0)
    moved = reason(MOVED, 3.0, 0.0, destination="a/s9")
    incident = open_incident(*NAMES[:1], id="a")
    for k, reasons in enumerate([(failing, moved), (failing, failing, failing), (failing,)]):
        incident = incident.with_strongest(5.0 + k, (Suspect(NAMES[0], 0.9, reasons),), at(k), 15.0)
        assert moved in incident.suspects[0].reasons
        assert len(incident.suspects[0].reasons) <= 3
    other = incident.with_strongest(9.0, (Suspect(NAMES[1], 0.9, (failing,)),), at(3), 15.0)
    assert moved not in other.suspects[0].reasons
