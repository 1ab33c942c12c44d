"""A running service posts an incident to a channel of Slack, with its picture."""

from pathlib import Path

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.settings import Settings
from tests.serve_app.alerts.stand_ins import BOT_TOKEN, CHANNEL, StandInSlack, serve
from tests.serve_app.running import Service, eventually, push, record_simulation, start_service
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


@pytest.mark.slow
def test_a_fault_is_a_message_with_a_picture(tmp_path: Path) -> None:
    slack, token = StandInSlack(), tmp_path / "slack.token"
    token.write_text(BOT_TOKEN)
    with serve(slack):
        config = tmp_path / "tagae.toml"
        config.write_text(f"""
            serve.port = 0
            store.path = "{tmp_path / "state"}"
            scorer.device = "cpu"
            [[notify.receivers]]
            kind = "slack"
            options = {{ url = "{slack.url}", bearer_token_file = "{token}", channel = "{CHANNEL}" }}
        """)
        with (
            start_service("--config", str(config)) as (_, url),
            httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http,
        ):
            service = Service(url, Settings(), http)
            for snapshot in record_simulation(MeshSpec(services=30, seed=3), 24, fault_from=16):
                push(service, "shop", snapshot)
            assert eventually(lambda: any("thread_ts" in file for file in slack.files.values()))
    (message,) = slack.roots()
    (file,) = slack.files.values()
    assert file["thread_ts"] == message["ts"]
    assert file["content"].startswith(b"\x89PNG")
    assert slack.refusals == []
