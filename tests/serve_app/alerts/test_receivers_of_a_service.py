"""A running service says that a receiver takes nothing, and sends a test alert."""

import subprocess
from pathlib import Path

import httpx
import pytest

from serve_app.access import Scope, editing
from tests.serve_app.alerts.stand_ins import Answering, serve
from tests.serve_app.running import TAGAE, start_command
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1200)]
DEAD = "http://127.0.0.1:9"  # the port of the discard protocol


def test_a_dead_receiver_is_shown_and_a_test_alert_is_sent(tmp_path: Path) -> None:
    hook, tokens = Answering(), tmp_path / "tokens.toml"
    secrets = {scope: editing.create(tokens, scope.value, [scope]) for scope in (Scope.READ, Scope.ADMIN)}
    (tmp_path / "admin.token").write_text(secrets[Scope.ADMIN])
    with serve(hook):
        (tmp_path / "tagae.toml").write_text(
            f"""
            serve.port = 0
            serve.tokens_file = "{tokens}"
            store.path = "{tmp_path / "state"}"
            notify.alertmanagers = [{{ url = "{DEAD}" }}]
            [[notify.receivers]]
            kind = "webhook"
            options = {{ url = "{hook.url}/hook" }}
            """
        )
        words = r"Page: (http://\S+)/\s[\s\S]*notifications: (.*takes no notifications.*)"
        with (
            start_command(["serve", "--config", str(tmp_path / "tagae.toml")], words) as (_, addresses),
            httpx.Client(base_url=addresses[1], timeout=PATIENCE_SECONDS, trust_env=False) as http,
        ):
            admin, read = ({"authorization": f"Bearer {secrets[scope]}"} for scope in (Scope.ADMIN, Scope.READ))
            assert [http.head(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
            (everybody,), (detailed,) = (http.get("/healthz", headers=item).json()["receivers"] for item in ({}, admin))
            assert addresses[2].strip() == everybody
            assert DEAD not in everybody
            assert detailed.startswith(f"alertmanager {DEAD} takes no notifications since ")
            assert http.post("/v1/receivers/test", headers=read).status_code == 403
            assert hook.requests == []
            unknown = http.post("/v1/receivers/test", json={"receiver": "email"}, headers=admin)
            assert (unknown.status_code, "unknown-receiver" in unknown.text) == (404, True)
            command = [*TAGAE, "notify", "test", "--url", addresses[1], "--token-file", str(tmp_path / "admin.token")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
            assert done.returncode == 1
            assert f"sent: webhook {hook.url}" in done.stderr
            assert f"failed: alertmanager {DEAD}" in done.stderr
            assert len(hook.requests) == 1
            records = http.get("/v1/audit?action=send_test_alert", headers=admin).json()["records"]
            assert {item["user"] for item in records} == {"admin"}
            assert [item["status"] for item in records] == [200, 404]
