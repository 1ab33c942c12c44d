"""Work that comes at regular times is normal. Work that does not come is a notice."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from model.decision.notices import overdue_reason
from model.decision.verdict_building import build_verdict
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind, led_by_resources
from model.incidents.kind import incident_kind
from model.incidents.memory import IncidentMemory
from model.incidents.schedule import (
    MAX_BURSTS,
    MAX_SERVICES,
    PROVEN,
    Burst,
    RegularWork,
    Schedule,
    Use,
    Work,
    follow_work,
)
from model.verdict import OVERDUE, IncidentKind, Severity
from serve_app.api.headline import headline
from serve_app.api.reason_text import reason_text
from tests.builders import START
from tests.model.decision.verdict_cases import POLICY, evidence, meta, when
from tests.model.model_cases import at

NAMES = ("a/s0", "a/s1")
HOUR = 240  # snapshots of 15 s


def step(
    schedule: Schedule, index: int, notice: float, cpu: float, *, measured: bool = True, interval: float = 15.0
) -> RegularWork:
    """Add a snapshot in which the first of two services has this evidence and this CPU; it usually has 20%."""
    use = Use(
        np.array([notice, 0.0], np.float32),
        np.array([cpu, 0.2], np.float32),
        np.full(2, 0.2, np.float32),
        np.array([measured, True]),
    )
    return follow_work(schedule, NAMES, use, at(index, interval), interval)


def run(
    starts: Sequence[int],
    until: int,
    *,
    length: int = 12,
    notice: float = 8.0,
    cpu: float = 0.8,
    schedule: Schedule | None = None,
    since: int = 0,
) -> tuple[list[bool], list[bool], Schedule]:
    """Return for each snapshot whether the work is regular, and whether it is overdue, and the schedule at the end."""
    schedule, regular, overdue = schedule or Schedule(), [], []
    for i in range(since, until):
        runs = any(start <= i < start + length for start in starts)
        found = step(schedule, i, notice if runs else 0.0, cpu if runs else 0.2)
        schedule = found.schedule
        regular.append(bool(found.regular[0]))
        overdue.append(bool(found.overdue[0]))
    return regular, overdue, schedule


def every(period: int, count: int, first: int = 20) -> list[int]:
    return [first + period * k for k in range(count)]


@pytest.mark.parametrize("period", [HOUR // 2, HOUR])
def test_the_third_burst_at_an_interval_is_regular(period: int) -> None:
    regular, _, _ = run(every(period, 4), 20 + 3 * period + 20)
    runs = {k: regular[20 + period * k : 32 + period * k] for k in range(4)}
    assert not any(runs[0] + runs[1])
    assert all(runs[2] + runs[3])
    assert sum(regular) == 24, "only while it lasts"


def test_bursts_may_come_a_little_early_or_late() -> None:
    regular, _, _ = run([20, 20 + HOUR + 4, 20 + 2 * HOUR - 1], 20 + 2 * HOUR + 12)
    assert all(regular[19 + 2 * HOUR : 31 + 2 * HOUR])
    regular, _, _ = run([20, 20 + HOUR, 20 + 2 * HOUR + 30], 20 + 2 * HOUR + 42)
    assert not any(regular)


@pytest.mark.parametrize("starts", [[20, 70, 260], [20, 200, 290, 600], [20, 30, 40]])
def test_irregular_bursts_are_not_regular(starts: list[int]) -> None:
    assert not any(run(starts, starts[-1] + 20, length=5)[0])


def test_a_burst_that_lasts_far_longer_is_no_longer_regular() -> None:
    _, _, schedule = run(every(HOUR, 3), 2 * HOUR + 40)
    regular, _, _ = run([3 * HOUR + 20], 3 * HOUR + 60, length=40, schedule=schedule, since=2 * HOUR + 40)
    begins = 3 * HOUR + 20 - (2 * HOUR + 40)
    assert all(regular[begins : begins + 18])
    assert not any(regular[begins + 19 :])


@pytest.mark.parametrize(("notice", "cpu"), [(12.0, 0.8), (8.0, 1.0)])
def test_a_burst_that_is_far_stronger_is_not_regular(notice: float, cpu: float) -> None:
    _, _, schedule = run(every(HOUR, 3), 2 * HOUR + 40)
    last = 3 * HOUR + 20
    regular, _, _ = run([last], last + 20, notice=notice, cpu=cpu, schedule=schedule, since=2 * HOUR + 40)
    assert not any(regular)


def test_work_that_baselines_are_used_to_is_still_seen_by_its_cpu() -> None:
    """After a day of such work its CPU is hardly unusual, and yet it came."""
    _, _, schedule = run(every(HOUR, 5), 4 * HOUR + 40)
    later = every(HOUR, 10, first=5 * HOUR + 20)
    _, overdue, _ = run(later, 14 * HOUR, notice=0.5, cpu=0.32 + 0.2, schedule=schedule, since=4 * HOUR + 40)
    assert not any(overdue)


def test_two_jobs_of_a_service_are_both_learned() -> None:
    starts = sorted([*every(HOUR, 8), *every(3 * HOUR // 2, 5, first=110)])
    regular, _, _ = run(starts, 8 * HOUR, length=6)
    assert sum(not any(regular[start : start + 6]) for start in starts) <= 6


def test_work_that_does_not_come_is_overdue_until_it_comes_or_for_one_period() -> None:
    _, _, schedule = run(every(HOUR, 2 + PROVEN), (1 + PROVEN) * HOUR + 40)
    since, due = (1 + PROVEN) * HOUR + 40, (2 + PROVEN) * HOUR + 20
    _, overdue, _ = run([due + 100], due + 160, schedule=schedule, since=since)
    assert not any(overdue[: due - since + 12]), "it may come a little late"
    assert all(overdue[due - since + 13 : due - since + 100])
    assert not any(overdue[due - since + 100 :])
    _, overdue, after = run([], due + 4 * HOUR, schedule=schedule, since=since)
    assert sum(overdue) == HOUR - 12
    assert after.works["a/s0"].period == 0, "it has no schedule any more"


def test_after_fewer_regular_bursts_nothing_is_overdue() -> None:
    _, _, schedule = run(every(HOUR, 1 + PROVEN), PROVEN * HOUR + 40)
    assert not any(run([], (3 + PROVEN) * HOUR, schedule=schedule, since=PROVEN * HOUR + 40)[1])


def test_work_that_was_never_worth_a_notice_is_not_overdue() -> None:
    _, _, schedule = run(every(HOUR, 6), 5 * HOUR + 40, notice=2.5)
    assert not any(run([], 8 * HOUR, schedule=schedule, since=5 * HOUR + 40)[1])


def test_work_may_have_come_in_a_gap_or_without_telemetry() -> None:
    _, _, schedule = run(every(HOUR, 6), 5 * HOUR + 40)
    later = step(schedule, 6 * HOUR + 60, 0.0, 0.2)
    assert not later.overdue.any()
    assert later.schedule.works["a/s0"].came == at(6 * HOUR + 20).timestamp()
    for i in range(5 * HOUR + 40, 7 * HOUR):
        found = step(schedule, i, 0.0, 0.0, measured=False)
        schedule = found.schedule
        assert not found.overdue.any()


def test_one_snapshot_is_no_burst() -> None:
    _, _, schedule = run([20, 100, 110, 180], 200, length=1)
    assert len(schedule.works["a/s0"].bursts) == 1, "the last one may go on"


def test_the_schedule_is_bounded() -> None:
    _, _, schedule = run(every(40, 40), 1700, length=3)
    assert len(schedule.works["a/s0"].bursts) == MAX_BURSTS
    many = tuple(f"a/s{i}" for i in range(2 * MAX_SERVICES))
    cpu = np.full(len(many), 0.9, np.float32)
    usual = np.full(len(many), 0.3, np.float32)
    use = Use(np.full(len(many), 9.0, np.float32), cpu, usual, np.ones(len(many), bool))
    found = follow_work(schedule, many, use, at(1701), 15.0)
    assert len(found.schedule.works) == MAX_SERVICES


def test_old_bursts_are_forgotten() -> None:
    _, _, schedule = run([20], 60)
    assert schedule.works
    assert not step(schedule, 96 * HOUR, 0.0, 0.2).schedule.works


def overdue_verdicts(schedule: Schedule, indices: Iterable[int]) -> list[IncidentKind]:
    memory, kinds = IncidentMemory(schedule=schedule), []
    for i in indices:
        scene = replace(
            evidence(1.0, 1.0), notice=np.array([EVENT_SURPRISE, 0.0], np.float32), schedule=memory.schedule
        )
        verdict, memory = build_verdict(meta(), scene, memory, POLICY, when(i))
        kinds += [incident_kind(one) for one in verdict.incidents]
        for one in verdict.incidents:
            assert one.severity is Severity.NOTICE
            assert one.suspects[0].reasons[0].metric == OVERDUE
            assert headline(one) == "The regular work of a/s0 did not run: due every 60 min, last ran at 05:05 UTC."
    return kinds


def test_overdue_work_is_a_notice_in_words() -> None:
    _, _, schedule = run(every(HOUR, 6), 5 * HOUR + 40)
    late = 6 * HOUR + 60
    assert overdue_verdicts(schedule, range(late, late + 4)) == [IncidentKind.RESOURCES] * 2
    (reason,) = overdue_reason(schedule, "a/s0", at(late), 15.0)
    assert (reason.observed, reason.expected) == (3600 + 40 * 15, 3600)
    text = "its regular work did not run: due every 60 min, last ran at 05:05 UTC"
    assert reason_text(reason, "a/s0", at(late)) == text
    daily = replace(reason, expected=86_400.0, observed=92_000.0)
    assert reason_text(daily, "a/s0", at(late)) == text.replace("60 min", "24 h").replace("05:05", "2026-01-01 05:05")
    assert not overdue_reason(schedule, "a/s1", at(late), 15.0)


def test_resources_are_excused_and_other_symptoms_are_not() -> None:
    kinds = np.zeros((3, len(EvidenceKind)), np.float32)
    kinds[:, EvidenceKind.RESOURCES] = 12
    kinds[1, EvidenceKind.LATENCY] = 9
    assert led_by_resources(kinds).tolist() == [True, False, True]
    assert not led_by_resources(np.zeros_like(kinds)).any()


def test_a_schedule_of_no_bursts_has_no_period() -> None:
    work = Work((Burst(START.timestamp()),))
    assert not overdue_reason(Schedule({"a/s0": work}), "a/s0", at(10_000), 15.0)
