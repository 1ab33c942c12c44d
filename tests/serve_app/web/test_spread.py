"""How an incident spreads: to callers, then to callees, through affected services only."""

import numpy as np
import pytest

from serve_app.web.graph.propagation import Hop, spread


def spread_of(
    calls: dict[tuple[str, str], float], *affected: str, origins: tuple[str, ...] = ("db",)
) -> list[tuple[str, str, int, bool]]:
    """Return near, far, distance and direction of each hop in a mesh with these calls and rates."""
    names = sorted({name for pair in calls for name in pair})
    edge_index = np.array([[names.index(a), names.index(b)] for a, b in calls], np.int64).T
    hops = spread(origins, set(affected), names, edge_index, np.array(list(calls.values()), np.float32))
    return [(hop.near, hop.far, hop.distance, hop.is_down) for hop in hops]


def test_the_spread_follows_shortest_paths_to_callers_then_to_callees() -> None:
    calls = {("web", "cart"): 9.0, ("cart", "db"): 5.0, ("web", "orders"): 2.0, ("orders", "db"): 3.0}
    calls |= {("edge", "web"): 1.0, ("edge", "db"): 0.1, ("db", "disk"): 4.0}
    calls |= {("web", "ads"): 1.0, ("disk", "ads"): 1.0}
    assert spread_of(calls, "web", "cart", "orders", "edge", "disk", "ads") == [
        ("db", "cart", 1, False),
        ("db", "orders", 1, False),
        ("db", "edge", 1, False),
        ("cart", "web", 2, False),
        ("db", "disk", 1, True),
        ("disk", "ads", 2, True),
    ]
    assert Hop("db", "cart", 1).call == ("cart", "db")
    assert Hop("disk", "ads", 2, is_down=True).call == ("disk", "ads")


def test_the_spread_stops_at_normal_services_and_ends_in_cycles() -> None:
    calls = {("cart", "db"): 1.0, ("web", "cart"): 1.0, ("edge", "web"): 1.0, ("db", "cart"): 1.0}
    assert spread_of(calls, "cart", "edge") == [("db", "cart", 1, False)]


@pytest.mark.parametrize("origins", [(), ("gone",)])
def test_no_origin_gives_no_path(origins: tuple[str, ...]) -> None:
    assert spread_of({("cart", "db"): 1.0}, "cart", origins=origins) == []


def test_no_path_joins_two_origins() -> None:
    calls = {("edge", "cart"): 2.0, ("edge", "pay"): 1.0, ("cart", "db"): 2.0, ("pay", "bank"): 1.0}
    assert spread_of(calls, "edge", "cart", "pay", "db", "bank", origins=("db", "bank")) == [
        ("db", "cart", 1, False),
        ("bank", "pay", 1, False),
        ("cart", "edge", 2, False),
    ]
