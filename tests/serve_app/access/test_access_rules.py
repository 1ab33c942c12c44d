"""The rules of access as pure functions: tokens and their file, hosts and origins, routes, proxies, failures."""

import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Match

from lab.demo.remote_control import http as demo
from serve_app.access import (
    Access,
    Principal,
    Rules,
    Scope,
    editing,
    failures,
    is_loopback,
)
from serve_app.access.routes import OPEN, SAFE, need
from serve_app.access.rules import require_protection
from serve_app.access.tokens import Grant, Token, find_token, parse, read_token_file
from serve_app.access.watched_file import RELOAD_SECONDS, WatchedFile
from serve_app.deployments.http.ingress import http
from serve_app.errors import (
    BadHost,
    BadSettings,
    ServeError,
    TooManyFailedLogins,
    Unauthenticated,
    WrongHost,
)
from tests.builders import Clock, http_scope

LOCAL, FAR = ("127.0.0.1", 50000), ("203.0.113.7", 50000)
HOST = (b"host", b"127.0.0.1:8000")
PUSH = "/v1/meshes/shop/snapshots"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


def bearer(token: str) -> tuple[bytes, bytes]:
    return b"authorization", f"Bearer {token}".encode()


def watch(file: Path, clock: Clock) -> Callable[[str], Token | None]:
    """Return what finds a token in the present content of the file."""
    watched = WatchedFile(file, read_token_file, clock)
    return lambda token: find_token(watched.content(), token)


def outcome(access: Access, method: str, path: str, *headers: tuple[bytes, bytes], client: object = LOCAL) -> str:
    """Return ``ok`` or the class of the error."""
    try:
        access.check(http_scope(method, path, HOST, *headers, client=client))
    except ServeError as error:
        return type(error).__name__
    return "ok"


# Tokens and their file.


def test_a_created_token_is_random_long_and_only_its_hash_is_kept(file: Path) -> None:
    first = editing.create(file, "a", [Scope.READ])
    second = editing.create(file, "b", [Scope.READ, Scope.WRITE], ["shop"], datetime(2099, 1, 1, tzinfo=UTC))
    assert first != second
    assert len(first) == len(second) == len(editing.PREFIX) + 43
    text = file.read_text()
    assert first not in text
    assert hashlib.sha256(first.encode()).hexdigest() in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    one, two = parse(text, "here")
    assert (one.name, one.scopes, one.meshes, one.expires) == ("a", {Scope.READ}, None, None)
    assert (two.scopes, two.meshes) == ({Scope.READ, Scope.WRITE}, {"shop"})
    assert two.expires == datetime(2099, 1, 1, tzinfo=UTC)
    assert [path.name for path in file.parent.iterdir()] == [file.name], "no other file is left"


def test_removing_keeps_comments_and_the_others(file: Path) -> None:
    for name in ("a", "b", "c"):
        editing.create(file, name, [Scope.READ])
    file.write_text("# ours\n" + file.read_text().replace('name = "c"', 'name = "c"  # the third'))
    editing.remove(file, "b")
    assert [token.name for token in editing.read_tokens(file)] == ["a", "c"]
    assert file.read_text().startswith("# ours\n")
    assert "# the third" in file.read_text()
    with pytest.raises(BadSettings, match=r"expected the name of a token \(a, c\), got 'b'"):
        editing.remove(file, "b")
    with pytest.raises(BadSettings, match="'a' is taken"):
        editing.create(file, "a", [Scope.READ])


HASH = "0" * 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tokens = 3", "expected tokens as"),
        ("[[tokens]", "expected TOML"),
        ("[users]", "got 'users'"),
        (f'[[tokens]]\nname = ""\nsha256 = "{HASH}"\nscopes = ["read"]', "name: expected 1 to 63"),
        ('[[tokens]]\nname = "a"\nsha256 = "abc"\nscopes = ["read"]', "expected 64 hexadecimal"),
        (f'[[tokens]]\nname = "a"\nsha256 = "{HASH}"', "expected one or more of read, write, admin"),
        (f'[[tokens]]\nname = "a"\nsha256 = "{HASH}"\nscopes = ["all"]', "got ['all']"),
        (f'[[tokens]]\nname = "a"\nsha256 = "{HASH}"\nscopes = ["read"]\nmeshes = []', "leave it out for all"),
        (f'[[tokens]]\nname = "a"\nsha256 = "{HASH}"\nscopes = ["read"]\nexpires = 2027-01-01', "with a zone"),
        (f'[[tokens]]\nname = "a"\nsha256 = "{HASH}"\nscopes = ["read"]\nscope = 1', "'scope' is not a field"),
        (f'[[tokens]]\nname = "a"\nsha256 = "{HASH}"\nscopes = ["read"]\n' * 2, "each name once"),
    ],
)
def test_the_error_of_a_wrong_file_names_the_problem_without_hashes(text: str, words: str) -> None:
    with pytest.raises(BadSettings) as caught:
        parse(text, "tokens.toml")
    assert words in caught.value.message
    assert "abc" not in caught.value.message


def test_the_file_is_read_again_when_it_changes_and_not_more_often_than_once_a_second(file: Path, clock: Clock) -> None:
    first = editing.create(file, "a", [Scope.READ])
    find = watch(file, clock)
    second = editing.create(file, "b", [Scope.READ])
    assert find(second) is None, "no second has passed"
    clock.now += RELOAD_SECONDS
    assert find(second) is not None
    editing.remove(file, "a")
    clock.now += RELOAD_SECONDS
    assert find(first) is None
    assert find(second) is not None


@pytest.mark.parametrize("damage", ["missing", "invalid", "writable"])
def test_after_a_file_breaks_the_former_tokens_stay_and_one_line_is_logged(
    file: Path, clock: Clock, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = editing.create(file, "a", [Scope.READ])
    find, good = watch(file, clock), file.read_text()
    if damage == "missing":
        file.unlink()
    elif damage == "invalid":
        file.write_text("[[tokens]]\nname = ")
    else:
        file.write_text(good + "\n")
        file.chmod(0o666)
    for _ in range(3):
        clock.now += RELOAD_SECONDS
        assert find(token) is not None
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "stays in use" in errors[0].getMessage()
    with pytest.raises(BadSettings):
        watch(file, clock)  # at the start a broken file is an error
    file.unlink(missing_ok=True)
    file.write_text("")
    file.chmod(0o600)
    clock.now += RELOAD_SECONDS
    assert find(token) is None, "an empty file revokes all tokens"


def test_a_file_that_others_can_read_is_used_with_a_warning(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = editing.create(file, "a", [Scope.READ])
    file.chmod(0o644)
    assert find_token(read_token_file(file), token) is not None
    assert "chmod 600" in caplog.text


# Hosts and origins.


@pytest.fixture
def access_by_name() -> Access:
    return Access(
        Rules(allowed_hosts=("tagae.example", "other.example:8443"), external_url="https://mesh.example/tagae")
    )


@pytest.mark.parametrize(
    ("host", "error"),
    [
        ("127.0.0.1", None),
        ("127.0.0.1:8000", None),
        ("[::1]:8000", None),
        ("10.1.2.3:8000", None),
        ("localhost:8000", None),
        ("LOCALHOST", None),
        ("localhost.:8000", None),
        ("tagae.example", None),
        ("other.example:9", None),
        ("mesh.example", None),
        ("evil.example", WrongHost),
        ("tagae.example.evil.example", WrongHost),
        ("127.0.0.1.evil.example", WrongHost),
        ("2130706433", WrongHost),
        ("", BadHost),
        ("a b", BadHost),
        ("tagae.example:port", BadHost),
        ("tagae.example:99999", BadHost),
        ("user@tagae.example", BadHost),
        ("[::1", BadHost),
        ("[::zz]", BadHost),
        ("127.0.0.1, evil.example", BadHost),
        ("tägae.example", BadHost),
    ],
)
def test_only_names_of_the_service_are_answered(
    access_by_name: Access, host: str, error: type[ServeError] | None
) -> None:
    with pytest.raises(error) if error else nullcontext():
        access_by_name.check(http_scope("GET", "/healthz", (b"host", host.encode("latin-1")), client=LOCAL))


def test_a_host_is_needed_once_except_in_http_1_0(access_by_name: Access) -> None:
    for headers in ([], [HOST, HOST]):
        with pytest.raises(BadHost):
            access_by_name.check(http_scope("GET", "/healthz", *headers, client=LOCAL))
    access_by_name.check(http_scope("GET", "/healthz", client=LOCAL, http_version="1.0"))


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://127.0.0.1:8000", True),
        ("https://127.0.0.1:8000", True),  # a proxy terminates TLS
        ("http://127.0.0.1:8001", False),
        ("http://127.0.0.1", False),
        ("http://localhost:8000", False),
        ("https://mesh.example", True),
        ("https://mesh.example:443", True),
        ("http://mesh.example", False),
        ("https://mesh.example:8443", False),
        ("https://tagae.example", True),
        ("https://tagae.example:3000", False),
        ("https://other.example:8443", True),
        ("https://evil.example", False),
        ("null", False),
        ("", False),
        ("file://", False),
        ("https://mesh.example/x", False),
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "PATCH"])
def test_only_own_pages_change_anything(access_by_name: Access, method: str, origin: str, allowed: bool) -> None:
    header = (b"origin", origin.encode())
    assert outcome(access_by_name, method, PUSH, header) == ("ok" if allowed else "CrossOrigin")
    assert outcome(access_by_name, "GET", "/v1/meshes", header) == "ok", "no header lets the page read the answer"


def test_the_site_in_the_browser_s_header_counts(access_by_name: Access) -> None:
    assert outcome(access_by_name, "POST", PUSH, (b"sec-fetch-site", b"cross-site")) == "CrossOrigin"
    assert outcome(access_by_name, "POST", PUSH, (b"sec-fetch-site", b"same-origin")) == "ok"
    twice = [(b"origin", b"http://127.0.0.1:8000"), (b"origin", b"http://evil.example")]
    assert outcome(access_by_name, "POST", PUSH, *twice) == "CrossOrigin"
    assert outcome(access_by_name, "POST", "/login", (b"origin", b"http://evil.example")) == "CrossOrigin"


# Routes.


def flat(application: Any) -> list[Any]:
    """Return the routes of an application. FastAPI has a separate router for the routes of a class."""
    return [one for route in application.routes for one in getattr(route, "original_router", _Single(route)).routes]


class _Single:
    """Return a router with one route."""

    def __init__(self, route: Any) -> None:
        self.routes = [route]


def routes() -> Iterator[tuple[str, str]]:
    """Return method and path of every route of the service, and of the demo's buttons."""
    for application, prefix in ((http, ""), (demo, "/demo")):
        for route in flat(application):
            path = route.path.replace(":path}", "}").format(**NAMES)
            for method in route.methods:
                yield method, prefix + path


NAMES = {
    "mesh": "shop",
    "incident": "i",
    "mute": "m",
    "view": "v",
    "version": "0123456789abcdef",
}
SOURCE = "/v1/meshes/shop/source"  # the service opens connections to the address that a caller gives
WRITES = {
    *(("POST", f"/v1/meshes/shop/{tail}") for tail in ("snapshots", "baseline", "feedback", "mutes")),
    ("POST", "/v1/meshes/shop/otlp/v1/metrics"),
    ("POST", "/v1/meshes/shop/incidents/i/actions"),
    ("DELETE", "/v1/meshes/shop/feedback/i"),
    ("DELETE", "/v1/meshes/shop/mutes/m"),
    ("POST", "/v1/score"),
    ("POST", "/demo/keys"),
}


def test_every_route_is_in_the_table_as_documented() -> None:
    found = set(routes())
    assert len(found) > 30
    assert found >= WRITES
    for method, path in found:
        needed = need(method, path)
        if path in OPEN or path.startswith("/static/"):
            assert needed.scope is None, (method, path)
            continue
        expected = Scope.WRITE if (method, path) in WRITES else Scope.READ if method in SAFE else Scope.ADMIN
        expected = Scope.ADMIN if path == "/v1/audit" else expected
        assert needed.scope is expected, (method, path)
        assert needed.mesh == ("shop" if "/shop" in path else None), (method, path)
        of_all = path.startswith("/v1/models/") and (method not in SAFE or path.endswith("/comparison"))
        of_all |= path in ("/metrics", "/v1/audit", "/v1/receivers/test", SOURCE)
        assert needed.all_meshes == of_all, (method, path)


def test_an_unknown_route_needs_all_scopes() -> None:
    for path in ("//v1/meshes/shop/verdict", "/v1//meshes/shop", "/v1/meshes/", "/v2", "", "/Healthz", "/-/x", "x"):
        assert need("GET", path) == need("GET", "/metrics")
        assert (need("POST", path).scope, need("POST", path).all_meshes) == (Scope.ADMIN, True)
    assert need("GET", "/static/../v1/meshes").scope is Scope.READ
    assert need("POST", "/").scope is Scope.ADMIN


WORDS = (
    "/ // v1 meshes shop pay snapshots verdict stream verdicts mutes feedback incidents actions score "
    "metrics healthz static %2f %2F %2e . .. %2e%2e %00 %0a ; ? # %25 %252f ä %c3%a4 \\ * login demo"
)
PIECES = st.sampled_from(WORDS.split())
PATHS = st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=10).map(lambda parts: "/" + "".join(parts))
SLASHED = st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=8).map(lambda parts: "/" + "/".join(parts))


@given(st.one_of(PATHS, SLASHED), st.sampled_from(["GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS"]))
def test_the_table_and_the_router_agree_on_the_route_of_every_path(raw: str, method: str) -> None:
    """For every route that the router matches, the table names the same mesh and requires at least its scope."""
    path = unquote(raw, errors="replace")  # decoded once, as uvicorn does
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    needed = need(method, path)
    for route in flat(http):
        match, child = route.matches(scope)
        if match is not Match.FULL:
            continue
        template = route.path
        if needed.scope is None:
            assert template in OPEN or template.startswith("/static/"), (template, path)
            return
        if "mesh" in child["path_params"]:
            assert needed.mesh == child["path_params"]["mesh"], (template, path)
        if method not in SAFE:
            plain = template.format(**NAMES)
            wanted = Scope.WRITE if (method, plain) in WRITES else Scope.ADMIN
            assert needed.scope in (wanted, Scope.ADMIN), (template, path)
        return


# Who may do what.


@pytest.fixture
def tokens(file: Path) -> dict[str, str]:
    return {
        "read": editing.create(file, "read", [Scope.READ]),
        "write": editing.create(file, "write", [Scope.WRITE]),
        "admin": editing.create(file, "admin", [Scope.ADMIN]),
        "shop": editing.create(file, "shop", [Scope.READ, Scope.WRITE], ["shop"]),
        "old": editing.create(file, "old", [Scope.ADMIN], (), datetime.now(UTC) - timedelta(seconds=1)),
    }


@pytest.fixture
def access(file: Path, tokens: dict[str, str], clock: Clock) -> Access:
    return Access(Rules(tokens_file=file), clock)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/meshes", {"read", "admin", "shop"}),
        ("GET", "/v1/meshes/shop/verdict", {"read", "admin", "shop"}),
        ("GET", "/v1/meshes/pay/verdict", {"read", "admin"}),
        ("POST", "/v1/meshes/shop/snapshots", {"write", "admin", "shop"}),
        ("POST", "/v1/meshes/pay/snapshots", {"write", "admin"}),
        ("DELETE", "/v1/meshes/shop", {"admin"}),
        ("DELETE", "/v1/meshes/shop/mutes/m", {"write", "admin", "shop"}),
        ("POST", "/v1/meshes/shop/incidents/i/actions", {"write", "admin", "shop"}),
        ("POST", "/v1/meshes/shop/incidents//actions", {"admin"}),
        ("POST", "/v1/meshes/shop/incidents/i/deny", {"admin"}),
        ("POST", "/v1/score", {"write", "admin", "shop"}),
        ("GET", "/metrics", {"read", "admin"}),
        ("GET", "/-/routes", {"read", "admin", "shop"}),
        ("POST", "/demo/keys", {"write", "admin", "shop"}),
        ("GET", "/nothing", {"read", "admin"}),
    ],
)
def test_scopes_and_meshes(access: Access, tokens: dict[str, str], method: str, path: str, allowed: set[str]) -> None:
    for name, token in tokens.items():
        expected = "ok" if name in allowed else "Unauthenticated" if name == "old" else "Forbidden"
        assert outcome(access, method, path, bearer(token)) == expected, name
        assert outcome(access, method, path, (b"cookie", f"a=b; tagae_token={token}".encode())) == expected, name
    assert outcome(access, method, path) == "Unauthenticated"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("Bearer wrong", "unknown"),
        ("bearer   ", "unknown"),
        ("Bearer " + "x" * 513, "malformed"),
        ("Bearer tök", "malformed"),
        ("Basic dXNlcjpwYXNz", None),
        ("", None),
    ],
)
def test_a_wrong_token_has_a_reason_and_a_missing_one_none(access: Access, value: str, reason: str | None) -> None:
    with pytest.raises(Unauthenticated) as caught:
        access.check(http_scope("GET", "/v1/meshes", HOST, (b"authorization", value.encode()), client=LOCAL))
    assert caught.value.details.get("reason") == reason


def test_the_header_has_precedence_over_the_cookie(access: Access, tokens: dict[str, str]) -> None:
    cookie = (b"cookie", f"tagae_token={tokens['admin']}".encode())
    assert outcome(access, "GET", "/v1/meshes", bearer("wrong"), cookie) == "Unauthenticated"
    assert outcome(access, "DELETE", "/v1/meshes/shop", bearer(tokens["read"]), cookie) == "Forbidden"


def test_a_removed_or_changed_token_is_no_longer_valid(
    access: Access, file: Path, tokens: dict[str, str], clock: Clock
) -> None:
    principal = access.check(http_scope("GET", "/v1/meshes", HOST, bearer(tokens["read"]), client=LOCAL))
    assert (principal.name, principal.way) == ("read", "token")
    assert access.is_valid(principal)
    assert not access.is_valid(replace(principal, grants=(Grant(frozenset({Scope.ADMIN})),)))
    editing.remove(file, "read")
    clock.now += RELOAD_SECONDS
    assert not access.is_valid(principal)
    assert access.is_valid(Principal()), "if no login is required"


def test_without_a_login_only_this_machine_is_served() -> None:
    access = Access(Rules())
    assert outcome(access, "DELETE", "/v1/meshes/shop") == "ok"
    assert outcome(access, "GET", "/v1/meshes", client=("::1", 1)) == "ok"
    for remote in (FAR, ("10.0.0.1", 1), ("testclient", 1), None):
        assert outcome(access, "GET", "/v1/meshes", client=remote) == "Forbidden"
        assert outcome(access, "GET", "/healthz", client=remote) == "ok"
    assert outcome(Access(Rules(allow_anonymous=True)), "DELETE", "/v1/meshes/shop", client=FAR) == "ok"


# Proxies.


@pytest.fixture
def access_by_proxy(file: Path, tokens: dict[str, str], clock: Clock) -> Access:
    proxies = ("10.0.0.0/24", "fd00::/64")
    return Access(Rules(tokens_file=file, trusted_proxies=proxies, proxy_user_header="X-Forwarded-User"), clock)


def test_only_a_trusted_proxy_names_the_user(access_by_proxy: Access, tokens: dict[str, str]) -> None:
    ada, proxy = (b"x-forwarded-user", b"ada"), ("10.0.0.9", 1)

    def read(*headers: tuple[bytes, bytes], client: object = proxy) -> str:
        return outcome(access_by_proxy, "GET", "/v1/meshes", *headers, client=client)

    found = access_by_proxy.check(http_scope("GET", "/v1/meshes", HOST, ada, client=proxy))
    assert (found.name, found.scopes, found.way) == ("ada", {Scope.READ, Scope.WRITE}, "proxy")
    for inside in (proxy, ("fd00::5", 1), ("::ffff:10.0.0.9", 1)):
        assert outcome(access_by_proxy, "POST", PUSH, ada, client=inside) == "ok"
        assert outcome(access_by_proxy, "DELETE", "/v1/meshes/shop", ada, client=inside) == "Forbidden"
        assert read(client=inside) == "Unauthenticated"
        assert read(ada, ada, client=inside) == "Unauthenticated", "the header was sent twice"
        assert read((b"x-forwarded-user", b""), client=inside) == "Unauthenticated"
    for outside in (FAR, LOCAL, ("10.0.1.9", 1), None):
        assert read(ada, client=outside) == "Unauthenticated"
    assert read(ada, (b"cookie", b"tagae_token=gone")) == "ok"
    assert read(ada, bearer("wrong")) == "Unauthenticated"
    admin = bearer(tokens["admin"])
    assert outcome(access_by_proxy, "DELETE", "/v1/meshes/shop", ada, admin, client=proxy) == "ok"


@pytest.mark.parametrize(
    ("forwarded", "allowed"),
    [
        ("203.0.113.7", True),
        ("10.0.0.8", True),
        ("10.0.0.9", False),
        ("10.0.0.9:80", False),
        ("1.1.1.1, 10.0.0.9", False),
        ("10.0.0.9, 127.0.0.1", False),
        ("10.0.0.9, 203.0.113.7", True),
    ],
)
def test_an_address_that_a_client_names_is_no_proxy(access_by_proxy: Access, forwarded: str, allowed: bool) -> None:
    """uvicorn passes on the address in X-Forwarded-For if a process of this machine sends it."""
    headers = (b"x-forwarded-user", b"ada"), (b"x-forwarded-for", forwarded.encode())
    expected = "ok" if allowed else "Unauthenticated"
    assert outcome(access_by_proxy, "GET", "/v1/meshes", *headers, client=("10.0.0.9", 1)) == expected


def test_only_a_trusted_proxy_may_set_the_scheme_of_the_caller(access_by_proxy: Access) -> None:
    def is_secure(scheme: str, *headers: tuple[bytes, bytes], client: object) -> bool:
        return access_by_proxy.is_secure(http_scope("GET", "/", *headers, client=client, scheme=scheme))

    forwarded, proxy = (b"x-forwarded-proto", b"https"), ("10.0.0.9", 1)
    assert is_secure("http", forwarded, client=proxy)
    assert not is_secure("http", forwarded, client=FAR)
    assert not is_secure("http", client=proxy)
    assert is_secure("https", client=FAR)


# Failures.


def test_an_address_that_fails_too_often_waits_and_a_right_token_works(
    access: Access, tokens: dict[str, str], clock: Clock
) -> None:
    for _ in range(failures.MAX_FAILURES):
        assert outcome(access, "GET", "/v1/meshes", bearer("wrong")) == "Unauthenticated"
    with pytest.raises(TooManyFailedLogins) as caught:
        access.check(http_scope("GET", "/v1/meshes", HOST, bearer("wrong"), client=LOCAL))
    assert 0 < caught.value.details["retry_after_seconds"] <= failures.WINDOW_SECONDS
    assert caught.value.details["reason"] == "unknown"
    assert outcome(access, "GET", "/v1/meshes", bearer(tokens["read"])) == "ok", "other clients share the address"
    assert outcome(access, "GET", "/v1/meshes") == "Unauthenticated", "a request without a token is not counted"
    assert outcome(access, "GET", "/v1/meshes", bearer("wrong"), client=FAR) == "Unauthenticated"
    clock.now += failures.WINDOW_SECONDS
    assert outcome(access, "GET", "/v1/meshes", bearer("wrong")) == "Unauthenticated"


def test_addresses_belong_to_clients_and_not_to_trusted_proxies(access_by_proxy: Access) -> None:
    proxy = ("10.0.0.9", 1)

    def fail(forwarded: bytes, client: object = proxy) -> str:
        return outcome(
            access_by_proxy, "GET", "/v1/meshes", bearer("x"), (b"x-forwarded-for", forwarded), client=client
        )

    for _ in range(failures.MAX_FAILURES):
        assert fail(b"1.1.1.1, 203.0.113.7, 10.0.0.5") == "Unauthenticated"
    assert fail(b"9.9.9.9, 203.0.113.7") == "TooManyFailedLogins", (
        "addresses that a client adds to the header do not count"
    )
    assert fail(b"203.0.113.8") == "Unauthenticated"
    for i in range(failures.MAX_FAILURES):
        assert fail(b"%d.1.1.1" % i, FAR[:1]) == ("TooManyFailedLogins"), "the address of the connection counts"


def test_a_customer_with_a_whole_network_is_one_address(access: Access) -> None:
    for i in range(failures.MAX_FAILURES):
        assert outcome(access, "GET", "/v1/meshes", bearer("x"), client=(f"2001:db8::{i:x}", 1)) == "Unauthenticated"
    assert outcome(access, "GET", "/v1/meshes", bearer("x"), client=("2001:db8::ffff", 1)) == "TooManyFailedLogins"
    assert outcome(access, "GET", "/v1/meshes", bearer("x"), client=("2001:db8:0:1::1", 1)) == "Unauthenticated"


def test_memory_and_log_are_bounded_and_hold_no_secret(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    counted = failures.FailedLogins(clock)
    for i in range(3 * failures.MAX_ADDRESSES):
        counted.add(f"address-{i}", "unknown", "GET '/v1/meshes'")
    assert len(counted._windows) == failures.MAX_ADDRESSES
    assert len(caplog.records) == 1
    clock.now += failures.LOG_SECONDS
    counted.add("address-x", "unknown", "GET '/v1/meshes'")
    assert "address-x: GET '/v1/meshes', and 12287 more" in caplog.text


def test_the_log_names_address_and_route_and_never_the_token(
    access: Access, tokens: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert outcome(access, "GET", "/v1/meshes/shop\n/x", bearer("s3cret-token"), client=FAR) == "Unauthenticated"
    (record,) = caplog.records
    assert record.getMessage() == "failed login (unknown) from 203.0.113.7: GET '/v1/meshes/shop\\n/x'"
    assert outcome(access, "GET", "/v1/meshes", bearer(tokens["old"]), client=("203.0.113.9", 1)) == "Unauthenticated"
    assert not any(secret in caplog.text for secret in ("s3cret", *tokens.values()))


# Starting.


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("tagae.internal", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    if loopback:
        require_protection(Rules(host=host), [host])
        return
    with pytest.raises(BadSettings, match="tagae token create") as caught:
        require_protection(Rules(host=host), [host])
    for name in ("serve.tokens_file", "serve.trusted_proxies", "serve.proxy_user_header", "serve.allow_anonymous"):
        assert name in caught.value.message


def test_a_cluster_of_several_nodes_needs_a_login_too(file: Path) -> None:
    with pytest.raises(BadSettings, match="got a cluster of 2 nodes"):
        require_protection(Rules(), ["127.0.0.1"], nodes=2)
    for rules in (
        Rules(tokens_file=file),
        Rules(allow_anonymous=True),
        Rules(trusted_proxies=("10.0.0.1/32",), proxy_user_header="X-User"),
    ):
        require_protection(rules, ["0.0.0.0"], nodes=2)
    with pytest.raises(BadSettings):
        require_protection(
            Rules(trusted_proxies=("10.0.0.1/32",)), ["0.0.0.0"]
        )  # a trusted proxy without a header to trust


def test_a_decision_costs_microseconds(access: Access, tokens: dict[str, str], file: Path) -> None:
    """The limit is relative to the time of hashing on the same processor, because that processor may be busy."""
    more = ((b"x-%d" % i, b"value") for i in range(20))
    scope = http_scope("POST", PUSH, HOST, bearer(tokens["shop"]), *more, client=LOCAL)

    def best(work: object, times: int = 200) -> float:
        taken = []
        for _ in range(20):
            began = time.process_time()
            for _ in range(times):
                work()  # type: ignore[operator]
            taken.append(time.process_time() - began)
        return min(taken) / times

    decision = best(lambda: access.check(scope))
    block = os.urandom(2**15)
    hashing = best(lambda: hashlib.md5(block, usedforsecurity=False).digest())
    assert decision < 20 * hashing, f"{1e6 * decision:.0f} us, {1e6 * hashing:.0f} us to hash 32 KiB"
