"""Our receivers of events fulfil the contract of receivers, and lose and double nothing."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lab.contracts.receivers import ReceiverContract
from serve_app.settings.alerting import ReceiverChoice
from tests.serve_app.alerts.alerting import NOW, accept, eventually, incident, metric_value, start_notifier, verdict
from tests.serve_app.alerts.stand_ins import (
    LOST,
    Answering,
    OtherSide,
    StandInGrafana,
    StandInPagerDuty,
    StandInSlack,
    serve,
)

NOT_LISTENING = "http://127.0.0.1:9"  # the port of the discard protocol


class OurReceiver(ReceiverContract):
    """A receiver with a stand-in for the other side."""

    other_side: ClassVar[type[OtherSide]]

    @pytest.fixture
    def choice(self, tmp_path: Path) -> Iterator[ReceiverChoice]:
        with serve(self.other_side()) as there:
            yield ReceiverChoice.model_validate(there.chosen(tmp_path))
        assert not there.refusals

    @pytest.fixture
    def away(self, tmp_path: Path) -> ReceiverChoice:
        return ReceiverChoice.model_validate(self.other_side(NOT_LISTENING).chosen(tmp_path))


class TestWebhook(OurReceiver):
    other_side = Answering


class TestGrafana(OurReceiver):
    other_side = StandInGrafana


class TestPagerDuty(OurReceiver):
    other_side = StandInPagerDuty


class TestSlackApp(OurReceiver):
    other_side = StandInSlack


def slack_threads(slack: StandInSlack) -> list[tuple[str, int]]:
    return [(message["blocks"][0]["text"]["text"], len(slack.replies(message["ts"]))) for message in slack.roots()]


@pytest.mark.parametrize(
    ("there", "faults", "shown", "expected"),
    [
        (
            StandInGrafana(),
            [500, LOST, 503, LOST],
            lambda grafana: ["timeEnd" in one for one in grafana.annotations.values()],
            [True],
        ),
        (
            StandInPagerDuty(),
            [500, LOST, 429, LOST, 503],
            lambda pagerduty: [*pagerduty.alerts().values()],
            [["trigger", "resolve"]],
        ),
        (
            StandInSlack(),
            [500, LOST, 429, LOST, "internal_error", 0, LOST, "ratelimited", LOST, 0],
            slack_threads,
            [("Resolved: major incident in shop: shop/cart", 2)],
        ),
    ],
    ids=["grafana", "pagerduty", "slack"],
)
async def test_nothing_is_lost_or_doubled(
    there: OtherSide,
    faults: list[int | str],
    shown: Callable[[Any], Any],
    expected: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serve(there):
        there.faults = faults
        async with start_notifier(there.to(tmp_path), tmp_path) as (notifier, _):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            accept(notifier, "shop", verdict(incident("a", severity="major")), NOW)
            accept(notifier, "shop", verdict(), NOW + timedelta(minutes=3))
            await eventually(lambda: notifier.count_waiting()[there.kind] == 0)
    assert (there.faults, there.refusals) == ([], [])
    assert shown(there) == expected
    assert there.secret is not None
    assert there.secret[1] not in caplog.text


@pytest.mark.parametrize("other_side", [StandInGrafana, StandInSlack], ids=lambda one: one.kind)
async def test_a_wrong_token_is_retried_and_not_logged(
    other_side: type[OtherSide], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(other_side()) as there:
        there.secret_file(tmp_path).write_text("another-s3cret")
        to, kind = there.to(tmp_path, drain_seconds=0.0), there.kind
        async with start_notifier(to, tmp_path) as (notifier, counts):
            accept(notifier, "shop", verdict(incident("a")), NOW)
            await eventually(
                lambda: metric_value(counts, "tagae_notifications_failed_total", receiver=kind, reason="forbidden") >= 1
            )
            there.secret_file(tmp_path).unlink()
            there.chosen(tmp_path)  # it is read again
            await eventually(lambda: metric_value(counts, "tagae_notifications_sent_total", receiver=kind) == 1)
    assert "s3cret" not in caplog.text
