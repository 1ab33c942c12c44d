"""The page below a path of a real nginx: its content, feedback, and a proxy that is down for a while."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live.nginx import Nginx
from tests.live.programs import missing_programs
from tests.page.browsing import IN_BROWSER, REFUSED, Tab, tab
from tests.page.meshes import INCIDENT
from tests.page.serving import push_all, serve
from tests.timing import PATIENCE_SECONDS

LACK = "; ".join(missing_programs("nginx"))
pytestmark = [*IN_BROWSER, pytest.mark.skipif(bool(LACK), reason=LACK)]

PATIENCE_MS = 1000 * PATIENCE_SECONDS
NETWORK = ("net::ERR_", REFUSED)  # messages of browsers about a server that is down, which cannot be switched off


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a service with an open incident; its URL without the proxy."""
    with serve(tmp_path_factory.mktemp("state")) as url:
        push_all(url, "shop", INCIDENT[:-1])
        yield url


@pytest.fixture
def fronts(service: str, tmp_path: Path) -> Iterator[tuple[Nginx, Nginx]]:
    """Run two nginx, one behind the other, so that either can be down."""
    made: list[Nginx] = []
    for name, upstream, path in (("inner", service, "/"), ("outer", "", "/tagae/")):
        (tmp_path / name).mkdir()
        made.append(Nginx(tmp_path / name, port_of(upstream or made[0].origin), path))
        made[-1].start()
    try:
        yield made[0], made[1]
    finally:
        for one in made:
            one.end()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_the_page_works_below_a_path(browser: Any, service: str, fronts: tuple[Nginx, Nginx]) -> None:
    inner, outer = fronts
    with tab(browser, outer.origin) as opened:
        opened.open("/tagae")
        assert opened.page.url.startswith(outer.url), "relative links need the slash"
        opened.until(lambda: opened.page.locator("#verdict.incident").count(), "the incident shows")
        newest = httpx.get(f"{service}/v1/meshes/shop/verdict").json()
        incident, cause = newest["incidents"][0], opened.text("#headline .cause")
        assert cause
        assert opened.text("#chips li:first-child") == incident["severity"].capitalize()
        say_and_read(opened, service, incident["id"])
        assert opened.complaints == []
        for away, event in ((outer, "requestfailed"), (inner, "response")):
            away.end()
            opened.page.wait_for_event(event, asked_for_meshes, timeout=PATIENCE_MS)
            opened.until(lambda: "connection lost" in opened.text("#pulse"), "the page reports the loss")
            assert opened.text("#headline .cause") == cause, "the last known state stays visible"
            away.start()
            opened.until(lambda: "connection lost" not in opened.text("#pulse"), "the connection is back")
        push_all(service, "shop", INCIDENT[-1:])
        shown = str(len(INCIDENT) - 1)
        opened.until(lambda: opened.page.get_attribute("#scrub", "max") == shown, "the next verdict comes")
        assert [text for text in opened.complaints if not any(words in text for words in NETWORK)] == []
        assert opened.foreign_requests == []


def asked_for_meshes(asked: Any) -> bool:
    """Return whether this is the request that the page sends every 15 s, or its answer."""
    return bool(asked.url.endswith("/v1/meshes")) and getattr(asked, "status", 502) == 502


def say_and_read(opened: Tab, service: str, incident: str) -> None:
    """Give feedback with a button, and open the report by its link."""
    opened.page.get_by_role("button", name="Confirm incident").click()
    opened.page.click("#decision-send")
    opened.page.get_by_role("button", name="Undo").wait_for()
    kept: list[dict[str, Any]] = httpx.get(f"{service}/v1/meshes/shop/feedback").json()["feedback"]
    assert [feedback["incident"] for feedback in kept] == [incident]
    opened.open_menu()
    with opened.page.context.expect_page() as coming:
        opened.page.get_by_role("link", name="Report").click()
    report = coming.value
    report.wait_for_load_state()
    assert report.url.endswith(f"/tagae/v1/meshes/shop/report?incident={incident}")
    assert "shop" in report.title()
    report.close()


def test_a_page_of_another_site_cannot_mute(browser: Any, service: str, fronts: tuple[Nginx, Nginx]) -> None:
    """It sends requests that browsers allow without a preflight. Another port is another site, here nginx' own page."""
    end = INCIDENT[-1].observed_at + timedelta(hours=1)
    mute, url = {"end": end.isoformat(), "reason": "by another site"}, f"{service}/v1/meshes/shop/mutes"
    post = """async ([url, body]) => {
        for (const type of ["", "text/plain", "application/json"])
            await fetch(url, {method: "POST", mode: "no-cors", body: new Blob([body], {type})});
    }"""
    with tab(browser, service) as opened:
        opened.page.goto(fronts[1].origin)
        opened.page.evaluate(post, [url, json.dumps(mute)])
    assert httpx.get(url).json()["mutes"] == []
    assert httpx.post(url, json=mute).status_code == 200, "the request was not refused for its content"
