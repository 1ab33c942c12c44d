"""Snapshots as documents, right and wrong, and as hypothesis makes them up."""

import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from model.snapshot import EDGE_METRICS, NODE_METRICS, RATIOS, MeshSnapshot, PlannedChange, Sensitivity, ServicePolicy

text = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)
reasons = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=5)
segments = st.from_regex(re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.:-]{0,6}[A-Za-z0-9_])?", re.ASCII), fullmatch=True)


sensitivity = st.sampled_from([None, *Sensitivity])


@st.composite
def snapshots(draw: st.DrawFn) -> MeshSnapshot:
    names = st.lists(segments, min_size=2, max_size=3).map("/".join)
    ids = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    pairs = st.tuples(*[st.integers(0, len(ids) - 1)] * 2)
    calls = draw(st.lists(pairs, max_size=8, unique=True))

    def features(rows: int, metrics: tuple[str, ...], required: int) -> np.ndarray[Any, Any]:
        ratios = np.array([name in RATIOS for name in metrics])
        values = draw(arrays.arrays(np.float32, (rows, len(metrics)), elements=st.floats(0, 2.0**49, width=32)))
        values = np.where(ratios, np.minimum(values, 1), values)
        missing = draw(arrays.arrays(np.bool_, values.shape))
        missing[:, :required] = False
        return np.where(missing, np.float32(np.nan), values)

    return MeshSnapshot.create(
        node_ids=ids,
        edge_index=np.array(calls, dtype=np.int64).reshape(-1, 2).T,
        node_features=features(len(ids), NODE_METRICS, 0),
        edge_features=features(len(calls), EDGE_METRICS, 1),
        observed_at=draw(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))),
        changes=draw(st.lists(st.builds(PlannedChange, text, names, reasons), max_size=2)),
        policies=draw(st.lists(st.builds(ServicePolicy, names, sensitivity, reasons), max_size=2)),
    )


def document(**changed: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "observed_at": "2026-03-01T03:14:00Z",
        "services": [
            {"namespace": "shop", "name": "frontend", "metrics": {"request_rate": 100, "error_rate": 0.5}},
            {"namespace": "shop", "name": "db/primary", "metrics": {"request_rate": None}},
            {"namespace": "shop", "name": "cart"},
        ],
        "calls": [
            {"source": "shop/frontend", "destination": "shop/cart", "requests_per_second": 4},
            {"source": "shop/cart", "destination": "shop/db/primary", "requests_per_second": 0, "p99_latency": 0.2},
        ],
    }
    return {**document, **changed}


def call(**changed: Any) -> dict[str, Any]:
    return {"source": "shop/cart", "destination": "shop/frontend", "requests_per_second": 1, **changed}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    (
        {"calls": [*document()["calls"], call(destination="shop/pay")]},
        "/calls/2/destination",
        "call 2: destination 'shop/pay' is not among the services (3 given); add it or remove the call",
    ),
    ({"calls": [call(requests_per_second=None)]}, "/calls/0/requests_per_second", "came null"),
    ({"calls": [call(requests_per_second=-1)]}, "/calls/0/requests_per_second", "call 0: requests_per_second"),
    ({"calls": [call(), call()]}, "/calls/1", "call 1: the call 'shop/cart' to 'shop/frontend' was already"),
    ({"calls": [{"source": "shop/cart"}]}, "/calls/0/destination", "'destination' is required"),
    (
        {"services": [{"namespace": "a", "name": "x", "metrics": {"error_rate": 1.2}}], "calls": []},
        "/services/0/metrics/error_rate",
        "service 0: error_rate: expected a ratio from 0 to 1, came 1.2",
    ),
    (
        {"services": [{"namespace": "a", "name": "x", "metrics": {"reqest_rate": 1}}], "calls": []},
        "/services/0/metrics/reqest_rate",
        "'reqest_rate' is not a field",
    ),
    (
        {"services": [{"namespace": "a", "name": "x", "metrics": {"p50_latency": 1e300}}], "calls": []},
        "/services/0/metrics/p50_latency",
        "expected a finite number",
    ),
    (
        {"services": [{"namespace": "a", "name": "x", "metrics": {"p50_latency": float("nan")}}], "calls": []},
        "/services/0/metrics/p50_latency",
        "came NaN",
    ),
    ({"services": [{"namespace": "a/b", "name": "x"}], "calls": []}, "/services/0/namespace", '"a/b"'),
    ({"services": [{"namespace": "a", "name": "x"}] * 2, "calls": []}, "/services/1", "service 1: 'a/x' was"),
    ({"services": [], "calls": []}, "/services", "at least one service"),
    ({"observed_at": "2026-03-01T03:14:00"}, "/observed_at", "timezone"),
    ({"extra": 1}, "/extra", "'extra' is not a field"),
    ({"version": 2}, "/version", "should be 1"),
    ({"policies": [{"service": "cart", "mute": "x"}]}, "/policies/0/service", "pattern"),
    ({"policies": [{"service": "shop/cart", "sensitivity": "loud"}]}, "/policies/0/sensitivity", "'low'"),
    ({"policies": [{"service": "shop/cart", "mute": "x" * 201}]}, "/policies/0/mute", "at most 200"),
    ({"policies": [{"service": "shop/cart", "muted": True}]}, "/policies/0/muted", "'muted' is not a field"),
]
