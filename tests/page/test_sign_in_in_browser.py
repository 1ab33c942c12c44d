"""The page of a service with tokens: sign in, look, press a button, sign out, and a removed token."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from serve_app.access import Scope, editing
from tests.live.nginx import Nginx
from tests.live.programs import needs
from tests.page.browsing import IN_BROWSER, REFUSED, Tab, tab
from tests.page.meshes import INCIDENT
from tests.page.serving import push_all, serve

pytestmark = IN_BROWSER


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "tokens.toml"


@pytest.fixture(scope="module")
def tokens(file: Path) -> dict[str, str]:
    return {
        "writer": editing.create(file, "writer", [Scope.READ, Scope.WRITE]),
        "reader": editing.create(file, "reader", [Scope.READ]),
        "leaving": editing.create(file, "leaving", [Scope.READ, Scope.WRITE]),
    }


@pytest.fixture(scope="module")
def service(file: Path, tokens: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("state"), {"serve.tokens_file": file}) as url:
        push_all(url, "shop", INCIDENT, token=tokens["writer"])
        yield url


@contextmanager
def elsewhere(folder: Path) -> Iterator[int]:
    """Run another web server on this machine, with an empty page, and yield its port."""
    (folder / "index.html").write_text("<!doctype html><title>elsewhere</title>")
    answer = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def sign_in(opened: Tab, token: str) -> None:
    """Type a token into the form."""
    opened.page.get_by_label("Access token").fill(token)
    opened.page.get_by_role("button", name="Sign in").click()


def cookie(opened: Tab) -> dict[str, Any] | None:
    return next((one for one in opened.page.context.cookies() if one["name"] == "tagae_token"), None)


def is_asking(opened: Tab) -> bool:
    return bool(opened.page.locator("#sign-in[open]").count())


def test_sign_in_press_a_button_and_sign_out(browser: Any, service: str, tokens: dict[str, str]) -> None:
    with tab(browser, service) as opened:
        opened.page.goto(service)
        opened.until(lambda: is_asking(opened), "the form is there")
        assert opened.text("#headline") == "Sign in"
        sign_in(opened, "tagae_wrong")
        failed = "Sign in failed: unknown or expired token."
        opened.until(lambda: opened.text("#sign-in-failed") == failed, "the page reports the failure")
        assert cookie(opened) is None
        sign_in(opened, tokens["writer"])
        opened.until(lambda: opened.page.locator("#verdict.incident").count(), "the mesh shows")
        assert not is_asking(opened)
        found = cookie(opened)
        assert found is not None
        assert (found["value"], found["httpOnly"], found["sameSite"]) == (tokens["writer"], True, "Strict")
        assert (found["path"], found["secure"]) == ("/", False)
        assert opened.page.evaluate("document.cookie") == "", "no script can read it"
        assert opened.page.evaluate("JSON.stringify(localStorage)").find("tagae_") == -1
        opened.page.get_by_role("button", name="Confirm incident").click()
        opened.page.click("#decision-send")
        opened.page.get_by_role("button", name="Undo").click()
        opened.page.get_by_role("button", name="Confirm incident").wait_for()
        assert opened.text("#user") == "writer"
        opened.page.reload()
        opened.until(lambda: opened.page.locator("#verdict.incident").count(), "the session outlives a reload")
        opened.page.get_by_role("button", name="Sign out").click()
        opened.until(lambda: is_asking(opened), "the form is there again")
        assert cookie(opened) is None
        assert not opened.page.locator("#cards .card").first.is_visible(), "the page shows nothing of the mesh"
        opened.assert_clean(REFUSED)


def test_a_removed_token_ends_the_session(browser: Any, service: str, file: Path, tokens: dict[str, str]) -> None:
    with tab(browser, service) as opened:
        opened.page.goto(service)
        opened.until(lambda: is_asking(opened), "the form is there")
        sign_in(opened, tokens["leaving"])
        opened.until(lambda: opened.page.locator("#verdict.incident").count(), "the mesh shows")
        editing.remove(file, "leaving")
        opened.until(lambda: is_asking(opened), "the page asks again by itself")
        assert not opened.page.locator("#cards .card").first.is_visible()
        opened.until(lambda: cookie(opened) is None, "the dead cookie is dropped")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_cannot_use_the_session(
    browser: Any, service: str, tokens: dict[str, str], name: str, tmp_path: Path
) -> None:
    """A browser sends a cookie to all ports of a host. So a page of another port sends it too, and the service must
    check Origin. A page of another host does not send it."""
    send = """async (url) => {
        const answers = [];
        const asked = [["POST", "text/plain"], ["POST", "application/json"], ["DELETE", ""], ["GET", ""]];
        for (const [method, type] of asked) {
            const mode = type === "text/plain" || method === "GET" ? "no-cors" : "cors";
            const options = { method, mode, credentials: "include" };
            if (type) Object.assign(options, { headers: { "content-type": type }, body: "{}" });
            const answer = fetch(`${url}/v1/meshes/shop/mutes`, options);
            answers.push(await answer.then((a) => a.type + a.status, () => "no"));
        }
        return answers;
    }"""
    with tab(browser, service) as opened:
        opened.page.goto(service)
        opened.until(lambda: is_asking(opened), "the form is there")
        sign_in(opened, tokens["writer"])
        opened.until(lambda: opened.page.locator("#verdict.incident").count(), "the mesh shows")
        with elsewhere(tmp_path) as port:
            other_page = opened.page.context.new_page()
            other_page.goto(f"http://{name}:{port}/")
            answers: dict[str, int] = {}
            other_page.on("response", lambda one: answers.update({one.request.method: one.status}))
            assert other_page.evaluate(send, service) == ["opaque0", "no", "no", "opaque0"], (
                "the other page cannot read an answer"
            )
            is_sent = name == "127.0.0.1"
            opened.until(lambda: {"POST", "GET"} <= answers.keys(), "the answers are in")
            assert (answers["POST"], answers["GET"]) == (403, 200 if is_sent else 401)
        headers = {"authorization": f"Bearer {tokens['reader']}"}
        assert httpx.get(f"{service}/v1/meshes/shop/mutes", headers=headers).json()["mutes"] == []


@needs("nginx")
def test_a_session_below_a_path_of_nginx(browser: Any, service: str, tokens: dict[str, str], tmp_path: Path) -> None:
    nginx = Nginx(tmp_path, int(service.rpartition(":")[2]))
    nginx.start()
    try:
        with tab(browser, nginx.origin) as opened:
            opened.page.goto(nginx.url)
            opened.until(lambda: is_asking(opened), "the form is there")
            sign_in(opened, tokens["writer"])
            opened.until(lambda: opened.page.locator("#verdict.incident").count(), "the mesh shows")
            found = cookie(opened)
            assert found is not None
            assert found["path"] == "/tagae"
            opened.page.get_by_role("button", name="Sign out").click()
            opened.until(lambda: cookie(opened) is None, "it is forgotten")
    finally:
        nginx.end()
