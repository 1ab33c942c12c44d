"""Every wrong request gets a 4xx that names the place and changes nothing."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.codec import ARROW, JSON, snapshot_document
from tests.serve_app.api.snapshot_cases import WRONG, WRONG_TYPES, arrow_of, document
from tests.serve_app.running import Service, problem, push, read_store, record_simulation

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

MESH = "bad-input"
SNAPSHOTS = record_simulation(MeshSpec(services=30, seed=3), 12)
NEXT = snapshot_document(SNAPSHOTS[3])
PUSH, BASELINE = f"/v1/meshes/{MESH}/snapshots", f"/v1/meshes/{MESH}/baseline"


@pytest.fixture(scope="module")
def mesh(service: Service) -> None:
    for snapshot in SNAPSHOTS[:3]:
        push(service, MESH, snapshot)


@pytest.fixture
def check_unchanged(service: Service, mesh: None) -> Iterator[None]:
    """Check that the stored data does not change during the test."""
    before = read_store(service)
    assert before[MESH][0] is not None
    yield
    assert read_store(service) == before


FORMS: dict[str, tuple[str, Callable[[Any], bytes]]] = {
    "json": (JSON, lambda document: json.dumps(document).encode()),
    "arrow": (ARROW, lambda document: arrow_of([document])),
}
EVERY_FORM = pytest.mark.parametrize("form", FORMS)


@pytest.mark.parametrize(
    ("form", "changed", "pointer"),
    [*((form, *row[:2]) for form in FORMS for row in WRONG), *(("json", *row[:2]) for row in WRONG_TYPES)],
)
@pytest.mark.usefixtures("check_unchanged")
def test_wrong_content_is_refused_with_its_place(
    service: Service, form: str, changed: dict[str, Any], pointer: str
) -> None:
    media_type, encode = FORMS[form]
    try:
        one = encode(document(**changed))
    except (pa.ArrowException, OverflowError) as error:  # a column has one type
        pytest.skip(f"cannot be expressed in {form}: {error}")
    headers = {"content-type": media_type}
    for path in (PUSH, BASELINE):
        problem(service.http.post(path, content=one, headers=headers), 422, "invalid-document", pointer)


@EVERY_FORM
@pytest.mark.usefixtures("check_unchanged")
def test_damaged_bytes_are_refused(service: Service, form: str) -> None:
    """The bytes are cut off, or the header of the form is wrong or missing."""
    media_type, encode = FORMS[form]
    one = encode(NEXT)
    for body in (b"", one[: len(one) // 2], b"\xc1" + one, one[1:]):
        for path in (PUSH, BASELINE):
            problem(
                service.http.post(path, content=body, headers={"content-type": media_type}), 400, "malformed-document"
            )


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
@pytest.mark.usefixtures("check_unchanged")
def test_a_value_that_is_no_number_is_refused_with_its_place(service: Service, number: str) -> None:
    document = deepcopy(NEXT)
    document["calls"][2]["requests_per_second"] = -12345.0
    body = json.dumps(document).replace("-12345.0", number)
    for path in (PUSH, BASELINE):
        response = service.http.post(path, content=body)
        assert (response.status_code, response.json().get("pointer")) in (
            (422, "/calls/2/requests_per_second"),
            (400, None),  # no JSON for a strict parser
        )
        assert response.headers["content-type"] == "application/problem+json"


MALFORMED = (400, "malformed-document", None)
NO_OBJECT = (422, "invalid-document", "")


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b"", MALFORMED),
        (b"{", MALFORMED),
        (b"[1, 2", MALFORMED),
        (b"\xff\xfe", MALFORMED),
        ("{}".encode("utf-16"), MALFORMED),
        (b"observed_at=2026", MALFORMED),
        (b"[" * 100_000, MALFORMED),
        (b'{"a":"\xff"}', MALFORMED),
        (b"null", NO_OBJECT),
        (b"[]", NO_OBJECT),
        (b"7", NO_OBJECT),
        (b'"text"', NO_OBJECT),
    ],
    ids=lambda value: repr(value)[:16],
)
@pytest.mark.usefixtures("check_unchanged")
def test_a_body_that_is_no_json_object_is_refused(
    service: Service, body: bytes, refusal: tuple[int, str, str | None]
) -> None:
    for path in (PUSH, BASELINE):
        problem(service.http.post(path, content=body), *refusal)


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/vnd.msgpack"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-encoding": "gzip"},
        {"content-encoding": "identity, br"},
    ],
    ids=str,
)
@pytest.mark.usefixtures("check_unchanged")
def test_an_unknown_format_is_refused(service: Service, headers: dict[str, str]) -> None:
    for path in (PUSH, BASELINE):
        body = problem(
            service.http.post(path, content=json.dumps(NEXT), headers=headers), 415, "unsupported-media-type"
        )
        assert next(iter(headers)) in body["detail"]


@pytest.mark.parametrize("media_type", [None, "text/plain", "multipart/form-data; boundary=x"])
@pytest.mark.parametrize("route", ["snapshots", "baseline", "feedback", "mutes", "incidents/i/actions"])
@pytest.mark.usefixtures("check_unchanged")
def test_posts_that_any_page_can_send_are_refused(service: Service, route: str, media_type: str | None) -> None:
    """Browsers send these without a preflight request, and the answer to a preflight request refuses others."""
    path, origin = f"/v1/meshes/{MESH}/{route}", {"origin": "https://elsewhere.example"}
    media_header = {} if media_type is None else {"content-type": media_type}
    for sender in (origin["origin"], "null"):
        refused = service.http.post(path, content=json.dumps(NEXT), headers={"origin": sender, **media_header})
        problem(refused, 403, "cross-origin")
    own = service.http.post(path, content=json.dumps(NEXT), headers={"origin": service.url, **media_header})
    problem(own, 415, "unsupported-media-type")
    asked = service.http.options(path, headers={**origin, "access-control-request-method": "POST"})
    assert asked.status_code == 405
    assert not [name for name in asked.headers if name.startswith("access-control")]


def test_a_form_with_the_json_media_type_is_read(service: Service, mesh: None) -> None:
    headers = {"origin": service.url, "content-type": "application/json"}
    body = json.dumps(snapshot_document(SNAPSHOTS[2]))
    assert service.http.post(PUSH, content=body, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "media_type", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_other_media_types_of_json_are_read(service: Service, mesh: None, media_type: str) -> None:
    body = json.dumps(snapshot_document(SNAPSHOTS[2]))
    assert service.http.post(PUSH, content=body, headers={"content-type": media_type}).status_code == 200


def test_time_and_content_conflicts_are_refused(service: Service, check_unchanged: None) -> None:
    first, _, newest = (snapshot_document(s) for s in SNAPSHOTS[:3])
    other = deepcopy(newest)
    other["calls"][0]["requests_per_second"] += 1
    body = problem(service.http.post(PUSH, json=other), 409, "same-time-other-content", "/observed_at")
    assert newest["observed_at"] in body["detail"]
    between = deepcopy(newest)
    between["observed_at"] = (SNAPSHOTS[2].observed_at - timedelta(seconds=1)).isoformat()
    older = deepcopy(first)
    older["observed_at"] = (SNAPSHOTS[0].observed_at - timedelta(days=1)).isoformat()
    for stale in (between, older):
        body = problem(service.http.post(PUSH, json=stale), 409, "stale-snapshot", "/observed_at")
        assert newest["observed_at"] in body["detail"], "the error names the newest snapshot"


def test_a_repeated_snapshot_gets_the_same_verdict_and_counts_once(service: Service, check_unchanged: None) -> None:
    verdicts = service.http.get(f"/v1/meshes/{MESH}/verdicts").json()["verdicts"]
    assert [push(service, MESH, snapshot) for snapshot in SNAPSHOTS[:3]] == verdicts


def test_a_time_in_the_future_does_not_lock_the_mesh(service: Service, check_unchanged: None) -> None:
    document = deepcopy(NEXT)
    ahead = service.settings.limits.max_ahead_seconds
    document["observed_at"] = (datetime.now(UTC) + timedelta(seconds=ahead + 60)).isoformat()
    body = problem(service.http.post(PUSH, json=document), 422, "ahead-of-clock", "/observed_at")
    assert document["observed_at"] in body["detail"]


def test_a_clock_slightly_ahead_is_accepted(service: Service) -> None:
    document = deepcopy(NEXT)
    ahead = service.settings.limits.max_ahead_seconds
    document["observed_at"] = (datetime.now(UTC) + timedelta(seconds=ahead - 60)).isoformat()
    assert service.http.post("/v1/meshes/a-little-ahead/snapshots", json=document).status_code == 200
    assert service.http.delete("/v1/meshes/a-little-ahead").status_code == 204


def _services(count: int) -> list[dict[str, Any]]:
    return [{"namespace": "n", "name": f"s{i}"} for i in range(count)]


@pytest.mark.usefixtures("check_unchanged")
def test_documents_above_the_limits_are_too_large(service: Service) -> None:
    limits = service.settings.limits
    many = {"observed_at": NEXT["observed_at"], "services": _services(limits.max_services + 1)}
    ends = [(f"n/s{i}", f"n/s{j}") for i in range(80) for j in range(80)][: limits.max_calls + 1]
    calls = [{"source": a, "destination": b, "requests_per_second": 1} for a, b in ends]
    busy = {"observed_at": NEXT["observed_at"], "services": _services(80), "calls": calls}
    assert len(calls) > limits.max_calls
    for path in (PUSH, BASELINE):
        problem(service.http.post(path, json=many), 413, "document-too-large", "/services")
        problem(service.http.post(path, json=busy), 413, "document-too-large", "/calls")


@pytest.mark.usefixtures("check_unchanged")
def test_a_body_beyond_the_limit_is_refused_with_and_without_content_length(service: Service) -> None:
    body = b" " * (service.settings.limits.max_body_bytes + 1)
    for path in (PUSH, BASELINE):
        problem(service.http.post(path, content=body), 413, "document-too-large")
        chunks = (body[i : i + 2**20] for i in range(0, len(body), 2**20))
        problem(service.http.post(path, content=chunks), 413, "document-too-large")


LIMITS = [0, -1, 1001, "many", "1.5", ""]
READS = ["verdict", "verdicts", "plan", "graph"]
ROUTES = [
    ("GET", "/v1/meshes/nobody/verdict", 404, "unknown-mesh"),
    ("GET", "/v1/meshes/nobody/verdicts", 404, "unknown-mesh"),
    ("GET", "/v1/meshes/nobody/incidents", 404, "unknown-mesh"),
    ("GET", "/v1/meshes/nobody/incidents?since=2026-01-01T00:00:00Z", 404, "unknown-mesh"),
    ("GET", "/v1/meshes/nobody/incidents/i", 404, "unknown-mesh"),
    ("GET", "/v1/meshes/nobody/plan", 404, "unknown-mesh"),
    ("GET", "/v1/meshes/nobody/drift", 404, "unknown-mesh"),
    ("GET", "/v1/meshes/nobody/graph", 404, "unknown-mesh"),
    ("DELETE", "/v1/meshes/nobody", 404, "unknown-mesh"),
    *(("GET", f"/v1/meshes/No%20Name/{what}", 400, "bad-mesh-name") for what in READS),
    ("GET", "/v1/meshes/a%00b/incidents", 400, "bad-mesh-name"),
    ("GET", "/v1/meshes/%ff/verdict", 400, "bad-mesh-name"),
    ("POST", "/v1/meshes/-x/snapshots", 400, "bad-mesh-name"),
    ("POST", "/v1/meshes/x%0A/baseline", 400, "bad-mesh-name"),
    ("DELETE", f"/v1/meshes/{'x' * 64}", 400, "bad-mesh-name"),
    ("DELETE", f"/v1/meshes/{'x' * 8000}", 400, "bad-mesh-name"),
    ("GET", f"/v1/{'x' * 8000}", 404, "not-found"),
    ("GET", "/v1/nothing", 404, "not-found"),
    ("GET", "/v2/meshes", 404, "not-found"),
    ("POST", f"/v2/meshes/{MESH}/snapshots", 404, "not-found"),
    ("GET", "/v1/meshes/", 404, "not-found"),
    ("GET", f"/v1/meshes/{MESH}/verdict/", 404, "not-found"),
    ("GET", f"/v1/meshes//{MESH}/verdict", 404, "not-found"),
    ("GET", f"/v1/meshes/{MESH}/verdicts?since=yesterday", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/verdicts?since=1767225600", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/verdicts?since=2026-01-01T00:00:00", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/verdicts?since=0001-01-01T00:00:00%2B23:59", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/verdicts?sinec=2026-01-01T00:00:00Z", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/verdicts?limit=1&limit=2", 422, "invalid-parameter"),
    *(("GET", f"/v1/meshes/{MESH}/verdicts?limit={n}", 422, "invalid-parameter") for n in LIMITS),
    ("GET", f"/v1/meshes/{MESH}/incidents?since=yesterday", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/incidents?until=1767225600", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/incidents?kind=bad", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/incidents?severity=worst", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/incidents?cursor=20260101T000000Z", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/incidents?limit=501", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/incidents?service=", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/incidents/i?at=2026-01-01T00:00:00Z", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/plan?members=perhaps", 422, "invalid-parameter"),
    ("GET", f"/v1/meshes/{MESH}/graph?{'x' * 4000}=1", 422, "invalid-parameter"),
    ("GET", "/v1/models?digest=1", 422, "invalid-parameter"),
    ("POST", "/v1/receivers/test?all=1", 422, "invalid-parameter"),
    ("DELETE", f"/v1/meshes/{MESH}?really=no", 422, "invalid-parameter"),
    ("POST", f"/v1/meshes/{MESH}/snapshots?dry_run=true", 422, "invalid-parameter"),
    ("PUT", f"/v1/meshes/{MESH}/snapshots", 405, "method-not-allowed"),
    ("GET", f"/v1/meshes/{MESH}/snapshots", 405, "method-not-allowed"),
    ("DELETE", f"/v1/meshes/{MESH}/verdict", 405, "method-not-allowed"),
    ("OPTIONS", "/v1/meshes", 405, "method-not-allowed"),
    ("PATCH", "/v1/meshes", 405, "method-not-allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "status", "code"), ROUTES, ids=lambda value: str(value)[:60])
@pytest.mark.usefixtures("check_unchanged")
def test_unknown_paths_and_wrong_parameters_are_refused(
    service: Service, method: str, path: str, status: int, code: str
) -> None:
    response = service.http.request(method, path)
    body = problem(response, status, code)
    assert len(body["detail"]) < 500, "the wrong value is shown shortened"
    assert response.headers["server-timing"].startswith("total;dur=")
    if status == 405:
        assert response.headers["allow"]


@pytest.mark.usefixtures("check_unchanged")
def test_all_methods_of_a_path_are_listed(service: Service) -> None:
    response = service.http.put(f"/v1/meshes/{MESH}/feedback")
    problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "GET, POST"


@pytest.mark.usefixtures("check_unchanged")
def test_an_answer_without_a_body_to_a_question_for_the_head_alone(service: Service) -> None:
    response = service.http.head("/v1/meshes")
    assert (response.status_code, response.content) == (405, b"")
    assert response.headers["allow"] == "GET"
