"""Sign-in at a real OpenID provider: in, out, expired, and without a group."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from serve_app.access import Scope, editing
from serve_app.access.oidc.rules import OidcRules
from serve_app.access.sign_ins import SignedInUser, SignInCookies
from serve_app.access.tokens import Grant
from tests.live.openid_provider import CLIENT, SECRET, OpenIdProvider, describe_missing
from tests.live.programs import free_ports
from tests.page.browsing import IN_BROWSER, REFUSED, Tab, tab
from tests.page.meshes import INCIDENT
from tests.page.serving import push_all
from tests.serve_app.running import start_service
from tests.timing import PATIENCE_SECONDS

pytestmark = [*IN_BROWSER, pytest.mark.skipif(bool(describe_missing()), reason=describe_missing())]
FONTS = ("Failed to load resource", "Loading the stylesheet", "Refused to load")  # of the provider's own pages


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> OidcRules:
    secret = tmp_path_factory.mktemp("secret") / "secret"
    secret.write_text(SECRET)
    ours, theirs = free_ports(2)
    grants = {"sre": Grant(frozenset({Scope.READ, Scope.WRITE}))}
    return OidcRules(f"http://127.0.0.1:{theirs}", CLIENT, secret, f"http://127.0.0.1:{ours}", grants)


@pytest.fixture(scope="module")
def service(rules: OidcRules, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    token = editing.create(folder / "tokens.toml", "ci", [Scope.WRITE])
    ours, theirs = (int(url.rpartition(":")[2]) for url in (rules.external_url, rules.issuer))
    (folder / "tagae.toml").write_text(
        f"""
        serve.port = {ours}
        serve.tokens_file = "{folder / "tokens.toml"}"
        serve.deadline_seconds = {PATIENCE_SECONDS}
        limits.max_ahead_seconds = inf
        notify.external_url = "{rules.external_url}"
        store.path = "{folder / "state"}"
        [serve.oidc]
        issuer = "{rules.issuer}"
        client_id = "{CLIENT}"
        client_secret_file = "{rules.client_secret_file}"
        name = "Example ID"
        groups.sre.scopes = ["read", "write"]
        """
    )
    with start_service("--config", str(folder / "tagae.toml")) as (_, url):  # before the provider
        provider = OpenIdProvider(folder, theirs, rules.home)
        try:
            push_all(url, "shop", INCIDENT, token=token)
            yield url
        finally:
            provider.end()


def is_asking(opened: Tab) -> bool:
    return bool(opened.page.locator("#sign-in[open]").count())


def sign_in(opened: Tab, user: str) -> None:
    """Sign in at the provider, from the page's dialog."""
    opened.until(lambda: is_asking(opened), "the dialog is there")
    opened.page.get_by_role("button", name="Sign in with Example ID").click()
    opened.page.get_by_placeholder("Enter any login").fill(user)
    opened.page.get_by_placeholder("and password").fill("any")
    opened.page.get_by_role("button", name="Sign-in").click()


def cookie(opened: Tab) -> dict[str, Any] | None:
    return next((one for one in opened.page.context.cookies() if one["name"] == "tagae_sign_in"), None)


def shows_the_mesh(opened: Tab) -> None:
    opened.until(lambda: opened.page.locator("#verdict.incident").count(), "the mesh shows")


def test_sign_in_come_back_and_sign_out(browser: Any, service: str) -> None:
    with tab(browser, service) as opened:
        opened.page.goto(service + "/#mesh=shop&view=all")
        opened.until(lambda: is_asking(opened), "the dialog is there")
        opened.assert_accessible()
        sign_in(opened, "ada")
        shows_the_mesh(opened)
        assert opened.page.url.endswith("/#mesh=shop&view=all"), "the page shows what it showed before"
        assert opened.text("#user") == "ada"
        found = cookie(opened)
        assert found is not None
        assert (found["httpOnly"], found["sameSite"], found["path"]) == (True, "Lax", "/")
        assert opened.page.evaluate("document.cookie") == "", "no script can read it"
        opened.page.get_by_role("button", name="Confirm incident").click()
        opened.page.click("#decision-send")
        opened.page.get_by_role("button", name="Undo").click()
        opened.page.get_by_role("button", name="Confirm incident").wait_for()
        opened.page.reload()
        shows_the_mesh(opened)
        opened.page.get_by_role("button", name="Sign out").click()
        opened.page.get_by_role("button", name="Yes, sign me out").click()
        opened.until(lambda: opened.page.url.startswith(service) and is_asking(opened), "the dialog is there again")
        assert cookie(opened) is None
        opened.page.get_by_role("button", name="Sign in with Example ID").click()
        opened.page.get_by_placeholder("Enter any login").wait_for()  # the provider has forgotten the user, too


def test_a_user_without_a_group_sees_why(browser: Any, service: str) -> None:
    with tab(browser, service) as opened:
        opened.page.goto(service)
        sign_in(opened, "guest-1")
        opened.page.get_by_role("heading", name="You have no access").wait_for()
        assert "ask an administrator" in opened.text("#verdict")
        assert "expected 'guest-1' to be in a group" in opened.text("#reason")
        assert cookie(opened) is None
        opened.assert_accessible()
        opened.page.get_by_role("link", name="open the page").click()
        opened.until(lambda: is_asking(opened), "the dialog is there")


def test_an_expired_sign_in_is_renewed_without_typing(browser: Any, service: str, rules: OidcRules) -> None:
    with tab(browser, service) as opened:
        opened.page.goto(service + "/#mesh=shop")
        sign_in(opened, "ada")
        shows_the_mesh(opened)
        found, cookies = cookie(opened), SignInCookies(rules)
        assert found is not None
        user = cookies.user(found["value"])
        assert user is not None
        old = SignedInUser(user.id, user.subject, user.name, user.groups, int(time.time()) - 1)
        opened.page.context.add_cookies([{**found, "value": cookies.seal(old)}])
        opened.page.evaluate("sessionStorage.removeItem('asked')")  # as if the sign-in were an hour ago

        def is_renewed() -> bool:
            now = cookie(opened)
            return now is not None and cookies.user(now["value"]) is not None

        opened.until(is_renewed, "the page signs in again by itself")
        shows_the_mesh(opened)
        assert opened.page.url.endswith("#mesh=shop")


def test_a_dead_cookie_leads_to_the_dialog(browser: Any, service: str, rules: OidcRules) -> None:
    with tab(browser, service) as opened:
        name = SignInCookies(rules).name
        opened.page.context.add_cookies([{"name": name, "value": "tampered.with", "url": service}])
        opened.page.goto(service)
        opened.until(lambda: is_asking(opened), "the dialog is there")
        opened.until(lambda: cookie(opened) is None, "the cookie is dropped")
        opened.assert_clean(REFUSED)
