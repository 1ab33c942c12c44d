"""The service level: quantiles, counts of each process, and their sum against the targets."""

import copy
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.api.schemas.sla import sla_document
from serve_app.deployments.sla import counts, levels
from serve_app.deployments.sla.counts import Outcome, RequestCounts, outcome_of
from serve_app.deployments.sla.durations import ERROR, MAX_SECONDS, MIN_SECONDS, bin_of, count_longer, quantile
from serve_app.deployments.sla.levels import ServiceLevels
from serve_app.metrics import Objective, ObjectiveStatus, ServiceLevel
from serve_app.settings import SlaSettings
from tests.builders import Clock

FULFILLED, VIOLATED, UNKNOWN = ObjectiveStatus.FULFILLED, ObjectiveStatus.VIOLATED, ObjectiveStatus.UNKNOWN
WINDOW = 600.0
SLOT = WINDOW / counts.SLOTS
BEGAN = 100_000.0 + SLOT / 2  # in the middle of a slot
DURATIONS = st.floats(MIN_SECONDS, MAX_SECONDS)


@pytest.fixture(autouse=True)
def short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window of the tests has ten minutes."""
    for module in (counts, levels):
        monkeypatch.setattr(module, "SLOT_SECONDS", SLOT)
    monkeypatch.setattr(levels, "WINDOW_SECONDS", WINDOW)


class Service:
    """Processes that count, and the session that adds up."""

    def __init__(self, processes: int = 1, clock: Clock | None = None, **targets: float) -> None:
        self.clock = clock or Clock(BEGAN)
        self.settings = SlaSettings(**targets)
        self.processes = [RequestCounts(self.settings, f"p{i}", self.clock) for i in range(processes)]
        self.levels = ServiceLevels(self.settings, self.clock)

    def report(self) -> None:
        """Every process reports."""
        for process in self.processes:
            report = copy.deepcopy(process.report())  # as if it came from another process
            self.levels.take(report)

    def run(
        self, seconds: float, each: Callable[[RequestCounts], None] = lambda _: None, *, is_up: bool = True
    ) -> None:
        """Let time pass: ``each`` is called for every process after each interval between two reports."""
        for _ in range(round(seconds / counts.REPORT_SECONDS)):
            self.clock.now += counts.REPORT_SECONDS
            for process in self.processes:
                each(process)
                process.count_time(counts.REPORT_SECONDS, is_up=is_up)
            self.report()

    def objective(self, name: str) -> Objective:
        """One objective now."""
        return next(one for one in self.levels.level().objectives if one.name == name)


def push(
    outcome: Outcome = Outcome.SERVED, seconds: float | None = 0.1, times: int = 1
) -> Callable[[RequestCounts], None]:
    """Count pushes of the mesh shop."""

    def count(process: RequestCounts) -> None:
        for _ in range(times):
            process.count_push(outcome, "shop", seconds if outcome is Outcome.SERVED else None)

    return count


# Quantiles.


@settings(deadline=None)
@given(st.lists(DURATIONS, min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_quantile_is_never_too_low_and_at_most_the_stated_error_too_high(values: list[float], share: float) -> None:
    exact = sorted(values)[math.ceil(share * len(values) - 1e-9) - 1]
    found = quantile(Counter(map(bin_of, values)), share)
    assert found is not None
    assert exact * (1 - 1e-9) <= found <= exact * (1 + ERROR) * (1 + 1e-9)


@settings(deadline=None)
@given(st.lists(DURATIONS), DURATIONS)
def test_the_quantile_misses_a_target_exactly_if_more_than_the_rest_is_longer(
    values: list[float], target: float
) -> None:
    bins = Counter(map(bin_of, values))
    found = quantile(bins, 0.95)
    assert (found is not None and found > target) == (count_longer(bins, target) > 0.05 * len(values) + 1e-9)


def test_durations_outside_the_scale_are_in_its_first_and_last_bin() -> None:
    assert quantile({bin_of(0.0): 1}, 0.5) == MIN_SECONDS
    assert quantile({bin_of(1e9): 1}, 0.5) == pytest.approx(MAX_SECONDS)
    assert quantile({}, 0.5) is None


# Counting.


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [
        ((200, 204, 304), "served"),
        ((400, 404, 408, 409, 422), "client"),
        ((429,), "shed"),
        ((500, 503, 504, 507), "failed"),
    ],
)
def test_each_status_has_one_outcome(statuses: tuple[int, ...], outcome: str) -> None:
    assert {outcome_of(status) for status in statuses} == {outcome}


def test_what_a_process_keeps_has_a_limit() -> None:
    clock = Clock(BEGAN)
    process = RequestCounts(SlaSettings(), clock=clock)
    for i in range(5 * counts.SLOTS):
        clock.now += SLOT
        for mesh in (f"m{j}" for j in range(i % 100)):
            process.count_push(Outcome.FAILED, mesh, None)
        process.count_push(Outcome.SHED, "Not/A mesh\n", None)
    report = process.report()
    assert len(report.slots) == counts.SLOTS
    meshes = [[detail for name, detail in slot if name == counts.Count.MESH] for slot in report.slots.values()]
    assert max(map(len, meshes)) == counts.MAX_MESHES + 1
    assert all(counts.OTHERS in names for names in meshes)
    assert sum(sum(slot[counts.Count.PUSH, outcome] for outcome in Outcome) for slot in report.slots.values()) == sum(
        i % 100 + 1 for i in range(4 * counts.SLOTS, 5 * counts.SLOTS)
    )


@pytest.mark.parametrize("length", [2.5, 6.48, 30.0])
def test_time_is_divided_among_the_slots_that_it_covers(length: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "SLOT_SECONDS", length)
    clock = Clock(BEGAN)
    process = RequestCounts(SlaSettings(), clock=clock)
    process.count_time(10.0, is_up=True)
    slots = process.report().slots
    assert sum(slot.total() for slot in slots.values()) == pytest.approx(10_000, abs=len(slots))
    assert all(slot.total() <= 1000 * length + 1 for slot in slots.values())


# The sum.


def level_of(service: Service) -> ServiceLevel:
    return service.levels.level()


def timeless(level: ServiceLevel) -> ServiceLevel:
    """The level of the window alone: without the time of the newest report, and without what was before."""
    return replace(level, reported_at=None, violations=())


def test_the_sum_of_several_processes_is_the_one_of_a_single_process_with_all_requests() -> None:
    service, rng = Service(processes=3), random.Random(1)
    alone = Service(clock=service.clock)

    def both(process: RequestCounts) -> None:
        for _ in range(5):
            seconds, mesh = rng.lognormvariate(-2, 1.5), f"m{rng.randrange(5)}"
            outcome = rng.choice(list(Outcome))
            for one in (process, alone.processes[0]):
                one.count_push(outcome, mesh, seconds if outcome is Outcome.SERVED else None)

    for _ in range(100):
        service.run(5, both)
        alone.report()
    one, other = level_of(service), level_of(alone)
    assert one.pushes == other.pushes
    assert one.requests == other.requests
    assert one.meshes == other.meshes
    for name in ("p95", "p99", "error_rate"):
        assert service.objective(name).current == alone.objective(name).current


def test_repeated_reports_change_nothing() -> None:
    service = Service(processes=2)
    service.run(60, push())
    before = timeless(level_of(service))
    for process in service.processes:
        whole = process.report()
        for _ in range(3):
            service.levels.take(copy.deepcopy(whole))
    assert timeless(level_of(service)) == before


def test_a_window_that_slid_is_as_if_it_had_begun_there() -> None:
    service = Service(processes=2)
    for i in range(400):
        service.run(5, push(Outcome.FAILED if i % 200 == 0 else Outcome.SERVED, 0.01 * (1 + i % 13)))
    fresh = ServiceLevels(service.settings, service.clock)
    for process in service.processes:
        fresh.take(process.report())
    assert timeless(fresh.level()) == timeless(level_of(service))
    assert all(len(slots) <= counts.SLOTS for slots in service.levels._processes.values())
    service.clock.now += 2 * WINDOW
    assert level_of(service).pushes == {}
    assert not service.levels._processes
    assert not service.levels._shifts


def test_clocks_of_processes_need_not_agree() -> None:
    service = Service(processes=3)
    for i, process in enumerate(service.processes):
        process.clock = lambda off=1e6 * (i - 1): service.clock.now + off  # type: ignore[misc]
    service.run(2 * WINDOW, push())
    assert level_of(service).pushes == {"served": 3 * round(WINDOW / counts.REPORT_SECONDS)}
    assert level_of(service).status is FULFILLED


def test_another_session_takes_over_with_the_next_reports() -> None:
    service = Service(processes=2)
    service.run(WINDOW, push())
    before = level_of(service)
    assert before.status is FULFILLED
    service.levels = ServiceLevels(service.settings, service.clock)
    assert level_of(service).status is UNKNOWN
    assert level_of(service).reported_at is None
    service.run(counts.REPORT_SECONDS)
    assert level_of(service).status is FULFILLED
    assert level_of(service).known == pytest.approx(before.known, abs=0.02)


# Against the targets.


def test_nothing_is_fulfilled_before_most_of_the_window_is_known() -> None:
    service = Service()
    assert level_of(service).status is UNKNOWN
    service.run(0.85 * WINDOW, push())
    assert {one.status for one in level_of(service).objectives if one.name != "requests_per_second"} == {UNKNOWN}
    service.run(0.15 * WINDOW, push())
    assert {one.status for one in level_of(service).objectives if one.name != "requests_per_second"} == {FULFILLED}
    assert level_of(service).status is FULFILLED


def test_without_reports_the_knowledge_runs_out() -> None:
    service = Service()
    service.run(WINDOW, push())
    assert level_of(service).status is FULFILLED
    service.clock.now += 0.2 * WINDOW  # every process ended
    assert level_of(service).status is UNKNOWN


def test_a_process_too_busy_to_report_leaves_a_gap() -> None:
    service = Service()
    service.run(0.5 * WINDOW, push())
    service.clock.now += 0.2 * WINDOW
    service.run(0.4 * WINDOW, push())
    assert level_of(service).known == pytest.approx(0.8, abs=0.02)
    assert service.objective("p99").status is UNKNOWN
    assert service.objective("availability").status is UNKNOWN


def test_without_pushes_only_the_availability_is_known() -> None:
    service = Service()
    service.run(WINDOW)
    statuses = {one.name: one.status for one in level_of(service).objectives}
    assert statuses.pop("availability") is FULFILLED
    assert statuses.pop("requests_per_second") is ObjectiveStatus.NO_TARGET
    assert set(statuses.values()) == {UNKNOWN}
    assert level_of(service).status is UNKNOWN


def test_slow_pushes_spend_the_budget_and_then_violate_the_target_since_then(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(p95_seconds=1.0, p99_seconds=2.0)
    monkeypatch.setattr(levels, "time", SimpleNamespace(time=service.clock))
    service.run(WINDOW, push(times=10))
    push(seconds=1.5, times=30)(service.processes[0])
    service.run(5, push(times=10))
    pushes = level_of(service).pushes["served"]
    p95, p99 = service.objective("p95"), service.objective("p99")
    assert (p95.status, p99.status) == (FULFILLED, FULFILLED)
    assert p95.budget_left == pytest.approx(1 - 30 / pushes / 0.05)
    assert p99.budget_left == 1.0
    assert p99.current == pytest.approx(1.5, rel=ERROR)
    push(seconds=3.0, times=40)(service.processes[0])
    service.run(5, push(times=10))
    began = service.clock.now
    service.run(20, push(times=10))
    p99 = service.objective("p99")
    assert p99.status is VIOLATED
    assert p99.budget_left is not None
    assert p99.budget_left < 0
    assert p99.violated_since == began
    assert level_of(service).meshes == {"shop": 70}
    service.run(WINDOW, push(times=10))
    assert service.objective("p99").violated_since is None
    assert level_of(service).status is FULFILLED


def test_a_violation_is_reported_before_the_whole_window_is_known() -> None:
    service = Service()
    service.run(60, push(seconds=4.0))
    assert level_of(service).known == pytest.approx(0.1, abs=0.02)
    assert service.objective("p95").status is VIOLATED
    assert level_of(service).status is VIOLATED


def test_bad_seconds_after_a_restart_are_no_violation_while_the_budget_of_the_window_lasts() -> None:
    service = Service(availability=0.9, error_rate=0.1)
    service.run(20, push(Outcome.FAILED), is_up=False)
    service.run(15, push())
    for name in ("availability", "error_rate"):
        found = service.objective(name)
        assert found.status is UNKNOWN, name
        assert found.current == pytest.approx(15 / 35 if name == "availability" else 4 / 7), name
        assert found.budget_left is not None
        assert 0 < found.budget_left < 1, name
    service.run(60, push(Outcome.FAILED), is_up=False)
    assert {service.objective(name).status for name in ("availability", "error_rate")} == {VIOLATED}


def test_one_slow_push_of_few_is_neither_a_violation_nor_fulfilled() -> None:
    service = Service()
    push(seconds=4.0)(service.processes[0])
    push()(service.processes[0])
    service.run(WINDOW - 30)
    assert service.objective("p99").status is UNKNOWN


def test_failures_count_and_errors_of_clients_do_not() -> None:
    service = Service(error_rate=0.01)

    def requests(process: RequestCounts) -> None:
        push(times=10)(process)
        for outcome in (Outcome.CLIENT, Outcome.ABANDONED, Outcome.SHED):
            push(outcome, times=50)(process)
            process.count_request(outcome)

    service.run(WINDOW, requests)
    rate = service.objective("error_rate")
    assert (rate.status, rate.current, rate.budget_left) == (FULFILLED, 0.0, 1.0)
    push(Outcome.FAILED, times=20)(service.processes[0])
    service.run(5)
    rate = service.objective("error_rate")
    assert rate.status is VIOLATED
    assert rate.current == pytest.approx(20 / (20 + level_of(service).requests["served"]))


def test_refusals_violate_the_rate_only_below_it() -> None:
    service = Service(requests_per_second=2.0)

    def push_beyond_the_target(process: RequestCounts) -> None:
        push(times=12)(process)
        push(Outcome.SHED, times=100)(process)

    service.run(WINDOW, push_beyond_the_target)  # 2.4 pushes per second were served
    assert service.objective("requests_per_second").status is FULFILLED
    assert service.objective("requests_per_second").current == pytest.approx(2.4, rel=0.02)

    def push_below_the_target(process: RequestCounts) -> None:
        push(times=5)(process)
        push(Outcome.SHED, times=3)(process)

    service.run(30, push_below_the_target)
    assert service.objective("requests_per_second").status is VIOLATED
    assert service.objective("error_rate").status is FULFILLED


def test_time_in_which_the_service_is_not_ready_counts_against_the_availability() -> None:
    service = Service(availability=0.99, processes=2)
    service.run(WINDOW - 10)
    service.run(5, is_up=False)
    assert service.objective("availability").status is FULFILLED
    assert service.objective("availability").budget_left == pytest.approx(1 - 5 / (0.01 * WINDOW), abs=0.03)
    service.run(5, is_up=False)
    assert service.objective("availability").status is VIOLATED
    assert service.objective("availability").current == pytest.approx(1 - 10 / WINDOW, abs=0.001)


@pytest.mark.parametrize(
    ("name", "none"),
    [
        ("p95_seconds", math.inf),
        ("p99_seconds", math.inf),
        ("requests_per_second", 0.0),
        ("error_rate", 1.0),
        ("availability", 0.0),
    ],
)
def test_a_target_can_be_left_out(name: str, none: float) -> None:
    service = Service(1, None, **{name: none})
    service.run(WINDOW, push(seconds=4.0, times=3), is_up=False)
    service.run(5, push(Outcome.FAILED, times=200), is_up=False)
    document: dict[str, Any] = sla_document(level_of(service)).model_dump(mode="json")
    [found] = [one for one in document["objectives"] if one["name"] == name.removesuffix("_seconds")]
    assert (found["status"], found["target"], found["budget_left"]) == ("no_target", None, None)
    assert found["current"] is not None
