"""The texts that a person on call reads."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from model.evidence.explanations import CALLS, OWN, SERIES
from model.features import EDGE_CHANNELS, NODE_CHANNELS
from model.snapshot import PlannedChange, SignalKind
from model.verdict import LimitForecast, NearbyChange, Reason
from serve_app.api.reason_text import (
    change_text,
    forecast_text,
    reads_as_expected,
    reason_text,
    shortage_text,
)
from serve_app.api.wording import wording

NOW = datetime(2026, 3, 1, 3, 14, tzinfo=UTC)
SUSPECT = "shop/cart"


def _reason(metric: str, observed: float, expected: float, **more: Any) -> Reason:
    return Reason(metric=metric, observed=observed, expected=expected, **{"since": NOW - timedelta(minutes=2), **more})


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (_reason("p99_latency", 1.2, 0.08), "p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC"),
        (_reason("p50_latency", 0.45, 0.005), "p50 latency 450 ms, expected 5 ms, since 03:12 UTC"),
        (_reason("p50_latency", 2.0, 0.0004), "p50 latency 2 s, expected below 0.01 s, since 03:12 UTC"),
        (_reason("p50_latency", 0.00996, 0.0012), "p50 latency 10 ms, expected 1.2 ms, since 03:12 UTC"),
        (
            _reason("own_time", 0.00918, 0.00255),
            "self time (excluding downstream calls) 9.2 ms, expected 2.6 ms, since 03:12 UTC",
        ),
        (_reason("cpu_per_request", 0.004, 0.0007), "CPU time per request 4 ms, expected 0.7 ms, since 03:12 UTC"),
        (_reason("error_rate", 0.125, 0.0004), "error rate 12%, expected below 0.1%, since 03:12 UTC"),
        (_reason("error_rate", 0.0964, 0.0), "error rate 9.6%, expected 0%, since 03:12 UTC"),
        (_reason("request_rate", 0.0, 1234.5), "requests fell to 0/s, expected 1,234/s, since 03:12 UTC"),
        (_reason("request_rate", 94.4, 5.03), "requests rose to 94/s, expected 5/s, since 03:12 UTC"),
        (
            _reason("p99_latency", 1.2, 0.08, load=1.12),
            "p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC, while its requests rose by 12%",
        ),
        (
            _reason("error_rate", 0.3, 0.01, load=0.4),
            "error rate 30%, expected 1%, since 03:12 UTC, while its requests fell by 60%",
        ),
        (
            _reason("cpu_utilization", 0.95, 0.3, load=4.2),
            "CPU utilization 95%, expected 30%, since 03:12 UTC, while its requests rose to 4.2 times the usual",
        ),
        (_reason("request_rate", 94.4, 5.03, load=18.8), "requests rose to 94/s, expected 5/s, since 03:12 UTC"),
        (_reason("p99_latency", 1.2, 0.08, load=1.04), "p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC"),
        (_reason("p99_latency", 1.2, 0.08, since=NOW), "p99 latency 1.2 s, expected 0.08 s"),
        (_reason("active_connections", 40, 12), "active connections 40, expected 12, since 03:12 UTC"),
        (_reason("memory_utilization", 0.2, 0.5), "memory utilization fell to 20%, expected 50%, since 03:12 UTC"),
        (
            _reason("p99_latency", 1.2, 0.08, source="shop/web"),
            "p99 latency 1.2 s, expected 0.08 s, since 03:12 UTC, in calls shop/web -> shop/cart",
        ),
        (
            _reason("memory_utilization", 0.62, 0.4, forecast=LimitForecast(2400.0, 1500.0, 4200.0)),
            "memory of shop/cart reaches its limit in 40 minutes (25 to 70); 62%, expected 40%, since 03:12 UTC",
        ),
        (_reason("cpu_throttling", 0.6, 0.05), "throttled in 60% of CPU periods, usually 5%, since 03:12 UTC"),
        (_reason("oom_kills", 2.0, 0.0), "2 containers killed for memory, since 03:12 UTC"),
        (_reason("restarts", 1.0, 0.0), "1 container restarted, since 03:12 UTC"),
        (_reason("disk_pressure", 0.97, float("nan")), "97% of the disk space in use, since 03:12 UTC"),
        (_reason("pending_pods", 3.0, 1.0), "3 pods do not start, usually 1, since 03:12 UTC"),
        (_reason("queue_depth", 5200.0, 40.0), "5,200 messages wait, usually 40, since 03:12 UTC"),
        (_reason("cancelled", 0.12, 0.01), "callers gave up on 12% of the requests, usually 1%, since 03:12 UTC"),
        (_reason("vanished", 0.0, 40), "disappeared: no requests, expected 40/s, since 03:12 UTC"),
        (
            _reason("new_calls", 35, 0, source="shop/web"),
            "new calls shop/web -> shop/cart, 35/s, since 03:12 UTC",
        ),
        (
            _reason("moved_calls", 35, 0, destination="shop/old"),
            "new calls shop/cart -> shop/old, 35/s, since 03:12 UTC",
        ),
        (
            _reason("lost_calls", 15, 50, source="shop/web"),
            "calls shop/web -> shop/cart fell to 15/s, expected 50/s, because traffic moved elsewhere, since 03:12 UTC",
        ),
        (
            _reason("lost_calls", -0.01, 4.5, source="shop/web"),
            "calls shop/web -> shop/cart fell to 0/s, expected 4.5/s, because traffic moved elsewhere, since 03:12 UTC",
        ),
        (_reason("request_rate", float("nan"), 40), "requests not observed, expected 40/s, since 03:12 UTC"),
        (
            _reason("cpu_utilization", 0.95, 0.3, since=NOW - timedelta(days=3)),
            "CPU utilization 95%, expected 30%, since 2026-02-26 03:14 UTC",
        ),
    ],
)
def test_reasons_in_words(reason: Reason, sentence: str) -> None:
    assert reason_text(reason, SUSPECT, NOW) == sentence
    assert not reads_as_expected(reason)


@pytest.mark.parametrize(
    ("metric", "observed", "expected"),
    [
        ("error_rate", 0.0, 0.0001),
        ("error_rate", 0.0004, 0.0001),
        ("error_rate", 0.304, 0.296),
        ("p50_latency", 0.00003, 0.00004),
        ("p99_latency", 1.24, 1.21),
        ("active_connections", 1.4, 0.9),
        ("request_rate", float("nan"), float("nan")),
    ],
)
def test_reasons_whose_text_shows_no_deviation_are_recognised(metric: str, observed: float, expected: float) -> None:
    assert reads_as_expected(_reason(metric, observed, expected))
    assert reads_as_expected(_reason(metric, expected, observed))


@pytest.mark.parametrize(
    ("forecast", "sentence"),
    [
        (LimitForecast(2400.0, 1500.0, 4200.0), "reaches its limit in 40 minutes (25 to 70)"),
        (LimitForecast(240.0, 20.0, 700.0), "reaches its limit in 4 minutes (below 1 to 12)"),
        (LimitForecast(9000.0, 6480.0, 50_000.0), "reaches its limit in 2.5 hours (1.8 to 14)"),
        (LimitForecast(2400.0, 1500.0, float("inf")), "reaches its limit in 40 minutes (25 or more)"),
        (LimitForecast(45.0, 30.0, 60.0), "reaches its limit in about a minute"),
        (LimitForecast(0.0, 0.0, 0.0), "has reached its limit"),
    ],
)
def test_forecasts_in_words(forecast: LimitForecast, sentence: str) -> None:
    assert forecast_text(forecast) == sentence


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (
            _reason("memory_utilization", 0.62, 0.4, forecast=LimitForecast(2400.0, 1500.0, 4200.0)),
            "memory of shop/cart reaches its limit in 40 minutes (25 to 70)",
        ),
        (_reason("memory_utilization", 0.62, 0.4), "memory of shop/cart: 62%, usually 40%"),
        (_reason("active_connections", 240, 40), "connections of shop/cart: 240, usually 40"),
        (
            _reason("cpu_throttling", 0.6, 0.05),
            "CPU of shop/cart is throttled in 60% of its periods, usually 5%",
        ),
        (_reason("oom_kills", 1.0, 0.0), "1 container of shop/cart was killed for memory"),
        (_reason("restarts", 3.0, 0.0), "3 containers of shop/cart restarted"),
        (_reason("disk_pressure", 0.97, 0.9), "97% of the disk space of shop/cart is in use, usually 90%"),
        (_reason("disk_pressure", 0.97, 0.97), "97% of the disk space of shop/cart is in use"),
        (_reason("pending_pods", 1.0, 0.0), "1 pod of shop/cart does not start, usually 0"),
        (_reason("queue_depth", 5200.0, 40.0), "5,200 messages wait for shop/cart, usually 40"),
        (_reason("cancelled", 0.12, 0.01), "callers gave up on 12% of the requests to shop/cart, usually 1%"),
        (_reason("cpu_per_request", 0.004, 0.0007), "CPU time per request of shop/cart: 4 ms, usually 0.7 ms"),
    ],
)
def test_shortages_in_words(reason: Reason, sentence: str) -> None:
    assert shortage_text(reason, SUSPECT) == sentence


@pytest.mark.parametrize(
    ("ahead", "sentence", "of_another"),
    [
        (40, "began 40 s after canary of shop/cart (v2)", "canary of shop/cart (v2) around the same time, 40 s before"),
        (
            600,
            "began 10 min after canary of shop/cart (v2)",
            "canary of shop/cart (v2) around the same time, 10 min before",
        ),
        (0, "began with canary of shop/cart (v2)", "canary of shop/cart (v2) around the same time"),
        (
            -60,
            "canary of shop/cart (v2) came 60 s after the start",
            "canary of shop/cart (v2) came 60 s after the start",
        ),
    ],
)
def test_planned_changes_are_described_relative_to_the_incident(ahead: float, sentence: str, of_another: str) -> None:
    near = NearbyChange(PlannedChange("canary", SUSPECT, "v2"), NOW - timedelta(seconds=ahead))
    assert change_text(near, NOW, of_suspect=True, is_affected=True) == sentence
    assert change_text(near, NOW, of_suspect=True, is_affected=False) == sentence
    scaled = replace(near, change=PlannedChange("scale_out", SUSPECT))
    assert change_text(scaled, near.at, of_suspect=True, is_affected=True) == "began with scale out of shop/cart"
    assert change_text(near, NOW, of_suspect=False, is_affected=True) == of_another, "readers take after as because of"
    assert change_text(near, NOW, of_suspect=False, is_affected=False) == f"{of_another}: no effect seen"


@pytest.mark.parametrize("kind", SignalKind)
def test_every_signal_has_a_sentence(kind: SignalKind) -> None:
    assert "{service}" in wording(kind).sentence
    assert SUSPECT in shortage_text(_reason(kind, 0.9, 0.1), SUSPECT)


@pytest.mark.parametrize("metric", SERIES[: OWN + CALLS])
def test_every_series_is_formatted_in_its_unit(metric: str) -> None:
    unit = next(c.unit for c in (*NODE_CHANNELS, *EDGE_CHANNELS) if c.name == metric)
    ending = {"s": " ms", "ratio": "%", "1/s": "/s", "1": ""}[unit]
    name, _, rest = reason_text(_reason(metric, 0.5, 0.25), SUSPECT, NOW).partition(", expected ")
    shown = rest.removesuffix(", since 03:12 UTC")
    assert "_" not in name
    assert shown.endswith(ending)
    if unit == "1":
        assert shown.isdigit() or shown == "below 1"
