"""Mutes over HTTP: set, list, show in verdicts, remove."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.actions.mutes import MAX_MUTES
from serve_app.api.schemas.actions import KeptMuteDocument
from tests.serve_app.running import Service, check_malformed_documents, problem, push, read_store, record_simulation

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

MESH = "muted"
PATH = f"/v1/meshes/{MESH}/mutes"
SNAPSHOTS = record_simulation(MeshSpec(services=30, seed=3), 26, fault_from=18)
PUSHED = 23


def text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


NOW = SNAPSHOTS[PUSHED - 1].observed_at
END = text(NOW + timedelta(hours=2))
SERVICE = SNAPSHOTS[0].node_ids[0]


@pytest.fixture(scope="module")
def incident_services(service: Service) -> list[str]:
    """The services of the mesh's open incident so far."""
    verdicts = [push(service, MESH, snapshot) for snapshot in SNAPSHOTS[:PUSHED]]
    assert verdicts[-1]["muted"] == []
    found = sorted({name for one in verdicts for incident in one["incidents"] for name in incident["affected"]})
    assert found
    return found


@pytest.fixture
def check_unchanged(service: Service, incident_services: list[str]) -> Iterator[None]:
    """Check that the stored data does not change during the test."""
    before = read_store(service)
    assert before[MESH][0] is not None
    yield
    assert read_store(service) == before


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no end": ({"end": None}, "/end"),
    "an end before it begins": ({"start": text(NOW + timedelta(hours=3))}, "/end"),
    "an end that has come": ({"end": text(NOW)}, "/end"),
    "too long": ({"end": text(NOW + timedelta(days=31))}, "/end"),
    "an end without a zone": ({"end": "2999-01-01T00:00:00"}, "/end"),
    "no reason": ({"reason": None}, "/reason"),
    "an empty reason": ({"reason": " "}, "/reason"),
    "a reason too long": ({"reason": "x" * 201}, "/reason"),
    "nobody": ({"services": []}, "/services"),
    "a service unknown": ({"services": [SERVICE, "shop/nobody"]}, "/services/1"),
    "a namespace unknown": ({"services": ["nowhere/*"]}, "/services/0"),
    "everything, misspelt": ({"services": ["*"]}, "/services/0"),
    "a field too many": ({"until": END}, "/until"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.usefixtures("check_unchanged")
def test_invalid_mutes_are_refused(service: Service, case: str) -> None:
    change, pointer = WRONG[case]
    document = {"end": END, "reason": "x", **change}
    document = {name: value for name, value in document.items() if value is not None}
    problem(service.http.post(PATH, json=document), 422, "invalid-document", pointer)


@pytest.mark.usefixtures("check_unchanged")
def test_unknown_meshes_and_mutes_are_not_found(service: Service) -> None:
    said, nowhere = {"end": END, "reason": "x"}, "/v1/meshes/nobody/mutes"
    for response in (service.http.post(nowhere, json=said), service.http.get(nowhere)):
        problem(response, 404, "unknown-mesh")
    problem(service.http.delete(f"{nowhere}/x"), 404, "unknown-mesh")
    problem(service.http.delete(f"{PATH}/x"), 404, "unknown-mute")
    check_malformed_documents(service, PATH)


def test_a_mute_is_stored_listed_applied_and_removed(service: Service, incident_services: list[str]) -> None:
    said = {"services": [*incident_services, incident_services[0]], "end": END, "reason": "database upgrade"}
    response = service.http.post(PATH, json=said)
    assert response.status_code == 200, response.text
    mute = response.json()
    assert KeptMuteDocument.model_validate_json(response.content).in_force
    assert (mute["services"], mute["start"], mute["end"]) == (incident_services, text(NOW), END)
    before = read_store(service)
    assert service.http.post(PATH, json=said).json() == mute
    assert read_store(service) == before, "a repeated mute writes nothing"

    verdict = push(service, MESH, SNAPSHOTS[PUSHED])
    assert verdict["incidents"] == []
    (muted,) = verdict["muted"]
    assert set(muted["hides"]) <= set(incident_services)
    assert muted["hides"]
    assert muted | {"hides": []} == {
        "id": mute["id"],
        "origin": "api",
        "services": incident_services,
        "reason": "database upgrade",
        "until": END,
        "hides": [],
    }
    assert service.http.get(f"/v1/meshes/{MESH}/verdict").json()["muted"] == verdict["muted"]
    assert f'tagae_mesh_mutes{{mesh="{MESH}"}} 1.0' in service.http.get("/metrics").text
    assert service.http.post(PATH, json=said).json() == mute, "not even after another snapshot"

    start, end = (text(NOW + timedelta(hours=h)) for h in (5, 6))
    window = service.http.post(PATH, json={"start": start, "end": end, "reason": "move"}).json()
    assert (window["services"], window["in_force"]) == ([], False)
    assert service.http.get(PATH).json() == {"mutes": [mute, window]}
    for one in (mute, window):
        taken = service.http.delete(f"{PATH}/{one['id']}")
        assert (taken.status_code, taken.content) == (204, b"")
    problem(service.http.delete(f"{PATH}/{mute['id']}"), 404, "unknown-mute")
    assert service.http.get(PATH).json() == {"mutes": []}
    again = push(service, MESH, SNAPSHOTS[PUSHED + 1])
    assert again["incidents"], "a lasting fault raises an alert at once"
    assert again["muted"] == []


def test_no_acknowledged_mute_is_lost_among_snapshots(service: Service) -> None:
    mesh = "muted-while-pushed"
    path = f"/v1/meshes/{mesh}/mutes"
    push(service, mesh, SNAPSHOTS[0])
    said = [{"end": END, "reason": f"number {i}"} for i in range(24)]
    with ThreadPoolExecutor(4) as threads:
        given = [threads.submit(service.http.post, path, json=one) for one in said]
        for snapshot in SNAPSHOTS[1:13]:
            push(service, mesh, snapshot)
        taken = [future.result().json()["id"] for future in given[:8]]
        lifted = [threads.submit(service.http.delete, f"{path}/{mute}") for mute in taken]
        for snapshot in SNAPSHOTS[13:18]:
            push(service, mesh, snapshot)
    assert {future.result().status_code for future in given} == {200}
    assert {future.result().status_code for future in lifted} == {204}
    left = {one["id"]: one["reason"] for one in service.http.get(path).json()["mutes"]}
    assert sorted(left.values()) == sorted(one["reason"] for one in said[8:])
    verdict = push(service, mesh, SNAPSHOTS[18])
    assert {one["id"] for one in verdict["muted"]} == left.keys()
    assert service.http.delete(f"/v1/meshes/{mesh}").status_code == 204


def test_a_mute_ends_with_the_first_snapshot_after_its_end_and_mutes_are_limited(service: Service) -> None:
    mesh = "muted-often"
    path = f"/v1/meshes/{mesh}/mutes"
    for snapshot in SNAPSHOTS[:2]:
        push(service, mesh, snapshot)
    now = SNAPSHOTS[1].observed_at
    short = service.http.post(path, json={"end": text(now + timedelta(seconds=20)), "reason": "short"}).json()
    for i in range(MAX_MUTES - 1):
        said = {"end": text(now + timedelta(hours=1)), "reason": f"number {i}"}
        assert service.http.post(path, json=said).status_code == 200
    one_more = {"end": text(now + timedelta(hours=1)), "reason": "one more"}
    problem(service.http.post(path, json=one_more), 409, "too-many-mutes")
    assert push(service, mesh, SNAPSHOTS[2])["muted"][0]["id"] == short["id"]
    assert short["id"] not in {one["id"] for one in push(service, mesh, SNAPSHOTS[3])["muted"]}
    assert service.http.post(path, json=one_more).status_code == 200
    assert service.http.delete(f"/v1/meshes/{mesh}").status_code == 204
