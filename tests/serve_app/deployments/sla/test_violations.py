"""The history of violations: duration, worst value and cause."""

from collections import Counter

import pytest

from serve_app.api.schemas.sla import sla_document
from serve_app.deployments.sla.counts import Cause, Count, Outcome, cause_of, of_kind, stages_of
from serve_app.deployments.sla.violations import MAX_VIOLATIONS, Violations
from serve_app.metrics import Objective, ObjectiveStatus, ServiceLevel, Violation
from tests.serve_app.deployments.sla.test_sla import Service, push

VIOLATED, FULFILLED = ObjectiveStatus.VIOLATED, ObjectiveStatus.FULFILLED
STAGES = {"decode": 0.01, "lay": 0.02, "score": 0.3, "store": 0.1, "inference": 0.29, "total": 0.5}


def p95(value: float, status: ObjectiveStatus = VIOLATED) -> Objective:
    return Objective("p95", status, 1.0, value, None)


def test_a_violation_has_its_duration_its_worst_value_and_the_cause_at_that_time() -> None:
    history = Violations()
    history.follow(p95(1.5), {"queue": 3, "slow_store": 2, "shed": 90}, 100.0)
    history.follow(p95(2.5), {"queue": 3, "slow_store": 7, "shed": 90}, 110.0)
    assert history.follow(p95(1.2), {"queue": 99}, 120.0).violated_since == 100.0
    [lasting] = history.newest_first()
    assert lasting == Violation("p95", 100.0, None, 2.5, "slow_store")
    assert history.follow(p95(0.9, FULFILLED), {}, 130.0).violated_since is None
    [ended] = history.newest_first()
    assert (ended.since, ended.until, ended.worst) == (100.0, 130.0, 2.5)


def test_the_worst_rate_and_availability_are_the_lowest() -> None:
    history = Violations()
    for value in (0.98, 0.90, 0.95):
        history.follow(Objective("availability", VIOLATED, 0.99, value, None), {"failed": 9}, 100.0)
    [one] = history.newest_first()
    assert (one.worst, one.cause) == (0.90, None)


def test_not_knowing_ends_a_violation() -> None:
    history = Violations()
    history.follow(p95(1.5), {}, 100.0)
    history.follow(p95(1.5, ObjectiveStatus.UNKNOWN), {}, 105.0)
    assert [one.until for one in history.newest_first()] == [105.0]


def test_the_history_has_a_limit_and_the_newest_is_first() -> None:
    history = Violations()
    for i in range(2 * MAX_VIOLATIONS):
        history.follow(p95(1.5), {}, 10.0 * i)
        history.follow(p95(0.5, FULFILLED), {}, 10.0 * i + 5)
    history.follow(p95(1.5), {}, 1e6)
    history.follow(Objective("p99", VIOLATED, 2.0, 3.0, None), {}, 1e6 + 1)
    kept = history.newest_first()
    assert [one.objective for one in kept[:2]] == ["p99", "p95"]
    assert len(kept) == MAX_VIOLATIONS + 2
    assert [one.since for one in kept] == sorted((one.since for one in kept), reverse=True)


@pytest.mark.parametrize(
    ("outcome", "seconds", "stages", "cause"),
    [
        (Outcome.SHED, None, {}, Cause.SHED),
        (Outcome.FAILED, None, {}, Cause.FAILED),
        (Outcome.FAILED, 5.0, {}, Cause.DEADLINE),
        (Outcome.SERVED, 0.5, STAGES, Cause.SCORER),
        (Outcome.SERVED, 1.5, STAGES, Cause.QUEUE),
        (Outcome.SERVED, 0.5, {**STAGES, "store": 0.4}, Cause.STORE),
        (Outcome.SERVED, 0.5, {"total": 0.5, "decode": 0.4}, Cause.DECODE),
        (Outcome.SERVED, 0.5, {"weigh": 0.2, "combine": 0.2}, Cause.PIPELINE),
        (Outcome.SERVED, 0.5, {}, None),
    ],
)
def test_the_cause_of_a_slow_push_is_what_took_longest(
    outcome: Outcome, seconds: float | None, stages: dict[str, float], cause: Cause | None
) -> None:
    assert cause_of(outcome, seconds, stages) is cause


def test_stages_are_read_from_the_header_of_the_answer() -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"server-timing", b"decode;dur=1.50, score;dur=300, total;dur="),
    ]
    assert stages_of(headers) == {"decode": 0.0015, "score": 0.3}
    assert stages_of([]) == {}


def test_only_bad_pushes_have_a_cause_and_the_sum_has_those_of_all_processes() -> None:
    service = Service(processes=2)
    for process in service.processes:
        process.count_push(Outcome.SERVED, "shop", 0.1, STAGES)
        process.count_push(Outcome.SERVED, "shop", 3.0, {**STAGES, "store": 2.4})
    service.run(5, push(Outcome.SHED))
    level = service.levels.level()
    assert level.causes == {"slow_store": 2, "shed": 2}
    slot = next(iter(service.processes[0].report().slots.values()), Counter())
    assert all(isinstance(cause, Cause) for cause, _ in of_kind(slot, Count.CAUSE))


def test_the_document_has_durations() -> None:
    level = ServiceLevel(
        window_seconds=3600.0,
        known=1.0,
        reported_at=None,
        objectives=(),
        violations=(Violation("p95", 900.0, None, 2.5, "queue"), Violation("availability", 100.0, 160.0, 0.9, None)),
    )
    document = sla_document(level, now=1000.0)
    assert [(one.seconds, one.unit, one.until is None) for one in document.violations] == [
        (100.0, "s", True),
        (60.0, "ratio", False),
    ]
