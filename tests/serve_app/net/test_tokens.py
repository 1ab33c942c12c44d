"""Tokens for client credentials, from a real issuer on loopback."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest

from serve_app.collect.prometheus.detect import MeshSource
from serve_app.errors import BadSettings
from serve_app.net import tokens
from serve_app.net.endpoint import SecretUnreadable
from serve_app.net.google import GoogleTokens
from serve_app.net.tokens import NoToken, OAuth2Client, OAuth2Tokens, TokenSource
from serve_app.settings import CollectorSettings, MeshSettings
from tests.http_server import QuietHandler, serve_in_thread
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.test_completeness import AT

SECRET = "s3cret:/&é"


@dataclass
class Issuer:
    """An issuer of tokens; ``requests`` has the form of each request, with the credentials and where they were.

    Attributes:
        accepts: where it looks for the credentials: ``header`` or ``body``.
        answer: of a request with the right ones.
        status: of it.
    """

    accepts: str = "header"
    answer: dict[str, Any] = field(default_factory=lambda: {"token_type": "Bearer", "expires_in": 3600})
    status: int = 200
    requests: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def reply(self, handler: BaseHTTPRequestHandler) -> tuple[int, dict[str, Any]]:
        body = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        kind, _, encoded = handler.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            user, _, password = base64.b64decode(encoded).decode().partition(":")
            form |= {"where": "header", "client_id": unquote(user), "client_secret": unquote(password)}
        else:
            form["where"] = "body"
        self.requests.append(form)
        if form["where"] != self.accepts or (form["client_id"], form["client_secret"]) != ("tagae", SECRET):
            return 401, {"error": "invalid_client", "error_description": "unknown client"}
        return self.status, {"access_token": f"token-{len(self.requests)}", **self.answer}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    one = Issuer()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            status, document = one.reply(self)
            self.send(status, json.dumps(document).encode())

    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        one.url = f"{url}/token?hidden=1"
        yield one


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n", encoding="utf-8")
    return file


def test_a_token_is_fetched_once_and_kept(issuer: Issuer, secret: Path) -> None:
    source = OAuth2Tokens(OAuth2Client(issuer.url, "tagae", secret, {"scope": "read query", "audience": "prometheus"}))
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: source.token(), range(8)))
    assert found == {"token-1"}
    (form,) = issuer.requests
    assert form["grant_type"] == "client_credentials"
    assert (form["scope"], form["audience"], form["where"]) == ("read query", "prometheus", "header")
    assert "client_secret" in form


def test_an_issuer_that_reads_the_body_is_remembered(issuer: Issuer, secret: Path) -> None:
    issuer.accepts = "body"
    source = OAuth2Tokens(OAuth2Client(issuer.url, "tagae", secret))
    first = source.token()
    source.reject(first)
    second = source.token()
    assert (first, second) == ("token-2", "token-3")
    assert [form["where"] for form in issuer.requests] == ["header", "body", "body"]


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (200, {"access_token": None}, "token_url: 200"),
        (200, {"access_token": ""}, "token_url: 200"),
        (200, {"access_token": "a\nb"}, "token_url: 200"),
        (
            403,
            {"error": "access_denied", "error_description": "not for you"},
            "token_url: 403 access_denied not for you",
        ),
        (500, {}, "token_url: 500"),
    ],
)
def test_a_refusal_is_described_without_the_secret(
    issuer: Issuer, secret: Path, status: int, answer: dict[str, Any], words: str
) -> None:
    issuer.status, issuer.answer = status, answer
    source = OAuth2Tokens(OAuth2Client(issuer.url, "tagae", secret))
    for _ in range(3):  # the issuer is left in peace for a while
        with pytest.raises(NoToken, match=words) as caught:
            source.token()
        assert SECRET not in str(caught.value)
    assert len(issuer.requests) == 1


def test_a_wrong_secret_and_an_issuer_that_is_away_are_named(issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("wrong")
    with pytest.raises(NoToken, match="401 invalid_client unknown client; check client_id"):
        OAuth2Tokens(OAuth2Client(issuer.url, "tagae", tmp_path / "wrong")).token()
    with pytest.raises(NoToken, match="no token from token_url: ConnectionError") as caught:
        OAuth2Tokens(OAuth2Client("http://127.0.0.1:1/token?hidden=1", "tagae", tmp_path / "wrong")).token()
    assert "hidden" not in str(caught.value)
    with pytest.raises(SecretUnreadable, match="missing"):
        OAuth2Tokens(OAuth2Client(issuer.url, "tagae", tmp_path / "missing")).token()


class Counted(TokenSource):
    """Issues 1, 2, 3, ... with the next of these lifetimes."""

    def __init__(self, *lifetimes: float) -> None:
        super().__init__()
        self.lifetimes = list(lifetimes)
        self.count = 0

    def fetch(self) -> tuple[str, float]:
        self.count += 1
        return str(self.count), self.lifetimes.pop(0)


def test_a_token_is_replaced_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    source = Counted(3600.0, 20.0, 1.0, 3600.0)
    seen = []
    for at in (0.0, 3589.0, 3591.0, 3605.0, 3607.0, 3608.0):
        now = 1000.0 + at
        seen.append(source.token())
    assert seen == ["1", "1", "2", "2", "3", "4"]


def test_a_server_that_refuses_all_tokens_causes_few_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    source = Counted(*[3600.0] * 9)
    for _ in range(5):
        source.reject(source.token())
    assert source.token() == "2"
    source.reject("1")  # by a thread that is late
    assert source.token() == "2"
    now = tokens.PAUSE_SECONDS
    source.reject("2")
    assert source.token() == "3"


@pytest.mark.parametrize("expires_in", [None, "300", 0, -1, "soon", 299.9])
def test_a_lifetime_that_is_missing_or_odd(issuer: Issuer, secret: Path, expires_in: object) -> None:
    issuer.answer = {"expires_in": expires_in}
    source = OAuth2Tokens(OAuth2Client(issuer.url, "tagae", secret))
    assert source.fetch()[1] == pytest.approx(tokens.DEFAULT_SECONDS, abs=1)


def test_a_mesh_is_polled_with_tokens(issuer: Issuer, secret: Path) -> None:
    """The settings lead to the header, and a token that the server no longer takes is replaced."""
    accepted = {"Bearer token-1"}
    lock = threading.Lock()
    seen = set()

    def behave(request: standin.Request) -> None:
        with lock:
            seen.add(request.headers["Authorization"])
        if request.headers["Authorization"] in accepted:
            request.send(200, standin.vector([({"client": "web", "server": "cart"}, "5")]))
        else:
            request.send(401, b"expired")

    with standin.start_server(behave) as server:
        oauth2 = {"token_url": issuer.url, "client_id": "tagae", "client_secret_file": secret}
        mesh = MeshSettings.model_validate(
            {"prometheus": standin.url_of(server), "source": "opentelemetry", "oauth2": oauth2}
        )
        source = MeshSource(mesh, CollectorSettings())
        first = source.poll(AT)
        accepted.clear()
        accepted.add("Bearer token-2")
        second = source.poll(AT)
        issuer.status, issuer.answer = 503, {"error": "temporarily_unavailable"}
        accepted.clear()
        source.close()
    assert first.snapshot is not None
    assert second.snapshot is not None
    assert not any(answer.failed for answer in (*first.answers.values(), *second.answers.values()))
    assert seen == {"Bearer token-1", "Bearer token-2"}


def test_google_without_credentials_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("google.auth")
    file = tmp_path / "adc.json"
    file.write_text("{}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(NoToken, match="google: no token for the application default credentials"):
        GoogleTokens().token()


def test_google_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "google.auth.transport.requests", None)
    with pytest.raises(BadSettings, match=r"pip install 'tagae\[google\]'"):
        GoogleTokens()
