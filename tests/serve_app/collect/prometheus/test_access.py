"""Ways to a Prometheus: through gateways, logins and tenants."""

import shutil
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from serve_app.collect.prometheus import client
from serve_app.collect.prometheus.client import Prometheus, QueryAnswer
from serve_app.net.endpoint import Endpoint
from serve_app.net.tokens import TokenSource
from tests.builders import write_certificate
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.standin import Behaviour, Request

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SAMPLES = [({"a": "b"}, "1")]
GOOD = standin.respond_with(SAMPLES)


def query(prometheus: Prometheus, text: str = "up", within: float = 5.0) -> QueryAnswer:
    return prometheus.ask({"q": text}, AT, within)["q"]


def query_once(behaviour: Behaviour, path: str = "", within: float = 5.0, **endpoint: Any) -> QueryAnswer:
    with standin.start_client(behaviour, path, **endpoint) as prometheus:
        return query(prometheus, within=within)


# POST and GET


@pytest.mark.parametrize("refused", ["POST", "GET"])
@pytest.mark.parametrize("status", [403, 404, 405, 411, 415, 501])
def test_the_method_that_works_is_found_and_remembered(refused: str, status: int) -> None:
    seen: list[tuple[str, str]] = []

    def behave(request: Request) -> None:
        seen.append((request.command, request.query["query"]))
        if request.command == refused:
            request.send(status, b"no")
        else:
            GOOD(request)

    with standin.start_client(behave) as prometheus:
        assert [query(prometheus, text).failed for text in ("a", 'b{c="d&e"}')] == ["", ""]
    works = "GET" if refused == "POST" else "POST"
    first = [("POST", "a")] if refused == "POST" else []
    assert seen == [*first, (works, "a"), (works, 'b{c="d&e"}')]


def test_if_both_methods_are_refused_the_other_is_not_tried_with_each_query(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def behave(request: Request) -> None:
        seen.append(request.command)
        request.send(403, b'{"message": "access denied"}')

    with standin.start_client(behave) as prometheus:
        answers = [query(prometheus) for _ in range(3)]
        assert seen == ["POST", "GET", "POST", "POST"]
        monkeypatch.setattr(client, "OTHER_METHOD_SECONDS", 0.0)
    assert {(answer.failed, answer.detail) for answer in answers} == {("forbidden", "403 access denied")}


def test_a_gateway_may_start_to_refuse_a_method_later() -> None:
    refused = {"POST"}

    def behave(request: Request) -> None:
        (standin.fails(405) if request.command in refused else GOOD)(request)

    with standin.start_client(behave) as prometheus:
        assert query(prometheus).failed == ""
        refused.symmetric_difference_update({"POST", "GET"})
        assert query(prometheus).failed == ""


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        (400, "refused"),
        (401, "forbidden"),
        (422, "refused"),
        (429, "overloaded"),
        (500, "refused"),
        (503, "overloaded"),
    ],
)
def test_other_refusals_are_about_the_query_or_the_server(status: int, failed: str) -> None:
    seen: list[str] = []

    def behave(request: Request) -> None:
        seen.append(request.command)
        standin.fails(status, "cannot")(request)

    answer = query_once(behave)
    assert (answer.failed, answer.detail) == (failed, f"{status} cannot")
    assert seen == ["POST"]


def test_a_query_that_does_not_fit_in_a_url_needs_post() -> None:
    def behave(request: Request) -> None:
        request.send(405 if request.command == "POST" else 414, b"")

    answer = query_once(behave)
    assert (answer.failed, answer.detail) == ("refused", "414; the queries do not fit in a URL: allow POST")


# Address and headers


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize(
    ("address", "path", "parameters"),
    [
        ("", "/api/v1/query", ""),
        ("/", "/api/v1/query", ""),
        (
            "/select/0/prometheus?extra_label=cluster=prod",
            "/select/0/prometheus/api/v1/query",
            "extra_label=cluster=prod",
        ),
        (
            "/prometheus/?dedup=true&partial_response=false",
            "/prometheus/api/v1/query",
            "dedup=true&partial_response=false",
        ),
        ("/prometheus/api/v1", "/prometheus/api/v1/query", ""),
        ("/api/v1/query?dedup=true", "/api/v1/query", "dedup=true"),
        ("?extra_filters[]={env=~%22a|b%22}", "/api/v1/query", "extra_filters%5B%5D=%7Benv=~%22a%7Cb%22%7D"),
    ],
)
def test_path_and_parameters_of_the_address_are_kept(method: str, address: str, path: str, parameters: str) -> None:
    seen: list[str] = []

    def behave(request: Request) -> None:
        if request.command == method:
            seen.append(request.path)
            GOOD(request)
        else:
            request.send(405, b"")

    assert query_once(behave, address).failed == ""
    found, _, sent = seen[0].partition("?")
    assert found == path
    given = parse_qsl(parameters)
    if method == "POST":
        assert parse_qsl(sent) == given
    else:
        assert parse_qsl(sent)[: len(given) + 1] == [*given, ("query", "up")]


def test_headers_are_sent_with_each_query_and_their_file_is_read_again(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []

    def behave(request: Request) -> None:
        seen.append(dict(request.headers))
        GOOD(request)

    file = tmp_path / "headers"
    file.write_text("THANOS-TENANT: east\n\nX-Api-Key: one\n")
    (tmp_path / "token").write_text("secret")
    endpoint: dict[str, Any] = {
        "headers": (("X-Scope-OrgID", "a|b"),),
        "headers_file": file,
        "bearer_token_file": tmp_path / "token",
    }
    with standin.start_client(behave, **endpoint) as prometheus:
        query(prometheus)
        file.write_text("X-Api-Key: two\n")
        query(prometheus)
        file.write_text("X-Api-Key\n")
        broken = query(prometheus)
    assert [one["X-Scope-OrgID"] for one in seen] == ["a|b", "a|b"]
    assert [one["X-Api-Key"] for one in seen] == ["one", "two"]
    assert [one.get("THANOS-TENANT") for one in seen] == ["east", None]
    assert {one["Authorization"] for one in seen} == {"Bearer secret"}
    assert (broken.failed, "expected `name: value`" in broken.detail) == ("forbidden", True)


# Replies that are no answers


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("https://login.example/oauth2/start?rd=secret", ["redirects to https://login.example/oauth2/start;", "login"]),
        ("/sign-in?state=secret", ["/sign-in;", "login in front"]),
        ("https://127.0.0.1:9443/prom/api/v1/query?secret", ["set `prometheus` to https://127.0.0.1:9443/prom"]),
        ("https://user:secret@sso.example/", ["redirects to https://sso.example/;"]),
        ("", ["302 redirects to http://127.0.0.1"]),
    ],
)
def test_a_redirect_is_named_and_never_followed(location: str, words: list[str]) -> None:
    answer = query_once(lambda request: request.send(302, b"", headers={"Location": location}))
    assert answer.failed == "refused"
    assert all(word in answer.detail for word in words), answer.detail
    assert "secret" not in answer.detail


PAGE = b"\n<!DOCTYPE html><html><head><title lang='en'>Sign in\n to Grafana</title></head></html>"


@pytest.mark.parametrize(
    ("status", "body", "kind", "failed", "detail"),
    [
        (200, PAGE, "text/html; charset=UTF-8", "unreadable", "expected JSON, got an HTML page (Sign in to Grafana); "),
        (200, b"<html></html>", "application/json", "unreadable", "expected JSON, got an HTML page; is a login"),
        (403, PAGE, "text/html", "forbidden", "403 an HTML page (Sign in to Grafana)"),
        (502, b"<html><title>502 Bad Gateway</title>", "text/html", "refused", "502 an HTML page (502 Bad Gateway)"),
        (401, b"no org id\n", "text/plain", "forbidden", "401 no org id; name the tenant: headers = {X-Scope-OrgID"),
        (422, b'{"error":"too many\\nsamples"}', "application/json", "refused", "422 too many samples"),
        (503, b"", "text/plain", "overloaded", "503"),
        (200, b'{"status":"error","error":"not now"}', "application/json", "refused", "not now"),
        (200, b"upstream is away", "text/plain", "unreadable", "JSON is malformed"),
    ],
)  # fmt: skip
def test_the_message_says_what_came_instead(status: int, body: bytes, kind: str, failed: str, detail: str) -> None:
    answer = query_once(lambda request: request.send(status, body, headers={"Content-Type": kind}))
    assert answer.failed == failed
    assert answer.detail.startswith(detail), answer.detail


def test_json_that_is_called_html_is_read() -> None:
    body = standin.vector(SAMPLES)
    answer = query_once(lambda request: request.send(200, body, headers={"Content-Type": "text/html"}))
    assert (answer.failed, len(answer.samples)) == ("", 1)


@pytest.mark.parametrize(
    ("data", "values"),
    [
        ('{"resultType":"vector","result":null}', []),
        ('{"resultType":null,"result":null}', []),
        ("null", []),
        ('{"resultType":"vector","result":[null,{"metric":{},"value":[1,"2"]},null]}', [2.0]),
        ('{"resultType":"vector","result":[{"metric":{},"value":null}]}', [None]),
        ('{"resultType":"vector","result":[{"metric":null,"value":[1,"2"]}]}', [2.0]),
        ('{"resultType":"vector","result":[{"metric":{"a":null},"value":[null,null]}]}', [None]),
        ('{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"3"}]}]}', [None]),
    ],
)
def test_null_stands_for_nothing(data: str, values: list[float | None]) -> None:
    body = f'{{"status":"success","data":{data},"warnings":null,"infos":null,"error":null}}'.encode()
    answer = query_once(lambda request: request.send(200, body))
    assert answer.failed == ""
    assert [None if value != value else value for value in answer.samples.values.tolist()] == values


def test_no_message_has_the_parameters_of_the_address() -> None:
    """The port is closed again, and a connection is refused or, with TLS to a plain server, broken."""
    with standin.start_client(GOOD) as _:
        pass
    with standin.start_server(GOOD) as server:
        url = standin.url_of(server).replace("http:", "https:") + "?key=secret"
        for address in (url, "http://127.0.0.1:1?key=secret", "http://name.invalid?key=secret"):
            with closing(Prometheus(Endpoint(address))) as prometheus:
                answer = query(prometheus)
            assert (answer.failed, answer.detail != "", "secret" in answer.detail) == ("unreachable", True, False)


# Client certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a server's and a client's self-signed certificate for 127.0.0.1, and their keys."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH to make certificates with")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "client"):
        (folder / name).mkdir()
        for made, suffix in zip(write_certificate(folder / name), ("pem", "key"), strict=True):
            made.rename(folder / f"{name}.{suffix}")
    both = (folder / "client.pem").read_text() + (folder / "client.key").read_text()
    (folder / "both.pem").write_text(both)
    return folder


@contextmanager
def start_tls(folder: Path, behaviour: Behaviour) -> Iterator[str]:
    """A server that asks for the client's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.load_verify_locations(folder / "client.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with standin.start_server(behaviour, context) as server:
        yield standin.url_of(server).replace("http:", "https:")


@pytest.mark.parametrize("files", [("client.pem", "client.key"), ("both.pem", None)])
def test_a_client_certificate_opens_the_door(certificates: Path, files: tuple[str, str | None]) -> None:
    own, key = files
    with start_tls(certificates, GOOD) as url:
        endpoint = Endpoint(
            url,
            ca_file=certificates / "server.pem",
            certificate_file=certificates / own,
            key_file=certificates / key if key else None,
        )
        with closing(Prometheus(endpoint)) as prometheus:
            answer = query(prometheus)
    assert (answer.failed, len(answer.samples)) == ("", 1)


@pytest.mark.parametrize("own", [None, "server.pem", "missing.pem"])
def test_without_the_right_certificate_the_message_names_the_settings(certificates: Path, own: str | None) -> None:
    with start_tls(certificates, GOOD) as url:
        endpoint = Endpoint(
            url,
            ca_file=certificates / "server.pem",
            certificate_file=certificates / own if own else None,
            key_file=certificates / "server.key" if own else None,
        )
        with closing(Prometheus(endpoint)) as prometheus:
            answer = query(prometheus)
    assert answer.failed == "unreachable"
    if "certificate_required" in answer.detail:  # or the server has closed the connection before its reason was read
        assert answer.detail.endswith("set certificate_file and key_file")
    if own == "missing.pem":
        assert "missing.pem" in answer.detail


# A token source


class Tokens(TokenSource):
    """Issues a, b, c, ...; ``rejected`` collects what servers refused."""

    def __init__(self) -> None:
        super().__init__()
        self.rejected: list[str] = []

    def fetch(self) -> tuple[str, float]:
        return "abcdefgh"[len(self.rejected)], 0.0

    def reject(self, token: str) -> None:
        self.rejected.append(token)


def test_a_refused_token_is_replaced_once_per_query() -> None:
    accepted = {"b"}
    seen: list[str] = []

    def behave(request: Request) -> None:
        seen.append(request.headers["Authorization"])
        (GOOD if seen[-1].removeprefix("Bearer ") in accepted else standin.fails(401))(request)

    tokens = Tokens()
    with standin.start_client(behave, client={"tokens": tokens}) as prometheus:
        assert query(prometheus).failed == ""
        accepted.clear()
        assert query(prometheus).failed == "forbidden"
    assert seen == ["Bearer a", "Bearer b", "Bearer b", "Bearer c"]
    assert tokens.rejected == ["a", "b"]
