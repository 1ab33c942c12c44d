"""Feedback on incidents: its effect on later verdicts, and its routes to send, list and remove it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import numpy as np
import pytest

from lab.simulator.events.faults import Fault, candidates
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint
from model.incidents.feedback import Feedback, level_shifts
from model.snapshot import MeshSnapshot, NodeMetric
from model.state.serialization import pack_state, unpack_state
from model.verdict import Verdict
from serve_app.actions.feedback import add_feedback, encode_feedback, withdraw_feedback
from serve_app.api.schemas.actions import FeedbackDocument, KeptFeedbackDocument, MissedDocument, PageLevels
from serve_app.errors import TooMuchFeedback
from serve_app.pipeline import Mesh
from tests.builders import score_all
from tests.contract import check_same
from tests.serve_app.running import Service, check_malformed_documents, problem, push, read_store, record_simulation

pytestmark = pytest.mark.timeout(180)

FIRST, PAUSE, AGAIN, OTHER = range(30, 40), range(40, 55), range(55, 70), range(80, 95)
MOST = 200


@pytest.fixture(scope="module")
def days() -> list[MeshSnapshot]:
    """A service fails, fails again in the same way, and then another one fails."""
    simulator = Simulator(MeshSpec(services=40, seed=0), snapshots=OTHER.stop)
    able = sorted(candidates(simulator.mesh, "error_burst"), key=lambda i: -simulator.mesh.usual_rate[i])
    one, other = (simulator.node_ids[able[len(able) // n]] for n in (3, 2))
    for service, span in ((one, FIRST), (one, AGAIN), (other, OTHER)):
        simulator.schedule(Fault("error_burst", service, span.start, span.start + 8, 0.9))
    return list(simulator.snapshots())


def with_feedback(mesh: Mesh, said: FeedbackDocument | MissedDocument) -> Mesh:
    """Return the mesh with this feedback, stored and loaded again."""
    state, _ = add_feedback(mesh.state, said, MOST)
    return replace(mesh, state=unpack_state(pack_state(state), state.window))


def pages(verdicts: Sequence[Verdict], span: range, since: int) -> set[str]:
    """Return ids of incidents in a span of verdicts that begin with snapshot ``since``."""
    return {incident.id for i in span for incident in verdicts[i - since].incidents}


@pytest.fixture(scope="module")
def mesh_after_incident(checkpoint: Checkpoint, days: list[MeshSnapshot]) -> tuple[Mesh, str]:
    """The mesh in the pause after its first incident, and the id of this incident."""
    verdicts, mesh = score_all(checkpoint, Mesh(), days[: PAUSE.stop])
    (incident,) = pages(verdicts, FIRST, 0)
    return mesh, incident


def test_a_false_alarm_is_not_repeated_but_other_incidents_are_alerted(
    checkpoint: Checkpoint, days: list[MeshSnapshot], mesh_after_incident: tuple[Mesh, str]
) -> None:
    mesh, incident = mesh_after_incident
    rest = days[PAUSE.stop :]
    before, _ = score_all(checkpoint, mesh, rest)
    assert pages(before, AGAIN, PAUSE.stop)
    assert pages(before, OTHER, PAUSE.stop)
    spoken = with_feedback(mesh, FeedbackDocument(incident=incident, was_incident=False))
    after, _ = score_all(checkpoint, spoken, rest)
    assert not pages(after, AGAIN, PAUSE.stop)
    assert pages(after, OTHER, PAUSE.stop)
    assert after[0].threshold > before[0].threshold, "scores of that time are normal now"
    state, _ = withdraw_feedback(spoken.state, incident)
    again, _ = score_all(checkpoint, replace(spoken, state=state), rest)
    check_same(again, before)


def test_an_open_incident_ends_when_it_is_a_false_alarm(checkpoint: Checkpoint, days: list[MeshSnapshot]) -> None:
    verdicts, mesh = score_all(checkpoint, Mesh(), days[: FIRST.start + 5])
    (incident,) = verdicts[-1].incidents
    spoken = with_feedback(mesh, FeedbackDocument(incident=incident.id, was_incident=False))
    (verdict,), _ = score_all(checkpoint, spoken, days[FIRST.start + 5 : FIRST.start + 6])
    assert (verdict.status, verdict.incidents) == ("normal", ())


def test_a_notice_that_is_a_false_alarm_ends_and_does_not_return(
    checkpoint: Checkpoint, days: list[MeshSnapshot]
) -> None:
    quiet, short = days[:24], [_with_full_memory(snapshot) for snapshot in days[24:31]]
    verdicts, mesh = score_all(checkpoint, Mesh(), [*quiet, *short[:4]])
    assert (verdicts[-1].status, verdicts[-1].alerts) == ("normal", ())
    (notice,) = verdicts[-1].notices
    state, feedback = add_feedback(mesh.state, FeedbackDocument(incident=notice.id, was_incident=False), MOST)
    levels = encode_feedback(feedback).page_levels[notice.affected[0]]
    assert levels.shortage > 0
    assert (levels.latency, levels.errors, levels.disappearance) == (0, 0, 0)
    spoken = replace(mesh, state=unpack_state(pack_state(state), state.window))
    after, _ = score_all(checkpoint, spoken, short[4:])
    assert [verdict.incidents for verdict in after] == [()] * 3
    before, _ = score_all(checkpoint, mesh, short[4:])
    assert all(verdict.notices for verdict in before)


def _with_full_memory(snapshot: MeshSnapshot) -> MeshSnapshot:
    """Change the snapshot: the first service with measured memory uses nearly all of it."""
    features = snapshot.node_features.copy()
    memory = NodeMetric.MEMORY_UTILIZATION
    features[np.flatnonzero(snapshot.node_observed[:, memory])[0], memory] = 0.95
    return replace(snapshot, node_features=features)


def test_feedback_of_an_older_version_has_no_shortage() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    old = Feedback(
        incident="i",
        was_incident=False,
        services=("shop/cart",),
        since=at,
        until=at,
        given_at=at,
        moves={"shop/cart": (1.0, 0.5, 0.0, 0.0)},
    )
    assert encode_feedback(old).page_levels["shop/cart"] == PageLevels(
        latency=1.0, errors=0.5, disappearance=0.0, resources=0.0, shortage=0.0
    )
    assert level_shifts([old], ["shop/cart"]).tolist() == [[1.0, 0.5, 0.0, 0.0, 0.0]]


def test_a_missed_incident_makes_its_services_alert_sooner_and_a_culprit_is_named_first(
    checkpoint: Checkpoint, days: list[MeshSnapshot], mesh_after_incident: tuple[Mesh, str]
) -> None:
    mesh, incident = mesh_after_incident
    rest = days[PAUSE.stop : AGAIN.stop]
    before, _ = score_all(checkpoint, mesh, rest)
    members = next(one.members for one in mesh.state.memory.past if one.id == incident)
    missed = MissedDocument(services=list(members), since=days[20].observed_at)
    after, _ = score_all(checkpoint, with_feedback(mesh, missed), rest)
    assert max(v.mesh_score for v in after) > max(v.mesh_score for v in before)
    opened = next(v.incidents[0] for v in before if v.incidents)
    second = opened.suspects[1].service
    named = FeedbackDocument(incident=incident, was_incident=True, culprit=second)
    after, _ = score_all(checkpoint, with_feedback(mesh, named), rest)
    share = {s.service: s.score for v in after for i in v.incidents if i.id == opened.id for s in i.suspects}
    assert share[second] > opened.suspects[1].score


def test_stored_feedback_is_limited(mesh_after_incident: tuple[Mesh, str], days: list[MeshSnapshot]) -> None:
    mesh, incident = mesh_after_incident
    said = FeedbackDocument(incident=incident, was_incident=True)
    state, first = add_feedback(mesh.state, said, 1)
    assert add_feedback(state, said, 1) == (state, first)
    other, second = add_feedback(state, FeedbackDocument(incident=incident, was_incident=False), 1)
    assert other.memory.feedback == (second,), "it replaces the earlier feedback"
    missed = MissedDocument(services=[state.node_ids[0]], since=days[3].observed_at)
    with pytest.raises(TooMuchFeedback, match="the limit of 1 "):
        add_feedback(state, missed, 1)


MESH = "spoken"
PATH = f"/v1/meshes/{MESH}/feedback"
SNAPSHOTS = record_simulation(MeshSpec(services=30, seed=3), 24, fault_from=18)


@pytest.fixture(scope="module")
def incident(service: Service) -> str:
    """Id of the mesh's open incident."""
    verdicts = [push(service, MESH, snapshot) for snapshot in SNAPSHOTS[:-1]]
    found: str = verdicts[-1]["incidents"][0]["id"]
    return found


@pytest.fixture
def check_unchanged(service: Service, incident: str) -> Iterator[None]:
    """Check that the stored data does not change during the test."""
    before = read_store(service)
    assert before[MESH][0] is not None
    yield
    assert read_store(service) == before


WHEN = SNAPSHOTS[4].observed_at.isoformat()
WRONG: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "an unknown incident": ({"incident": "nothing"}, 404, "unknown-incident", "/incident"),
    "no incident and no services": ({"incident": None}, 422, "invalid-document", "/incident"),
    "nothing said": ({"was_incident": None}, 422, "invalid-document", "/was_incident"),
    "a word for a truth": ({"was_incident": "yes"}, 422, "invalid-document", "/was_incident"),
    "a culprit of what was none": ({"was_incident": False, "culprit": "a/b"}, 422, "invalid-document", "/culprit"),
    "an unknown culprit": ({"culprit": "shop/nobody"}, 422, "invalid-document", "/culprit"),
    "a note too long": ({"note": "x" * 1001}, 422, "invalid-document", "/note"),
    "a field too many": ({"mood": "angry"}, 422, "invalid-document", "/mood"),
}
MISSED: dict[str, tuple[dict[str, Any], str]] = {
    "an incident besides": ({"incident": "nothing"}, "/incident"),
    "no services": ({"services": []}, "/services"),
    "a service unknown": ({"services": ["shop/nobody"]}, "/services/0"),
    "no time": ({"since": None}, "/since"),
    "a time to come": ({"since": "2999-01-01T00:00:00Z"}, "/since"),
    "an end to come": ({"until": "2999-01-01T00:00:00Z"}, "/until"),
    "an end before it began": ({"until": SNAPSHOTS[3].observed_at.isoformat()}, "/until"),
    "a time without a zone": ({"since": "2026-01-01T00:00:00"}, "/since"),
}


@pytest.mark.ray
@pytest.mark.parametrize("case", WRONG)
@pytest.mark.usefixtures("check_unchanged")
def test_invalid_feedback_on_an_incident_is_refused(service: Service, incident: str, case: str) -> None:
    change, status, code, pointer = WRONG[case]
    problem(service.http.post(PATH, json={"incident": incident, "was_incident": True} | change), status, code, pointer)


@pytest.mark.ray
@pytest.mark.parametrize("case", MISSED)
@pytest.mark.usefixtures("check_unchanged")
def test_invalid_feedback_on_a_missed_incident_is_refused(service: Service, case: str) -> None:
    change, pointer = MISSED[case]
    document = {"services": [SNAPSHOTS[0].node_ids[0]], "since": WHEN} | change
    problem(service.http.post(PATH, json=document), 422, "invalid-document", pointer)


@pytest.mark.ray
@pytest.mark.usefixtures("check_unchanged")
def test_unknown_meshes_and_incidents_are_not_found(service: Service, incident: str) -> None:
    said = {"incident": incident, "was_incident": True}
    nowhere = "/v1/meshes/nobody/feedback"
    for response in (service.http.post(nowhere, json=said), service.http.get(nowhere)):
        problem(response, 404, "unknown-mesh")
    problem(service.http.delete(f"{nowhere}/{incident}"), 404, "unknown-mesh")
    problem(service.http.delete(f"{PATH}/{incident}"), 404, "unknown-incident")
    check_malformed_documents(service, PATH)


@pytest.mark.ray
def test_feedback_is_stored_listed_applied_and_removed(service: Service, incident: str) -> None:
    said = {"incident": incident, "was_incident": False, "note": "nightly batch"}
    response = service.http.post(PATH, json=said)
    assert response.status_code == 200, response.text
    document = response.json()
    assert KeptFeedbackDocument.model_validate_json(response.content).missed is False
    newest = SNAPSHOTS[-2].observed_at
    assert {key: document[key] for key in said} == said
    assert document["given_at"] == document["until"] == newest.isoformat().replace("+00:00", "Z")
    assert document["culprit"] is None
    assert set(document["page_levels"]) <= set(document["services"])
    assert max(level["errors"] for level in document["page_levels"].values()) > 0
    before = read_store(service)
    assert service.http.post(PATH, json=said).json() == document
    assert read_store(service) == before, "repeated feedback writes nothing"
    assert push(service, MESH, SNAPSHOTS[-1])["incidents"] == []
    assert service.http.post(PATH, json=said).json() == document, "not even after another snapshot"
    missed = service.http.post(PATH, json={"services": document["services"][:1] * 2, "since": WHEN}).json()
    assert (missed["missed"], missed["services"]) == (True, document["services"][:1])
    assert service.http.get(PATH).json() == {"feedback": [document, missed]}
    for one in (document, missed):
        taken: httpx.Response = service.http.delete(f"{PATH}/{one['incident']}")
        assert (taken.status_code, taken.content) == (204, b"")
    assert service.http.get(PATH).json() == {"feedback": []}
