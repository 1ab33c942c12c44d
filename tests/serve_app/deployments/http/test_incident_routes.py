"""Incidents over HTTP: open ones, a period in pages, one with its graph and series, and its report."""

from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.schemas.incidents import ArchivedIncidentDocument, IncidentsDocument
from tests.serve_app.running import Service, problem, push, record_simulation

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

SPEC = MeshSpec(services=30, seed=3)
SNAPSHOTS = record_simulation(SPEC, 24, fault_from=16)
MESH = "archived"
ROOT = f"/v1/meshes/{MESH}"
PATH = f"{ROOT}/incidents"
START = "2025-12-01T00:00:00Z"  # before all snapshots


@pytest.fixture(scope="module")
def verdicts(service: Service) -> list[dict[str, Any]]:
    """Of a mesh in which a service fails."""
    found = [push(service, MESH, snapshot) for snapshot in SNAPSHOTS]
    assert found[-1]["incidents"]
    return found


def read_list(running: Service, **parameters: object) -> IncidentsDocument:
    response = running.http.get(PATH, params={name: str(value) for name, value in parameters.items()})
    assert response.status_code == 200, response.text
    return IncidentsDocument.model_validate_json(response.content)


def test_open_incidents_and_those_of_a_period_are_read_list(service: Service, verdicts: list[dict[str, Any]]) -> None:
    newest = verdicts[-1]["incidents"]
    now = read_list(service)
    assert [one.id for one in now.incidents] == [one["id"] for one in newest]
    assert [one.headline for one in now.incidents] == [one["headline"] for one in newest]
    period = read_list(service, since=START)
    assert {one.id for one in period.incidents} >= {one["id"] for one in newest}
    assert [one.since for one in period.incidents] == sorted((one.since for one in period.incidents), reverse=True)
    assert read_list(service, until=START).incidents == []
    first = period.incidents[0]
    for parameters in ({"service": first.suspects[0].service}, {"kind": first.kind}, {"severity": first.severity}):
        assert first.id in {one.id for one in read_list(service, since=START, **parameters).incidents}
    assert read_list(service, since=START, service="shop/nobody").incidents == []


@pytest.mark.usefixtures("verdicts")
def test_pages_follow_each_other(service: Service) -> None:
    everything, cursor, found = read_list(service, since=START), None, []
    while True:
        page = read_list(service, since=START, limit=1, **({"cursor": cursor} if cursor else {}))
        found += [one.id for one in page.incidents]
        cursor = page.next
        if cursor is None:
            break
    assert found == [one.id for one in everything.incidents]
    assert everything.next is None


def test_one_incident_has_a_report_and_a_picture(service: Service, verdicts: list[dict[str, Any]]) -> None:
    worst = verdicts[-1]["incidents"][0]
    document = ArchivedIncidentDocument.model_validate_json(service.http.get(f"{PATH}/{worst['id']}").content)
    highest = max(one["score"] for verdict in verdicts for one in verdict["incidents"] if one["id"] == worst["id"])
    assert (document.id, document.until, document.score) == (worst["id"], None, highest)
    report = service.http.get(f"/v1/meshes/{MESH}/report", params={"incident": worst["id"]})
    assert (report.status_code, worst["id"] in report.text) == (200, True)
    picture = service.http.get(f"/v1/meshes/{MESH}/report", params={"incident": worst["id"], "format": "svg"})
    assert (picture.headers["content-type"], worst["id"] in picture.text) == ("image/svg+xml", True)


def test_a_deleted_mesh_has_no_incidents(service: Service) -> None:
    for snapshot in SNAPSHOTS:
        push(service, "dropped", snapshot)
    found = service.http.get("/v1/meshes/dropped/incidents").json()["incidents"][0]["id"]
    assert service.http.delete("/v1/meshes/dropped").status_code == 204
    push(service, "dropped", SNAPSHOTS[0])
    again = service.http.get("/v1/meshes/dropped/incidents", params={"since": START}).json()
    assert again["incidents"] == []
    problem(service.http.get(f"/v1/meshes/dropped/incidents/{found}"), 404, "unknown-incident")
