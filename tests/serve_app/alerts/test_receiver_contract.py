"""Our receivers of events fulfil the contract of receivers."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lab.contracts.receivers import ReceiverContract
from serve_app.settings.alerting import ReceiverChoice
from tests.http_server import serve_in_thread
from tests.serve_app.alerts.stand_ins import (
    BOT_TOKEN,
    CHANNEL,
    ROUTING_KEY,
    StandInPagerDuty,
    StandInSlack,
    serve,
)
from tests.serve_app.alerts.test_grafana import TOKEN, StandInGrafana

NOT_LISTENING = "http://127.0.0.1:9"  # the port of the discard protocol


class Accepting(BaseHTTPRequestHandler):
    """Accepts every request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class TestWebhook(ReceiverContract):
    @pytest.fixture
    def choice(self) -> Iterator[ReceiverChoice]:
        with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Accepting)) as url:
            yield ReceiverChoice(kind="webhook", options={"url": f"{url}/hook"})

    @pytest.fixture
    def away(self) -> ReceiverChoice:
        return ReceiverChoice(kind="webhook", options={"url": NOT_LISTENING})


class TestGrafana(ReceiverContract):
    @pytest.fixture
    def token(self, tmp_path: Path) -> str:
        path = tmp_path / "grafana.token"
        path.write_text(f"{TOKEN}\n")
        return str(path)

    @pytest.fixture
    def choice(self, token: str) -> Iterator[ReceiverChoice]:
        stand_in = StandInGrafana()
        with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), stand_in.handler())) as url:
            yield ReceiverChoice(kind="grafana", options={"url": url, "bearer_token_file": token})

    @pytest.fixture
    def away(self, token: str) -> ReceiverChoice:
        return ReceiverChoice(kind="grafana", options={"url": NOT_LISTENING, "bearer_token_file": token})


class TestPagerDuty(ReceiverContract):
    @pytest.fixture
    def key(self, tmp_path: Path) -> str:
        path = tmp_path / "pagerduty.key"
        path.write_text(ROUTING_KEY)
        return str(path)

    @pytest.fixture
    def choice(self, key: str) -> Iterator[ReceiverChoice]:
        stand_in = StandInPagerDuty()
        with serve(stand_in):
            yield ReceiverChoice(kind="pagerduty", options={"url": stand_in.url, "routing_key_file": key})
        assert stand_in.refusals == []

    @pytest.fixture
    def away(self, key: str) -> ReceiverChoice:
        return ReceiverChoice(kind="pagerduty", options={"url": NOT_LISTENING, "routing_key_file": key})


class TestSlackApp(ReceiverContract):
    @pytest.fixture
    def options(self, tmp_path: Path) -> dict[str, str]:
        path = tmp_path / "slack.token"
        path.write_text(BOT_TOKEN)
        return {"bearer_token_file": str(path), "channel": CHANNEL}

    @pytest.fixture
    def choice(self, options: dict[str, str]) -> Iterator[ReceiverChoice]:
        stand_in = StandInSlack()
        with serve(stand_in):
            yield ReceiverChoice(kind="slack", options={**options, "url": stand_in.url})
        assert stand_in.refusals == []

    @pytest.fixture
    def away(self, options: dict[str, str]) -> ReceiverChoice:
        return ReceiverChoice(kind="slack", options={**options, "url": NOT_LISTENING})
