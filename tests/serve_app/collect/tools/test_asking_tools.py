"""What Loki, Tempo and Jaeger say about a service, and all that can be wrong with it."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from serve_app.collect.tools.lookup import ask_tool
from serve_app.collect.tools.request import MAX_BYTES, MAX_TEXT, LogLine, ToolAnswer, ToolQuestion
from serve_app.settings.tools import MeshLogSettings, MeshTraceSettings, ToolSettings
from tests.serve_app.collect.prometheus.standin import Request
from tests.serve_app.collect.tools.recorded import (
    AT,
    LINES,
    SEARCH,
    TRACES,
    found,
    jaeger,
    line,
    loki,
    serve_answers,
    tempo,
)
from tests.timing import PATIENCE_SECONDS

NOW = datetime.fromtimestamp(AT, UTC)
QUESTION = ToolQuestion("shop", "cart", NOW - timedelta(minutes=20), NOW)
PATHS = {"loki": LINES, "tempo": SEARCH, "jaeger": TRACES}
KINDS = list(PATHS)


def tool_at(kind: str, url: str, **more: Any) -> ToolSettings:
    return (MeshLogSettings if kind == "loki" else MeshTraceSettings).model_validate({kind: url, **more})


def ask(
    kind: str, answer: Any, question: ToolQuestion = QUESTION, within: float = PATIENCE_SECONDS, **more: Any
) -> Any:
    """What a tool with this answer says, and the query that it got."""
    with serve_answers({PATHS[kind]: answer}) as (url, asked):
        said = asyncio.run(ask_tool(tool_at(kind, url, **more), question, within))
    assert said is not None
    assert said.tool == f"{kind.capitalize()} at {url.removeprefix('http://')}"
    return said, asked


def failed(said: ToolAnswer) -> str:
    assert (list(said.lines), said.trace) == ([], None)
    return said.failed


def test_error_lines_come_newest_first_and_once() -> None:
    said, [query] = ask(
        "loki",
        loki(
            [line(9, "request 17 failed: timeout"), line(30, "cache miss is an error")],
            [line(0, "request 4711 failed: timeout"), line(60, "request 1 failed: timeout")],
        ),
    )
    assert said.lines == [
        LogLine(NOW, "request 4711 failed: timeout", 3),
        LogLine(NOW - timedelta(seconds=30), "cache miss is an error", 1),
    ]
    assert query["query"].startswith('{namespace="shop", service_name="cart"} |~ ')
    assert (query["direction"], query["end"]) == ("backward", f"{AT}000000000")
    assert int(query["end"]) - int(query["start"]) == 1200 * 10**9


def test_only_five_different_lines_are_shown() -> None:
    words = ("timeout", "refused", "closed", "denied", "corrupt", "full", "lost")
    said, _ = ask("loki", loki([line(i, word) for i, word in enumerate(words)]))
    assert [one.text for one in said.lines] == list(words[:5])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mERROR\x1b[0m\tno\r\nanswer\x00", "ERROR no answer"),
        ("paid \u202e001 \ue000 for <img src=x onerror=alert(1)>", "paid 001 for <img src=x onerror=alert(1)>"),
        ("\ud83d\ude00 error", "\U0001f600 error"),
        ("", ""),
    ],
    ids=["control characters", "direction and markup", "a pair of escapes", "nothing"],
)
def test_a_line_is_plain_text_in_one_line(text: str, shown: str) -> None:
    said, _ = ask("loki", loki([line(0, text)]))
    assert [one.text for one in said.lines] == [shown]


@pytest.mark.parametrize("size", [MAX_TEXT + 1, 5 * MAX_TEXT, MAX_BYTES // 2])
def test_a_long_line_lacks_its_middle(size: int) -> None:
    said, _ = ask("loki", loki([line(0, "begin " + size * "x" + " end")]))
    (only,) = said.lines
    assert len(only.text) == MAX_TEXT
    assert only.text.startswith("begin xxx")
    assert only.text.endswith("xxx end")
    assert "… " in only.text


def test_tempo_names_the_newest_failing_trace() -> None:
    said, [query] = ask(
        "tempo",
        found(
            tempo("aa" * 16, before=60, service__name="cart", http__status_code=500),
            tempo(service__name="cart", status="error", http__response__status_code=503),
        ),
    )
    trace = said.trace
    assert trace is not None
    assert (trace.id, trace.at, trace.seconds) == ("2f3e0cee77ae5dc9c17ade3689eb2e54", NOW, 2.31)
    assert (trace.name, trace.service, trace.reason) == ("GET /checkout", "cart", "503")
    assert query["q"].startswith('{ resource.service.name = "cart" && (resource.k8s.namespace.name = "shop" || ')
    assert (int(query["start"]), int(query["end"])) == (AT - 1200, AT + 1)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"rpc__grpc__status_code": 14}, "gRPC status 14"),
        ({"http__status_code": 200, "statusMessage": "card\nrefused"}, "card refused"),
        ({"rpc__grpc__status_code": 0}, ""),
        ({"status": "error"}, ""),
    ],
)
def test_the_reason_is_what_the_span_says(attributes: dict[str, Any], reason: str) -> None:
    said, _ = ask("tempo", found(tempo(**attributes)))
    assert (said.trace.service, said.trace.reason) == ("cart", reason)


def test_jaeger_names_the_failing_span_of_the_service() -> None:
    answer = jaeger({"error": True, "http.status_code": 503}, {"http.status_code": 200})
    said, [query] = ask("jaeger", answer, query="$service.$namespace")
    trace = said.trace
    assert (trace.id, trace.at, trace.seconds, trace.name) == ("72f277edac0b77f5", NOW, 2.31, "GET /checkout")
    assert query["service"] == "cart.shop"
    assert (json.loads(query["tags"]), query["end"]) == ({"error": "true"}, f"{AT}000000")
    said, _ = ask("jaeger", answer)
    assert (said.trace.service, said.trace.reason) == ("cart", "503")


def test_jaeger_names_another_service_if_this_one_did_not_fail() -> None:
    said, _ = ask("jaeger", jaeger({}))
    assert (said.trace.service, said.trace.reason) == ("web", "500")


@pytest.mark.parametrize(
    ("kind", "answer"),
    [("loki", loki()), ("loki", loki([])), ("tempo", found()), ("tempo", {"traces": []}), ("jaeger", {"data": []})],
)
def test_nothing_found_is_no_failure(kind: str, answer: Any) -> None:
    said, _ = ask(kind, answer)
    assert failed(said) == ""


DEEP = b"[" * 100_000
MALFORMED = [
    *((kind, raw) for kind in KINDS for raw in (b"", b"<html>login</html>", b'{"data":', b"[]", b"\xff\xfe", DEEP)),
    ("loki", {"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[AT, "1"]]}]}}),
    ("loki", {"data": {"result": [{"values": [["yesterday", "x"]]}]}}),
    ("loki", {"data": {"result": [{"values": [["9" * 5000, "x"]]}]}}),
    ("loki", {"data": {"result": [{"values": [[str(AT), 5]]}]}}),
    ("tempo", {"traces": [{"traceID": 5}]}),
    ("tempo", {"traces": [{"traceID": "aa", "startTimeUnixNano": "-1"}]}),
    ("tempo", {"traces": [{"traceID": "aa", "durationMs": -1}]}),
    ("tempo", b'{"traces": [{"traceID": "aa", "durationMs": 1e999}]}'),
    ("jaeger", {"errors": [{"msg": "no"}]}),
    ("jaeger", {"data": [{"traceID": "aa", "processes": {}, "spans": [{"operationName": "x"}]}]}),
    ("jaeger", json.loads(json.dumps(jaeger()).replace(f"{AT}", "9" * 400))),
]


@pytest.mark.parametrize(("kind", "answer"), MALFORMED, ids=lambda value: str(value)[:40])
def test_an_answer_of_another_format_is_a_failure(kind: str, answer: Any) -> None:
    said, _ = ask(kind, answer)
    assert failed(said) == "sent an answer of another format"
    assert said.detail


@pytest.mark.parametrize("id", ["../../admin", "javascript:alert(1)", "", "a" * 33])
def test_a_trace_without_a_proper_id_is_left_out(id: str) -> None:
    said, _ = ask("tempo", found(tempo(id, service__name="cart")))
    assert (failed(said), said.trace) == ("", None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "refused the credentials of TAGAE (401)"),
        (403, "refused the credentials of TAGAE (403)"),
        (400, "refused the query (400)"),
        (302, "refused the query (302)"),
        (429, "is overloaded (429)"),
        (500, "failed (500)"),
    ],
)
def test_a_refusal_says_why_without_the_words_of_the_server(kind: str, status: int, words: str) -> None:
    said, asked = ask(kind, status)
    assert failed(said) == words
    assert "secret-of-the-server" not in said.failed
    assert len(asked) == 1, "asked once, and no redirect is followed"


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_answer_is_not_read(kind: str) -> None:
    said, _ = ask(kind, b'{"data":"' + MAX_BYTES * b"x" + b'"}')
    assert failed(said) == "sent more than 2 MiB"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("begins", [False, True], ids=["silent", "endless"])
def test_a_slow_answer_ends_at_the_deadline(kind: str, begins: bool) -> None:
    over = {"is": False}

    def hang(request: Request) -> None:
        if begins:
            request.send(200, b"{", length=100)
        while not over["is"]:
            time.sleep(0.01)

    with serve_answers({PATHS[kind]: hang}) as (url, _):
        said = asyncio.run(ask_tool(tool_at(kind, url), QUESTION, 0.3))
        over["is"] = True
    assert said is not None
    assert failed(said) == "did not answer within 0.3 s"


def test_a_tool_that_is_down_and_a_secret_that_is_missing(tmp_path: Path) -> None:
    down = asyncio.run(ask_tool(tool_at("tempo", "http://127.0.0.1:9"), QUESTION, PATIENCE_SECONDS))
    assert down is not None
    assert (down.tool, down.failed) == ("Tempo at 127.0.0.1:9", "cannot be reached")
    said, asked = ask("loki", loki(), bearer_token_file=tmp_path / "none")
    assert (failed(said), asked) == ("was not asked: TAGAE cannot read the credentials for it", [])
    assert str(tmp_path) not in said.failed
    with_ca = tool_at("loki", "https://127.0.0.1:9", ca_file=tmp_path / "none")
    untrusted = asyncio.run(ask_tool(with_ca, QUESTION, PATIENCE_SECONDS))
    assert untrusted is not None
    assert failed(untrusted) == "was not asked: TAGAE cannot read the certificates for it"


def test_the_credentials_and_the_tenant_are_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    sent: list[dict[str, str]] = []

    def keep(request: Request) -> None:
        sent.append(dict(request.headers.items()))
        request.send(200, json.dumps(loki()).encode())

    ask("loki", keep, bearer_token_file=tmp_path / "token", headers={"X-Scope-OrgID": "shop"})
    assert (sent[0]["Authorization"], sent[0]["X-Scope-OrgID"]) == ("Bearer s3cret", "shop")


def test_a_path_and_parameters_of_the_address_are_kept() -> None:
    with serve_answers({f"/gateway{LINES}": loki()}) as (url, asked):
        said = asyncio.run(ask_tool(tool_at("loki", f"{url}/gateway/?tenant=shop"), QUESTION, PATIENCE_SECONDS))
    assert said is not None
    assert (said.failed, asked[0]["tenant"], asked[0]["limit"]) == ("", "shop", "200")


def test_a_mesh_without_tools_is_not_asked_about() -> None:
    assert asyncio.run(ask_tool(MeshLogSettings(), QUESTION, PATIENCE_SECONDS)) is None
