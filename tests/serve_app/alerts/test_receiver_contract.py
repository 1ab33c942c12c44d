"""Our receivers of events fulfil the contract of receivers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lab.contracts.receivers import ReceiverContract
from serve_app.settings.alerting import ReceiverChoice
from tests.http_server import QuietHandler
from tests.serve_app.alerts.stand_ins import BOT_TOKEN, CHANNEL, ROUTING_KEY, StandInPagerDuty, StandInSlack, serve
from tests.serve_app.alerts.test_grafana import TOKEN, StandInGrafana

NOT_LISTENING = "http://127.0.0.1:9"  # the port of the discard protocol


@dataclass
class Accepting:
    """Accepts every request."""

    url: str = ""

    def handler(self) -> type[QuietHandler]:
        class Handler(QuietHandler):
            def do_POST(self) -> None:
                self.body()
                self.send(204)

        return Handler


class OurReceiver(ReceiverContract):
    """A receiver with a stand-in for the other side, and with a file for its secret."""

    kind: ClassVar[str]
    stand_in: ClassVar[type[Any]]
    secret: ClassVar[tuple[str, str] | None] = None  # the name of its option, and its content
    more: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture
    def options(self, tmp_path: Path) -> dict[str, str]:
        if self.secret is None:
            return dict(self.more)
        name, content = self.secret
        (tmp_path / "secret").write_text(f"{content}\n")
        return {name: str(tmp_path / "secret"), **self.more}

    @pytest.fixture
    def choice(self, options: dict[str, str]) -> Iterator[ReceiverChoice]:
        stand_in = self.stand_in()
        with serve(stand_in):
            yield ReceiverChoice(kind=self.kind, options={**options, "url": stand_in.url})
        assert not getattr(stand_in, "refusals", [])

    @pytest.fixture
    def away(self, options: dict[str, str]) -> ReceiverChoice:
        return ReceiverChoice(kind=self.kind, options={**options, "url": NOT_LISTENING})


class TestWebhook(OurReceiver):
    kind, stand_in = "webhook", Accepting


class TestGrafana(OurReceiver):
    kind, stand_in, secret = "grafana", StandInGrafana, ("bearer_token_file", TOKEN)


class TestPagerDuty(OurReceiver):
    kind, stand_in, secret = "pagerduty", StandInPagerDuty, ("routing_key_file", ROUTING_KEY)


class TestSlackApp(OurReceiver):
    kind, stand_in, secret = "slack", StandInSlack, ("bearer_token_file", BOT_TOKEN)
    more: ClassVar[Mapping[str, str]] = {"channel": CHANNEL}
