"""The picture of a mesh that the doctor shows."""

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
import pytest

from model.snapshot import EDGE_METRICS, NODE_METRICS, EdgeMetric, MeshSnapshot
from serve_app.doctor.picture import BusyService, draw_picture

AT = datetime(2026, 7, 1, tzinfo=UTC)
Calls = Mapping[tuple[str, str], float]
SHOP: Calls = {("gw", "web"): 60, ("web", "cart"): 40, ("web", "pay"): 20, ("cart", "db"): 50}


def mesh(calls: Calls = SHOP, **nodes: Mapping[str, float]) -> MeshSnapshot:
    """A mesh with these calls, whose services get what their callers send; ``nodes`` has other values."""
    names = sorted({name for ends in calls for name in ends} | nodes.keys())
    got: dict[str, float] = dict.fromkeys(names, 0.0)
    for (source, destination), rate in calls.items():
        got[destination] += rate
        got[source] = max(got[source], rate)
    rows = [
        [
            {"request_rate": got[name], "p50_latency": 0.01, "p99_latency": 0.05, **nodes.get(name, {})}.get(
                metric, 0.0
            )
            for metric in NODE_METRICS
        ]
        for name in names
    ]
    edges = [[rate, 0.0, 0.01, 0.05] for rate in calls.values()]
    ends = np.array([[names.index(name) for name in pair] for pair in calls]).reshape(-1, 2).T
    return MeshSnapshot.create(
        node_ids=[f"shop/{name}" for name in names],
        edge_index=ends,
        node_features=np.array(rows),
        edge_features=np.array(edges).reshape(-1, len(EDGE_METRICS)),
        observed_at=AT,
    )


def test_the_picture_of_a_sound_mesh() -> None:
    picture = draw_picture(mesh())
    assert (picture.services, picture.calls, picture.entry_points) == (5, 4, ("shop/gw",))
    assert picture.busiest[:2] == (BusyService("shop/gw", 60.0), BusyService("shop/web", 60.0))
    assert picture.odd == ()


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (mesh(old={}), "shop/old neither calls nor is called"),
        (mesh(old={}, older={}), "neither call nor are called"),
        (mesh({("a", "b-svc"): 1, ("b", "c-svc"): 1, ("c", "d-svc"): 1}), "one name as a caller"),
        (mesh({("a", "e"): 1, ("b", "e"): 1, ("c", "e"): 1}), "have no callers"),
        (mesh(cart={"p99_latency": 0.001}), "p99 is below p50 for shop/cart"),
        (mesh(cart={"p50_latency": 90, "p99_latency": 100}), "above a minute"),
        (mesh(cart={"request_rate": 20}), "counted twice"),
        (mesh(cart={"request_rate": 400}, pay={"request_rate": 400}), "shop/cart, shop/pay are unknown"),
        (mesh(cart={"request_rate": np.nan}), "shop/cart has no request rate"),
    ],
)
def test_what_looks_wrong_is_said(snapshot: MeshSnapshot, words: str) -> None:
    assert any(words in text for text in draw_picture(snapshot).odd), draw_picture(snapshot).odd


def test_services_without_callers_beside_the_entry_points() -> None:
    snapshot = mesh({**SHOP, ("cron", "db"): 1})
    words = "has no callers: it may be an entry point too, or its callers are not scraped or have other names"
    assert draw_picture(snapshot).odd == (f"shop/cron {words}",)
    assert draw_picture(snapshot, ["shop/cron"]).odd == (f"shop/gw {words}",)
    assert draw_picture(snapshot, ["shop/gw", "shop/cron"]).odd == ()


def test_a_gateway_that_reports_only_as_a_source_is_the_front_door() -> None:
    picture = draw_picture(mesh({**SHOP, ("cron", "db"): 1}, gw={"request_rate": np.nan}))
    assert picture.busiest[0] == BusyService("shop/gw", 60.0)
    assert picture.entry_points == ("shop/gw", "shop/cron")
    (odd,) = picture.odd
    assert odd.startswith("shop/cron has no callers")


def test_a_service_without_a_known_rate_is_not_busy() -> None:
    picture = draw_picture(mesh(cart={"request_rate": np.nan}))
    assert "shop/cart" not in [one.id for one in picture.busiest]
    assert len(picture.busiest) == 4


def test_calls_with_crossed_quantiles_are_counted() -> None:
    snapshot = mesh()
    edges = np.array(snapshot.edge_features)
    edges[1, EdgeMetric.P99_LATENCY] = 0.001
    crossed = MeshSnapshot.create(
        node_ids=snapshot.node_ids,
        edge_index=snapshot.edge_index,
        node_features=snapshot.node_features,
        edge_features=edges,
        observed_at=AT,
    )
    assert "1 of 4 calls, for example shop/web → shop/cart" in draw_picture(crossed).odd[0]
