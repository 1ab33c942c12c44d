"""A running service with a provider to sign in at: cookies, pages, sign-out on all replicas, and the audit log."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.access import Scope, editing
from serve_app.api.codec import snapshot_document
from tests.live.programs import free_ports
from tests.serve_app.access.oidc.provider_standin import CLIENT, SECRET, ProviderStandIn, run_provider
from tests.serve_app.running import eventually, kill_all, record_simulation, start_service
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
SNAPSHOTS = record_simulation(MeshSpec(services=20, calls_per_service=3.0, seed=3), 2)
AS_PAGE = {"accept": "text/html,*/*"}


@dataclass(frozen=True, slots=True)
class SignInService:
    """A service, its process and file of settings, its provider, and a token of an administrator."""

    url: str
    process: psutil.Process
    config: Path
    provider: ProviderStandIn
    admin: str

    def browser(self) -> httpx.Client:
        """Return a client with cookies of its own, which follows no redirects."""
        return httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS, headers=AS_PAGE)

    def sign_in(self, browser: httpx.Client, place: str = "", **changes: str) -> httpx.Response:
        """Sign in, and return the answer of the last step."""
        begun = browser.get("/login/oidc", params={"return_to": place})
        assert begun.status_code == 303, begun.text
        return browser.get("/login/callback", params=self.provider.authorize(begun.headers["location"]) | changes)

    def audit(self, **wanted: str) -> list[dict[str, Any]]:
        headers = {"authorization": f"Bearer {self.admin}"}
        answer = httpx.get(f"{self.url}/v1/audit", params=wanted, headers=headers, timeout=PATIENCE_SECONDS)
        found: list[dict[str, Any]] = answer.raise_for_status().json()["records"]
        return found


@contextmanager
def run_service(folder: Path, provider: ProviderStandIn, port: int) -> Iterator[SignInService]:
    secret, tokens = folder / "secret", folder / "tokens.toml"
    secret.write_text(SECRET)
    admin = editing.create(tokens, "root", [Scope.ADMIN])
    config = folder / "tagae.toml"
    config.write_text(
        f"""
        [serve]
        port = {port}
        tokens_file = "{tokens}"
        [serve.oidc]
        issuer = "{provider.url}"
        client_id = "{CLIENT}"
        client_secret_file = "{secret}"
        name = "Stand-in"
        [serve.oidc.groups.sre]
        scopes = ["read", "write"]
        [serve.oidc.groups.shop]
        scopes = ["read"]
        meshes = ["shop"]
        [notify]
        external_url = "http://127.0.0.1:{port}"
        [limits]
        max_ahead_seconds = inf
        [store]
        path = "{folder / "state"}"
        """
    )
    with start_service("--config", str(config)) as (process, url):
        yield SignInService(url, process, config, provider, admin)


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderStandIn]:
    with run_provider() as running:
        yield running


@pytest.fixture(scope="module")
def service(provider: ProviderStandIn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignInService]:
    with run_service(tmp_path_factory.mktemp("sign-ins"), provider, free_ports(1)[0]) as running:
        yield running


@pytest.fixture(autouse=True)
def honest(provider: ProviderStandIn) -> Iterator[None]:
    user = dict(provider.user)
    yield
    provider.user, provider.answers = user, {}


def test_a_user_signs_in_works_and_signs_out(service: SignInService) -> None:
    with service.browser() as browser:
        assert browser.get("/v1/meshes").status_code == 401
        offer = browser.get("/login").json()
        assert (offer["provider"], offer["tokens"], offer["name"]) == ("Stand-in", True, None)
        done = service.sign_in(browser, "#mesh=shop")
        assert (done.status_code, done.headers["location"]) == (303, f"{service.url}/#mesh=shop")
        assert "no-store" in done.headers["cache-control"]
        set_cookies = {c.partition("=")[0]: c for c in done.headers.get_list("set-cookie")}
        assert re.search("Path=/; Max-Age=3600; HttpOnly; SameSite=Lax$", set_cookies["tagae_sign_in"])
        assert "Path=/logout;" in set_cookies["tagae_id_token"]
        assert "Max-Age=0" in set_cookies["tagae_login"]
        user = browser.get("/login").json()
        assert (user["name"], user["scopes"], user["from_provider"]) == ("ada", ["read", "write"], True)
        pushed = browser.post("/v1/meshes/shop/snapshots", json=snapshot_document(SNAPSHOTS[0]))
        assert pushed.status_code == 200, pushed.text
        copy = dict(browser.cookies)
        cross = browser.post("/logout", headers={"origin": "https://evil.example"}, json={})
        assert cross.status_code == 403, "a page of another site cannot sign anyone out"
        left = browser.post("/logout", json={})
        assert left.json()["location"].startswith(f"{service.provider.url}/logout?client_id={CLIENT}")
        assert browser.get("/v1/meshes").status_code == 401
    with httpx.Client(base_url=service.url, cookies=copy, timeout=PATIENCE_SECONDS) as thief:
        answers: list[int] = []

        def is_refused_everywhere() -> bool:
            answers[:] = [thief.get("/v1/meshes").status_code for _ in range(8)]
            return set(answers) == {401}

        assert eventually(is_refused_everywhere), answers


def test_a_cookie_that_was_there_before_does_not_become_a_session(service: SignInService) -> None:
    with service.browser() as browser:
        browser.cookies.set("tagae_sign_in", "fixed-by-an-attacker")
        service.sign_in(browser)
        found = {cookie.value for cookie in browser.cookies.jar if cookie.name == "tagae_sign_in"}
        assert browser.get("/v1/meshes", headers={"cookie": "tagae_sign_in=fixed-by-an-attacker"}).status_code == 401
        assert "fixed-by-an-attacker" not in found - {"fixed-by-an-attacker"}


@pytest.mark.parametrize("changes", [{"state": "x"}, {"state": ""}, {"code": ""}, {"iss": "https://evil.example"}])
def test_a_forged_answer_leads_to_a_page_that_says_so(service: SignInService, changes: dict[str, str]) -> None:
    with service.browser() as browser:
        answer = service.sign_in(browser, **changes)
        assert answer.status_code == 400
        assert "The sign-in failed" in answer.text
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert browser.get("/v1/meshes").status_code == 401


def test_an_answer_cannot_be_replayed(service: SignInService) -> None:
    with service.browser() as browser:
        begun = browser.get("/login/oidc")
        answer = service.provider.authorize(begun.headers["location"])
        cookie = {"cookie": f"tagae_login={browser.cookies['tagae_login']}"}
        assert browser.get("/login/callback", params=answer).status_code == 303
        service.provider.codes[answer["code"]] = ("", "")
    assert httpx.get(f"{service.url}/login/callback", params=answer, headers=AS_PAGE | cookie).status_code >= 400


def test_text_of_the_provider_is_not_markup(service: SignInService) -> None:
    with service.browser() as browser:
        answer = service.sign_in(browser, error="<script>alert(1)</script>", error_description="@home@")
        assert answer.status_code == 400
        assert "<script>alert" not in answer.text
        assert "&lt;script&gt;alert(1)" in answer.text


def test_a_user_without_a_group_sees_why(service: SignInService) -> None:
    service.provider.user["groups"] = ["guests"]
    with service.browser() as browser:
        answer = service.sign_in(browser)
        assert answer.status_code == 403
        assert "You have no access" in answer.text
        assert "ask an administrator" in answer.text
        assert browser.get("/v1/meshes").status_code == 401


def test_a_provider_that_is_away_gets_a_page(service: SignInService) -> None:
    with service.browser() as browser:
        begun = browser.get("/login/oidc")
        service.provider.answers["/token"] = (500, b"oops")
        answer = browser.get("/login/callback", params=service.provider.authorize(begun.headers["location"]))
        assert answer.status_code == 502
        assert "The sign-in failed" in answer.text


def test_tokens_go_on(service: SignInService) -> None:
    with service.browser() as browser:
        assert browser.get("/v1/meshes", headers={"authorization": f"Bearer {service.admin}"}).status_code == 200
        assert browser.post("/login", json={"token": service.admin}).status_code == 204
        assert browser.get("/login").json()["name"] == "root"
        service.sign_in(browser)
        assert browser.get("/login").json()["name"] == "ada", "the cookie of the token is gone"


def test_changes_and_sign_ins_are_recorded(service: SignInService, tmp_path: Path) -> None:
    mute: dict[str, Any] = {"reason": "a secret reason"}
    with service.browser() as browser:
        service.sign_in(browser)
        pushed = browser.post("/v1/meshes/shop/snapshots", json=snapshot_document(SNAPSHOTS[1]))
        assert pushed.status_code == 200
        end = SNAPSHOTS[1].observed_at.isoformat().replace("+00:00", "Z")
        headers = {"x-request-id": "request-17"}
        mute |= {"services": ["shop/cart"], "end": end[:11] + "23:59:59Z"}
        made = browser.post("/v1/meshes/shop/mutes", json=mute, headers=headers)
        bad = browser.post("/v1/meshes/shop/mutes", json={"end": 1})
        assert bad.status_code == 422
        browser.post("/logout", json={})
    found = service.audit(user="ada")
    assert [one["action"] for one in found[:4]] == ["sign_out", "add_mute", "add_mute", "sign_in"]
    _, refused, changed, signed_in = found[:4]
    assert (refused["status"], changed["status"]) == (422, made.status_code)
    assert (changed["mesh"], changed["names"], changed["request"]) == ("shop", ["shop/cart"], "request-17")
    assert (changed["way"], changed["subject"], changed["address"]) == ("oidc", "u-1", "127.0.0.1")
    assert changed["route"] == "POST /v1/meshes/{mesh}/mutes"
    assert (signed_in["status"], signed_in["route"]) == (303, "GET /login/callback")
    text = json.dumps(service.audit(limit="1000"))
    assert "a secret reason" not in text
    assert service.admin not in text
    assert not re.search(r"eyJ|tagae_sign_in|code=", text), "no tokens, cookies and codes"
    page = httpx.get(
        f"{service.url}/v1/audit", params={"limit": 2}, headers={"authorization": f"Bearer {service.admin}"}
    ).json()
    assert page["next"]
    assert service.audit(limit="1", cursor=page["next"])[0]["at"] <= page["records"][-1]["at"]


def test_a_session_outlives_a_restart_and_the_provider_may_be_away_then(service: SignInService) -> None:
    """The last test, because it ends the service of the others."""
    with service.browser() as browser:
        service.sign_in(browser)
        kept = dict(browser.cookies)
        browser.post("/logout", json={})
        service.sign_in(browser)
        fresh = dict(browser.cookies)
    kill_all(service.process)
    service.provider.answers = dict.fromkeys(("/.well-known/openid-configuration", "/keys", "/token"), (503, b"away"))
    with start_service("--config", str(service.config)) as (_, url):
        assert url == service.url
        assert httpx.get(f"{url}/v1/meshes", cookies=fresh, timeout=PATIENCE_SECONDS).status_code == 200
        assert httpx.get(f"{url}/v1/meshes", cookies=kept, timeout=PATIENCE_SECONDS).status_code == 401
        with service.browser() as browser:
            away = browser.get("/login/oidc")
            assert away.status_code == 502
            assert urlsplit(service.provider.url).netloc in away.text
