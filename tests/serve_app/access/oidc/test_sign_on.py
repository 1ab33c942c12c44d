"""Sign-in at a provider, and attacks on it: by the browser's user, by others, and by the provider itself."""

import asyncio
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from serve_app.access.oidc.id_token import SKEW_SECONDS
from serve_app.access.oidc.provider import MAX_ANSWER_BYTES
from serve_app.access.oidc.rules import OidcRules
from serve_app.access.oidc.sign_on import SignedIn, SignOn
from serve_app.access.sign_ins import ATTEMPT_SECONDS, SignInCookies
from serve_app.access.tokens import Grant, Scope
from serve_app.errors import Forbidden, ProviderFailed, ServeError, SignInRefused, StoreGone
from tests.serve_app.access.oidc.provider_standin import (
    CLIENT,
    EC_KEY,
    FOREIGN_KEY,
    KEY,
    NEXT_KEY,
    SECRET,
    ProviderStandIn,
    run_provider,
)
from tests.timing import PATIENCE_SECONDS

HOME = "https://mesh.example/tagae/"
Claims = dict[str, Any]


@pytest.fixture
def provider() -> Iterator[ProviderStandIn]:
    with run_provider() as running:
        yield running


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    return file


def rules_of(provider: ProviderStandIn, secret: Path) -> OidcRules:
    groups = {
        "sre": Grant(frozenset({Scope.READ, Scope.WRITE})),
        "shop": Grant(frozenset({Scope.READ}), frozenset({"shop"})),
    }
    return OidcRules(provider.url, CLIENT, secret, HOME, groups)


class Marks:
    """Ids that were used, as the store has them."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    async def add(self, id: str, until: float) -> bool:
        is_new = id not in self.ids
        self.ids.add(id)
        return is_new


@pytest.fixture
def rules(provider: ProviderStandIn, secret: Path) -> OidcRules:
    return rules_of(provider, secret)


@pytest.fixture
def sign_on(rules: OidcRules) -> SignOn:
    return SignOn(rules, PATIENCE_SECONDS, Marks().add)


async def sign_in(sign_on: SignOn, provider: ProviderStandIn, place: str = "", **changes: str) -> SignedIn:
    attempt, url = await sign_on.begin(place)
    return await sign_on.finish(attempt, provider.authorize(url) | changes)


def assert_refused(
    sign_on: SignOn, provider: ProviderStandIn, expected: type[ServeError] = SignInRefused, **changes: str
) -> str:
    with pytest.raises(expected) as caught:
        asyncio.run(sign_in(sign_on, provider, **changes))
    return str(caught.value)


def test_a_user_of_a_group_signs_in(sign_on: SignOn, provider: ProviderStandIn) -> None:
    found = asyncio.run(sign_in(sign_on, provider, "#mesh=shop"))
    assert (found.user.subject, found.user.name, found.user.groups) == ("u-1", "ada", ("sre",))
    assert found.location == HOME + "#mesh=shop"
    assert 3500 < found.user.expires - time.time() <= 3600


def test_the_request_has_what_the_flow_needs(sign_on: SignOn, rules: OidcRules) -> None:
    cookie, url = asyncio.run(sign_on.begin(""))
    attempt = SignInCookies(rules).attempt(cookie)
    assert attempt is not None
    query = dict(parse_qsl(urlsplit(url).query))
    assert query["redirect_uri"] == HOME + "login/callback"
    assert query["scope"].split()[0] == "openid"
    assert query["code_challenge"] == attempt.challenge
    assert cookie not in url
    assert attempt.verifier not in url, "it stays here"
    assert SignInCookies(rules).user(cookie) is None, "an attempt is no sign-in"
    assert len({attempt.state, attempt.nonce, attempt.verifier, attempt.id}) == 4


@pytest.mark.parametrize("key", [KEY, EC_KEY], ids=["RSA", "EC"])
def test_keys_of_both_kinds_are_known(sign_on: SignOn, provider: ProviderStandIn, key: Any) -> None:
    provider.keys, provider.key = [EC_KEY, KEY], key
    assert asyncio.run(sign_in(sign_on, provider)).user.name == "ada"


def _without(name: str) -> Callable[[Claims], None]:
    return lambda claims: claims.update({name: None})


def _with(**changes: Any) -> Callable[[Claims], None]:
    return lambda claims: claims.update(changes)


LATE = 10 * SKEW_SECONDS


@pytest.mark.parametrize(
    "change",
    [
        _without("iss"),
        _with(iss="https://elsewhere.example"),
        _with(iss=["https://elsewhere.example"]),
        _without("aud"),
        _with(aud="another-client"),
        _with(aud=["another-client", "a-third"]),
        _with(aud=[]),
        _with(aud=[CLIENT, "another-client"]),
        _with(azp="another-client"),
        _with(aud=[CLIENT, "another-client"], azp="another-client"),
        _without("exp"),
        _with(exp=1),
        _with(exp="never"),
        _with(exp=True),
        _with(iat=4102444800),
        _without("iat"),
        _with(nbf=4102444800),
        _without("nonce"),
        _with(nonce="of-another-sign-in"),
        _with(nonce=""),
        _with(nonce=["a", "b"]),
        _without("sub"),
        _with(sub=""),
        _with(sub=17),
        _with(sub="u\n1"),
        _with(sub="u" * 300),
    ],
)
def test_claims_for_others_or_out_of_time_are_refused(
    sign_on: SignOn, provider: ProviderStandIn, change: Callable[[Claims], None]
) -> None:
    provider.change = change
    assert_refused(sign_on, provider)


def test_a_list_with_the_right_issuer_or_nonce_is_refused(sign_on: SignOn, provider: ProviderStandIn) -> None:
    for name in ("iss", "nonce"):
        provider.change = lambda claims, name=name: claims.update({name: [claims[name], "more"]})  # type: ignore[misc]
        assert_refused(sign_on, provider)


def test_clocks_may_differ_a_little(sign_on: SignOn, provider: ProviderStandIn) -> None:
    now = int(time.time())
    provider.change = _with(exp=now - SKEW_SECONDS // 2, iat=now + SKEW_SECONDS // 2)
    assert asyncio.run(sign_in(sign_on, provider)).user.name == "ada"
    provider.change = _with(exp=now - LATE)
    assert_refused(sign_on, provider)


def _segment(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _unsigned_token(claims: Claims) -> str:
    return f"{_segment({'alg': 'none'})}.{_segment(claims)}."


def _hmac_with_the_public_key(claims: Claims) -> str:
    """An attack on careless services; the library itself refuses to sign like this."""
    signed = f"{_segment({'alg': 'HS256', 'kid': KEY.kid})}.{_segment(claims)}"
    signature = hmac.digest(KEY.as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{urlsafe_b64encode(signature).decode().rstrip('=')}"


def _hmac_with_the_client_secret(claims: Claims) -> str:
    return jwt.encode({"alg": "HS256", "kid": KEY.kid}, claims, OctKey.import_key(SECRET), algorithms=["HS256"])


def _with_a_foreign_key(claims: Claims) -> str:
    return jwt.encode({"alg": "RS256", "kid": KEY.kid}, claims, FOREIGN_KEY, algorithms=["RS256"])


def _with_its_own_key(claims: Claims) -> str:
    header = {"alg": "RS256", "jwk": FOREIGN_KEY.as_dict(private=False)}
    return jwt.encode(header, claims, FOREIGN_KEY, algorithms=["RS256"])


def _of_an_unknown_key(claims: Claims) -> str:
    return jwt.encode({"alg": "RS256", "kid": "unknown"}, claims, KEY, algorithms=["RS256"])


def _with_another_algorithm(claims: Claims) -> str:
    free = RSAKey.import_key({name: value for name, value in KEY.as_dict(private=True).items() if name != "alg"})
    return jwt.encode({"alg": "RS512", "kid": KEY.kid}, claims, free, algorithms=["RS512"])


def _cut_signature(claims: Claims) -> str:
    return jwt.encode({"alg": "RS256", "kid": KEY.kid}, claims, KEY, algorithms=["RS256"])[:-20]


def _changed_claims(claims: Claims) -> str:
    header, _, signature = jwt.encode(
        {"alg": "RS256", "kid": KEY.kid}, {**claims, "groups": []}, KEY, algorithms=["RS256"]
    ).split(".")
    return f"{header}.{_segment(claims)}.{signature}"


@pytest.mark.parametrize(
    "sign",
    [
        _unsigned_token,
        _hmac_with_the_public_key,
        _hmac_with_the_client_secret,
        _with_a_foreign_key,
        _with_its_own_key,
        _of_an_unknown_key,
        _with_another_algorithm,
        _cut_signature,
        _changed_claims,
        lambda _: "",
        lambda _: "a.b.c",
        lambda _: "." * 70_000,
        lambda _: "é.é.é",
        lambda _: f"{_segment({'alg': 'RS256', 'crit': ['x']})}.e30.e30",
    ],
)
def test_tokens_that_the_provider_did_not_sign_are_refused(
    sign_on: SignOn, provider: ProviderStandIn, sign: Callable[[Claims], str]
) -> None:
    provider.sign = sign
    assert_refused(sign_on, provider)


def test_symmetric_and_foreign_keys_of_a_provider_are_not_used(sign_on: SignOn, provider: ProviderStandIn) -> None:
    oct_key = OctKey.import_key(SECRET, {"kid": "shared", "use": "sig"})
    provider.keys = [oct_key]
    provider.sign = lambda claims: jwt.encode({"alg": "HS256", "kid": "shared"}, claims, oct_key, algorithms=["HS256"])
    assert "has no key that can verify signatures" in assert_refused(sign_on, provider, ProviderFailed)


async def test_a_new_key_is_read_but_not_for_everyone_who_sends_one(sign_on: SignOn, provider: ProviderStandIn) -> None:
    await sign_in(sign_on, provider)
    sign_on._provider._read_at -= 60  # a minute ago
    provider.keys, provider.key = [NEXT_KEY], NEXT_KEY
    assert (await sign_in(sign_on, provider)).user.name == "ada"
    provider.sign = _of_an_unknown_key
    before = provider.requests.count("/keys")
    for _ in range(5):
        with pytest.raises(SignInRefused, match="kid"):
            await sign_in(sign_on, provider)
    assert provider.requests.count("/keys") == before, "unknown keys are looked up at most twice a minute"


@pytest.mark.parametrize("state", ["", "x", "é", "a" * 5000])
def test_an_answer_with_another_state_is_refused(sign_on: SignOn, provider: ProviderStandIn, state: str) -> None:
    assert_refused(sign_on, provider, state=state)


async def test_an_answer_is_for_the_browser_that_asked(sign_on: SignOn, provider: ProviderStandIn) -> None:
    """An attacker gets a victim to open the answer to another sign-in, or steals an answer."""
    mine, url = await sign_on.begin("")
    answer = provider.authorize(url)
    victims, _ = await sign_on.begin("")
    for cookie in ("", victims, mine + "x", mine.replace(".", "..", 1), "x" * 5000, "é"):
        with pytest.raises(SignInRefused, match="began in another browser"):
            await sign_on.finish(cookie, answer)
    assert "/token" not in provider.requests, "no code was used"
    assert await sign_on.finish(mine, answer)


async def test_a_stolen_code_is_of_no_use(sign_on: SignOn, provider: ProviderStandIn) -> None:
    """A code of a victim in the attacker's own attempt: the provider refuses the verifier, and we the nonce."""
    _, url = await sign_on.begin("")
    stolen = provider.authorize(url)["code"]
    attempt, url = await sign_on.begin("")
    with pytest.raises(ProviderFailed, match="invalid_grant"):
        await sign_on.finish(attempt, provider.authorize(url) | {"code": stolen})
    provider.is_strict = False
    with pytest.raises(SignInRefused, match="nonce"):
        await sign_on.finish(attempt, provider.authorize(url) | {"code": stolen})


async def test_an_answer_works_once_even_if_the_provider_does_not_care(
    sign_on: SignOn, provider: ProviderStandIn
) -> None:
    provider.is_strict = False
    attempt, url = await sign_on.begin("")
    answer = provider.authorize(url)
    assert await sign_on.finish(attempt, answer)
    with pytest.raises(SignInRefused, match="again"):
        await sign_on.finish(attempt, answer)


async def test_an_old_attempt_is_refused(rules: OidcRules, provider: ProviderStandIn) -> None:
    now = [time.time()]
    sign_on = SignOn(rules, PATIENCE_SECONDS, Marks().add, lambda: now[0])
    attempt, url = await sign_on.begin("")
    answer = provider.authorize(url)
    now[0] += ATTEMPT_SECONDS
    with pytest.raises(SignInRefused):
        await sign_on.finish(attempt, answer)


async def test_answers_of_two_providers_are_not_mixed_up(
    provider: ProviderStandIn, secret: Path, sign_on: SignOn
) -> None:
    with run_provider() as other:
        there = SignOn(rules_of(other, secret), PATIENCE_SECONDS, Marks().add)
        foreign, url = await there.begin("")
        answer = other.authorize(url)
        with pytest.raises(SignInRefused, match="began in another browser"):
            await sign_on.finish(foreign, answer)
        attempt, url = await sign_on.begin("")
        answer["state"] = dict(parse_qsl(urlsplit(url).query))["state"]
        with pytest.raises(SignInRefused, match="expected an answer of"):
            await sign_on.finish(attempt, answer)  # the issuer in the answer
        with pytest.raises(ServeError):
            await sign_on.finish(attempt, {**answer, "iss": provider.url})
        provider.metadata = {"authorization_response_iss_parameter_supported": True}
        fresh = SignOn(rules_of(provider, secret), PATIENCE_SECONDS, Marks().add)
        attempt, url = await fresh.begin("")
        answer = provider.authorize(url)
        del answer["iss"]
        with pytest.raises(SignInRefused, match="without an issuer"):
            await fresh.finish(attempt, answer)


@pytest.mark.parametrize(
    "place",
    [
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example",
        "https:evil.example",
        "javascript:alert(1)",
        "data:text/html,x",
        "%2f%2fevil.example",
        "%5cevil.example",
        "#mesh=shop\r\nset-cookie: a=b",
        "#a\nb",
        "../other",
        "a/../../other",
        "..",
        "%2e%2e/other",
        "\tx",
        " x",
        "é",
        "\u2028",
        "#" + "a" * 5000,
        "/absolute",
    ],
)
def test_a_browser_is_sent_nowhere_but_to_our_page(sign_on: SignOn, provider: ProviderStandIn, place: str) -> None:
    assert asyncio.run(sign_in(sign_on, provider, place)).location == HOME


@pytest.mark.parametrize("place", ["", "#mesh=shop&at=2026-03-01T00%3A00%3A00Z", "docs", "v1/meshes/shop/report?x=1"])
def test_places_of_our_page_are_returned_to(sign_on: SignOn, provider: ProviderStandIn, place: str) -> None:
    assert asyncio.run(sign_in(sign_on, provider, place)).location == HOME + place


@pytest.mark.parametrize("groups", [[], None, ["guests"], "guests", {"sre": True}, [["sre"]], 17])
def test_a_user_without_a_group_has_no_access(sign_on: SignOn, provider: ProviderStandIn, groups: Any) -> None:
    provider.user = {**provider.user, "groups": groups}
    assert "give a group access" in assert_refused(sign_on, provider, Forbidden)


def test_groups_may_be_text_and_at_userinfo(sign_on: SignOn, provider: ProviderStandIn) -> None:
    provider.user = {**provider.user, "groups": "shop"}
    assert asyncio.run(sign_in(sign_on, provider)).user.groups == ("shop",)
    provider.change = _without("groups")
    assert asyncio.run(sign_in(sign_on, provider)).user.groups == ("shop",)
    provider.answers["/userinfo"] = (200, json.dumps({"sub": "u-2", "groups": ["sre"]}).encode())
    assert "another user" in assert_refused(sign_on, provider, ProviderFailed)


def test_a_name_that_cannot_be_shown_is_replaced(sign_on: SignOn, provider: ProviderStandIn) -> None:
    for name in ("", "a\nb", "x" * 500, 17, None):
        provider.user = {**provider.user, "preferred_username": name}
        assert asyncio.run(sign_in(sign_on, provider)).user.name == "u-1"


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"issuer": "https://elsewhere.example"}, "expected the issuer"),
        ({"token_endpoint": "http://elsewhere.example/token"}, "expected https://"),
        ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint"),
        ({"authorization_endpoint": "https://a.example/\nb"}, "authorization_endpoint"),
        ({"token_endpoint": 17}, "token_endpoint"),
        ({"end_session_endpoint": "javascript:alert(1)"}, "end_session_endpoint"),
    ],
)
def test_wrong_metadata_is_refused(
    sign_on: SignOn, provider: ProviderStandIn, metadata: dict[str, Any], text: str
) -> None:
    provider.metadata = metadata
    assert text in assert_refused(sign_on, provider, ProviderFailed)


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys", "/token"])
@pytest.mark.parametrize(
    "answer",
    [
        (500, b"<html>oops"),
        (503, b""),
        (302, b""),
        (200, b""),
        (200, b"[]"),
        (200, b"[" * 100_000),
        (200, b"\xff\xfe"),
        (200, b'{"id_token": ' + b'"a' * MAX_ANSWER_BYTES),
        (200, b" " * (8 * MAX_ANSWER_BYTES) + b"{}"),
        (400, b'{"error": {"a": 1}}'),
    ],
    ids=lambda answer: f"{answer[0]}-{answer[1][:9]!r}",
)
def test_a_provider_that_errs_is_named(
    sign_on: SignOn, provider: ProviderStandIn, path: str, answer: tuple[int, bytes]
) -> None:
    provider.answers[path] = answer
    assert assert_refused(sign_on, provider, ProviderFailed).startswith(("provider:", "sign-in:"))


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token"])
def test_a_provider_that_hangs_is_given_up(rules: OidcRules, provider: ProviderStandIn, path: str) -> None:
    def hang() -> None:
        provider.closing.wait(PATIENCE_SECONDS)

    provider.answers[path] = hang
    assert "within 1 s" in assert_refused(SignOn(rules, 1.0, Marks().add), provider, ProviderFailed)


def test_a_provider_may_be_away_at_the_start(secret: Path) -> None:
    with run_provider() as gone:
        rules = rules_of(gone, secret)
    sign_on = SignOn(rules, PATIENCE_SECONDS, Marks().add)
    with pytest.raises(ProviderFailed, match="unreachable"):
        asyncio.run(sign_on.begin(""))


async def test_former_metadata_is_used_while_the_provider_is_away(sign_on: SignOn, provider: ProviderStandIn) -> None:
    await sign_in(sign_on, provider)
    sign_on._provider._read_at -= 2 * 3600
    provider.answers["/keys"] = (503, b"")
    assert (await sign_in(sign_on, provider)).user.name == "ada"


def test_no_sign_in_without_the_store(rules: OidcRules, provider: ProviderStandIn) -> None:
    async def fail(id: str, until: float) -> bool:
        raise StoreGone("the store is away")

    assert_refused(SignOn(rules, PATIENCE_SECONDS, fail), provider, StoreGone)


def test_an_error_of_the_provider_is_shown(sign_on: SignOn, provider: ProviderStandIn) -> None:
    text = assert_refused(sign_on, provider, error="access_denied", error_description="<b>" + "no " * 500)
    assert "access_denied" in text
    assert len(text) < 500


async def test_sign_out_here_and_there(rules: OidcRules, provider: ProviderStandIn) -> None:
    marks = Marks()
    sign_on = SignOn(rules, PATIENCE_SECONDS, marks.add)
    found = await sign_in(sign_on, provider)
    location = await sign_on.end(found.user, found.id_token)
    query = dict(parse_qsl(urlsplit(location).query))
    assert location.startswith(provider.url + "/logout?")
    assert query == {"client_id": CLIENT, "post_logout_redirect_uri": HOME, "id_token_hint": found.id_token}
    assert found.user.id in marks.ids


def test_a_secret_in_the_body_where_the_provider_wants_it(sign_on: SignOn, provider: ProviderStandIn) -> None:
    provider.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert asyncio.run(sign_in(sign_on, provider)).user.name == "ada"


def test_errors_have_no_secrets(rules: OidcRules, provider: ProviderStandIn, secret: Path) -> None:
    secret.write_text("another-secret-of-the-client-0123")
    sign_on = SignOn(replace(rules), PATIENCE_SECONDS, Marks().add)
    text = assert_refused(sign_on, provider, ProviderFailed)
    assert "invalid_client" in text
    assert "another-secret" not in text
