"""What incidents use of error budgets: counted once for each snapshot, from the first evidence on."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from model.incidents.harm import add_severity
from model.incidents.memory import IncidentMemory
from model.incidents.objectives import MAX_SECONDS, add_error_budgets, slow_share
from model.snapshot import MeshSnapshot, NodeMetric
from model.verdict import ErrorBudget, Objective, Severity, Verdict
from tests.builders import START, incident, mesh_of, open_incident, verdict

STEP = timedelta(seconds=15)
FRONT, OTHER = "shop/front", "shop/cart"
AVAILABILITY = Objective(FRONT, 0.999)
LATENCY = Objective(FRONT, 0.99, latency_seconds=0.3)


def snapshot(i: int, *, failing: float = 0.0, slow: bool = False, rate: float = 100.0) -> MeshSnapshot:
    """Return a snapshot of a front door and a service behind it."""
    features = np.zeros((2, len(NodeMetric)), np.float32)
    features[0, [NodeMetric.REQUEST_RATE, NodeMetric.ERROR_RATE]] = rate, failing
    features[0, [NodeMetric.P50_LATENCY, NodeMetric.P99_LATENCY]] = (0.6, 0.6) if slow else (0.05, 0.1)
    return mesh_of((FRONT, OTHER), {(FRONT, OTHER): rate}, START + i * STEP, features)


def listed_at(window: list[MeshSnapshot], members: tuple[str, ...] = (FRONT,), **fields: Any) -> Verdict:
    """Return a verdict about the newest snapshot, on an incident whose first evidence is at 10."""
    return verdict(incident(*members, since=START + 10 * STEP, **fields), observed_at=window[-1].observed_at)


def memory_of(members: tuple[str, ...] = (FRONT,)) -> IncidentMemory:
    return IncidentMemory(open=(open_incident(*members, id="a", since=START + 10 * STEP),))


def follow(
    window: list[MeshSnapshot],
    opened: int,
    *objectives: Objective,
    members: tuple[str, ...] = (FRONT,),
    keep: int = 10**6,
) -> list[tuple[ErrorBudget, ...]]:
    """Return the budgets after each snapshot from ``opened`` on, with ``keep`` snapshots known at a time."""
    memory, found = memory_of(members), []
    for i in range(opened, len(window)):
        kept = window[max(i + 1 - keep, 0) : i + 1]
        after, memory = add_error_budgets(listed_at(kept, members), memory, kept, objectives)
        found.append(after.incidents[0].error_budgets)
    return found


def test_failed_requests_use_the_budget_of_availability() -> None:
    """40 snapshots with 100 requests/s, of which half fail: 30,000 of the 259,200 that 0.1% of 30 days are."""
    window = [snapshot(i, failing=0.5 if i >= 10 else 0.0) for i in range(50)]
    found = follow(window, 12, AVAILABILITY)
    (budget,) = found[-1]
    assert budget.bad_requests == pytest.approx(40 * 15 * 50)
    assert budget.used == pytest.approx(40 * 15 * 50 / (0.001 * 100 * 30 * 86_400))
    assert [one[0].used for one in found] == sorted(one[0].used for one in found)


def test_what_was_before_the_alert_counts_and_nothing_counts_twice() -> None:
    window = [snapshot(i, failing=0.5 if i >= 10 else 0.0) for i in range(30)]
    late, early = follow(window, 20, AVAILABILITY)[-1], follow(window, 10, AVAILABILITY)[-1]
    assert late[0].bad_requests == pytest.approx(early[0].bad_requests)


def test_a_window_that_moves_on_changes_no_counter() -> None:
    """An incident may last longer than the snapshots that are kept."""
    window = [snapshot(i, failing=0.5 if i >= 10 else 0.0) for i in range(60)]
    (budget,) = follow(window, 12, AVAILABILITY, keep=15)[-1]
    assert budget.bad_requests == pytest.approx(50 * 15 * 50)
    assert budget.used == pytest.approx(50 * 15 * 50 / (0.001 * 100 * 30 * 86_400))


def test_a_front_door_that_leaves_its_incident_keeps_what_was_used() -> None:
    """It fails 4%, is normal and no member for an hour, and fails again in the same incident."""
    fails = [*range(10, 40), *range(280, 290)]
    window = [snapshot(i, failing=0.04 if i in fails else 0.0, rate=1.0 if i >= 280 else 100.0) for i in range(290)]
    memory, used = memory_of(), []
    for i in range(12, len(window)):
        members = (FRONT, OTHER) if i in fails else (OTHER,)
        kept = window[max(i + 1 - 120, 0) : i + 1]
        memory = replace(memory, open=(replace(memory.open[0], members=members),))
        after, memory = add_error_budgets(listed_at(kept, members), memory, kept, [AVAILABILITY])
        (budget,) = after.incidents[0].error_budgets
        used.append(budget.used)
    assert used == sorted(used)
    assert used[-1] == pytest.approx(15 * 0.04 * (30 * 100 + 10 * 1) / (0.001 * 100 * 30 * 86_400))


def test_usual_traffic_is_not_that_of_a_front_door_which_already_fails() -> None:
    """It joins an incident that began before the kept snapshots, when it has lost nearly all of its requests."""
    window = [snapshot(i, failing=0.5 if i >= 300 else 0.0, rate=1.0 if i >= 300 else 100.0) for i in range(303)]
    (budget,) = follow(window, 302, AVAILABILITY, keep=120)[-1]
    assert budget.used == pytest.approx(3 * 15 * 0.5 / (0.001 * 97.5 * 30 * 86_400), rel=0.01)


def test_slow_requests_use_the_budget_of_latency() -> None:
    window = [snapshot(i, slow=i >= 10) for i in range(30)]
    (budget,) = follow(window, 12, LATENCY)[-1]
    assert budget.used == pytest.approx(20 * 15 * 100 / (0.01 * 100 * 30 * 86_400))
    assert budget.objective.kind == "latency"


def test_the_most_used_budget_comes_first() -> None:
    window = [snapshot(i, slow=i >= 10, failing=0.5 if i >= 10 else 0.0) for i in range(30)]
    assert [one.objective for one in follow(window, 12, LATENCY, AVAILABILITY)[-1]] == [AVAILABILITY, LATENCY]


def test_an_incident_elsewhere_uses_nothing() -> None:
    window = [snapshot(i, failing=0.5 if i >= 10 else 0.0) for i in range(30)]
    assert follow(window, 12, AVAILABILITY, members=(OTHER,))[-1] == ()
    assert follow(window, 12, Objective("shop/gone", 0.999), members=("shop/gone",))[-1] == ()


def test_a_gap_without_snapshots_counts_at_most_two_minutes() -> None:
    window = [*(snapshot(i) for i in range(10)), snapshot(10, failing=0.5), snapshot(400, failing=0.5)]
    (budget,) = follow(window, 10, AVAILABILITY)[-1]
    assert budget.bad_requests == pytest.approx(50 * (15 + MAX_SECONDS))


@pytest.mark.parametrize(
    ("median", "high", "limit", "share"),
    [
        (0.1, 0.3, 0.1, 0.5),
        (0.1, 0.3, 0.3, 0.01),
        (0.1, 0.1, 0.2, 0.0),
        (0.4, 0.4, 0.2, 1.0),
        (None, 0.3, 0.2, 0.0),
        (0.1, None, 0.2, 0.0),
        (0.0, 0.3, 0.2, 0.0),
        (0.1, 0.3, 0.0, 1.0),
    ],
)
def test_slow_requests_are_read_from_two_percentiles(
    median: float | None, high: float | None, limit: float, share: float
) -> None:
    assert slow_share(median, high, limit) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(
    ("failing", "snapshots", "expected"),
    [
        (0.01, 60, Severity.MINOR),
        (0.04, 60, Severity.MINOR),
        (0.04, 160, Severity.MAJOR),
        (0.04, 400, Severity.CRITICAL),
    ],
)
def test_a_large_part_of_an_error_budget_is_severe(failing: float, snapshots: int, expected: Severity) -> None:
    """4% of the requests fail, which alone is minor: an hour of it uses 5.6% of a budget of 0.1% in 30 days."""
    window = [snapshot(i, failing=failing if i >= 10 else 0.0) for i in range(10 + snapshots)]
    after, memory = add_error_budgets(listed_at(window, severity=Severity.MINOR), memory_of(), window, [AVAILABILITY])
    after, memory = add_severity(after, memory, window, 0.02, ())
    assert (after.incidents[0].severity, memory.open[0].severity) == (expected, expected)
