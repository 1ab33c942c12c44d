"""Pages against located faults: each rule of the matching has a case."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from model.evaluate import Judgement, LocatedFault, Page, judge

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
STEP = timedelta(seconds=15)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def fault(start: float = 10, end: float = 15, recovered: float = 16, **changed: Any) -> LocatedFault:
    values: dict[str, Any] = {"culprit": "shop/cart", "kind": "error_burst", "severity": "major", "sigmas": 9.0}
    values["touched"] = frozenset({"shop/cart", "shop/web"})
    return LocatedFault(at(start), at(end), at(recovered), **{**values, **changed})


def page(minutes: float, *suspects: str, affected: tuple[str, ...] = ()) -> Page:
    return Page(at(minutes), suspects, affected)


def test_a_worked_example() -> None:
    """Two faults in an hour; four pages: one late for the first, a second one of it, a stranger, one too early."""
    faults = [fault(), fault(30, 35, 35, culprit="bank/ledger", touched=frozenset({"bank/ledger"}))]
    pages = [
        page(11, "shop/web", "shop/cart"),
        page(14, "shop/cart"),
        page(31, "news/feed"),
        page(29.5, "bank/ledger"),
    ]
    found = judge(pages, faults, STEP, 1.0)
    assert (found.recall(), found.pages, found.false_pages) == (0.5, 4, 2)
    first, second = found.outcomes
    assert (first.delay_seconds, first.rank) == (60.0, 2)
    assert (second.found, second.rank) == (False, None)
    assert (found.top(1), found.top(3), found.median_delay_seconds()) == (0.0, 1.0, 60.0)


@pytest.mark.parametrize(
    ("minutes", "true"), [(9.74, False), (9.75, True), (10, True), (16, True), (18, True), (18.01, False)]
)
def test_the_time_is_from_a_step_before_to_two_minutes_after_recovery(minutes: float, true: bool) -> None:
    found = judge([page(minutes, "shop/cart")], [fault()], STEP, 1.0)
    assert (found.recall(), found.false_pages) == ((1.0, 0) if true else (0.0, 1))


@pytest.mark.parametrize(
    ("named", "true"),
    [
        (page(11, "shop/web"), True),
        (page(11, "news/feed", affected=("shop/web",)), True),
        (page(11, "news/feed", affected=("news/feed",)), False),
        (page(11), False),
    ],
)
def test_a_page_must_name_what_the_fault_touched(named: Page, true: bool) -> None:
    assert judge([named], [fault()], STEP, 1.0).false_pages == (0 if true else 1)


def test_a_page_that_comes_a_step_early_has_no_negative_delay() -> None:
    assert judge([page(9.8, "shop/cart")], [fault()], STEP, 1.0).outcomes[0].delay_seconds == 0.0


def test_several_runs_add_up_and_nothing_is_no_number() -> None:
    one = judge([page(11, "shop/cart")], [fault()], STEP, 1.0)
    other = judge([page(11, "news/feed")], [fault(severity="minor")], STEP, 3.0)
    both = one + other
    assert (both.recall(), both.false_pages_per_hour, both.hours) == (0.5, 0.25, 4.0)
    assert both.recall(lambda f: f.severity == "minor") == 0.0
    assert math.isnan(both.recall(lambda f: f.kind == "misroute"))
    assert math.isnan(judge([], [], STEP, 1.0).recall())


def test_faults_of_one_culprit_and_kind_count_as_one_in_the_interval() -> None:
    hit, miss = judge([page(11, "shop/cart")], [fault()], STEP, 1.0), judge([], [fault()], STEP, 1.0)

    def of(names: list[str]) -> Judgement:
        total = Judgement((), 0, 0, 1.0)
        for i, name in enumerate(names):
            part = judge([page(11, "shop/cart")] if i % 2 else [], [fault(culprit=name)], STEP, 1.0)
            total += part
        return total

    assert (hit + miss).recall() == 0.5
    low, high = of([f"shop/{i}" for i in range(40)]).recall_interval()
    assert 0.25 < low < 0.5 < high < 0.75
    clustered = of([f"shop/{i // 10}" if i % 2 else f"bank/{i // 10}" for i in range(40)]).recall_interval()
    assert clustered[1] - clustered[0] > 1.5 * (high - low)
