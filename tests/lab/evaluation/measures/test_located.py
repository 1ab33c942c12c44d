"""Evaluation of located alerts, by hand. Steps of 15 s; the fault begins at minute 10, ends at 13, recovers at 14."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lab.evaluation.measures.intervals import per_day, share
from lab.evaluation.measures.located import (
    AlertRecord,
    LocatedFault,
    LocatedRun,
    false_pages,
    fault_outcomes,
    is_true,
    located_metrics,
)

STEP = timedelta(seconds=15)
START = datetime(2026, 1, 1, tzinfo=UTC)


def minute(value: float) -> datetime:
    return START + timedelta(minutes=value)


def page(begin: float, *suspects: str, affected: tuple[str, ...] = (), id: str = "") -> AlertRecord:
    return AlertRecord(id or f"{begin}", minute(begin), suspects, frozenset(affected))


FAULT = LocatedFault(
    start=minute(10),
    end=minute(13),
    recovered=minute(14),
    culprit="shop/cart",
    candidates=frozenset({"shop/cart", "shop/web"}),
    affected=frozenset({"shop/cart", "shop/gateway"}),
    kind="grey_edge",
    severity="minor",
    effect=12.0,
)
LATER = replace(
    FAULT,
    start=minute(40),
    end=minute(45),
    recovered=minute(45),
    culprit="bank/ledger",
    candidates=frozenset(),
    affected=frozenset({"bank/ledger"}),
    kind="slow_leak",
    severity="critical",
    effect=300.0,
)


def watch(*pages: AlertRecord, faults: tuple[LocatedFault, ...] = (FAULT, LATER)) -> LocatedRun:
    return LocatedRun(pages, faults, STEP, minute(0), minute(60))


@pytest.mark.parametrize(
    ("given", "true"),
    [
        (page(9.75, "shop/cart"), True),  # one step before: a snapshot covers the interval before it
        (page(9.5, "shop/cart"), False),  # two steps before
        (page(13.5, "shop/cart"), True),  # ended, not recovered
        (page(16, "shop/cart"), True),  # two minutes after it recovered
        (page(16.25, "shop/cart"), False),
        (page(10, "shop/tax", "shop/web"), True),  # a candidate among the suspects
        (page(10, "shop/tax", affected=("shop/gateway",)), True),  # a service that the fault affects is affected
        (page(10, "shop/gateway"), True),  # a service that the fault affects is a suspect
        (page(10, "shop/tax", affected=("shop/web",)), True),
        (page(10, "shop/tax", affected=("shop/stock",)), False),  # in time, but elsewhere
        (page(10), False),  # names no service
    ],
)
def test_a_true_alert_is_in_time_and_in_place(given: AlertRecord, true: bool) -> None:
    assert is_true(given, FAULT, STEP) is true
    assert (false_pages(watch(given)) == ()) is true


def test_the_culprit_counts_if_no_service_was_affected() -> None:
    silent = replace(FAULT, candidates=frozenset(), affected=frozenset())
    assert is_true(page(11, "shop/cart"), silent, STEP)
    assert not is_true(page(11, "shop/gateway"), silent, STEP)


def test_a_worked_example() -> None:
    """Three alerts are true for the first fault, and the first one counts. Two are false. The later fault is missed."""
    metrics = located_metrics(
        [
            watch(
                page(30, "shop/cart"),
                page(12, "shop/cart"),
                page(10.5, "shop/tax", "shop/web"),
                page(13, "shop/cart"),
                page(41, "shop/cart"),
            )
        ]
    )
    assert (metrics.pages, metrics.false_pages) == (5, 2)
    assert metrics.overall.recall.value == 0.5
    assert metrics.overall.delay_seconds == 30.0
    assert (metrics.overall.ranking.top1.value, metrics.overall.ranking.top3.value) == (0.0, 0.0), (
        "web is not the culprit"
    )
    assert metrics.overall.ranking.top1.n == 1, "ranks are counted for matched alerts"
    assert metrics.false_pages_an_hour.value == 2.0
    assert metrics.by_kind["grey_edge"].recall.value == 1.0
    assert metrics.by_kind["slow_leak"].recall.value == 0.0


def test_notices_are_evaluated_separately_and_together_with_alerts() -> None:
    """The first fault has two alerts. The second harms only resources and has one notice. Another notice is false."""
    harmless = replace(LATER, user_effect=2.0)
    harmful = replace(FAULT, user_effect=30.0)
    run = replace(
        watch(page(11, "shop/cart"), page(13, "shop/web"), faults=(harmful, harmless)),
        notices=(page(42, "bank/ledger"), page(20, "shop/cart")),
    )
    alerts, notices, together = (
        located_metrics([evaluated]) for evaluated in (run, run.with_notices_alone(), run.with_notices_as_alerts())
    )
    assert (alerts.overall.recall.value, alerts.pages, alerts.false_pages) == (0.5, 2, 0)
    assert (alerts.resources_only.recall.value, alerts.resources_only.recall.n) == (0.0, 1)
    assert alerts.pages_a_found_fault == 2.0
    assert (notices.overall.recall.value, notices.pages, notices.false_pages) == (0.5, 2, 1)
    assert notices.resources_only.recall.value == 1.0
    assert per_day(notices.false_pages_an_hour).value == 24.0
    assert (together.overall.recall.value, together.pages, together.false_pages) == (1.0, 4, 1)
    assert together.pages_a_found_fault == 1.5


def test_a_notice_that_became_an_alert_counts_once_from_its_first_snapshot() -> None:
    run = replace(watch(page(12, "shop/cart", id="x")), notices=(page(10.5, "shop/cart", id="x"),))
    (record,) = run.with_notices_as_alerts().pages
    assert record.begin == minute(10.5)
    assert located_metrics([run.with_notices_as_alerts()]).pages_a_found_fault == 1.0


def test_no_fault_found_has_no_incidents_per_fault() -> None:
    assert located_metrics([watch(page(30, "shop/cart"))]).pages_a_found_fault is None
    assert not FAULT.harms_resources_only, "a fault whose label lacks its effect on users"


def test_one_alert_may_be_true_for_two_faults() -> None:
    twin = replace(FAULT, kind="error_burst", start=minute(11))
    outcomes = fault_outcomes(watch(page(11, "shop/cart"), faults=(FAULT, twin)))
    assert [o.delay for o in outcomes] == [timedelta(minutes=1), timedelta(0)]


def test_an_alert_a_step_early_is_not_late() -> None:
    (first, _) = fault_outcomes(watch(page(9.8, "shop/tax", "shop/cart")))
    assert (first.delay, first.place) == (timedelta(0), 2)


def test_runs_are_pooled() -> None:
    metrics = located_metrics(
        [watch(page(11, "shop/cart")), watch(page(20, "shop/tax"), page(21, "shop/tax"), faults=(LATER,))]
    )
    assert metrics.overall.recall == share([True, False, False], [1, 2, 2])
    assert metrics.false_pages_an_hour.n == 2.0
    assert metrics.false_pages_an_hour.value == 1.0


def test_bursts_widen_the_interval_of_the_rate() -> None:
    burst = located_metrics([watch(*(page(20 + i / 10, "shop/tax") for i in range(8)))]).false_pages_an_hour
    spread = located_metrics([watch(*(page(7 * i, "shop/tax") for i in range(8)))]).false_pages_an_hour
    assert burst.value == spread.value == 8.0
    assert burst.low is not None
    assert spread.low is not None
    assert burst.low < spread.low
