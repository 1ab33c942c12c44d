"""The map of a mesh: its nodes and calls, and the folded namespaces of a large mesh."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from model.snapshot import EdgeMetric, MeshSnapshot, namespace_of
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.views import Deviations
from serve_app.stores.scored_snapshot import ScoredSnapshot
from serve_app.web.documents import MapDocument
from serve_app.web.graph.layout import arrange
from serve_app.web.graph.map import FOLD_FROM, gone_services, map_document
from serve_app.web.moment import Moment
from tests.builders import AT, mesh_of

LARGE = {"shop": 40, "pay": 60, "batch": 5100}  # services of a mesh with one namespace above the limit, by namespace


def incident(name: str, culprit: str, *affected: str) -> dict[str, Any]:
    suspects = [{"service": culprit, "score": 0.8, "reasons": []}]
    fields = {"id": name, "since": AT, "severity": "minor", "score": 5.0, "suspects": suspects, "changes": []}
    return fields | {"affected": list(affected)}


def verdict(*incidents: dict[str, Any], suspects: dict[str, float] | None = None) -> VerdictDocument:
    named = [{"service": name, "score": score, "reasons": []} for name, score in (suspects or {}).items()]
    return VerdictDocument.model_validate(
        {
            "observed_at": AT, "sequence": 20, "status": "anomalous" if incidents else "normal", "mesh_score": 5.0,
            "threshold": 3.0, "probability": 0.9, "coverage": 1.0, "missing_parts": [], "model": "x",
            "suspects": named, "incidents": list(incidents), "muted": [],
        }
    )  # fmt: skip


def draw_map(
    mesh: MeshSnapshot, judgement: VerdictDocument, *expand: str, before: tuple[MeshSnapshot, ...] = (), seed: int = 0
) -> tuple[MapDocument, Moment]:
    """Return the map of a mesh whose deviations are random, in sixteenths, and partly unknown."""
    random = np.random.default_rng(seed)
    services, calls = (
        np.where(random.random(n) < 0.2, np.nan, random.integers(0, 64, n) / 16).astype(np.float32)
        for n in (mesh.num_nodes, mesh.num_edges)
    )
    moment = Moment.of(ScoredSnapshot.of(mesh, Deviations(services, calls), judgement))
    names = (*mesh.node_ids, *gone_services(moment))
    layout = arrange(names, mesh.edge_index)
    document = map_document(moment, layout, before, expand, ())
    assert b"NaN" not in document
    return MapDocument.model_validate_json(document), moment


def calls_of(drawn: MapDocument) -> dict[tuple[str, str], tuple[float | None, ...]]:
    """Return the requests/s, the anomaly score, the error rate and the p99 of each call, by the names of its ends."""
    names, edges = drawn.nodes.name, drawn.edges
    columns = (
        edges.source,
        edges.destination,
        edges.requests_per_second,
        edges.deviation,
        edges.error_rate,
        edges.p99_latency,
    )
    return {(names[s], names[d]): tuple(values) for s, d, *values in zip(*columns, strict=True)}


def large(seed: int = 0) -> MeshSnapshot:
    """Return a mesh with one namespace above the limit, and calls between any two services."""
    random = np.random.default_rng(seed)
    names = [f"{space}/s{i}" for space, size in LARGE.items() for i in range(size)]
    ends = random.integers(0, len(names), (12_000, 2))
    ends[:400] = random.integers(0, 100, (400, 2))  # shop and pay talk to each other too
    return mesh_of(
        names, {(names[a], names[b]): float(r) for (a, b), r in zip(ends, random.random(12_000), strict=True)}
    )


SMALL = mesh_of(
    ["shop/web", "shop/cart", "pay/card", "pay/ledger"],
    {
        ("shop/web", "shop/cart"): 9.0,
        ("shop/cart", "pay/card"): 4.0,
        ("pay/card", "pay/ledger"): 4.0,
        ("pay/card", "pay/card"): 1.0,
    },
)


def test_a_small_mesh_is_drawn_service_by_service_and_call_by_call() -> None:
    judgement = verdict(
        incident("worse", "pay/ledger", "pay/card"),
        incident("other", "shop/cart", "pay/card"),
        suspects={"pay/ledger": 0.8, "shop/web": 0.1},
    )
    drawn, moment = draw_map(SMALL, judgement)
    assert (drawn.observed_at, drawn.status, drawn.services, drawn.calls) == (AT, "anomalous", 4, 4)
    assert drawn.collapsed == []
    assert tuple(drawn.nodes.name) == SMALL.node_ids
    assert drawn.nodes.services == [1] * 4
    assert drawn.nodes.gone == [False] * 4
    assert drawn.nodes.silent == [True] * 4, "none of the services has a metric of its own"
    assert drawn.nodes.incident == [None, "other", "worse", "worse"], "a service in two incidents shows the worse one"
    expected = [None if np.isnan(d) else round(float(d), 2) for d in moment.deviations.services]
    assert drawn.nodes.deviation == expected
    assert calls_of(drawn) == {
        (SMALL.node_ids[s], SMALL.node_ids[d]): (
            float(rate),
            None if np.isnan(deviation) else round(float(deviation), 2),
            None,
            None,
        )
        for s, d, rate, deviation in zip(
            *SMALL.edge_index, SMALL.edge_features[:, 0], moment.deviations.calls, strict=True
        )
    }
    hops = {
        name: [(drawn.nodes.name[drawn.edges.source[e]], step, down) for e, step, down in zip(*columns, strict=True)]
        for name, spread in drawn.spread.items()
        if (columns := (spread.edge, spread.step, spread.is_down))
    }
    assert hops == {"worse": [("pay/card", 1, False)], "other": [("shop/cart", 1, True)]}


def test_a_mesh_without_calls_or_incidents_is_drawn() -> None:
    drawn, _ = draw_map(mesh_of(["a/x"], {}), verdict())
    assert (drawn.nodes.name, drawn.edges.source, drawn.nodes.incident) == (["a/x"], [], [None])


def test_a_service_without_a_metric_of_its_own_is_silent() -> None:
    features = np.full((2, 7), np.nan)
    features[0, 3] = 0.25
    measured = mesh_of(["shop/web", "shop/cart"], {("shop/web", "shop/cart"): 9.0}, nodes=features)
    drawn, _ = draw_map(measured, verdict(incident("a", "shop/gone", "shop/web")))
    assert dict(zip(drawn.nodes.name, drawn.nodes.silent, strict=True)) == {
        "shop/web": False,
        "shop/cart": True,
        "shop/gone": False,
    }


def test_a_large_mesh_is_folded_by_namespaces() -> None:
    mesh = large()
    assert mesh.num_nodes > FOLD_FROM
    drawn, moment = draw_map(mesh, verdict())
    assert (drawn.services, drawn.calls) == (mesh.num_nodes, mesh.num_edges)
    assert drawn.collapsed == sorted(LARGE)
    assert dict(zip(drawn.nodes.name, drawn.nodes.services, strict=True)) == {
        f"{n}/*": size for n, size in LARGE.items()
    }
    spaces = np.array([namespace_of(name) for name in mesh.node_ids])
    for name, deviation in zip(drawn.nodes.name, drawn.nodes.deviation, strict=True):
        of = moment.deviations.services[spaces == name.removesuffix("/*")]
        assert deviation == round(float(np.nanmax(of)), 2)
    assert sum(drawn.nodes.unusual) == np.count_nonzero(np.nan_to_num(moment.deviations.services) > 3)
    received, sent = (np.bincount(ends, mesh.edge_features[:, 0], mesh.num_nodes) for ends in mesh.edge_index[::-1])
    traffic = np.where(received > 0, received, sent).sum()
    assert sum(drawn.nodes.requests_per_second) == pytest.approx(traffic, rel=1e-3)
    ends = spaces[mesh.edge_index]
    for (source, destination), (rate, deviation, *_) in calls_of(drawn).items():
        between = (ends[0] == source.removesuffix("/*")) & (ends[1] == destination.removesuffix("/*"))
        assert rate == pytest.approx(float(mesh.edge_features[between, 0].sum()), abs=0.01)
        assert deviation == round(float(np.nanmax(moment.deviations.calls[between])), 2)
    assert len(drawn.edges.source) == 6, "all ordered pairs of three namespaces, without the calls inside one"


@pytest.mark.parametrize(("metric", "column"), [(EdgeMetric.ERROR_RATE, 2), (EdgeMetric.P99_LATENCY, 3)])
def test_metrics_of_folded_calls_are_means_over_their_requests(metric: EdgeMetric, column: int) -> None:
    mesh = large()
    features, observed = mesh.edge_features.copy(), mesh.edge_observed.copy()
    features[:, metric] = np.random.default_rng(1).random(mesh.num_edges)
    observed[:, metric] = np.arange(mesh.num_edges) % 3 > 0  # of a third, it is not observed
    rates, values = features[:, 0], features[:, metric]
    drawn, _ = draw_map(replace(mesh, edge_features=features, edge_observed=observed), verdict())
    spaces = np.array([namespace_of(name) for name in mesh.node_ids])[mesh.edge_index]
    for (source, destination), of_call in calls_of(drawn).items():
        between = (spaces[0] == source.removesuffix("/*")) & (spaces[1] == destination.removesuffix("/*"))
        known = between & observed[:, metric]
        assert of_call[column] == pytest.approx(np.average(values[known], weights=rates[known]), abs=1e-4)
    unknown, _ = draw_map(SMALL, verdict())
    assert {of_call[column] for of_call in calls_of(unknown).values()} == {None}


def test_a_namespace_is_unfolded_on_request() -> None:
    mesh = large()
    asked, _ = draw_map(mesh, verdict(), "pay", "nowhere")
    assert asked.collapsed == ["batch", "shop"]
    assert sum(asked.nodes.services) == mesh.num_nodes
    assert {name for name in asked.nodes.name if name.startswith("pay/")} == {f"pay/s{i}" for i in range(60)}


def test_services_of_an_incident_and_beside_it_have_nodes_of_their_own() -> None:
    names = [f"{space}/s{i}" for space in ("shop", "pay", "batch") for i in range(90)]
    calls = {
        ("shop/s1", "shop/s0"): 5.0,
        ("shop/s0", "pay/s0"): 4.0,
        ("pay/s0", "batch/s0"): 3.0,
        ("batch/s1", "pay/s1"): 1.0,
    }
    mesh = mesh_of(names, calls)
    judgement = verdict(incident("x", "shop/s0", "pay/s0"), suspects={"shop/s0": 0.8})
    drawn, moment = draw_map(mesh, judgement)
    assert drawn.collapsed == ["batch", "pay", "shop"]
    count = dict(zip(drawn.nodes.name, drawn.nodes.services, strict=True))
    assert count == {"shop/s0": 1, "shop/s1": 1, "shop/*": 88, "pay/s0": 1, "pay/*": 89, "batch/s0": 1, "batch/*": 89}
    at = {name: i for i, name in enumerate(drawn.nodes.name)}
    assert [drawn.nodes.incident[at[name]] for name in ("shop/s0", "pay/s0", "pay/*")] == ["x", "x", None]
    own = {pair for pair in calls if pair[0] != "batch/s1"}
    assert set(calls_of(drawn)) == own | {("batch/*", "pay/*")}
    scores = np.nan_to_num(moment.deviations.services)
    unusual = {name for name, score in zip(mesh.node_ids, scores, strict=True) if score > 3}
    assert drawn.nodes.unusual[at["shop/*"]] == len(unusual & {f"shop/s{i}" for i in range(2, 90)})
    assert drawn.nodes.unusual[at["pay/s0"]] == int("pay/s0" in unusual)


def test_of_a_hub_only_the_busiest_neighbours_have_nodes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.web.graph.map.MAX_NEIGHBOURS", 3)
    names = ["shop/hub", *(f"shop/s{i}" for i in range(250))]
    mesh = mesh_of(names, {(name, "shop/hub"): float(i) for i, name in enumerate(names[1:], 1)})
    drawn, _ = draw_map(mesh, verdict(incident("x", "shop/hub")))
    assert sorted(drawn.nodes.name) == ["shop/*", "shop/hub", "shop/s247", "shop/s248", "shop/s249"]


def test_a_namespace_without_room_stays_folded() -> None:
    drawn, _ = draw_map(large(), verdict(), "batch", "pay")
    assert drawn.collapsed == ["batch", "shop"]


def test_a_folded_namespace_shows_its_worst_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.web.graph.map.MAX_INVOLVED", 0)
    judgement = verdict(
        incident("worse", "batch/s9", "batch/s1"),
        incident("other", "batch/s3"),
        suspects={"batch/s9": 0.8, "batch/s3": 0.2},
    )
    drawn, _ = draw_map(large(), judgement)
    assert drawn.collapsed == sorted(LARGE)
    assert drawn.nodes.gone == [False] * 3


def test_a_disappeared_service_is_drawn_with_its_last_calls() -> None:
    without = mesh_of(list(SMALL.node_ids[:3]), {("shop/web", "shop/cart"): 8.0, ("shop/cart", "pay/card"): 4.0})
    judgement = verdict(incident("x", "pay/ledger", "pay/card"), suspects={"pay/ledger": 0.9, "never/seen": 0.1})
    drawn, _ = draw_map(without, judgement, before=(SMALL, without))
    assert (drawn.services, drawn.calls) == (3, 2)
    names = [*SMALL.node_ids[:3], "never/seen", "pay/ledger"]
    assert (drawn.nodes.name, drawn.nodes.gone) == (names, [False, False, False, True, True])
    assert drawn.nodes.deviation[3:] == [None, None]
    lost = [ends for ends, (rate, *_) in calls_of(drawn).items() if rate is None]
    assert lost == [("pay/card", "pay/ledger")]


def test_a_disappeared_service_does_not_change_a_folded_namespace() -> None:
    mesh = large()
    assert (mesh.edge_index == mesh.num_nodes - 1).any(), "it had calls, and their rates are unknown now"
    names = [*mesh.node_ids[:-1]]
    kept = np.flatnonzero((mesh.edge_index < len(names)).all(axis=0))
    calls = {(names[a], names[b]): float(mesh.edge_features[e, 0]) for e in kept for a, b in [mesh.edge_index[:, e]]}
    drawn, _ = draw_map(mesh_of(names, calls), verdict(incident("x", mesh.node_ids[-1])), before=(mesh,))
    assert sum(drawn.nodes.services) == mesh.num_nodes, "those that are gone count"
    at = drawn.nodes.name.index("batch/*")
    assert not drawn.nodes.gone[at]
