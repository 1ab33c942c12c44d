"""What people do about an incident: stored once, with who and when, in the archive, the report and the audit log."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.access import Scope, editing
from serve_app.actions.incident_actions import MAX_ACTIONS
from serve_app.api.client import Client
from serve_app.api.schemas.actions import KeptActionDocument
from serve_app.api.schemas.base import MAX_NOTE
from tests.serve_app.running import Service, problem, push, read_store, record_simulation, start_service
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

MESH = "acted"
INCIDENTS = f"/v1/meshes/{MESH}/incidents"
SNAPSHOTS = record_simulation(MeshSpec(services=30, seed=3), 26, fault_from=18)
HOSTILE = "<script>alert(1)</script> <!channel> *bold* | a\nsecond line"


@pytest.fixture(scope="module")
def incident(service: Service) -> str:
    """Id of the mesh's open incident."""
    verdicts = [push(service, MESH, snapshot) for snapshot in SNAPSHOTS[:-3]]
    found: str = verdicts[-1]["incidents"][0]["id"]
    return found


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/kind"),
        ({"kind": "leave"}, "/kind"),
        ({"kind": "note"}, "/text"),
        ({"kind": "done", "text": " \n"}, "/text"),
        ({"kind": "note", "text": 1}, "/text"),
        ({"kind": "note", "text": "x" * (MAX_NOTE + 1)}, "/text"),
        ({"kind": "note", "text": "\x1b[2J"}, "/text"),
        ({"kind": "acknowledge", "mood": "calm"}, "/mood"),
        ([], ""),
    ],
)
def test_a_wrong_body_is_refused(service: Service, incident: str, body: Any, pointer: str) -> None:
    before = read_store(service)
    problem(service.http.post(f"{INCIDENTS}/{incident}/actions", json=body), 422, "invalid-document", pointer)
    assert read_store(service) == before


def test_an_unknown_incident_is_refused(service: Service, incident: str) -> None:
    before = read_store(service)
    for kind, expected in (("acknowledge", "an incident, open or archived"), ("accept", "an open incident")):
        found = problem(service.http.post(f"{INCIDENTS}/nothing/actions", json={"kind": kind}), 404, "unknown-incident")
        assert f"expected {expected} ({incident}), got 'nothing'" in found["detail"]
    path = f"/v1/meshes/nobody/incidents/{incident}/actions"
    problem(service.http.post(path, json={"kind": "acknowledge"}), 404, "unknown-mesh")
    problem(service.http.post(f"{INCIDENTS}/{incident}/actions", content=b"{"), 400, "malformed-document")
    assert service.http.get(f"{INCIDENTS}/{incident}/actions").status_code == 405
    assert read_store(service) == before


def test_an_accepted_incident_ends_with_the_next_snapshot(service: Service, incident: str) -> None:
    path, accept = f"{INCIDENTS}/{incident}/actions", {"kind": "accept", "text": "the new release needs it"}
    response = service.http.post(path, json=accept)
    assert response.status_code == 200, response.text
    kept = response.json()
    assert KeptActionDocument.model_validate(kept).at == SNAPSHOTS[-4].observed_at
    assert (kept["incident"], kept["text"], kept["by"]) == (incident, accept["text"], "")
    before = read_store(service)
    assert service.http.post(path, json={"kind": "accept"}).json() == kept, "a level is accepted once"
    assert read_store(service) == before, "and a repeated request writes nothing"
    (still_open,) = service.http.get(INCIDENTS).json()["incidents"]
    assert (still_open["id"], still_open["actions"]) == (incident, [kept])
    verdicts = [push(service, MESH, snapshot) for snapshot in SNAPSHOTS[-3:]]
    assert [one["id"] for verdict in verdicts for one in verdict["incidents"] if one["id"] == incident] == []
    ended = service.http.get(f"{INCIDENTS}/{incident}").json()
    assert (ended["actions"], ended["until"]) == ([kept], verdicts[0]["observed_at"])
    assert service.http.post(path, json=accept).json() == kept, "also after its end"


@contextmanager
def run_single(store: Path, tokens: Path) -> Iterator[str]:
    """Run a service of one process, yield its URL, and kill it."""
    chosen = {
        "store.path": store,
        "serve.tokens_file": tokens,
        "limits.max_ahead_seconds": "inf",
        "serve.deadline_seconds": PATIENCE_SECONDS,
    }
    assigned = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    with start_service("--single", "--port", "0", *assigned) as (_, url):
        yield url


def test_what_people_did_outlives_the_incident_and_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    scopes = {
        "ana": [Scope.READ, Scope.WRITE],
        "ben": [Scope.READ, Scope.WRITE],
        "root": [Scope.ADMIN],
        "eve": [Scope.READ],
    }
    tokens = {name: editing.create(file, name, of) for name, of in scopes.items()}

    def act(url: str, who: str, kind: str, text: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {tokens[who]}"}
        return httpx.post(f"{url}{INCIDENTS}/{incident}/actions", json={"kind": kind, "text": text}, headers=headers)

    with run_single(tmp_path / "state", file) as url, Client(url, token=tokens["root"]) as client:
        for snapshot in SNAPSHOTS[:-3]:
            verdict = client.push(MESH, snapshot)
        incident = verdict.incidents[0].id
        given = [("ana", "acknowledge", ""), ("ben", "acknowledge", ""), ("ben", "note", HOSTILE)]
        kept = [act(url, *one).raise_for_status().json() for one in given]
        assert [(one["by"], one["kind"], one["text"]) for one in kept] == given
        assert {one["at"] for one in kept} == {verdict.model_dump(mode="json")["observed_at"]}
        assert [act(url, *one).json() for one in given] == kept, "a repeated request gets the same answer"
        problem(act(url, "eve", "acknowledge"), 403, "forbidden")
    with run_single(tmp_path / "state", file) as url, Client(url, token=tokens["root"]) as client:
        assert [one.model_dump(mode="json") for one in client.incident(MESH, incident).actions] == kept
        act(url, "ana", "accept").raise_for_status()
        for snapshot in SNAPSHOTS[-3:]:
            client.push(MESH, snapshot)
        assert act(url, "ana", "done", "restarted it").status_code == 200, "also when it is over"
        for number in range(MAX_ACTIONS - len(given) - 2):
            act(url, "ben", "note", f"note {number}").raise_for_status()
        found = problem(act(url, "ben", "note", "one more"), 409, "too-many-actions")
        assert f"the limit of {MAX_ACTIONS} actions" in found["detail"]
        assert act(url, *given[-1]).json() == kept[-1], "what is there can still be repeated"
        ended = client.incident(MESH, incident)
        assert ended.until is not None
        assert len(ended.actions) == MAX_ACTIONS
        html, markdown = (
            httpx.get(
                f"{url}/v1/meshes/{MESH}/report",
                params={"incident": incident, "format": form},
                headers={"authorization": f"Bearer {tokens['eve']}"},
            ).text
            for form in ("html", "markdown")
        )
        assert "ana is on it" in html
        assert "What helped, by ana: restarted it" in markdown
        assert "&lt;script&gt;alert(1)" in html
        assert "<script" not in html
        assert r"\<script\>alert(1)\</script\> \<\!channel\> \*bold\* \| a second line" in markdown
        records = httpx.get(
            f"{url}/v1/audit", params={"limit": 200}, headers={"authorization": f"Bearer {tokens['root']}"}
        ).json()["records"]
        acted = [(one["user"], one["names"], one["status"]) for one in records if one["action"] == "add_action"]
        assert ("ana", [incident, "acknowledge"], 200) in acted
        assert ("ben", [incident, "note"], 409) in acted
