"""Requests from outside that are lost or surge, and what is normal for them."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.decision.traffic_incidents import follow_traffic
from model.evidence.kinds import EVENT_SURPRISE
from model.evidence.traffic import LOST, MESH, TrafficChange, contains, traffic_changes, traffic_score
from model.front_door import find_entry_points
from model.incidents.memory import IncidentMemory
from model.incidents.mutes import Mute, active_mutes
from model.incidents.open_incident import FADED_SECONDS, OpenIncident
from model.incidents.policy import AlertPolicy, VerdictContext
from model.snapshot import PlannedChange
from model.state.levels import accept_incident
from model.state.mesh_state import MeshState
from model.state.traffic import (
    HELD,
    OFFSET,
    RISE,
    SLOTS,
    SURGE_SECONDS,
    EntryTraffic,
    observe_traffic,
    slot_of,
)
from model.verdict import Severity
from tests.builders import START
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, settled_state, snapshot, watch

SHOP = ("shop/web", "shop/api", "shop/app")
TWO = ("shop/web", "shop/api", "bank/web", "bank/api")
LEARNED = 140  # snapshots of 15 s, after which a rise is a surge
WITHIN = 12  # snapshots until an alert, three minutes


class Gateways:
    """Entry points of a mesh whose requests are followed from snapshot to snapshot."""

    def __init__(
        self, names: tuple[str, ...] = SHOP, usual: float = 100.0, interval: float = 15.0, learned: int = LEARNED
    ) -> None:
        self.names = names
        self.usual = usual
        self.interval = interval
        self.rng = np.random.default_rng(0)
        self.now = START
        self.traffic = EntryTraffic()
        self.memory = IncidentMemory()
        self.changes: tuple[TrafficChange, ...] = ()
        self.alerted: set[str] = set()
        self.level, self.score = 6.0, 0.0
        self.run(learned, 1.0)

    def when(self) -> VerdictContext:
        return VerdictContext(self.now, 100, 100, self.interval, self.level, self.level)

    def state(self) -> MeshState:
        return MeshState(interval_seconds=self.interval, traffic=self.traffic, memory=self.memory)

    def see(self, *factors: float, elapsed: float = 0.0) -> tuple[OpenIncident, ...]:
        """Follow a snapshot in which each entry point has so many times its usual requests; one number is for all."""
        elapsed = elapsed or self.interval
        self.now += timedelta(seconds=elapsed)
        noise = np.exp(0.03 * self.rng.standard_normal(len(self.names)))
        requests = (self.usual * noise * np.array(factors)).astype(np.float32)
        self.traffic = observe_traffic(self.traffic, self.names, requests, self.now, elapsed, self.interval)
        self.changes = traffic_changes(self.state())
        policy = AlertPolicy().at_interval(self.interval)
        silent = {name for name, request in zip(self.names, requests.tolist(), strict=True) if np.isnan(request)}
        followed = follow_traffic(self.changes, self.memory, self.alerted, silent, policy, self.when())
        self.score = followed.score
        memory = followed.memory.end(followed.ended, self.now)
        self.memory = replace(memory, open=(*followed.alerts, *followed.notices))
        return self.memory.open

    def run(self, snapshots: int, *factors: float) -> list[tuple[OpenIncident, ...]]:
        """Return the open incidents of each snapshot."""
        return [self.see(*factors) for _ in range(snapshots)]


@cache
def learn(names: tuple[str, ...] = SHOP, **how: float) -> Gateways:
    return Gateways(names, **how)  # type: ignore[arg-type]


def gateways(*names: tuple[str, ...], **how: float) -> Gateways:
    """Return entry points that have learned their usual requests; see :class:`Gateways`."""
    return deepcopy(learn(*names, **how))


def first(found: Sequence[tuple[OpenIncident, ...]]) -> int:
    """Return the number of the first snapshot with an incident."""
    return next((i + 1 for i, incidents in enumerate(found) if incidents), 0)


@pytest.mark.parametrize("names", [SHOP[:1], SHOP, TWO])
@pytest.mark.parametrize(("factor", "by"), [(0.5, 6), (0.2, 5), (0.0, 4)])
def test_a_fall_of_the_mesh_is_one_critical_alert_that_stays(factor: float, by: int, names: tuple[str, ...]) -> None:
    mesh = gateways(names)
    found = mesh.run(60, factor)
    assert 3 <= first(found) <= by
    assert [len(incidents) for incidents in found[by:]] == [1] * (60 - by)
    assert len({i.id for incidents in found for i in incidents}) == 1
    (incident,) = found[-1]
    assert (incident.scope, incident.severity, incident.members) == (MESH, Severity.CRITICAL, tuple(sorted(names)))
    assert incident.since <= START + timedelta(seconds=15 * (LEARNED + 4))
    (reason,) = incident.suspects[0].reasons
    assert reason.metric == "request_rate"
    assert reason.observed == pytest.approx(factor * 100 * len(names), rel=0.1, abs=1e-2)
    assert reason.expected == pytest.approx(100 * len(names), rel=0.1)
    assert all(not suspect.reasons for suspect in incident.suspects[1:])


Course = tuple[tuple[int, tuple[float, ...]], ...]  # numbers of snapshots, and times the usual requests
# Of each case: the mesh, the course before, the course that is judged, and whether that has an incident.
COURSES: dict[str, tuple[dict[str, Any], Course, Course, bool]] = {
    **{f"{x} times the usual": ({}, (), ((200, (x,)),), False) for x in (0.75, 0.9, 1.2, 2.0)},
    **{
        f"{x} times the level before a surge": ({"interval": 60.0}, ((60, (3.0,)),), ((WITHIN, (x,)),), True)
        for x in (0.0, 0.2, 0.4, 0.5)
    },
    "a rise in a young mesh, to which traffic comes slowly": ({"learned": 60}, (), ((WITHIN, (6.0,)),), False),
    "a fall in a young mesh": ({"learned": 60}, (), ((WITHIN, (0.2,)),), True),
    "a fall in a mesh whose level is not known yet": ({"learned": 20}, (), ((WITHIN, (0.2,)),), False),
    "hardly any traffic": ({"usual": 0.03}, (), ((60, (0.0,)),), False),
    "silent telemetry": ({}, (), ((60, (np.nan,)), (20, (1.0,))), False),
    "a fall after a silence": ({}, ((60, (np.nan,)), (20, (1.0,))), ((WITHIN, (0.2,)),), True),
    "one silent entry point": ({"names": SHOP[:2]}, (), ((60, (np.nan, 1.0)),), False),
    "requests that leave an entry point": ({}, (), ((WITHIN, (0.0, 1.0, 1.0)),), True),
    "a minute without requests": ({}, (), ((4, (0.1,)), (20, (1.0,))), True),
    "the same at one entry point": ({}, (), ((4, (0.1, 1.0, 1.0)), (20, (1.0,))), False),
    "a short fall": ({}, ((1, (0.3,)),), ((30, (1.0,)),), False),
}


@pytest.mark.parametrize(("mesh", "before", "judged", "has_incident"), COURSES.values(), ids=COURSES.keys())
def test_whether_a_course_of_the_requests_is_an_incident(
    mesh: dict[str, Any], before: Course, judged: Course, has_incident: bool
) -> None:
    followed = gateways(**mesh)
    for snapshots, factors in before:
        followed.run(snapshots, *factors)
    found = [incidents for snapshots, factors in judged for incidents in followed.run(snapshots, *factors)]
    assert bool(first(found)) == has_incident


@given(st.integers(0, 10_000))
@settings(max_examples=10)
def test_usual_traffic_is_no_incident(seed: int) -> None:
    mesh = gateways(TWO, learned=0)
    mesh.rng = np.random.default_rng(seed)
    assert not first(mesh.run(200, 1.0))


@pytest.mark.parametrize("ratio", [3.0, 8.0])
@pytest.mark.parametrize("interval", [60.0, 300.0])
def test_the_slow_falls_and_rises_of_a_day_are_no_incident(ratio: float, interval: float) -> None:
    mesh = gateways(interval=interval, learned=0)
    day = np.arange(int(3 * 86_400 / interval)) * interval / 86_400
    load = np.exp(np.log(ratio) / 2 * np.cos(2 * np.pi * day))
    assert load.max() / load.min() == pytest.approx(ratio, rel=1e-3)
    assert not first([mesh.see(x) for x in load])


def test_a_sudden_fall_at_night_is_an_alert() -> None:
    mesh = gateways(interval=60.0, learned=0)
    for minute in range(1440 + 720):
        mesh.see(float(np.exp(1.0 * np.cos(2 * np.pi * minute / 1440))))
    assert 0 < first(mesh.run(WITHIN, 0.5 * np.exp(-1.0))) <= 6


@pytest.mark.parametrize("minutes", [10, 20, 29])
def test_the_end_of_a_short_surge_is_no_loss(minutes: int) -> None:
    mesh = gateways()
    mesh.run(minutes * 4, 3.0)
    after = mesh.run(120, 1.0)
    assert not any(change.is_far for change in mesh.changes)
    assert not [i for incidents in after for i in incidents if i.is_alert]
    assert after[-1] == ()


@pytest.mark.parametrize("hours", [1, 3, 20])
def test_the_end_of_a_surge_that_became_usual_is_no_loss(hours: int) -> None:
    mesh = gateways(interval=60.0)
    mesh.run(hours * 60, 3.0)
    assert mesh.memory.open == (), "a surge is usual after half an hour"
    level = np.exp(mesh.traffic.level) - OFFSET
    np.testing.assert_allclose(level, 300.0, rtol=0.05)
    assert not first(mesh.run(180, 1.0))


def test_a_loss_does_not_become_normal_by_itself_for_a_day() -> None:
    mesh = gateways(interval=300.0)
    mesh.see(0.2)
    level = mesh.traffic.level
    assert len(mesh.run(24 * 12 - 2, 0.2)[-1]) == 1
    np.testing.assert_array_equal(mesh.traffic.level, level)
    assert mesh.run(20, 0.2)[-1] == ()


@pytest.mark.parametrize(
    ("names", "factor", "severity"),
    [
        (SHOP, 3.0, Severity.NOTICE),
        (SHOP, 6.0, Severity.MINOR),
        (SHOP[:1], 6.0, Severity.MINOR),
    ],
)
def test_a_surge_is_a_notice_or_a_minor_alert_and_is_usual_after_half_an_hour(
    names: tuple[str, ...], factor: float, severity: Severity
) -> None:
    mesh = gateways(names)
    found = mesh.run(int(SURGE_SECONDS / 15) - 2, factor)
    assert 3 <= first(found) <= 8
    assert [i.severity for i in found[-1]] == [severity]
    raises_alert = severity is not Severity.NOTICE
    assert [traffic_score(change) for change in mesh.changes] == [EVENT_SURPRISE * raises_alert]
    assert mesh.score == EVENT_SURPRISE * raises_alert
    assert mesh.run(20, factor)[-1] == ()


def evening(mesh: Gateways, days: int, minutes: int) -> list[tuple[OpenIncident, ...]]:
    """Follow days in which traffic falls to a quarter at 20:00 within so many minutes, and is back two hours later."""
    found = []
    for _ in range(days * 288):
        seconds = (mesh.now - START).total_seconds() % 86_400
        since, until = (seconds - 20 * 3600) / 60 / minutes, (seconds - 22 * 3600) / 3600
        share = np.clip(min(since, 1 - until), 0, 1)
        found.append(mesh.see(float(0.25**share)))
    return found


def test_the_week_s_profile_explains_a_regular_fall_however_suddenly_it_comes() -> None:
    mesh = gateways(interval=300.0, learned=288)
    evenings = [first(evening(mesh, 1, minutes=1)) for _ in range(5)]
    assert evenings[0], "the first one is a loss"
    assert not any(evenings[3:]), "it is usual at this time"
    mesh.run(120, 1.0)
    assert first(mesh.run(WITHIN, 0.25)), "at 10:00 it is not"


def test_a_level_below_the_profile_is_a_loss() -> None:
    mesh = gateways(interval=300.0, learned=0)
    evening(mesh, 4, minutes=90)
    found = [mesh.see(0.25**2 if i >= 246 else 1.0) for i in range(260)]
    assert 246 < first(found) <= 246 + WITHIN


@given(st.integers(0, 2 * SLOTS), st.floats(0, 1799))
def test_a_half_hour_of_the_week_counts_from_monday_at_midnight(slots: int, seconds: float) -> None:
    monday = START + timedelta(days=4)  # 2026-01-05
    assert slot_of(monday + timedelta(seconds=1800 * slots + seconds)) == slots % SLOTS


def test_of_a_mesh_with_a_silent_entry_point_what_is_measured_counts() -> None:
    mesh = gateways(SHOP[:2])
    mesh.run(60, np.nan, 1.0)
    (incident,) = mesh.run(WITHIN, np.nan, 0.2)[-1]
    assert incident.members == (SHOP[1],)


@pytest.mark.parametrize("minutes", [2, 10, 25])
def test_a_loss_is_found_after_a_gap(minutes: int) -> None:
    mesh = gateways()
    mesh.see(0.2, elapsed=60.0 * minutes)
    assert 0 < first(mesh.run(WITHIN, 0.2)) <= 5


@pytest.mark.parametrize("minutes", [2, 10, 25])
def test_a_loss_stays_open_over_a_gap_with_its_id_and_beginning(minutes: int) -> None:
    mesh = gateways()
    (before,) = mesh.run(20, 0.2)[-1]
    mesh.memory = mesh.memory.pass_gap(minutes * 4 - 1)
    after = [mesh.see(0.2, elapsed=60.0 * minutes), *mesh.run(20, 0.2)]
    assert {(i.id, i.since) for incidents in after for i in incidents} == {(before.id, before.since)}
    assert all(after)


@pytest.mark.parametrize("factor", [0.72, 1.4, 3.0, 0.2, 0.5])
def test_after_an_hour_without_data_another_level_is_the_time_of_day(factor: float) -> None:
    mesh = gateways()
    mesh.see(factor, elapsed=4000.0)
    assert not first(mesh.run(60, factor))


def test_a_loss_before_an_hour_without_data_stays_one() -> None:
    mesh = gateways()
    mesh.run(10, 0.2)
    mesh.see(0.2, elapsed=4000.0)
    assert mesh.run(10, 0.2)[-1]


def test_after_a_day_without_data_levels_are_learned_again() -> None:
    mesh = gateways()
    mesh.see(0.2, elapsed=90_000.0)
    assert not mesh.traffic.is_known.any()
    assert not first(mesh.run(60, 0.2))
    assert first(mesh.run(WITHIN, 0.02))


def test_a_person_accepts_a_loss() -> None:
    mesh = gateways()
    (incident,) = mesh.run(20, 0.3)[-1]
    accepted = accept_incident(mesh.state(), incident.id)
    mesh.traffic, mesh.memory = accepted.traffic, accepted.memory
    assert (mesh.memory.open, mesh.memory.above_traffic) == ((), {})
    assert not first(mesh.run(120, 0.3))
    assert first(mesh.run(WITHIN, 0.05)), "the new level is the usual one"


def test_to_accept_a_loss_at_one_entry_point_leaves_the_level_of_others() -> None:
    mesh = gateways(TWO)
    (incident,) = mesh.run(20, 0.1, 1.0, 1.0, 1.0)[-1]
    before, accepted = mesh.traffic, accept_incident(mesh.state(), incident.id).traffic
    chosen = np.array([name in incident.members for name in TWO])
    np.testing.assert_allclose(accepted.level[chosen], np.log(accepted.lately[chosen] + OFFSET), rtol=1e-5)
    np.testing.assert_array_equal(accepted.low[chosen], accepted.level[chosen], "the lowest one too")
    assert (accepted.level < before.level - 1).any()
    for now, then in ((accepted.level, before.level), (accepted.low, before.low)):
        np.testing.assert_array_equal(now[~chosen], then[~chosen])


@pytest.mark.parametrize(("names", "factors"), [(SHOP, (0.0, 2.0, 1.0)), (TWO, (0.0, 0.0, 2.0, 2.0))])
def test_traffic_that_moves_between_entry_points_or_namespaces_is_no_loss(
    names: tuple[str, ...], factors: tuple[float, ...]
) -> None:
    assert not [i for found in gateways(names).run(60, *factors) for i in found if i.is_alert]


@pytest.mark.parametrize(
    ("names", "factors", "scope", "severity"),
    [
        (TWO, (0.4, 0.4, 1.0, 1.0), "shop/*", Severity.MAJOR),
        (TWO, (0.58, 0.58, 1.0, 1.0), "shop/*", Severity.MINOR),
        (SHOP, (0.1, 1.0, 1.0), "shop/web", Severity.MAJOR),
        ((*TWO, "bank/app"), (1.0, 0.9, 1.0, 0.0, 1.0), "bank/api", Severity.MAJOR),
        (TWO, (1.0, 0.9, 1.0, 0.15), "bank/*", Severity.MINOR),
        (TWO, (0.3, 0.3, 0.3, 0.3), MESH, Severity.CRITICAL),
        (("shop/web", "bank/web", "bank/api"), (0.0, 1.0, 1.0), "shop/*", Severity.MAJOR),
    ],
)
def test_the_scope_of_a_loss_is_the_widest_that_lost_its_requests(
    names: tuple[str, ...], factors: tuple[float, ...], scope: str, severity: Severity
) -> None:
    mesh = gateways(names)
    mesh.run(20, *factors)
    assert scope in {i.scope for i in mesh.memory.open}
    assert all(contains(scope, i.scope) or contains(i.scope, scope) for i in mesh.memory.open)
    (incident,) = (i for i in mesh.memory.open if i.scope == scope)
    assert incident.severity is severity


def test_two_scopes_are_two_incidents_and_a_part_of_a_scope_is_none_beside_it() -> None:
    rest = tuple(f"shop/s{i}" for i in range(8))
    mesh = gateways((*SHOP, *rest, "bank/web", "bank/api"))
    opened = mesh.run(20, 0.0, *[1.0] * 10, 0.0, 0.0)[-1]
    assert sorted(i.scope for i in opened) == ["bank/*", "shop/web"]


def test_an_incident_whose_scope_widens_keeps_its_id() -> None:
    mesh = gateways(TWO)
    (one,) = mesh.run(20, 0.0, 1.0, 1.0, 1.0)[-1]
    (namespace,) = mesh.run(20, 0.0, 0.0, 1.0, 1.0)[-1]
    (everything,) = mesh.run(20, 0.0, 0.0, 0.1, 0.1)[-1]
    assert everything.scope == MESH
    assert {one.id, namespace.id, everything.id} == {one.id}
    assert {one.since, namespace.since, everything.since} == {one.since}
    severities = [list(Severity).index(i.severity) for i in (one, namespace, everything)]
    assert severities == sorted(severities)
    assert everything.members == tuple(sorted(TWO))


def test_incidents_whose_scopes_widen_to_the_same_one_become_the_oldest() -> None:
    mesh = gateways((*TWO, "post/web", "post/api"))
    (shop,) = mesh.run(20, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0)[-1]
    assert len(mesh.run(20, 0.1, 0.1, 1.0, 0.0, 1.0, 1.0)[-1]) in (1, 2)
    (everything,) = mesh.run(20, 0.0, 0.0, 0.0, 0.0, 0.1, 0.1)[-1]
    assert (everything.id, everything.scope) == (shop.id, MESH)


def test_a_loss_recovers_and_ends_when_the_requests_are_back() -> None:
    mesh = gateways()
    (incident,) = mesh.run(20, 0.2)[-1]
    after = mesh.run(20, 1.0)
    assert after[0][0].id == incident.id
    assert 3 <= sum(map(bool, after)) <= 6
    assert after[-1] == ()


@pytest.mark.parametrize(("calm", "ids"), [(8, 1), (40, 2)])
def test_a_loss_that_returns_within_minutes_is_the_same_incident(calm: int, ids: int) -> None:
    mesh = gateways()
    (loss,) = mesh.run(20, 0.2)[-1]
    assert mesh.run(calm, 1.0)[-1] == ()
    (again,) = mesh.run(6, 0.2)[-1]
    assert len({loss.id, again.id}) == ids
    assert again.recurrences == 2 - ids
    assert again.members == loss.members


def test_a_loss_whose_requests_are_partly_back_stays_open_unless_they_are_near_the_usual() -> None:
    mesh = gateways()
    mesh.run(20, 0.2)
    assert all(mesh.run(60, 0.6))
    assert mesh.run(60, 0.72)[-1] == (), "the level follows a value that is so near"


def test_a_loss_ends_when_more_requests_than_ever_are_back() -> None:
    """People try again what did not work, and that is a surge but no loss."""
    mesh = gateways()
    (loss,) = mesh.run(20, 0.2)[-1]
    after = mesh.run(20, 1.7)
    assert 3 <= sum(map(bool, after)) <= 8
    assert after[-1] == ()
    shown = [i for incidents in after for i in incidents]
    assert {i.id for i in shown} == {loss.id}
    assert {i.suspects[0].reasons[0].observed < i.suspects[0].reasons[0].expected for i in shown} == {True}


def test_a_loss_that_is_no_longer_far_ends_after_ten_minutes() -> None:
    mesh = gateways()
    (loss,) = mesh.run(20, 0.1, 1.0, 1.0)[-1]
    after = mesh.run(60, 0.62, 1.0, 1.0)
    faded = int(FADED_SECONDS / 15)
    assert faded - 2 <= sum(map(bool, after)) <= faded + 6
    assert {i.id for incidents in after for i in incidents} == {loss.id}
    assert after[-1] == ()
    assert [change.is_far for change in mesh.changes] == [False], "its requests are not back"


def test_a_loss_of_which_nothing_is_seen_does_not_fade() -> None:
    mesh = gateways()
    (loss,) = mesh.run(20, 0.2)[-1]
    assert [i.id for i in mesh.run(3 * int(FADED_SECONDS / 15), np.nan)[-1]] == [loss.id]


def crowd(mesh: Gateways, minutes: int, most: float = 1.45) -> None:
    """Follow a crowd that comes slowly enough to become usual."""
    for i in range(minutes * 4):
        mesh.see(float(min(most, np.exp(0.02 * i / 4))))


def test_the_end_of_a_short_crowd_is_no_loss() -> None:
    mesh = gateways()
    crowd(mesh, 45)
    level = float(np.exp(mesh.traffic.level).sum() - 3 * OFFSET)
    assert LOST * level > 0.85 * 300, "far below the usual level"
    assert not first(mesh.run(60, 0.85))


def test_a_fall_below_the_level_before_a_crowd_is_a_loss() -> None:
    mesh = gateways()
    crowd(mesh, 45)
    assert 0 < first(mesh.run(WITHIN, 0.5)) <= 6


def test_the_lowest_level_rises_by_a_fifth_an_hour_and_falls_at_once() -> None:
    mesh = gateways()
    before = mesh.traffic.low.copy()
    np.testing.assert_allclose(before, np.log(100 + OFFSET), atol=0.05)
    crowd(mesh, 30)
    np.testing.assert_allclose(mesh.traffic.low, before + RISE / 2, atol=0.02)
    assert (mesh.traffic.level > mesh.traffic.low + 0.2).all()
    crowd(mesh, 240)
    np.testing.assert_allclose(mesh.traffic.low, mesh.traffic.level, atol=0.02)
    for _ in range(60):
        mesh.see(1.1)
    np.testing.assert_allclose(mesh.traffic.low, mesh.traffic.level, atol=0.01)


@pytest.mark.parametrize(("level", "opens"), [(EVENT_SURPRISE, True), (EVENT_SURPRISE + 0.1, False)])
def test_a_loss_raises_an_alert_if_its_score_reaches_the_threshold(level: float, opens: bool) -> None:
    mesh = gateways()
    mesh.level = level
    assert bool(first(mesh.run(WITHIN, 0.0))) == opens
    assert mesh.score == EVENT_SURPRISE
    assert (mesh.score >= level) == opens


def test_a_surge_that_harms_no_one_is_a_notice_at_any_threshold() -> None:
    mesh = gateways()
    mesh.level = 100.0
    assert [i.severity for i in mesh.run(WITHIN, 3.0)[-1]] == [Severity.NOTICE]
    assert mesh.score == 0


def test_a_loss_has_no_score_before_it_is_confirmed() -> None:
    mesh = gateways()
    scores = []
    for _ in range(WITHIN):
        opened = mesh.see(0.0)
        scores.append(mesh.score)
        assert bool(opened) == bool(mesh.score)
    assert set(scores) == {0.0, EVENT_SURPRISE}


def test_a_planned_deletion_of_an_entry_point_is_no_loss() -> None:
    mesh = gateways(SHOP)
    mesh.memory = mesh.memory.advance_changes([PlannedChange("deletion", SHOP[0])], 1000)
    assert not first(mesh.run(60, 0.0, 1.0, 1.0))


def test_an_alert_about_the_entry_points_explains_their_loss() -> None:
    mesh = gateways(SHOP)
    mesh.alerted = {SHOP[0]}
    assert not first(mesh.run(30, 0.0, 1.0, 1.0))
    assert first(mesh.run(30, 0.0, 0.0, 0.0)), "but not a loss of others"


def test_a_muted_entry_point_has_no_incident() -> None:
    mesh = gateways(SHOP[:1])
    until = mesh.now + timedelta(days=1)
    mute = Mute("m", SHOP[:1], mesh.now, until, "a test", mesh.now)
    mesh.memory = replace(mesh.memory, active_mutes=active_mutes([mute], (), (), mesh.now))
    assert not first(mesh.run(30, 0.0))


def test_entry_points_that_come_and_go_keep_the_levels_of_others() -> None:
    mesh = gateways(SHOP)
    level = dict(zip(mesh.traffic.names, mesh.traffic.level.tolist(), strict=True))
    mesh.names = ("shop/new", SHOP[2], SHOP[0])
    mesh.see(1.0)
    assert mesh.traffic.names == (SHOP[0], SHOP[2], "shop/new")
    for name, now in zip(mesh.traffic.names[:2], mesh.traffic.level, strict=False):
        assert now == pytest.approx(level[name], abs=0.02)
    assert mesh.traffic.profile.shape == mesh.traffic.weeks.shape == (SLOTS, 3)
    assert mesh.traffic.is_known.tolist() == [True, True, False]


@given(st.lists(st.one_of(st.floats(0, 1e6), st.just(np.nan)), min_size=1, max_size=40), st.floats(1.0, 1e5))
@settings(max_examples=50)
def test_levels_stay_finite_and_the_argument_is_unchanged(requests: list[float], elapsed: float) -> None:
    traffic, now = EntryTraffic(), START
    for value in requests:
        before, level = traffic, traffic.level.copy()
        now += timedelta(seconds=elapsed)
        traffic = observe_traffic(before, SHOP[:1], np.array([value], np.float32), now, elapsed, 15.0)
        np.testing.assert_array_equal(before.level, level)
        assert np.isfinite(traffic.level[traffic.seen > 0]).all()
        assert np.isfinite(traffic.variance).all()
        assert np.isfinite(traffic.profile).all()


@given(st.floats(np.exp(-HELD) + 0.02, np.exp(HELD) - 0.02))
@settings(max_examples=20)
def test_the_level_follows_a_near_value_slowly(factor: float) -> None:
    mesh = gateways(SHOP[:1])
    before = float(mesh.traffic.level[0])
    mesh.see(factor)
    assert abs(float(mesh.traffic.level[0]) - before) <= 0.02 / 4 + 1e-6


def test_entry_points_are_services_that_no_other_service_calls() -> None:
    calls = np.array([[0, 0, 1, 3, 4], [1, 2, 2, 3, 2]])  # 3 calls only itself
    names = [f"shop/{row}" for row in range(6)]
    assert np.flatnonzero(find_entry_points(names, calls, ())).tolist() == [0, 3, 4, 5]
    assert np.flatnonzero(find_entry_points(names, calls, {"shop/2", "shop/gone"})).tolist() == [0, 2, 3, 4, 5]


def test_a_gateway_without_metrics_gets_as_many_requests_as_it_makes_calls() -> None:
    _, state = watch([snapshot(i, nodes={(0,): np.nan}) for i in range(3)])
    gateway = state.traffic.names.index("shop/gateway")
    assert state.traffic.names == ("shop/gateway", "shop/idle")
    assert state.traffic.lately[gateway] == pytest.approx(2 * EDGE[0], rel=1e-4)
    assert state.traffic.lately[1 - gateway] == pytest.approx(NODE[0], rel=1e-4)


def test_a_gateway_whose_telemetry_is_silent_has_no_requests_that_are_known() -> None:
    calls = [call for call in CALLS if call[0] != 0]
    _, state = watch([snapshot(30, SERVICES, calls, nodes={(0,): np.nan})], settled_state())
    assert np.isnan(state.traffic.lately[state.traffic.names.index("shop/gateway")])
