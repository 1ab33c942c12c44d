"""The traffic of users, and the way from the front door to the cause of an incident."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta

import msgspec
import numpy as np
import pytest

from model.snapshot import EdgeMetric, MeshSnapshot, NodeMetric
from serve_app.web.documents import MapFrontDoor, MetricHistory
from serve_app.web.front_door import MAX_SNAPSHOTS, front_door, snapshots_outside, way_in
from serve_app.web.graph.propagation import spread
from tests.builders import AT, mesh_of

CALLS = {("shop/web", "shop/cart"): 30.0, ("shop/cart", "shop/db"): 30.0, ("shop/api", "shop/cart"): 10.0}
MESH = mesh_of(["shop/web", "shop/api", "shop/cart", "shop/db"], CALLS)


def snapshot(at: int, errors: float = 0.01) -> MeshSnapshot:
    """Return the mesh with an entry point that is measured itself, and one that only its calls are measured of."""
    nodes, node_observed = MESH.node_features.copy(), MESH.node_observed.copy()
    edges, edge_observed = MESH.edge_features.copy(), MESH.edge_observed.copy()
    measured = [NodeMetric.REQUEST_RATE, NodeMetric.ERROR_RATE, NodeMetric.P99_LATENCY]
    nodes[0, measured], node_observed[0, measured] = (60.0, errors, 0.2), True
    api = [source == 1 for source in MESH.edge_index[0]]
    columns = [EdgeMetric.ERROR_RATE, EdgeMetric.P99_LATENCY]
    edges[np.ix_(api, columns)], edge_observed[np.ix_(api, columns)] = (0.5, 0.9), True
    return replace(
        MESH, node_features=nodes, node_observed=node_observed, edge_features=edges, edge_observed=edge_observed,
        observed_at=AT + timedelta(seconds=15 * at),
    )  # fmt: skip


def door(
    *snapshots: MeshSnapshot, incidents: Sequence[tuple[int, int | None]] = (), known: Collection[str] = ()
) -> MapFrontDoor:
    """Return the front door; ``incidents``: first snapshots with and without them."""
    periods = [
        (snapshot(first).observed_at, None if end is None else snapshot(end).observed_at) for first, end in incidents
    ]
    return MapFrontDoor.model_validate_json(
        msgspec.json.encode(front_door(snapshots, known, snapshots_outside(snapshots[:-1], periods)))
    )


def errors_of(found: MapFrontDoor) -> MetricHistory:
    return next(history for history in found.metrics if history.metric == "error_rate")


def test_entry_points_count_by_their_requests_and_a_gateway_by_its_calls() -> None:
    document = door(snapshot(0))
    observed = {history.metric: history.observed for history in document.metrics}
    assert observed["request_rate"] == [70.0]
    assert observed["error_rate"] == [pytest.approx((60 * 0.01 + 10 * 0.5) / 70, rel=1e-3)]
    assert observed["p99_latency"] == [pytest.approx((60 * 0.2 + 10 * 0.9) / 70, rel=1e-3)]


def test_usual_is_what_was_before_the_incident_while_the_window_has_it() -> None:
    calm, bad = [snapshot(at) for at in range(10)], [snapshot(at, errors=0.9) for at in range(10, 40)]
    document = door(*calm, *bad, incidents=[(10, None)])
    errors = errors_of(document)
    assert errors.high[-1] == pytest.approx(errors.observed[0])
    assert errors.observed[-1] == pytest.approx((60 * 0.9 + 10 * 0.5) / 70, rel=1e-3)
    assert len(document.times) == len(errors.low) == 40
    assert len(door(*calm * 10).times) == MAX_SNAPSHOTS
    long = [snapshot(at, errors=0.9) for at in range(10, 20 + MAX_SNAPSHOTS)]
    assert errors_of(door(*calm, *long, incidents=[(10, None)])).high[-1] == errors.high[-1]


def test_usual_leaves_out_incidents_that_are_over() -> None:
    bad = range(10, 15)
    shown = [snapshot(at, errors=0.9 if at in bad else 0.01) for at in range(40)]
    errors = errors_of(door(*shown, incidents=[(bad.start, bad.stop)]))
    assert errors.high[-1] == pytest.approx(errors.observed[0])
    assert (errors_of(door(*shown)).high[-1] or 0) > (errors.high[-1] or 0), "without the incident it counts"


def test_if_every_service_is_called_all_requests_count() -> None:
    circle = mesh_of(["a/x", "a/y"], {("a/x", "a/y"): 1.0, ("a/y", "a/x"): 2.0})
    assert [history.observed for history in door(circle).metrics] == [[3.0], [None], [None]]
    assert [history.observed for history in door(mesh_of(["a/x", "a/y"])).metrics] == [[None]] * 3


def test_an_entry_point_that_is_called_counts_if_it_is_known() -> None:
    (rate, *_) = door(snapshot(0), known={"shop/cart"}).metrics
    assert rate.observed == [100.0], "the requests of web and api, and of the cart what it calls"


def way(first: str, affected: set[str], known: Collection[str] = ()) -> list[str]:
    rates = MESH.edge_features[:, EdgeMetric.REQUESTS_PER_SECOND]
    hops = spread({first}, affected, MESH.node_ids, MESH.edge_index, rates)
    return way_in(first, hops, MESH.node_ids, MESH.edge_index, known)


def test_the_way_goes_from_an_entry_point_through_affected_services() -> None:
    assert way("shop/db", {"shop/web", "shop/cart"}) == ["shop/web", "shop/cart", "shop/db"]
    assert way("shop/web", set()) == ["shop/web"]
    assert way("shop/db", {"shop/web"}) == [], "it has not reached an entry point"
    assert way("shop/db", {"shop/cart"}, {"shop/cart"}) == ["shop/cart", "shop/db"]
