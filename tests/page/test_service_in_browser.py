"""The page of a service without the demo: it comes back after a restart, and has no controls of the demo."""

from pathlib import Path
from typing import Any

import httpx

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from tests.live.programs import free_ports
from tests.page.browsing import IN_BROWSER, REFUSED, tab
from tests.page.serving import push_all
from tests.serve_app.running import kill_all, start_service

pytestmark = IN_BROWSER

SNAPSHOTS = list(Simulator(MeshSpec(services=40, seed=2), snapshots=16).snapshots())
NETWORK = ("net::ERR_", REFUSED)  # messages of browsers about a server that is down, which cannot be switched off


def test_the_page_recovers_with_the_service(browser: Any, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    arguments = ["--set", f"store.path={tmp_path}", "--set", "limits.max_ahead_seconds=inf", "--port", str(port)]
    with tab(browser, f"http://127.0.0.1:{port}") as opened:
        with start_service(*arguments) as (process, url):
            opened.page.goto(url)
            opened.until(lambda: opened.text("#headline") == "No mesh yet", "an empty service says so")
            push_all(url, "shop", SNAPSHOTS[:12])
            opened.until(lambda: "No incident" in opened.text("#headline"), "the mesh shows by itself")
            assert opened.page.locator("#demo").count() == 0
            assert httpx.get(f"{url}/demo/show").status_code == 404
            assert opened.complaints == []
            kill_all(process)
        opened.until(lambda: "connection lost" in opened.text("#pulse"), "the page reports the loss")
        assert "No incident" in opened.text("#headline"), "the last known state stays visible"
        with start_service(*arguments) as (process, url):
            opened.until(lambda: "connection lost" not in opened.text("#pulse"), "the connection is back", 60)
            push_all(url, "shop", SNAPSHOTS[12:13])
            opened.until(
                lambda: opened.page.get_attribute("#scrub", "max") == "12",
                "the next verdict comes, and none is missing",
            )
        assert [text for text in opened.complaints if not any(words in text for words in NETWORK)] == []
    assert opened.foreign_requests == []
