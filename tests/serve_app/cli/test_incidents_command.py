"""``tagae incidents``: paragraphs for people, lines of JSON for programs, and errors that say what to do."""

import json
from typing import Any

import pytest
from typer.testing import Result

from lab.simulator.mesh.topology import MeshSpec
from tests.serve_app.cli.command import tagae
from tests.serve_app.running import Service, failing, push, record_simulation

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

SPEC = MeshSpec(services=30, seed=3)
SNAPSHOTS = record_simulation(SPEC, 24, fault_from=16)
MESH = "listed"


@pytest.fixture(scope="module")
def incident(service: Service) -> dict[str, Any]:
    """The open incident of a mesh in which a service fails."""
    verdicts = [push(service, MESH, snapshot) for snapshot in SNAPSHOTS]
    document: dict[str, Any] = verdicts[-1]["incidents"][0]
    return document


def run(service: Service, *arguments: str, columns: int = 250) -> Result:
    """One run of the command on a wide terminal."""
    return tagae("incidents", "list", "--url", service.url, "--mesh", MESH, *arguments, columns=columns)


@pytest.mark.parametrize("columns", [250, 40])
def test_a_list_shows_when_what_and_which(service: Service, incident: dict[str, Any], columns: int) -> None:
    result = run(service, columns=columns)
    assert result.exit_code == 0, result.stderr
    since = incident["since"][:16].replace("T", " ")
    for text in (since, "open", incident["severity"], incident["kind"].replace("_", " "), incident["headline"]):
        assert text in result.stdout
    assert any(line.startswith(f"{incident['id']} ") for line in result.stdout.splitlines()), "it can be copied"
    assert f"of mesh {MESH} since" in result.stderr


def test_lines_of_json_are_documents_of_the_api(service: Service, incident: dict[str, Any]) -> None:
    lines = run(service, "--json", "--since", "2025-12-01").stdout.splitlines()
    incidents = {document["id"]: document for document in map(json.loads, lines)}
    assert incidents[incident["id"]]["headline"] == incident["headline"]
    assert incidents[incident["id"]]["until"] is None
    for arguments in (("--service", failing(SPEC)), ("--since", "2d"), ("--since", "12h")):
        assert incident["id"] in run(service, "--json", *arguments).stdout


@pytest.mark.usefixtures("incident")
def test_an_empty_list_says_what_to_try(service: Service) -> None:
    result = run(service, "--until", "2025-12-08", "--since", "2025-12-01")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no incidents" in result.stderr
    assert "try an earlier --since" in result.stderr
    assert "shop/nobody" in run(service, "--service", "shop/nobody").stderr


@pytest.mark.usefixtures("incident")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--since", "yesterday"), "expected a time such as"),
        (("--since", "2026-03-01", "--until", "2026-02-01"), "expected a time after --since"),
        (("--mesh", "nobody"), "expected one of the meshes"),
    ],
)
def test_wrong_options_are_refused(service: Service, arguments: tuple[str, ...], text: str) -> None:
    result = run(service, *arguments)
    assert result.exit_code == 2
    assert text in " ".join(result.stderr.split())


def test_an_id_of_a_message_finds_its_incident(service: Service, incident: dict[str, Any]) -> None:
    """In any mesh: a message has the id, and a person may not know the mesh."""
    arguments = ["incidents", "show", incident["id"], "--url", service.url]
    result = tagae(*arguments)
    assert result.exit_code == 0, result.stderr
    first, headline, *_ = result.stdout.splitlines()
    assert first.startswith(f"{incident['id']} ")
    assert f"mesh {MESH}" in first
    assert failing(SPEC) in headline
    assert f"1. {incident['suspects'][0]['service']} (" in result.stdout
    assert f"{service.url}/#mesh={MESH}&incident={incident['id']}" in result.stdout
    (line,) = tagae(*arguments, "--json").stdout.splitlines()
    assert json.loads(line)["id"] == incident["id"]


def test_an_id_that_no_mesh_has_says_where_to_look(service: Service) -> None:
    arguments = ["incidents", "show", "20260101T000000Z-00000000", "--url", service.url]
    result = tagae(*arguments)
    assert result.exit_code == 1
    assert "incident '20260101T000000Z-00000000': unknown in " in result.stderr
    assert "tagae incidents list --since 90d" in result.stderr


def test_a_person_says_what_they_do_about_an_incident(service: Service, incident: dict[str, Any]) -> None:
    def act(kind: str, name: str, *text: str) -> Result:
        return tagae("incidents", "act", kind, name, *text, "--url", service.url, "--mesh", MESH)

    for arguments, reason in (
        (("accept", "nothing"), "expected an open incident"),
        (("note", incident["id"]), "expected a text, which an action of the kind note needs"),
    ):
        refusal = act(*arguments)
        assert (refusal.exit_code, reason in " ".join(refusal.stderr.split())) == (1, True), refusal.stderr
    for kind, text, words in (
        ("acknowledge", "", "someone is on it"),
        ("note", "[red]the pool is full", "Note by someone: [red]the pool is full"),
        (
            "accept",
            "a new release",
            "Accepted as normal by someone: a new release; the incident ends with the next snapshot",
        ),
    ):
        result = act(kind, incident["id"], text)
        assert result.exit_code == 0, result.stderr
        assert f"{incident['id']}: {words}" in " ".join(result.stderr.split())
    (document,) = service.http.get(f"/v1/meshes/{MESH}/incidents").json()["incidents"]
    assert [action["kind"] for action in document["actions"]] == ["acknowledge", "note", "accept"]
    assert "; someone is on it" in run(service).stdout
    output = tagae("incidents", "show", incident["id"], "--url", service.url).stdout
    assert " UTC  Note by someone: [red]the pool is full" in output
