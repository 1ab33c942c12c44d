"""The demo's buttons under the rules of the service: hosts and origins always, tokens if the settings have them."""

import re
from pathlib import Path

import httpx
import pytest

from serve_app.access import Scope, editing
from tests.serve_app.running import problem, start_command
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]
KEY = {"key": "pause"}


def test_no_button_works_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, secret = tmp_path / "tokens.toml", tmp_path / "demo.token"
    reader = editing.create(file, "reader", [Scope.READ])
    secret.write_text(editing.create(file, "demo", [Scope.READ, Scope.WRITE]))
    monkeypatch.setenv("TAGAE_SERVE__TOKENS_FILE", str(file))
    arguments = ["demo", "--services", "30", "--token-file", str(secret)]
    with start_command(arguments, r"(http://[0-9.:]+)/demo/") as (_, match):
        url = match[1]
        with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http:
            for path in ("/demo/", "/demo/controls.js", "/demo/controls.css"):
                assert http.get(path).status_code == 200, "the empty page is open"
            problem(http.get("/demo/show"), 401, "unauthenticated")
            problem(http.post("/demo/keys", json=KEY), 401, "unauthenticated")
            http.headers["authorization"] = f"Bearer {reader}"
            assert http.get("/demo/show").status_code in (200, 503)
            problem(http.post("/demo/keys", json=KEY), 403, "forbidden")
            http.headers["authorization"] = f"Bearer {secret.read_text()}"
            evil = {"origin": "http://evil.example"}
            problem(http.post("/demo/keys", json=KEY, headers=evil), 403, "cross-origin")
            problem(http.post("/demo/keys", json=KEY, headers={"host": "evil.example"}), 421, "wrong-host")
            assert http.post("/demo/keys", json=KEY, headers={"origin": url}).status_code == 202
            assert re.search("tagae_mesh_", http.get("/metrics").text), "the demo pushes with its token"
