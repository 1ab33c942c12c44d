"""The cookie of a user who signed in at a provider, and what it permits."""

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.access import Access, Principal, Rules, Scope
from serve_app.access.oidc.rules import OidcRules
from serve_app.access.sign_ins import SignedInUser, SignInCookies, read_client_secret
from serve_app.access.tokens import Grant
from serve_app.access.watched_file import RELOAD_SECONDS, WatchedFile
from serve_app.errors import BadSettings, Forbidden, ServeError
from tests.builders import http_scope

SECRET = "a-secret-of-the-client-0123456789"
HOST = (b"host", b"mesh.example")
CLIENT = ("127.0.0.1", 50000)
READ = Grant(frozenset({Scope.READ}))
GRANTS = {
    "readers": READ,
    "shop": Grant(frozenset({Scope.READ, Scope.WRITE}), frozenset({"shop"})),
    "pushers": Grant(frozenset({Scope.WRITE}), frozenset({"bank"})),
    "admins": Grant(frozenset({Scope.ADMIN})),
}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> OidcRules:
    secret = tmp_path_factory.mktemp("secret") / "secret"
    secret.write_text(SECRET)
    return OidcRules("https://id.example", "tagae", secret, "https://mesh.example", GRANTS)


@pytest.fixture(scope="module")
def cookies(rules: OidcRules) -> SignInCookies:
    return SignInCookies(rules)


@pytest.fixture
def access(rules: OidcRules) -> Access:
    return Access(Rules(oidc=rules, external_url=rules.external_url))


def user_of(*groups: str, seconds: float = 60.0) -> SignedInUser:
    return SignedInUser("id-1", "u-1", "ada", groups, int(time.time() + seconds))


def outcome(access: Access, method: str, path: str, user: SignedInUser, *more: tuple[bytes, bytes]) -> str:
    assert access.sign_ins is not None
    cookie = (b"cookie", f"a=b; {access.sign_ins.name}={access.sign_ins.seal(user)}".encode())
    try:
        access.check(http_scope(method, path, HOST, cookie, *more, client=CLIENT))
    except ServeError as error:
        return type(error).__name__
    return "ok"


def test_a_cookie_holds_its_user(cookies: SignInCookies) -> None:
    user = user_of("readers")
    assert cookies.user(cookies.seal(user)) == user
    assert cookies.name == "__Host-tagae_sign_in"


@given(st.integers(0, 10_000), st.characters(codec="ascii"))
def test_no_changed_cookie_is_valid(cookies: SignInCookies, place: int, character: str) -> None:
    value = cookies.seal(user_of("readers"))
    at = place % len(value)
    changed = value[:at] + character + value[at + 1 :]
    assert (cookies.user(changed) is None) is (changed != value)


@pytest.mark.parametrize("value", ["", ".", "a.b", "é.é", "x" * 10_000, "a" * 100 + ".", "." + "a" * 43])
def test_nonsense_is_no_cookie(cookies: SignInCookies, value: str) -> None:
    assert cookies.user(value) is None


def test_a_user_cannot_gain_a_group_by_editing(cookies: SignInCookies) -> None:
    content, _, signature = cookies.seal(user_of("readers")).partition(".")
    edited = urlsafe_b64encode(urlsafe_b64decode(content).replace(b"readers", b"admins")).decode()
    assert cookies.user(f"{edited}.{signature}") is None


def test_a_cookie_of_another_service_is_not_valid(cookies: SignInCookies, rules: OidcRules) -> None:
    for other in (
        replace(rules, external_url="https://staging.example"),
        replace(rules, client_id="another"),
        replace(rules, issuer="https://id.example/other"),
    ):
        assert cookies.user(SignInCookies(other).seal(user_of("readers"))) is None


def test_a_cookie_expires(rules: OidcRules) -> None:
    now = [time.time()]
    cookies = SignInCookies(rules, lambda: now[0])
    value = cookies.seal(user_of("readers"))
    assert cookies.user(value)
    now[0] += 60
    assert cookies.user(value) is None


def test_a_cookie_fits_into_browsers(cookies: SignInCookies) -> None:
    with pytest.raises(Forbidden, match="fewer groups"):
        cookies.seal(user_of(*(f"group-{i}" for i in range(500))))


def test_the_secret_must_be_long_and_may_change(tmp_path: Path) -> None:
    file, now = tmp_path / "secret", [0.0]
    with pytest.raises(BadSettings, match="client_secret_file"):
        read_client_secret(file)
    file.write_text("short")
    with pytest.raises(BadSettings, match="at least 24"):
        read_client_secret(file)
    file.write_text(SECRET)
    secret = WatchedFile(file, read_client_secret, lambda: now[0])
    file.write_text(SECRET + "-new")
    now[0] += RELOAD_SECONDS
    assert secret.content() == SECRET + "-new"
    file.unlink()
    now[0] += RELOAD_SECONDS
    assert secret.content() == SECRET + "-new", "a service does not lose its users with the file"


@pytest.mark.parametrize(
    ("groups", "method", "path", "expected"),
    [
        (("readers",), "GET", "/v1/meshes/shop/verdict", "ok"),
        (("readers",), "POST", "/v1/meshes/shop/mutes", "Forbidden"),
        (("shop",), "POST", "/v1/meshes/shop/mutes", "ok"),
        (("shop",), "GET", "/v1/meshes/bank/verdict", "Forbidden"),
        (("shop",), "GET", "/metrics", "Forbidden"),
        # Grants do not multiply: reading everything and writing to one mesh is not writing to everything.
        (("readers", "shop"), "POST", "/v1/meshes/bank/mutes", "Forbidden"),
        (("readers", "shop"), "POST", "/v1/meshes/shop/mutes", "ok"),
        (("readers", "shop"), "GET", "/metrics", "ok"),
        (("shop", "pushers"), "GET", "/v1/meshes/bank/verdict", "Forbidden"),
        (("shop", "pushers"), "POST", "/v1/meshes/bank/snapshots", "ok"),
        (("readers", "shop", "pushers"), "DELETE", "/v1/meshes/shop", "Forbidden"),
        (("readers",), "GET", "/v1/audit", "Forbidden"),
        (("admins",), "GET", "/v1/audit", "ok"),
        (("admins",), "DELETE", "/v1/meshes/shop", "ok"),
        (("a former group",), "GET", "/v1/meshes", "Unauthenticated"),
        ((), "GET", "/v1/meshes", "Unauthenticated"),
    ],
)
def test_groups_permit_what_one_of_them_permits(
    access: Access, groups: tuple[str, ...], method: str, path: str, expected: str
) -> None:
    assert outcome(access, method, path, user_of(*groups)) == expected


def test_lists_have_the_meshes_that_a_user_can_read(access: Access) -> None:
    assert access.sign_ins is not None
    for groups, meshes in ((("shop", "pushers"), {"shop"}), (("readers", "shop"), None), (("pushers",), set())):
        cookie = (b"cookie", f"{access.sign_ins.name}={access.sign_ins.seal(user_of(*groups))}".encode())
        found = access.identify(http_scope("GET", "/", HOST, cookie, client=CLIENT))
        assert found is not None
        assert found.meshes == meshes


def test_a_change_needs_a_page_of_our_own(access: Access) -> None:
    """The cookie is SameSite=Lax, so a page of another port of this host could send it."""
    user = user_of("shop")
    for origin, expected in (
        (b"https://mesh.example", "ok"),
        (b"https://mesh.example:8443", "CrossOrigin"),
        (b"null", "CrossOrigin"),
    ):
        assert outcome(access, "POST", "/v1/meshes/shop/mutes", user, (b"origin", origin)) == expected
        assert outcome(access, "POST", "/logout", user, (b"origin", origin)) == expected


def test_an_ended_sign_in_is_refused(access: Access) -> None:
    user = user_of("readers")
    assert outcome(access, "GET", "/v1/meshes", user) == "ok"
    principal = Principal("ada", way="oidc", user=user)
    assert access.is_valid(principal)
    access.ended_sign_ins = frozenset({user.id})
    assert outcome(access, "GET", "/v1/meshes", user) == "Unauthenticated"
    assert not access.is_valid(principal), "its streams end"
    assert not access.is_valid(Principal("ada", way="oidc", user=replace(user, id="id-2", expires=1)))


def test_a_plain_name_without_https(rules: OidcRules) -> None:
    assert SignInCookies(replace(rules, external_url="http://127.0.0.1:8000")).name == "tagae_sign_in"
