"""How an incident spreads: to callers, then to callees, through affected services only."""

import pytest

from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.web.graph.propagation import Hop, spread
from tests.builders import AT, mesh_of


def snapshot(calls: dict[tuple[str, str], float]) -> MeshSnapshot:
    """Return a mesh with these calls and rates."""
    named = {(f"shop/{source}", f"shop/{end}"): rate for (source, end), rate in calls.items()}
    return mesh_of(sorted({name for pair in named for name in pair}), named)


def incident(*affected: str, suspects: tuple[str, ...] = ("db",)) -> IncidentDocument:
    """Return an incident of these services."""
    ranked = [{"service": f"shop/{name}", "score": 0.5, "reasons": []} for name in suspects]
    return IncidentDocument.model_validate(
        {
            "id": "x", "since": AT, "severity": "minor", "score": 5.0, "suspects": ranked,
            "affected": [f"shop/{name}" for name in affected], "changes": [],
        }
    )  # fmt: skip


def test_the_spread_follows_shortest_paths_to_callers_then_to_callees() -> None:
    calls = {("web", "cart"): 9.0, ("cart", "db"): 5.0, ("web", "orders"): 2.0, ("orders", "db"): 3.0}
    calls |= {("edge", "web"): 1.0, ("edge", "db"): 0.1, ("db", "disk"): 4.0}
    calls |= {("web", "ads"): 1.0, ("disk", "ads"): 1.0}
    found = spread(snapshot(calls), incident("web", "cart", "orders", "edge", "disk", "ads"))
    assert found == (
        Hop("shop/db", "shop/cart", 1),
        Hop("shop/db", "shop/orders", 1),
        Hop("shop/db", "shop/edge", 1),
        Hop("shop/cart", "shop/web", 2),
        Hop("shop/db", "shop/disk", 1, is_down=True),
        Hop("shop/disk", "shop/ads", 2, is_down=True),
    )
    assert [hop.call for hop in found[:1] + found[-1:]] == [("shop/cart", "shop/db"), ("shop/disk", "shop/ads")]


def test_the_spread_stops_at_normal_services_and_ends_in_cycles() -> None:
    calls = {("cart", "db"): 1.0, ("web", "cart"): 1.0, ("edge", "web"): 1.0, ("db", "cart"): 1.0}
    assert spread(snapshot(calls), incident("cart", "edge")) == (Hop("shop/db", "shop/cart", 1),)


@pytest.mark.parametrize("suspects", [(), ("gone",)])
def test_no_origin_gives_no_path(suspects: tuple[str, ...]) -> None:
    assert spread(snapshot({("cart", "db"): 1.0}), incident("cart", suspects=suspects)) == ()
