"""The route that accepts the present level of an incident as normal."""

from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.schemas.actions import KeptAcceptanceDocument
from tests.serve_app.running import Service, problem, push, read_store, record_simulation

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

MESH = "accepted"
INCIDENTS = f"/v1/meshes/{MESH}/incidents"
SNAPSHOTS = record_simulation(MeshSpec(services=30, seed=3), 26, fault_from=18)


@pytest.fixture(scope="module")
def incident(service: Service) -> str:
    """Id of the mesh's open incident."""
    verdicts = [push(service, MESH, snapshot) for snapshot in SNAPSHOTS[:-3]]
    found: str = verdicts[-1]["incidents"][0]["id"]
    return found


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({"note": 1}, "/note"), ({"note": "x" * 1001}, "/note"), ({"mood": "calm"}, "/mood"), ([], "")],
)
def test_a_wrong_body_is_refused(service: Service, incident: str, body: Any, pointer: str) -> None:
    before = read_store(service)
    problem(service.http.post(f"{INCIDENTS}/{incident}/accept", json=body), 422, "invalid-document", pointer)
    assert read_store(service) == before


def test_only_an_open_incident_can_be_accepted(service: Service, incident: str) -> None:
    before = read_store(service)
    found = problem(service.http.post(f"{INCIDENTS}/nothing/accept"), 404, "unknown-incident")
    assert f"expected an open incident ({incident}), got 'nothing'" in found["detail"]
    problem(service.http.post(f"/v1/meshes/nobody/incidents/{incident}/accept"), 404, "unknown-mesh")
    problem(service.http.post(f"{INCIDENTS}/{incident}/accept", content=b"{"), 400, "malformed-document")
    assert service.http.get(f"{INCIDENTS}/{incident}/accept").status_code == 405
    assert read_store(service) == before


def test_an_accepted_incident_ends_with_the_next_snapshot(service: Service, incident: str) -> None:
    path = f"{INCIDENTS}/{incident}/accept"
    response = service.http.post(path, json={"note": "the new release needs it"})
    assert response.status_code == 200, response.text
    kept = response.json()
    assert KeptAcceptanceDocument.model_validate(kept).accepted_at == SNAPSHOTS[-4].observed_at
    assert (kept["incident"], kept["note"], kept["accepted_by"]) == (incident, "the new release needs it", "")
    before = read_store(service)
    assert service.http.post(path).json() == kept, "a repeated request gets the same answer"
    assert read_store(service) == before, "and writes nothing"
    (still_open,) = service.http.get(INCIDENTS).json()["incidents"]
    assert (still_open["id"], still_open["accepted"]) == (incident, kept)
    verdicts = [push(service, MESH, snapshot) for snapshot in SNAPSHOTS[-3:]]
    assert [one["id"] for verdict in verdicts for one in verdict["incidents"] if one["id"] == incident] == []
    ended = service.http.get(f"{INCIDENTS}/{incident}").json()
    assert ended["accepted"] == kept
    assert ended["until"] == verdicts[0]["observed_at"]
    assert service.http.post(path).json() == kept, "also after its end"
