"""The client with a transport that answers like the service: its requests, and its errors."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from typing import ClassVar

import httpx
import pytest

from model.snapshot import MeshSnapshot, PlannedChange
from serve_app.actions.feedback import decode_feedback
from serve_app.api.client import Client
from serve_app.api.codec import decode_snapshot
from serve_app.api.schemas.actions import (
    ActionDocument,
    ActionKind,
    FeedbackDocument,
    FeedbackListDocument,
    KeptActionDocument,
    KeptFeedbackDocument,
    KeptMuteDocument,
    MissedDocument,
    MuteDocument,
    MuteListDocument,
)
from serve_app.api.schemas.base import Document
from serve_app.api.schemas.problem import problem
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.deployments.http.bodies import schema_decoder
from serve_app.errors import (
    ANSWERS,
    DeadlineExceeded,
    NoCapacity,
    Overloaded,
    ServeError,
    StaleSnapshot,
    UnknownIncident,
    UnknownMesh,
    UnknownMute,
)
from tests.http_server import QuietHandler, serve_in_thread
from tests.timing import PATIENCE_SECONDS

NAN = float("nan")
SNAPSHOT = MeshSnapshot.create(
    node_ids=["shop/web", "shop/cart"],
    edge_index=[[0], [1]],
    node_features=[[9.0, 0.0, 0.1, 0.2, NAN, NAN, NAN], [4.0, 0.0, 0.1, 0.2, 0.5, NAN, NAN]],
    edge_features=[[4.0, NAN, NAN, NAN]],
    observed_at=datetime(2026, 3, 1, 3, 12, tzinfo=UTC),
    changes=[PlannedChange("deploy", "shop/cart", "v2")],
)
VERDICT = VerdictDocument(
    observed_at=SNAPSHOT.observed_at,
    sequence=1,
    status="warming_up",
    mesh_score=0.0,
    threshold=None,
    probability=0.0,
    suspects=[],
    incidents=[],
    coverage=1.0,
    missing_parts=[],
    model="abc",
)

AT = SNAPSHOT.observed_at
FEEDBACK = KeptFeedbackDocument(
    incident="20260301T031200Z-1f3870be",
    was_incident=True,
    missed=False,
    services=["shop/cart"],
    since=AT,
    until=AT + timedelta(minutes=2),
    given_at=AT + timedelta(minutes=3),
    culprit="shop/cart",
    note="",
    page_levels={},
)
MUTE = KeptMuteDocument(
    id="20260301T050000Z-4e0260c1",
    services=["shop/cart"],
    start=AT,
    end=AT + timedelta(hours=2),
    reason="database upgrade",
    given_at=AT,
    in_force=True,
)


def client(answer: Callable[[httpx.Request], httpx.Response], patience_seconds: float = 5.0) -> Client:
    return Client("http://service/", patience_seconds=patience_seconds, transport=httpx.MockTransport(answer))


def refusal(error: ServeError, **headers: str) -> httpx.Response:
    body = problem(error)
    return httpx.Response(body.status, content=body.model_dump_json(), headers=headers)


def test_push_sends_the_snapshot_and_reads_the_verdict() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("POST", "/v1/meshes/prod/snapshots")
        assert decode_snapshot(request.content, request.headers["content-type"]).digest == SNAPSHOT.digest
        return httpx.Response(200, content=VERDICT.model_dump_json())

    with client(answer) as service:
        assert service.push("prod", SNAPSHOT) == VERDICT


def test_the_other_calls_have_their_routes() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path))
        return httpx.Response(
            200, content=json.dumps([]) if request.url.path == "/v1/meshes" else VERDICT.model_dump_json()
        )

    with client(answer) as service:
        service.baseline("prod", SNAPSHOT)
        assert service.verdict("prod") == VERDICT
        assert service.meshes() == []
        service.delete("prod")
    assert asked == [
        ("POST", "/v1/meshes/prod/baseline"),
        ("GET", "/v1/meshes/prod/verdict"),
        ("GET", "/v1/meshes"),
        ("DELETE", "/v1/meshes/prod"),
    ]


GIVEN = FeedbackDocument(incident=FEEDBACK.incident, was_incident=True, culprit="shop/cart")
MISSED = MissedDocument(services=["shop/cart"], since=AT, note="a customer called")
QUIET = MuteDocument(services=["shop/cart", "batch/*"], end=MUTE.end, reason=MUTE.reason)
HELPED = ActionDocument(kind=ActionKind.DONE, text="restarted it")
KEPT = KeptActionDocument(incident=FEEDBACK.incident, kind=HELPED.kind, text=HELPED.text, by="", at=AT)


@pytest.mark.parametrize(
    ("send", "path", "decode", "sent", "kept"),
    [
        (lambda c: c.give_feedback("prod", GIVEN), b"feedback", decode_feedback, GIVEN, FEEDBACK),
        (lambda c: c.give_feedback("prod", MISSED), b"feedback", decode_feedback, MISSED, FEEDBACK),
        (
            lambda c: c.act("prod", "a/b", HELPED),
            b"incidents/a%2Fb/actions",
            schema_decoder(ActionDocument),
            HELPED,
            KEPT,
        ),
        (lambda c: c.mute("prod", QUIET), b"mutes", schema_decoder(MuteDocument), QUIET, MUTE),
    ],
    ids=["paged", "missed", "action", "mute"],
)
def test_what_people_say_is_sent_as_the_service_reads_it(
    send: Callable[[Client], Document],
    path: bytes,
    decode: Callable[[bytes], Document],
    sent: Document,
    kept: Document,
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.raw_path) == ("POST", b"/v1/meshes/prod/" + path)
        assert request.headers["content-type"] == "application/json"
        assert decode(request.content) == sent
        return httpx.Response(200, content=kept.model_dump_json())

    with client(answer) as service:
        assert send(service) == kept


def test_feedback_and_mutes_are_listed_and_removed() -> None:
    lists = {
        "/v1/meshes/prod/feedback": FeedbackListDocument(feedback=[FEEDBACK]),
        "/v1/meshes/prod/mutes": MuteListDocument(mutes=[MUTE]),
    }
    taken_back = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            taken_back.append(request.url.raw_path)
            return httpx.Response(204)
        return httpx.Response(200, content=lists[request.url.path].model_dump_json())

    with client(answer) as service:
        assert service.feedback("prod") == [FEEDBACK]
        assert service.mutes("prod") == [MUTE]
        service.withdraw_feedback("prod", FEEDBACK.incident)
        service.unmute("prod", MUTE.id)
        service.unmute("prod", "a/b")  # any text is an id and cannot reach another route
    assert taken_back == [
        b"/v1/meshes/prod/feedback/20260301T031200Z-1f3870be",
        b"/v1/meshes/prod/mutes/20260301T050000Z-4e0260c1",
        b"/v1/meshes/prod/mutes/a%2Fb",
    ]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda service: service.withdraw_feedback("prod", "none"), UnknownIncident),
        (lambda service: service.unmute("prod", "none"), UnknownMute),
        (lambda service: service.verdict("prod"), UnknownMesh),
    ],
)
def test_what_is_not_there_is_an_error(call: Callable[[Client], object], error: type[ServeError]) -> None:
    with client(lambda _: refusal(error("nothing is said of it"))) as service, pytest.raises(error):
        call(service)


@pytest.mark.parametrize("cls", [cls for cls in ANSWERS if issubclass(cls, ServeError)], ids=lambda cls: cls.__name__)
def test_every_refusal_is_raised_as_the_same_error(cls: type[ServeError]) -> None:
    error = cls("what was expected, what came", pointer="/calls/3")
    with client(lambda _: refusal(error), patience_seconds=0.0) as service, pytest.raises(cls) as excinfo:
        service.push("prod", SNAPSHOT)
    assert type(excinfo.value) is cls
    assert "what was expected, what came" in excinfo.value.message
    assert excinfo.value.details["pointer"] == "/calls/3"


def test_the_client_waits_during_overload() -> None:
    answers = [refusal(Overloaded("full"), **{"retry-after": "0"})] * 2
    answers.append(httpx.Response(200, content=VERDICT.model_dump_json()))
    with client(lambda _: answers.pop(0)) as service:
        assert service.push("prod", SNAPSHOT) == VERDICT
    assert not answers


class Pods(QuietHandler):
    """Behind one address: the pod that the first connection reaches can answer nothing, and the others can."""

    reached: ClassVar[set[int]] = set()

    def do_GET(self) -> None:
        self.reached.add(self.client_address[1])
        self.send(503 if len(self.reached) == 1 else 200, b"[]", retry_after="0")


def test_a_pod_that_cannot_answer_is_left_for_another_one() -> None:
    with (
        serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Pods)) as url,
        Client(url, patience_seconds=PATIENCE_SECONDS) as client,
    ):
        assert client.meshes() == []
    assert len(Pods.reached) == 2


def test_overload_without_end_is_an_error() -> None:
    refused = refusal(Overloaded("full"), **{"retry-after": "0"})
    with client(lambda _: refused, patience_seconds=0.01) as service, pytest.raises(Overloaded, match="full"):
        service.push("prod", SNAPSHOT)


def test_other_refusals_are_not_retried() -> None:
    answers = [refusal(StaleSnapshot("too old"))]
    with client(lambda _: answers.pop(0)) as service, pytest.raises(StaleSnapshot):
        service.push("prod", SNAPSHOT)


def test_a_request_with_a_broken_answer_is_retried() -> None:
    calls = []

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        if len(calls) == 1:
            raise httpx.RemoteProtocolError("server disconnected")
        return httpx.Response(200, content=VERDICT.model_dump_json())

    with client(answer) as service:
        assert service.push("prod", SNAPSHOT) == VERDICT


def test_before_the_first_answer_an_absent_service_is_reported_sooner() -> None:
    late = refusal(DeadlineExceeded("late", retry_after_seconds=0.01))
    done = httpx.Response(200, content=b"[]")
    answers = [late, late, done, None, late, done]
    lines: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if (next_one := answers.pop(0)) is None:
            raise httpx.ConnectError("refused")
        return next_one

    def reach() -> Client:
        return Client(
            "http://service/",
            patience_seconds=PATIENCE_SECONDS,
            reach_seconds=-1.0,
            on_retry=lines.append,
            transport=httpx.MockTransport(answer),
        )

    with reach() as service:
        assert service.meshes() == []
        assert service.meshes() == []
    assert [line.split("; trying again for up to ")[0] for line in lines] == [
        "GET http://service/v1/meshes: 504 Gateway Timeout",
        "GET http://service/v1/meshes: refused",
    ]
    answers[:] = [None]
    with reach() as service, pytest.raises(NoCapacity, match="no answer from http://service: refused"):
        service.meshes()
    assert len(lines) == 2


def test_a_refused_connection_is_reported_at_once() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with client(answer) as service, pytest.raises(NoCapacity, match=r"no answer from http://service: refused"):
        service.meshes()


def test_an_answer_of_another_server_is_reported() -> None:
    with client(lambda _: httpx.Response(418, text="a teapot")) as service, pytest.raises(ServeError, match="a teapot"):
        service.meshes()


IN_PLACE = {
    "nginx": httpx.Response(502, html="<html><h1>502 Bad Gateway</h1></html>", headers={"retry-after": "0"}),
    "broken off": httpx.Response(504, html="<html><h1>nginx</h1></html>", headers={"retry-after": "0"}),
    "a balancer": httpx.Response(503, text="no healthy upstream", headers={"retry-after": "0"}),
}


@pytest.mark.parametrize("away", IN_PLACE.values(), ids=IN_PLACE)
def test_errors_of_a_proxy_are_retried(away: httpx.Response) -> None:
    answers = [away, away, httpx.Response(200, content=VERDICT.model_dump_json())]
    with client(lambda _: answers.pop(0)) as service:
        assert service.push("prod", SNAPSHOT) == VERDICT
    with client(lambda _: away, patience_seconds=0.0) as service, pytest.raises(NoCapacity) as excinfo:
        service.meshes()
    assert f"/v1/meshes: {away.status_code}: " in excinfo.value.message
    assert "<" not in excinfo.value.message, "the error has text, not an HTML page"


def test_a_request_that_timed_out_is_retried_until_the_limit() -> None:
    late = DeadlineExceeded("late", retry_after_seconds=0.01, stored="unknown")
    answers = [refusal(late), httpx.Response(200, content=VERDICT.model_dump_json())]
    with client(lambda _: answers.pop(0)) as service:
        assert service.push("prod", SNAPSHOT).sequence == 1
    with client(lambda _: refusal(late), patience_seconds=0.05) as service, pytest.raises(DeadlineExceeded) as error:
        service.push("prod", SNAPSHOT)
    assert error.value.details["retry_after_seconds"] == 0.01


def test_a_deletion_that_was_done_before_its_answer_was_lost_is_no_error() -> None:
    answers = [refusal(DeadlineExceeded("late", retry_after_seconds=0.01)), refusal(UnknownMesh("no such mesh"))]
    with client(lambda _: answers.pop(0)) as service:
        service.delete("prod")
    with client(lambda _: refusal(UnknownMesh("no such mesh"))) as service, pytest.raises(UnknownMesh):
        service.delete("prod")
