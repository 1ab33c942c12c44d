"""Trends of open incidents: worsening, steady or easing, from the strongest reason over the last snapshots."""

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pytest

from model.incidents.trend import MAX, MIN, add_trends
from model.snapshot import MeshSnapshot, NodeMetric
from model.verdict import (
    DROPPED,
    VANISHED,
    IncidentTrend,
    LimitForecast,
    Reason,
    Suspect,
)
from tests.builders import START, incident, reason, verdict

STEP = timedelta(seconds=15)
CART, WEB = "shop/cart", "shop/web"
SLOW = reason("p99_latency", 0.9, 0.1)
CALM = [0.1] * 5  # snapshots before the incident


def snapshot(i: int, value: float | None, names: Sequence[str] = (WEB, CART)) -> MeshSnapshot:
    """Return a snapshot in which the p99 latency of the cart and of its calls, and their rate, have a value."""
    features = np.full((len(names), len(NodeMetric)), np.nan, np.float32)
    calls = np.zeros((0, 4), np.float32)
    if CART in names:
        if value is not None:
            features[names.index(CART), [NodeMetric.P99_LATENCY, NodeMetric.REQUEST_RATE]] = value
        calls = np.array([[value or 0.0, 0, 0.01, np.nan if value is None else value]], np.float32)
    return MeshSnapshot.create(
        node_ids=names,
        edge_index=np.array([[names.index(WEB)], [names.index(CART)]]) if len(calls) else np.zeros((2, 0)),
        node_features=features,
        edge_features=calls,
        observed_at=START + i * STEP,
    )


def trend_of(values: Sequence[float | None], *reasons: Reason, **more: object) -> IncidentTrend | None:
    """Return the trend of an incident that begins with the sixth of these values."""
    return trend_in([snapshot(i, value) for i, value in enumerate(values)], *reasons, **more)


def trend_in(window: Sequence[MeshSnapshot], *reasons: Reason, **more: object) -> IncidentTrend | None:
    suspects = (Suspect(CART, 0.9, reasons or (SLOW,)),)
    listed = incident(CART, **{"since": START + len(CALM) * STEP, "suspects": suspects, **more})
    return add_trends(verdict(listed, observed_at=window[-1].observed_at), window).incidents[0].trend


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([0.9] * 12, "steady"),
        ([0.9, 1.0] * 6, "steady"),
        ([0.3 + 0.1 * i for i in range(12)], "worsening"),
        ([1.4 - 0.1 * i for i in range(12)], "easing"),
        ([0.9] * 11 + [9.0], "steady"),  # a single snapshot says nothing
        ([0.9] * 9 + [0.1] * 3, "easing"),
        ([0.3] * 30 + [0.9] * 12, "steady"),  # only the last minutes count
        ([0.05] * 12, "steady"),  # better than expected, all the time
        ([0.9] * MIN, "steady"),
        ([0.9] * (MIN - 1), None),
        ([0.9, None] * (MIN - 1), None),
        ([0.9, None] * 20, None),  # of the last snapshots, too few have the metric
        ([0.9, 0.9, None] * 4, "steady"),
    ],
)
def test_the_excess_of_the_strongest_reason_decides(values: list[float | None], trend: str | None) -> None:
    assert trend_of(CALM + values) == trend
    assert trend_of(CALM + values, reason("p99_latency", 0.9, 0.1, source=WEB)) == trend


def test_what_falls_below_the_expected_value_gets_worse_as_it_falls() -> None:
    calls = reason(DROPPED, 2.0, 90.0, source=WEB)
    falling = [80.0 - 6 * i for i in range(12)]
    assert trend_of(CALM + falling, calls) is IncidentTrend.WORSENING
    assert trend_of(CALM + falling[::-1], calls) is IncidentTrend.EASING
    assert trend_of(CALM + falling, reason("request_rate", 2.0, 90.0)) is IncidentTrend.WORSENING


def test_the_first_reason_that_snapshots_measure_decides() -> None:
    own_time = reason("own_time", 0.9, 0.1)
    rising = [0.3 + 0.1 * i for i in range(12)]
    assert trend_of(CALM + rising, own_time, SLOW) is IncidentTrend.WORSENING
    assert trend_of(CALM + rising, own_time) is None


def test_a_service_that_is_gone_stays_gone() -> None:
    window = [snapshot(i, 50.0) for i in range(5)] + [snapshot(i, None, (WEB,)) for i in range(5, 17)]
    assert trend_in(window, reason(VANISHED, 0.0, 50.0)) is IncidentTrend.STEADY
    assert trend_in(window, reason(DROPPED, 0.0, 50.0, source=WEB)) is IncidentTrend.STEADY
    assert trend_in(window, SLOW) is None


def test_the_rows_of_a_service_may_move() -> None:
    window = [snapshot(i, 0.1) for i in range(5)]
    window += [snapshot(i, 0.3 + 0.1 * i, (CART, WEB) if i % 2 else (WEB, "shop/new", CART)) for i in range(5, 17)]
    assert trend_in(window) is IncidentTrend.WORSENING
    assert trend_in(window, reason("p99_latency", 0.9, 0.1, source=WEB)) is IncidentTrend.WORSENING


def test_a_resource_that_rises_steadily_to_its_limit_gets_worse() -> None:
    leak = reason("memory_utilization", 0.9, 0.1, forecast=LimitForecast(600.0, 300.0, 900.0))
    window = [snapshot(i, 0.9) for i in range(17)]
    for one in window:
        assert not one.node_observed[:, NodeMetric.MEMORY_UTILIZATION].any()
    assert trend_in(window, leak) is None
    slow_leak = reason("p99_latency", 0.9, 0.1, forecast=LimitForecast(600.0, 300.0, 900.0))
    assert trend_in(window, slow_leak) is IncidentTrend.WORSENING


def test_a_recovering_incident_has_no_trend() -> None:
    assert trend_of(CALM + [0.9] * MAX, recovering=True) is None
    assert trend_of(CALM + [0.9] * MAX, suspects=()) is None


def test_an_incident_of_traffic_follows_the_requests_of_its_scope() -> None:
    rate = reason("request_rate", 20.0, 90.0)
    falling = [80.0 - 6 * i for i in range(12)]
    assert trend_of(CALM + falling, rate, scope="*", affected=(CART,)) is IncidentTrend.WORSENING
