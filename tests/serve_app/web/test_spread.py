"""How an incident spreads: to callers, then to callees, through affected services only."""

from datetime import UTC, datetime

import numpy as np
import pytest

from model.snapshot import MeshSnapshot
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.web.graph.propagation import Hop, spread

AT = datetime(2026, 3, 1, 3, 12, tzinfo=UTC)


def snapshot(calls: dict[tuple[str, str], float]) -> MeshSnapshot:
    """Return a mesh with these calls and rates."""
    names = sorted({f"shop/{name}" for pair in calls for name in pair})
    ends = [[names.index(f"shop/{pair[side]}") for pair in calls] for side in (0, 1)]
    edges = np.full((len(calls), 4), np.nan)
    edges[:, 0] = list(calls.values())
    return MeshSnapshot.create(
        node_ids=names,
        edge_index=ends,
        node_features=np.full((len(names), 7), np.nan),
        edge_features=edges,
        observed_at=AT,
    )


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
