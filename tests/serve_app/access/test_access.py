"""A running service with tokens: rebinding, forged requests, scopes, rotation, limits, a trusted proxy, TLS."""

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import SHIPPED, load
from serve_app.access import Scope, editing
from serve_app.access.failures import MAX_FAILURES
from serve_app.api.client import Client
from serve_app.api.codec import snapshot_document
from serve_app.cli import app
from serve_app.errors import Forbidden, NoCapacity, Unauthenticated
from serve_app.models.registry import Registry
from tests.builders import add_model, write_certificate
from tests.serve_app.running import eventually, problem, record_simulation, start_command, start_service
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
SNAPSHOTS = record_simulation(MeshSpec(services=20, calls_per_service=3.0, seed=3), 4)
NAME, PROXY, OTHER_CLIENT = "tagae.example", "127.0.0.9", "127.0.0.8"
EVIL = "evil.example"


@dataclass(frozen=True, slots=True)
class Secured:
    """A service with tokens.

    Attributes:
        url: of the service.
        file: with the hashes of tokens.
        tokens: by name.
    """

    url: str
    file: Path
    tokens: dict[str, str]

    def http(self, token: str = "", address: str = "127.0.0.1", **headers: str) -> httpx.Client:
        login = {"authorization": f"Bearer {self.tokens.get(token, token)}"} if token else {}
        transport = httpx.HTTPTransport(local_address=address)
        return httpx.Client(
            base_url=self.url, timeout=PATIENCE_SECONDS, transport=transport, headers={**login, **headers}
        )


@pytest.fixture(scope="module")
def secured_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    file = folder / "tokens.toml"
    tokens = {
        "reader": editing.create(file, "reader", [Scope.READ]),
        "writer": editing.create(file, "writer", [Scope.WRITE]),
        "both": editing.create(file, "both", [Scope.READ, Scope.WRITE]),
        "admin": editing.create(file, "admin", [Scope.ADMIN]),
        "shop": editing.create(file, "shop", [Scope.READ, Scope.WRITE], ["shop"]),
    }
    add_model(Registry(str(folder / "models")), SHIPPED)
    config = folder / "tagae.toml"
    config.write_text(
        f"""
        [serve]
        port = 0
        ingress_replicas = 1  # each reads the file and counts failures for itself
        tokens_file = "{file}"
        allowed_hosts = ["{NAME}"]
        trusted_proxies = ["{PROXY}/32"]
        proxy_user_header = "X-Forwarded-User"
        [store]
        path = "{folder / "state"}"
        [limits]
        max_ahead_seconds = inf
        [models]
        registry = "{folder / "models"}"
        [meshes.bank]
        weights = "{folder / "missing.safetensors"}"
        """
    )
    with start_service("--config", str(config)) as (_, url):
        one = Secured(url, file, tokens)
        with Client(url, token=tokens["both"]) as client:
            for mesh in ("shop", "pay"):
                client.push(mesh, SNAPSHOTS[0])
        yield one


def body(index: int = 1) -> str:
    return json.dumps(snapshot_document(SNAPSHOTS[index]))


JSON = {"content-type": "application/json"}
PUSH = "/v1/meshes/shop/snapshots"


def sequences(secured: Secured) -> dict[str, int]:
    """Return counted snapshots by mesh."""
    with secured.http("admin") as http:
        return {row["mesh"]: row["sequence"] for row in http.get("/v1/meshes").raise_for_status().json()}


@pytest.fixture
def check_unchanged(secured_service: Secured) -> Iterator[None]:
    before = sequences(secured_service)
    yield
    assert sequences(secured_service) == before


# Hosts and origins.


@pytest.mark.parametrize("token", ["", "admin"])
@pytest.mark.usefixtures("check_unchanged")
def test_requests_to_a_rebound_name_are_refused(secured_service: Secured, token: str) -> None:
    """A page of another site sends requests to its own name, which now resolves to here. A token does not help."""
    headers = {"origin": f"http://{EVIL}:8000", "host": f"{EVIL}:8000"}
    with secured_service.http(token, **headers) as http:
        for path in ("/", "/healthz", "/v1/meshes", "/v1/meshes/shop/verdict", "/metrics", "/login"):
            problem(http.get(path), 421, "wrong-host")
        problem(http.post(PUSH, content=body(), headers=JSON), 421, "wrong-host")
        problem(http.post("/login", json={"token": secured_service.tokens["admin"]}), 421, "wrong-host")
        problem(http.delete("/v1/meshes/shop"), 421, "wrong-host")


@pytest.mark.parametrize("media_type", ["application/json", "text/plain", "application/x-www-form-urlencoded", ""])
@pytest.mark.parametrize("way", ["header", "cookie", "proxy"])
@pytest.mark.usefixtures("check_unchanged")
def test_a_page_of_another_site_changes_nothing(secured_service: Secured, way: str, media_type: str) -> None:
    """This holds for every way to log in and every form that the page can send."""
    login = {
        "header": {"authorization": f"Bearer {secured_service.tokens['admin']}"},
        "cookie": {"cookie": f"tagae_token={secured_service.tokens['admin']}"},
        "proxy": {"x-forwarded-user": "ada"},
    }[way]
    address = PROXY if way == "proxy" else "127.0.0.1"
    sites = [{"origin": f"https://{EVIL}"}, {"origin": "null"}, {"origin": "http://127.0.0.1:1"}]
    sites += [{"sec-fetch-site": "cross-site"}]
    with secured_service.http(address=address, **login) as http:
        assert http.get("/v1/meshes").status_code == 200, "the service's own page is accepted"
        for site in sites:
            headers = {**site, **({"content-type": media_type} if media_type else {})}
            problem(http.post(PUSH, content=body(), headers=headers), 403, "cross-origin")
            problem(http.delete("/v1/meshes/shop", headers=headers), 403, "cross-origin")
            problem(http.post("/logout", content="{}", headers=headers), 403, "cross-origin")


def test_a_page_of_the_service_must_send_a_media_type(secured_service: Secured) -> None:
    with secured_service.http("both", origin=secured_service.url) as http:
        problem(http.post(PUSH, content=body()), 415, "unsupported-media-type")
        assert http.post(PUSH, content=body(0), headers=JSON).status_code == 200
    with secured_service.http("both", origin=f"https://{NAME}") as http:
        assert http.post(PUSH, content=body(0), headers=JSON).status_code == 200


# Tokens and scopes.


def operations(secured: Secured) -> list[tuple[str, str]]:
    """Return method and path of every documented route, and of some others."""
    with secured.http("reader") as http:
        paths: dict[str, Any] = http.get("/openapi.json").raise_for_status().json()["paths"]
    known = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    known += [("GET", "/openapi.json"), ("GET", "/nothing"), ("PUT", "/v1/meshes/{mesh}"), ("GET", "/docs")]
    return [(method, path.format(mesh="shop", incident="x", mute="x", version="x", view="x")) for method, path in known]


WITH_TOKENS = {"tokens": True, "provider": None, "from_provider": False}  # how people sign in here
OPEN = {"/healthz", "/readyz", "/docs", "/openapi.json"}  # the reference of the API is the same for every service


@pytest.mark.usefixtures("check_unchanged")
def test_every_route_is_refused_without_a_token(secured_service: Secured) -> None:
    asked = operations(secured_service)
    assert len(asked) > 25
    with secured_service.http() as http:
        for method, path in asked:
            response = http.request(method, path)
            if path in OPEN:
                assert response.status_code == 200, path
                continue
            problem(response, 401, "unauthenticated")
            assert response.headers["www-authenticate"] == 'Bearer realm="tagae"'
        page = http.get("/")
        assert page.status_code == 200
        script = page.text.partition('src="static/')[2].partition('"')[0]
        assert http.get(f"/static/{script}").status_code == 200
        assert http.get("/login").json() == {
            "needed": True,
            "name": None,
            "scopes": [],
            "all_meshes": False,
            "cookie": False,
            **WITH_TOKENS,
        }


@pytest.mark.usefixtures("check_unchanged")
def test_every_route_is_refused_with_a_wrong_token(secured_service: Secured) -> None:
    with secured_service.http("tagae_wrong", OTHER_CLIENT) as http:
        codes = {
            http.request(method, path).status_code for method, path in operations(secured_service) if path not in OPEN
        }
    assert codes == {401, 429}


@pytest.mark.usefixtures("check_unchanged")
def test_a_reader_changes_nothing_and_a_writer_reads_nothing(secured_service: Secured) -> None:
    with secured_service.http("reader") as reader, secured_service.http("writer") as writer:
        for method, path in operations(secured_service):
            if path in OPEN or path.endswith("/stream"):
                continue
            if path == "/v1/audit":  # for administrators
                problem(reader.get(path), 403, "forbidden")
                problem(writer.get(path), 403, "forbidden")
            elif method == "GET":
                assert reader.get(path).status_code not in (401, 403), path
                problem(writer.get(path), 403, "forbidden")
            else:
                problem(reader.request(method, path), 403, "forbidden")
                is_writing = method == "POST" or "/feedback/" in path or "/mutes/" in path or "/views/" in path
                is_admins = path.startswith(("/v1/models", "/v1/receivers")) or path.endswith("/source")
                is_writing = is_writing and not is_admins
                refused = writer.request(method, path).status_code
                assert (refused in (401, 403)) != is_writing, (method, path, refused)


def test_a_token_for_one_mesh_sees_no_other(secured_service: Secured) -> None:
    with secured_service.http("shop") as http:
        assert [row["mesh"] for row in http.get("/v1/meshes").json()] == ["shop"]
        assert http.get("/v1/meshes/shop/verdict").status_code == 200
        assert http.post(PUSH, content=body(0), headers=JSON).status_code == 200
        problem(http.get("/v1/meshes/pay/verdict"), 403, "forbidden")
        problem(http.get("/v1/meshes/none/verdict"), 403, "forbidden")
        problem(http.post("/v1/meshes/pay/snapshots", content=body(), headers=JSON), 403, "forbidden")
        problem(http.get("/metrics"), 403, "forbidden")
        for path in (
            "/v1/meshes/shop/../pay/verdict",
            "/v1/meshes/shop/%2e%2e/pay/verdict",
            "/v1/meshes/shop%2f..%2fpay/verdict",
            "/v1/meshes/%70ay/verdict",
            "/v1/meshes/p%61y/verdict/",
            "/v1/meshes//pay/verdict",
            "//v1/meshes/pay/verdict",
            "/v1/meshes/pay%0a/verdict",
            "/v1/meshes/pay/verdict%0a",
            "/v1/meshes/shop%00/../pay/verdict",
            "/static/../v1/meshes/pay/verdict",
            "/v1/meshes/shop;/../pay/verdict",
            "/v1/meshes/pay?x=/v1/meshes/shop/verdict",
        ):
            request = http.build_request("GET", "/")
            request.url = httpx.URL(secured_service.url).copy_with(raw_path=path.encode())
            response = http.send(request)
            assert response.status_code in (403, 404), (path, response.status_code)
            assert "observed_at" not in response.text, path


def test_routes_of_all_meshes_name_only_those_that_the_caller_may_see(secured_service: Secured) -> None:
    with secured_service.http("admin") as http:
        http.post(f"/v1/models/{load().digest}/promote", json={"mesh": "pay"}).raise_for_status()
        assert eventually(lambda: "pay" in http.get("/v1/model").json()["meshes"])
        found = http.get("/v1/models").json()
        assert (found["pinned"], list(found["rollout"]["meshes"])) == (["bank"], ["pay"])
        assert "meshes.bank.weights: refused" in http.get("/healthz").json()["refused"]
    for token in ("shop", ""):
        with secured_service.http(token) as http:
            for path in ("/v1/models", "/v1/model") if token else ("/healthz", "/readyz"):
                text = http.get(path).raise_for_status().text
                assert "pay" not in text, path
                assert "bank" not in text, path
    with secured_service.http() as http:
        assert http.get("/healthz").json()["refused"] == "weights of 1 mesh: refused; the log names it"


def test_tokens_come_and_go_while_it_runs(secured_service: Secured) -> None:
    token = editing.create(secured_service.file, "fresh", [Scope.READ])
    numbers = count()

    def status() -> int:
        """Ask from an address that never asked: one with many failures would have to wait for a minute."""
        number = next(numbers)
        with secured_service.http(token, f"127.1.{number // 250}.{number % 250 + 1}") as http:
            return http.get("/v1/meshes").status_code

    assert eventually(lambda: status() == 200)
    with secured_service.http(token, "127.0.0.7") as http:
        with http.stream("GET", "/v1/meshes/shop/verdicts/stream") as stream:
            lines = stream.iter_lines()
            assert any(line.startswith("data:") for line in lines)
            editing.remove(secured_service.file, "fresh")
            assert not [line for line in lines if line.startswith("data:")], "the stream ends with the token"
        assert eventually(lambda: status() == 401)
    with secured_service.http("reader") as http:
        assert http.get("/v1/meshes").status_code == 200, "the other streams stay open"


def test_an_address_with_many_wrong_tokens_waits_and_others_do_not(secured_service: Secured) -> None:
    address = "127.0.0.6"
    with secured_service.http("tagae_wrong", address) as wrong, secured_service.http("reader", address) as right:
        for _ in range(MAX_FAILURES):
            problem(wrong.get("/v1/meshes"), 401, "unauthenticated")
        response = wrong.get("/v1/meshes")
        refused = response.json()
        assert (response.status_code, refused["type"]) == (429, "urn:tagae:problem:too-many-failed-logins")
        assert 0 < int(response.headers["retry-after"]) <= 60
        for _ in range(MAX_FAILURES):  # the ingress counts failures of the page's form
            assert wrong.post("/login", json={"token": "wrong"}).status_code == 401
        assert wrong.post("/login", json={"token": "wrong"}).status_code == 429
        assert right.get("/v1/meshes").status_code == 200
    with secured_service.http("reader") as http:
        lines = [
            line for line in http.get("/metrics").text.splitlines() if line.startswith("tagae_failed_logins_total")
        ]
        assert sum(float(line.rpartition(" ")[2]) for line in lines) > MAX_FAILURES
        assert any('reason="unknown"' in line for line in lines)
        assert "tagae_wrong" not in http.get("/metrics").text


# The cookie of the page.


def test_a_login_is_a_cookie_that_scripts_cannot_read(secured_service: Secured) -> None:
    with secured_service.http(origin=secured_service.url) as http:
        problem(http.post("/login", json={"token": "wrong"}), 401, "unauthenticated")
        problem(http.post("/login", json={}), 422, "invalid-document", "/token")
        response = http.post("/login", json={"token": f" {secured_service.tokens['both']}\n"})
        assert response.status_code == 204
        cookie = response.headers["set-cookie"].split("; ")
        assert cookie == [
            f"tagae_token={secured_service.tokens['both']}",
            "Max-Age=43200",
            "HttpOnly",
            "SameSite=Strict",
        ]
        assert response.headers["cache-control"] == "no-store"
        assert http.get("/v1/meshes").status_code == 200
        assert http.get("/login").json() == {
            "needed": True,
            "name": "both",
            "scopes": ["read", "write"],
            "all_meshes": True,
            "cookie": True,
            **WITH_TOKENS,
        }
        assert http.post(PUSH, content=body(0), headers=JSON).status_code == 200
        problem(http.delete("/v1/meshes/shop"), 403, "forbidden")
        assert http.post("/logout", json={}).headers["set-cookie"].startswith("tagae_token=; Max-Age=0;")
        assert http.get("/v1/meshes").status_code == 401


def test_below_a_path_of_a_proxy_the_cookie_is_for_that_path(secured_service: Secured) -> None:
    """Without Path, a client uses the folder of the requested address (RFC 6265, 5.1.4)."""
    with secured_service.http() as http:
        response = http.post("/login", json={"token": secured_service.tokens["reader"]})
        assert "path" not in response.headers["set-cookie"].lower()
        asked = httpx.Request("POST", "http://proxy.example/tagae/login")
        jar = httpx.Cookies()
        jar.extract_cookies(httpx.Response(204, headers=response.headers, request=asked))
        (cookie,) = jar.jar
        assert cookie.path in ("/tagae", "/tagae/")
        for path, sent in (("/tagae/v1/meshes", True), ("/tagae/", True), ("/other/", False), ("/", False)):
            request = httpx.Request("GET", f"http://proxy.example{path}")
            jar.set_cookie_header(request)
            assert ("cookie" in request.headers) is sent, path


def test_a_trusted_proxy_names_the_user_and_the_scheme(secured_service: Secured) -> None:
    login = {"x-forwarded-user": "ada", "x-forwarded-proto": "https"}
    with secured_service.http(address=PROXY, **login) as http:
        assert http.get("/login").json() == {
            "needed": True,
            "name": "ada",
            "scopes": ["read", "write"],
            "all_meshes": True,
            "cookie": False,
            **WITH_TOKENS,
        }
        assert http.post(PUSH, content=body(0), headers=JSON).status_code == 200
        problem(http.delete("/v1/meshes/shop"), 403, "forbidden")
        assert (
            http.post("/login", json={"token": secured_service.tokens["both"]})
            .headers["set-cookie"]
            .endswith("; Secure")
        )
    with secured_service.http(**login, **{"x-forwarded-for": PROXY}) as http:
        assert http.get("/v1/meshes").status_code == 401
        assert (
            not http.post("/login", json={"token": secured_service.tokens["both"]})
            .headers["set-cookie"]
            .endswith("Secure")
        )


# Clients.


def test_the_client_and_the_command_line_send_a_token(secured_service: Secured, tmp_path: Path) -> None:
    with Client(secured_service.url, token=secured_service.tokens["reader"]) as client:
        assert {row.mesh for row in client.meshes()} >= {"shop", "pay"}
        with pytest.raises(Forbidden, match="expected the scope admin"):
            client.delete("shop")
    with Client(secured_service.url) as client, pytest.raises(Unauthenticated, match="Authorization: Bearer TOKEN"):
        client.meshes()
    run = CliRunner()
    recording, secret = tmp_path / "recording", tmp_path / "admin.token"
    made = run.invoke(
        app, ["simulate", str(recording), "--services", "24", "--calls-per-service", "3", "--snapshots", "3"]
    )
    assert made.exit_code == 0, made.stderr
    secret.write_text(secured_service.tokens["admin"] + "\n")
    command = ["score", str(recording), "--url", secured_service.url]
    assert "send a token" in run.invoke(app, command).stderr
    by_option = run.invoke(app, [*command, "--token-file", str(secret)])
    assert by_option.exit_code == 0, by_option.stderr
    assert len(by_option.stdout.splitlines()) > 1
    by_environment = run.invoke(app, command, env={"TAGAE_TOKEN_FILE": str(secret)})
    assert by_environment.exit_code == 0, by_environment.stderr
    secret.write_text("two words")
    refused = run.invoke(app, [*command, "--token-file", str(secret)])
    assert refused.exit_code == 1
    assert "two words" not in refused.stderr


def test_tokens_on_the_command_line(tmp_path: Path) -> None:
    run, file = CliRunner(), str(tmp_path / "tokens.toml")
    made = run.invoke(
        app, ["token", "create", "--name", "ci", "--scope", "write", "--mesh", "shop", "--expires", "2099-01-01", file]
    )
    assert made.exit_code == 0
    token = made.stdout.strip()
    assert len(token.split()) == 1
    assert token not in Path(file).read_text()
    assert run.invoke(app, ["token", "list", file]).stdout == "ci\twrite\tshop\tuntil 2099-01-01T00:00:00+00:00\n"
    assert run.invoke(app, ["token", "create", "--name", "ci", "--scope", "read", file]).exit_code == 1
    assert run.invoke(app, ["token", "create", "--name", "x", "--scope", "all", file]).exit_code == 2
    assert run.invoke(app, ["token", "remove", "ci", file]).exit_code == 0
    assert run.invoke(app, ["token", "list", file]).stdout == ""
    assert run.invoke(app, ["token", "remove", "ci", file]).exit_code == 1


# Starting.


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--host", "0.0.0.0"], ["tagae token create", "serve.tokens_file", "serve.allow_anonymous"]),
        (["--host", "::"], ["serve.allow_anonymous"]),
        (["--set", "serve.tokens_file={folder}/none.toml"], ["expected a readable file"]),
        (["--set", "serve.tokens_file={folder}/wrong.toml"], ["expected TOML"]),
        (["--set", "serve.certificate_file={folder}/wrong.toml"], ["certificate_file and key_file"]),
        (
            ["--set", "serve.certificate_file={folder}/wrong.toml", "--set", "serve.key_file={folder}/wrong.toml"],
            ["a certificate and its key in PEM"],
        ),
        (["--set", "serve.proxy_user_header=X-User"], ["trusted_proxies is missing"]),
        (["--set", "serve.allowed_hosts=['a b']"], ["expected HOST or HOST:PORT"]),
        (["--set", "serve.allow_anonymous=true", "--set", "serve.tokens_file=x"], ["choose one"]),
    ],
)
def test_a_service_with_open_or_wrong_settings_does_not_start(
    tmp_path: Path, given: list[str], words: list[str]
) -> None:
    (tmp_path / "wrong.toml").write_text("[[")
    arguments = [one.format(folder=tmp_path) for one in given]
    result = CliRunner().invoke(app, ["serve", "--port", "0", *arguments], env={"COLUMNS": "500"})
    assert result.exit_code == 1
    message = " ".join(result.stderr.split())
    assert all(word in message for word in words), message


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    return write_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.slow
def test_tls(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    made, key = certificate
    file = tmp_path / "tokens.toml"
    token = editing.create(file, "a", [Scope.READ, Scope.WRITE])
    given = {"certificate_file": made, "key_file": key, "tokens_file": file}
    settings = [part for name, value in given.items() for part in ("--set", f"serve.{name}={value}")]
    with start_command(
        ["serve", "--port", "0", *settings, "--set", f"store.path={tmp_path}"], r"Page: (https://\S+)/\s"
    ) as found:
        url = found[1][1]
        with Client(url, token=token, ca_file=made) as client:
            assert client.push("shop", SNAPSHOTS[0]).sequence == 1
        with Client(url, token=token, patience_seconds=0) as client, pytest.raises(NoCapacity, match="certificate"):
            client.meshes()
        trusted = ssl.create_default_context(cafile=made)
        with httpx.Client(base_url=url, verify=trusted, headers={"origin": url}) as http:
            assert http.get("/healthz").status_code == 200
            cookie = http.post("/login", json={"token": token}).headers["set-cookie"]
            assert cookie.endswith("; HttpOnly; SameSite=Strict; Secure")
            assert http.get("/v1/meshes").status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http") + "/healthz", headers={"authorization": f"Bearer {token}"})
