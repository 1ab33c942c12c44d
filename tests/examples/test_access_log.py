"""examples/access_log.py: an access log becomes snapshots."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest

from examples.access_log import AccessLog
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.collect.base import SnapshotSource
from tests.site_pages import ROOT

START = 1_772_366_400.0  # 2026-03-01T12:00:00Z, the start of an interval
LOGGED = {"request_rate", "error_rate", "p50_latency", "p99_latency"}


def line(after: float, service: str, seconds: float = 0.1, status: int = 200, **more: str) -> str:
    return json.dumps({"time": START + after, "service": service, "status": status, "seconds": seconds, **more})


def test_requests_of_one_interval_are_one_snapshot() -> None:
    log = AccessLog(
        [
            line(1, "shop/web", 0.2),
            line(2, "shop/cart", 0.1, caller="shop/web"),
            line(3, "shop/cart", 0.3, status=503, caller="shop/web"),
            line(14.9, "shop/web", 0.2),
            line(15, "shop/web"),
        ]
    )
    (snapshot,) = log.snapshots()
    assert snapshot.observed_at == datetime(2026, 3, 1, 12, 0, 15, tzinfo=UTC)
    assert snapshot.node_ids == ("shop/cart", "shop/web")
    assert snapshot.edge_index.tolist() == [[1], [0]]
    cart = dict(zip(NODE_METRICS, snapshot.node_features[0].tolist(), strict=True))
    assert cart["request_rate"] == pytest.approx(2 / 15)
    assert (cart["error_rate"], cart["p50_latency"]) == (0.5, pytest.approx(0.2))
    assert snapshot.node_observed[0].tolist() == [metric in LOGGED for metric in NODE_METRICS]
    call = dict(zip(EDGE_METRICS, snapshot.edge_features[0].tolist(), strict=True))
    assert call["requests_per_second"] == pytest.approx(2 / 15)


def test_a_service_that_only_calls_others_has_no_metrics() -> None:
    log = AccessLog([line(1, "shop/cart", caller="shop/job"), line(16, "shop/cart")])
    (snapshot,) = log.snapshots()
    assert not snapshot.node_observed[snapshot.node_ids.index("shop/job")].any()


def test_an_interval_without_requests_has_no_snapshot() -> None:
    log = AccessLog([line(1, "shop/web"), line(46, "shop/web"), line(61, "shop/web")])
    assert [snapshot.observed_at.second for snapshot in log.snapshots()] == [15, 0]


def test_it_is_a_source_of_snapshots() -> None:
    source: SnapshotSource = AccessLog((ROOT / "examples/access.jsonl").read_text("utf-8").splitlines())
    found: list[MeshSnapshot] = list(source.snapshots())
    assert len(found) == 12
    assert {snapshot.node_ids for snapshot in found} == {("shop/cart", "shop/web")}
    seconds = np.diff([snapshot.observed_at.timestamp() for snapshot in found])
    assert set(seconds) == {source.interval_seconds}
