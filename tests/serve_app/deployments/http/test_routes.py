"""Routes of a running service besides pushing: scoring without storing, verdicts, graph, model."""

import json
from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import load
from model.features import SCHEMA
from serve_app.api.client import Client
from serve_app.api.codec import ARROW, JSON, snapshot_document
from serve_app.api.codec import encode_snapshot as encode
from tests.serve_app.running import (
    Service,
    assert_same,
    expected,
    list_meshes,
    problem,
    push,
    record_simulation,
)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

IN_JSON = {"content-type": JSON}
SMALL = MeshSpec(services=30, seed=3)
CUT = MeshSpec(services=120, namespaces=6, seed=5)


@pytest.fixture(scope="module")
def watched_verdicts(service: Service) -> list[dict[str, Any]]:
    """Verdicts of the mesh ``watched``, which has several parts and a fault."""
    return [push(service, "watched", snapshot) for snapshot in record_simulation(CUT, 16, fault_from=12)]


def test_scoring_gives_the_verdicts_of_pushing_and_stores_nothing(service: Service) -> None:
    snapshots = record_simulation(CUT, 16, fault_from=12)
    before = list_meshes(service)
    response = service.http.post("/v1/score", json={"snapshots": [snapshot_document(s) for s in snapshots]})
    assert response.status_code == 200, response.text
    verdict = response.json()
    assert (verdict["status"], verdict["sequence"]) == ("anomalous", 16)
    assert_same(verdict, expected(service, snapshots)[-1])
    assert "decide;dur=" in response.headers["server-timing"]
    assert list_meshes(service) == before


def test_scoring_needs_enough_snapshots_in_order(service: Service) -> None:
    documents = [snapshot_document(s) for s in record_simulation(SMALL, 10)]
    few = service.http.post("/v1/score", json={"snapshots": documents[:9]})
    assert "at least 10" in problem(few, 422, "invalid-document", "/snapshots")["detail"]
    many = service.http.post("/v1/score", json={"snapshots": documents * 13})
    problem(many, 413, "document-too-large", "/snapshots")
    twice = json.dumps({"snapshots": documents})[:-1] + ', "snapshots": []}'
    problem(service.http.post("/v1/score", content=twice, headers=IN_JSON), 422, "invalid-document", "/snapshots")
    heavy = b'{"snapshots": [' + b"0," * 2**21 + b"0]}"
    assert (
        "too much memory"
        in problem(service.http.post("/v1/score", content=heavy, headers=IN_JSON), 413, "document-too-large")["detail"]
    )
    documents[4], documents[5] = documents[5], documents[4]
    problem(
        service.http.post("/v1/score", json={"snapshots": documents}),
        422,
        "invalid-document",
        "/snapshots/5/observed_at",
    )


def test_stored_verdicts_are_read_in_pages(service: Service, watched_verdicts: list[dict[str, Any]]) -> None:
    path = "/v1/meshes/watched/verdicts"
    assert service.http.get(path).json() == {"verdicts": watched_verdicts}
    page = service.http.get(path, params={"limit": 5}).json()["verdicts"]
    assert page == watched_verdicts[:5]
    since = page[-1]["observed_at"]
    assert service.http.get(path, params={"since": since}).json() == {"verdicts": watched_verdicts[5:]}
    last = watched_verdicts[-1]["observed_at"]
    assert service.http.get(path, params={"since": last}).json() == {"verdicts": []}


def test_the_plan_accounts_for_every_service_and_call(service: Service, watched_verdicts: list[dict[str, Any]]) -> None:
    plan = service.http.get("/v1/meshes/watched/plan").json()
    assert (plan["observed_at"], plan["services"]) == (watched_verdicts[-1]["observed_at"], 120)
    parts = plan["parts"]
    assert [p["part"] for p in parts] == list(range(len(parts)))
    assert len(parts) >= 3
    assert sum(p["services"] for p in parts) == 120
    assert sum(p["calls"] for p in parts) == plan["calls"]
    assert max(p["services"] for p in parts) <= 40
    assert plan["quality"]["call_cut"] == pytest.approx(plan["crossing_calls"] / plan["calls"])
    assert plan["quality"]["replication"] == pytest.approx(1 + sum(p["halo"] for p in parts) / 120)
    assert all("members" not in p for p in parts)
    named = service.http.get("/v1/meshes/watched/plan", params={"members": "true"}).json()["parts"]
    assert [len(p["members"]) for p in named] == [p["services"] for p in parts]
    assert {m.split("/")[0] for m in named[0]["members"]} == set(named[0]["namespaces"])


def test_a_young_mesh_has_no_drift_but_all_measures(service: Service, watched_verdicts: list[dict[str, Any]]) -> None:
    with Client(service.url) as client:
        drift = client.drift("watched")
    assert (drift.judged_until, drift.advice) == (None, [])
    assert {measure.reference for measure in drift.measures} == {"training", "week"}
    assert drift.quality.stale == []


def test_the_graph_is_the_newest_snapshot_with_its_scores(
    service: Service, watched_verdicts: list[dict[str, Any]]
) -> None:
    newest = snapshot_document(record_simulation(CUT, 16, fault_from=12)[-1])
    graph = service.http.get("/v1/meshes/watched/graph").json()
    assert (graph["observed_at"], graph["status"]) == (watched_verdicts[-1]["observed_at"], "anomalous")
    added = ("deviation", "suspicion", "incident")
    bare = [{k: v for k, v in service.items() if k not in added} for service in graph["services"]]
    assert bare == newest["services"]
    assert [{k: v for k, v in call.items() if k not in added} for call in graph["calls"]] == newest["calls"]
    by_name = {f"{s['namespace']}/{s['name']}": s for s in graph["services"]}
    incident = watched_verdicts[-1]["incidents"][0]
    culprit = by_name[incident["suspects"][0]["service"]]
    assert culprit["incident"] == incident["id"]
    assert culprit["suspicion"] == watched_verdicts[-1]["suspects"][0]["score"]
    deviations = [s["deviation"] for s in graph["services"]]
    assert all(0 <= d <= 15 for d in deviations)
    assert culprit["deviation"] > sorted(deviations)[len(deviations) // 2] + 1, (
        "the culprit deviates more than the others"
    )
    most_unusual = max(graph["calls"], key=lambda c: c["deviation"])
    assert most_unusual["deviation"] > 2


def test_a_graph_can_be_limited_to_the_surroundings_of_a_service_or_of_the_incidents(
    service: Service, watched_verdicts: list[dict[str, Any]]
) -> None:
    whole = service.http.get("/v1/meshes/watched/graph").json()
    incident = watched_verdicts[-1]["incidents"][0]
    touched = {*incident["affected"], *(suspect["service"] for suspect in incident["suspects"])}
    culprit = incident["suspects"][0]["service"]
    for wanted, names in (({"service": culprit}, {culprit}), ({"incidents": "true"}, touched)):
        graph = service.http.get("/v1/meshes/watched/graph", params=wanted).json()
        calls = [call for call in whole["calls"] if names & {call["source"], call["destination"]}]
        around = names | {call[end] for call in calls for end in ("source", "destination")}
        assert graph["calls"] == calls
        assert graph["services"] == [s for s in whole["services"] if f"{s['namespace']}/{s['name']}" in around]
        assert 0 < len(graph["services"]) < len(whole["services"])
        assert {name: graph[name] for name in ("observed_at", "status")} == {
            name: whole[name] for name in ("observed_at", "status")
        }
    unknown = service.http.get("/v1/meshes/watched/graph", params={"service": "no/such"})
    assert unknown.status_code == 422
    assert "got 'no/such'" in unknown.json()["detail"]
    both = service.http.get("/v1/meshes/watched/graph", params={"service": culprit, "incidents": "true"})
    problem(both, 422, "invalid-parameter", "/incidents")


def test_a_mesh_with_verdicts_refuses_a_baseline_and_continues_as_if_none_had_come(service: Service) -> None:
    """A baseline has any time: it would look like a gap, end open incidents, and teach a fault as normal."""
    snapshots = record_simulation(SMALL, 5)
    for snapshot in snapshots[:3]:
        push(service, "baselined", snapshot)
        push(service, "twin", snapshot)
    before = service.http.get("/v1/meshes/baselined/graph").json()
    refused = service.http.post("/v1/meshes/baselined/baseline", json=snapshot_document(snapshots[4]))
    problem(refused, 409, "baseline-too-late")
    assert "delete the mesh" in refused.json()["detail"]
    assert service.http.get("/v1/meshes/baselined/graph").json() == before
    mine, twin = (push(service, mesh, snapshots[3]) for mesh in ("baselined", "twin"))
    assert_same(mine, twin)


def test_the_model_route_describes_the_model(service: Service) -> None:
    checkpoint = load(service.weights)
    model = service.http.get("/v1/model").json()
    assert model["digest"] == checkpoint.digest
    assert [c["name"] for c in model["features"]["services"]] == [c.name for c in SCHEMA.node]
    assert [c["unit"] for c in model["features"]["calls"]] == [c.unit for c in SCHEMA.edge]
    assert model["architecture"]["embedding"] == checkpoint.network.config.embedding
    assert model["parameters"] > 100_000
    assert model["provenance"] == checkpoint.provenance


def test_every_answer_has_its_duration(service: Service, watched_verdicts: list[dict[str, Any]]) -> None:
    for path in ("verdict", "verdicts", "plan", "graph", "incidents", "nothing"):
        assert service.http.get(f"/v1/meshes/watched/{path}").headers["server-timing"].startswith("total;dur=")


def test_two_formats_are_read_and_described(service: Service) -> None:
    snapshot, path = record_simulation(SMALL, 1)[0], "/v1/meshes/formats/snapshots"
    for media_type in (JSON, ARROW):
        response = service.http.post(path, content=encode(snapshot, media_type), headers={"content-type": media_type})
        assert response.status_code == 200, response.text
    described = service.http.get("/openapi.json").json()["paths"]["/v1/meshes/{mesh}/snapshots"]["post"]["requestBody"]
    assert [*described["content"]] == [JSON, ARROW]
