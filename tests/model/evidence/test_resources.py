"""Notices: resources that are running out, before users are affected."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.evidence.busy_cpu import busy_cpu
from model.evidence.gather import Evidence
from model.evidence.kinds import EVENT_SURPRISE
from model.evidence.level_shifts import NOTICE_MARGIN, apply_level_shifts, apply_notice_shifts
from model.evidence.resources import MIN_OLDER, RECENT, Trend, shortage, trends
from model.incidents.memory import IncidentMemory
from model.incidents.policy import AlertPolicy
from model.snapshot import MeshSnapshot, PlannedChange
from model.state import history
from model.state.history import BLOCKS, append_block, block_length, new_history, skip_blocks
from model.state.mesh_state import MeshState
from model.state.serialization import pack_state, unpack_state
from model.verdict import Severity, Status, Verdict
from tests.model.decision.verdict_cases import LEVEL, evidence, judge
from tests.model.incidents.incident_cases import feedback_on
from tests.model.model_cases import NODE, SERVICES, noisy, snapshot, watch

RNG = np.random.default_rng(0)


def state_with(memory: np.ndarray, connections: np.ndarray | None = None, requests: float = 50.0) -> MeshState:
    """Return a mesh of one service with this history, oldest block first."""
    past = np.full((BLOCKS, 1, 3), np.nan, np.float32)
    past[-len(memory) :, 0, history.MEMORY] = memory
    past[:, 0, history.REQUESTS] = requests
    past[:, 0, history.CONNECTIONS] = 20.0 if connections is None else connections
    return MeshState(node_ids=("shop/cart",), node_history=past.astype(np.float16))


def flat(level: float = 0.4, count: int = BLOCKS) -> np.ndarray:
    return level + 0.003 * RNG.standard_normal(count)


def leak(rise: float, blocks: int) -> np.ndarray:
    """Return a flat history that rises by this much in the newest blocks."""
    series = flat()
    series[-blocks:] += rise * np.arange(1, blocks + 1) / blocks
    return series


@pytest.mark.parametrize("blocks", RECENT)
def test_a_leak_is_found_with_the_time_to_its_limit(blocks: int) -> None:
    (trend,) = trends(state_with(leak(0.2, blocks)))
    assert (trend.row, trend.metric) == (0, "memory_utilization")
    assert trend.usual == pytest.approx(0.4, abs=0.01)
    assert trend.forecast is not None
    seconds = (1 - 0.6) / (0.2 / blocks / 120)
    assert trend.forecast.seconds == pytest.approx(seconds, rel=0.1)
    assert trend.forecast.soonest < trend.forecast.seconds < trend.forecast.latest


def test_a_forecast_counts_in_the_mesh_s_own_interval() -> None:
    state = state_with(leak(0.2, 10))
    quick, slow = (trends(replace(state, interval_seconds=seconds))[0] for seconds in (15.0, 300.0))
    assert quick.forecast is not None
    assert slow.forecast is not None
    assert slow.forecast.seconds == pytest.approx(2.5 * quick.forecast.seconds), "blocks of five minutes"
    assert (quick.seconds, slow.seconds) == (1200, 3000)


@pytest.mark.parametrize(("peak", "has_reached"), [(0.9965, True), (1.0, True), (0.98, False)])
def test_memory_that_people_read_as_full_has_reached_its_limit(peak: float, has_reached: bool) -> None:
    memory = leak(peak - 0.4, 10)
    memory[-1] = peak
    (trend,) = trends(state_with(memory))
    assert trend.forecast is not None
    assert (trend.forecast.seconds == 0) == has_reached


@pytest.mark.parametrize("minutes", [5, 38, 76, 80, 10_000])
def test_a_gap_leaves_blocks_without_a_value_in_the_history(minutes: int) -> None:
    _, state = watch([snapshot(i) for i in range(16)])
    assert np.isfinite(state.node_history[-2:]).all()
    _, after = watch([snapshot(15 + minutes * 4)], state)
    kept = BLOCKS - min(minutes // 2, BLOCKS)
    np.testing.assert_array_equal(after.node_history[:kept], state.node_history[BLOCKS - kept :])
    assert np.isnan(after.node_history[kept:]).all()


@given(st.floats(0, 20_000))
def test_skipped_blocks_are_as_many_as_the_time_has(seconds: float) -> None:
    history = np.arange(BLOCKS, dtype=np.float16)[:, None, None] * np.ones((1, 2, 3), np.float16)
    after = skip_blocks(history, seconds)
    skipped = min(int(seconds // 120), BLOCKS)
    np.testing.assert_array_equal(after[: BLOCKS - skipped], history[skipped:])
    assert np.isnan(after[BLOCKS - skipped :]).all()


ROLLOUT = np.array([0.568, 0.572, 0.576, 0.58, 0.626, 0.675, 0.68, 0.687, 0.693, 0.695])
TOOTH = np.linspace(0.42, 0.535, 10)


def test_a_leak_beyond_the_teeth_of_a_heap_is_found() -> None:
    series = np.append(0.4 + 0.1 * (np.arange(BLOCKS - 10) % 12) / 12, TOOTH + np.linspace(0, 0.1, 10))
    (trend,) = trends(state_with(series))
    assert trend.metric == "memory_utilization"


@pytest.mark.parametrize(
    ("what", "series"),
    [
        ("noise", flat()),
        ("a step", np.where(np.arange(BLOCKS) < BLOCKS - 6, 0.4, 0.6)),
        ("the step of a rollout, and a slow rise", np.append(flat(0.56, BLOCKS - 10), ROLLOUT)),
        ("growth towards a plateau", 0.4 + 0.2 * (1 - np.exp(-np.arange(-8, BLOCKS - 8).clip(0) / 4))),
        ("a saw-tooth", 0.4 + 0.15 * (np.arange(BLOCKS) % 12) / 12),
        ("a saw-tooth with a longer tooth", np.append(0.4 + 0.1 * (np.arange(BLOCKS - 10) % 12) / 12, TOOTH)),
        ("growth back to where it was", np.concatenate([flat(0.7, 10), 0.4 + 0.01 * np.arange(BLOCKS - 10)])),
        ("a rise that is too small", leak(0.03, 10)),
        ("too short a past", leak(0.2, 10)[-(MIN_OLDER + 9) :]),
    ],
)
def test_other_courses_of_memory_are_no_leak(what: str, series: np.ndarray) -> None:
    assert not trends(state_with(series)), what


def test_connections_that_grow_with_requests_are_no_leak() -> None:
    growth = np.ones(BLOCKS)
    growth[-10:] = np.linspace(1.1, 4.0, 10)
    state = state_with(flat(), 20 * growth)
    assert [trend.metric for trend in trends(state)] == ["active_connections"]
    busier = state.node_history.copy()
    busier[:, 0, history.REQUESTS] *= growth.astype(np.float16)
    assert not trends(replace(state, node_history=busier))


def test_the_history_keeps_means_of_two_minutes_and_survives_storing() -> None:
    assert [block_length(seconds) for seconds in (5.0, 15.0, 60.0, 300.0)] == [24, 8, 2, 1]
    snapshots = [noisy(i, np.random.default_rng(i)) for i in range(16)]
    _, state = watch(snapshots)
    expected = np.mean([s.node_features[:, 5] for s in snapshots[8:]], axis=0)
    np.testing.assert_allclose(state.node_history[-1, :, history.MEMORY], expected, rtol=2e-3)
    assert np.isnan(state.node_history[:-2]).all()
    np.testing.assert_array_equal(unpack_state(pack_state(state)).node_history, state.node_history)


def test_a_service_that_is_not_in_a_snapshot_has_no_block() -> None:
    past = append_block(new_history(2), ("a/x", "shop/cart"), [snapshot(0)])
    assert np.isnan(past[-1, 0]).all()
    assert past[-1, 1, history.MEMORY] == pytest.approx(NODE[5], rel=1e-3)
    assert "shop/cart" in SERVICES


def notice_scene(notice: float, *page: float) -> Evidence:
    """Return two services, the first of which has this evidence for a notice."""
    return replace(evidence(*(page or (1.0, 1.0))), notice=np.array([notice, 0.0], np.float32))


def verdicts(*notices: float, page: tuple[float, ...] = (1.0, 1.0)) -> tuple[list[Verdict], IncidentMemory]:
    """Return verdicts of snapshots in which the first of two services has this evidence for a notice."""
    return judge(*(notice_scene(notice, *page) for notice in notices))


def test_a_notice_is_listed_and_raises_no_alert() -> None:
    found, _ = verdicts(9.0, 9.0, 9.0, 9.0)
    assert [len(verdict.incidents) for verdict in found] == [0, 0, 1, 1], "after three snapshots"
    (notice,) = found[-1].incidents
    assert notice.severity is Severity.NOTICE
    assert notice.affected == ("a/s0",)
    assert found[-1].notices == (notice,)
    assert found[-1].alerts == ()
    assert found[-1].status is Status.NORMAL


def test_a_notice_ends_when_its_service_is_part_of_an_incident() -> None:
    found, memory = verdicts(9.0, 9.0, 9.0)
    (notice,) = found[-1].incidents
    (*_, verdict), _ = judge(*[notice_scene(9.0, 9.0, 1.0)] * 3, memory=memory, first=3)
    (incident,) = verdict.incidents
    assert incident.severity is not Severity.NOTICE
    assert incident.id != notice.id


def after_feedback(memory: IncidentMemory, strength: float) -> tuple[Verdict, IncidentMemory]:
    """Return the last of three verdicts on notices of this strength, after feedback, and the memory then."""
    scene = evidence(1.0, 1.0)
    shifted = apply_notice_shifts(np.array([strength, 0.0], np.float32), memory, scene.names)
    found, memory = judge(*[replace(scene, notice=shifted)] * 3, memory=memory, first=3)
    return found[-1], memory


def test_a_notice_that_feedback_calls_useless_ends_and_does_not_come_back() -> None:
    found, memory = verdicts(9.0, 9.0, 9.0)
    (past,) = memory.past
    assert past.id == found[-1].notices[0].id
    denied = memory.add_feedback(feedback_on(past, was_incident=False, given=1))
    assert (denied.open, denied.above_notice) == ((), {})
    for strength, listed in ((9.0, 0), (9.0 + NOTICE_MARGIN / 2, 0), (9.5 + NOTICE_MARGIN, 1)):
        assert len(after_feedback(denied, strength)[0].notices) == listed, strength


def test_feedback_on_a_notice_changes_no_level_of_alerts() -> None:
    _, memory = verdicts(9.0, 9.0, 9.0)
    denied = memory.add_feedback(feedback_on(memory.past[0], was_incident=False, given=1))
    kinds = evidence(1.0, 1.0).kinds
    np.testing.assert_array_equal(apply_level_shifts(kinds, denied, ("a/s0", "a/s1")), kinds)


def test_a_second_false_alarm_on_a_stronger_notice_raises_its_level_further() -> None:
    _, memory = verdicts(9.0, 9.0, 9.0)
    memory = memory.add_feedback(feedback_on(memory.past[0], was_incident=False, given=1))
    _, memory = after_feedback(memory, 15.0)
    memory = memory.add_feedback(feedback_on(memory.past[-1], was_incident=False, given=5))
    names = evidence(1.0, 1.0).names
    assert apply_notice_shifts(np.array([15.0, 0.0], np.float32), memory, names)[0] < LEVEL


def test_notices_have_a_budget_of_their_own() -> None:
    policy = AlertPolicy(false_notices_per_day=60.0)
    assert policy.notice_level(300, 15.0) == pytest.approx(policy.page_level(300, 15.0) - 1)
    assert AlertPolicy().notice_level(300, 15.0) == AlertPolicy().page_level(300, 15.0)


def test_a_rise_is_a_reason_with_its_beginning() -> None:
    rising = Trend(0, "memory_utilization", 0.6, 0.4, 1200.0, None)
    (*_, verdict), _ = judge(*[replace(notice_scene(EVENT_SURPRISE), trends=(rising,))] * 3)
    (notice,) = verdict.notices
    (reason,) = notice.suspects[0].reasons
    assert (reason.metric, reason.observed, reason.expected) == ("memory_utilization", 0.6, 0.4)
    assert verdict.observed_at - reason.since == timedelta(seconds=1200)


def test_a_service_without_cpu_left_is_noticed_and_an_always_busy_one_is_not() -> None:
    busy = {(1, 4): 0.97}
    nodes = busy | {(3, 4): 1.0}
    observation, state = watch([*(snapshot(i, nodes=busy) for i in range(30)), snapshot(30, nodes=nodes)])
    evidence_of_all = shortage(state, observation, np.zeros((len(SERVICES), 9), np.float32))
    assert evidence_of_all.tolist() == [0, 0, 0, EVENT_SURPRISE, 0]


def test_memory_beyond_its_history_is_noticed_although_it_varies_much() -> None:
    rng = np.random.default_rng(0)
    series = [snapshot(i, nodes={(..., 5): NODE[5] * rng.uniform(0.3, 1)}) for i in range(200)]
    nodes = {(..., 5): 0.3, (3, 5): 0.75}
    observation, state = watch([*series, snapshot(200, nodes=nodes)])
    evidence_of_all = shortage(state, observation, np.zeros((len(SERVICES), 9), np.float32))
    assert evidence_of_all.tolist() == [0, 0, 0, EVENT_SURPRISE, 0]


BEFORE_RISE, RISEN = 100, 8  # snapshots


def cpu_course(cpu: float, requests: float = 1.0) -> list[MeshSnapshot]:
    """Return a mesh whose service 3 needs ``cpu`` in the last snapshots, with so many times its usual requests."""
    rng = np.random.default_rng(0)
    nodes = [np.tile(NODE, (len(SERVICES), 1)) for _ in range(BEFORE_RISE + RISEN)]
    for table in nodes:
        table[:, 4] = 0.3 + 0.01 * rng.standard_normal(len(SERVICES))
    for table in nodes[BEFORE_RISE:]:
        table[3, 4], table[3, 0] = cpu, NODE[0] * requests
    return [snapshot(i, nodes=table) for i, table in enumerate(nodes)]


@pytest.mark.parametrize(
    ("what", "cpu", "requests", "noticed"),
    [
        ("far more for the same requests", 0.6, 1.0, True),
        ("more requests", 0.6, 2.0, False),
        ("a third more of little", 0.4, 1.0, False),
    ],
)
def test_cpu_beyond_the_window_is_noticed(what: str, cpu: float, requests: float, noticed: bool) -> None:
    observation, state = watch(cpu_course(cpu, requests))
    assert busy_cpu(state, observation).tolist() == [0, 0, 0, float(noticed), 0]


@pytest.mark.parametrize(("kind", "noticed"), [("deploy", False), ("scale_out", True)])
def test_a_new_version_may_need_more_cpu(kind: str, noticed: bool) -> None:
    course = cpu_course(0.6)
    course[BEFORE_RISE - 1] = replace(course[BEFORE_RISE - 1], changes=(PlannedChange(kind, SERVICES[3]),))
    observation, state = watch(course)
    assert busy_cpu(state, observation)[3] == noticed


def test_cpu_that_was_as_high_an_hour_ago_is_not_noticed() -> None:
    course = cpu_course(0.6)
    course[20:25] = [replace(course[-1], observed_at=of.observed_at) for of in course[20:25]]
    observation, state = watch(course)
    assert not busy_cpu(state, observation).any()


def test_a_short_rise_of_cpu_and_a_short_window_are_not_noticed() -> None:
    for course in (cpu_course(0.6)[:-4], cpu_course(0.6)[BEFORE_RISE - 30 :]):
        observation, state = watch(course)
        assert not busy_cpu(state, observation).any()
