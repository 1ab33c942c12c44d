"""A real Alertmanager: the alerts that it stores, and how often it notifies people."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from model.verdict import Incident, Verdict
from serve_app.alerts.alert import Alert
from serve_app.alerts.delivery import Receivers, utc_now
from serve_app.alerts.receivers.alertmanager import encode_alerts
from serve_app.net.endpoint import Endpoint
from serve_app.net.http import HttpSender
from tests.serve_app.alerts.alerting import (
    PATIENT,
    QUICK,
    WITHIN,
    Request,
    StandIn,
    accept,
    eventually,
    incident,
    metric_value,
    resend_after,
    start_endpoints,
    start_notifier,
    until_counted,
    verdict,
)
from tests.serve_app.alerts.stand_ins import problems_of_alert

ALERTMANAGER = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(ALERTMANAGER is None, reason="no alertmanager on PATH (Debian: prometheus-alertmanager)"),
]
CONFIG = """
route:
  receiver: hook
  group_by: [cluster, mesh, incident]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
receivers:
  - name: hook
    webhook_configs: [{{url: "{url}", send_resolved: true}}]
"""


class Running:
    """One Alertmanager. Its data and its port stay the same after a restart."""

    def __init__(self, folder: Path, webhook: StandIn) -> None:
        self.webhook = webhook
        self._folder = folder
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._log: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        (self._folder / "config.yml").write_text(CONFIG.format(url=self.webhook.url))
        self._process = await asyncio.create_subprocess_exec(
            str(ALERTMANAGER),
            f"--config.file={self._folder / 'config.yml'}",
            f"--storage.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--cluster.listen-address=",
            stderr=asyncio.subprocess.PIPE,
        )
        stderr, lines = self._process.stderr, []
        assert stderr is not None
        async with asyncio.timeout(WITHIN):
            while line := (await stderr.readline()).decode():
                lines.append(line)
                if match := re.search(r'Listening on" address=127\.0\.0\.1:(\d+)', line):
                    self._port = int(match[1])
                    break
            else:
                raise AssertionError("".join(lines))
        self._log = asyncio.create_task(_read_to_end(stderr))

    async def stop(self) -> None:
        if self._process is None or self._log is None:
            return
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()
        await self._log
        self._process = None

    async def alerts(self) -> list[dict[str, Any]]:
        async with httpx.AsyncClient(timeout=PATIENT) as http:
            alerts: list[dict[str, Any]] = (await http.get(f"{self.url}/api/v2/alerts")).json()
            return alerts

    async def until(self, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        async with asyncio.timeout(WITHIN):
            while not enough(alerts := await self.alerts()):
                await asyncio.sleep(0.1)
            return alerts

    def notifications(self) -> list[list[tuple[str, str]]]:
        """Return the notifications that people received: status and severity of each alert."""
        return [_alert_labels(request) for request in self.webhook.requests]


def _alert_labels(request: Request) -> list[tuple[str, str]]:
    return sorted((alert["status"], alert["labels"]["severity"]) for alert in request.json["alerts"])


async def _read_to_end(stderr: asyncio.StreamReader) -> None:
    while await stderr.readline():
        pass


@asynccontextmanager
async def alertmanager(folder: Path) -> AsyncIterator[Running]:
    folder.mkdir()
    async with start_endpoints(200) as (webhook,):
        running = Running(folder, webhook)
        try:
            await running.start()
            yield running
        finally:
            await running.stop()


def _to(*managers: Running, seconds: float = 0.2) -> Receivers:
    return Receivers(
        tuple(Endpoint(f"{manager.url}/api/v2/alerts") for manager in managers),
        timing=resend_after(seconds),
        backoff=QUICK,
        deadline_seconds=PATIENT,
        drain_seconds=WITHIN,
    )


def _now(*incidents: Incident) -> Verdict:
    return verdict(*incidents, at=utc_now())


def _of_now(*services: str, severity: str = "minor") -> Incident:
    since = BEGAN - timedelta(minutes=2)
    return replace(incident("a", *services, severity=severity), since=since)


BEGAN = datetime.now(UTC).replace(microsecond=123000)


async def test_one_incident_is_one_notification_and_one_end(tmp_path: Path) -> None:
    async with (
        alertmanager(tmp_path / "am") as manager,
        start_notifier(_to(manager), tmp_path, utc_now) as (notifier, counts),
    ):
        accept(notifier, "shop", _now(_of_now("shop/cart")), utc_now())
        await manager.webhook.until(lambda requests: len(requests) == 1)
        for suspect in ("pay/bank", "shop/web", "shop/cart"):  # the ranking changes while it is open
            accept(notifier, "shop", _now(_of_now(suspect)), utc_now())
            sent = metric_value(counts, "tagae_notifications_sent_total")
            await until_counted(sent + 4, counts, "tagae_notifications_sent_total")
        (alert,) = await manager.alerts()
        assert alert["labels"]["service"] == "cart"
        assert alert["annotations"]["summary"].startswith("Cause uncertain, perhaps shop/cart: shop/cart is slow")
        assert datetime.fromisoformat(alert["startsAt"]) == BEGAN - timedelta(minutes=2)
        assert timedelta(minutes=3) < datetime.fromisoformat(alert["endsAt"]) - utc_now() <= timedelta(minutes=4)
        accept(notifier, "shop", _now(), utc_now())
        await manager.webhook.until(lambda requests: len(requests) == 2)
        assert await manager.alerts() == []
    assert manager.notifications() == [[("firing", "minor")], [("resolved", "minor")]]


async def test_a_rise_in_severity_replaces_the_alert(tmp_path: Path) -> None:
    async with (
        alertmanager(tmp_path / "am") as manager,
        start_notifier(_to(manager), tmp_path, utc_now) as (notifier, _),
    ):
        accept(notifier, "shop", _now(_of_now()), utc_now())
        await manager.webhook.until(lambda requests: len(requests) == 1)
        accept(notifier, "shop", _now(_of_now(severity="critical")), utc_now())
        await manager.webhook.until(lambda requests: any(("firing", "critical") in _alert_labels(r) for r in requests))
        alerts = await manager.until(lambda alerts: len(alerts) == 1)
        assert alerts[0]["labels"]["severity"] == "critical"
        accept(notifier, "shop", _now(), utc_now())
        await manager.webhook.until(lambda requests: ("resolved", "critical") in _alert_labels(requests[-1]))
        assert await manager.alerts() == []
    firing = [row for notification in manager.notifications() for row in notification if row[0] == "firing"]
    assert firing == [("firing", "minor"), ("firing", "critical")]


async def test_a_replica_that_was_down_is_notified(tmp_path: Path) -> None:
    async with alertmanager(tmp_path / "am-0") as first, alertmanager(tmp_path / "am-1") as second:
        await second.stop()
        async with start_notifier(_to(first, second, seconds=60), tmp_path, utc_now) as (
            notifier,
            counts,
        ):
            accept(notifier, "shop", _now(_of_now()), utc_now())
            await first.webhook.until(lambda requests: len(requests) == 1)
            await eventually(
                lambda: metric_value(counts, "tagae_notifications_failed_total", reason="unreachable") >= 2
            )
            accept(notifier, "shop", _now(_of_now(severity="major")), utc_now())
            await second.start()
            (alert,) = await second.until(lambda alerts: len(alerts) == 1)
            assert alert["labels"]["severity"] == "major"
    assert ("firing", "minor") not in [row for notification in second.notifications() for row in notification]


async def test_another_process_sends_the_same_alert(tmp_path: Path) -> None:
    async with alertmanager(tmp_path / "am") as manager:
        async with start_notifier(_to(manager), tmp_path, utc_now) as (notifier, _):
            accept(notifier, "shop", _now(_of_now("shop/cart")), utc_now())
            await manager.webhook.until(lambda requests: len(requests) == 1)
        async with start_notifier(_to(manager), tmp_path, utc_now) as (notifier, counts):
            accept(notifier, "shop", _now(_of_now("pay/bank")), utc_now())
            await eventually(lambda: metric_value(counts, "tagae_notifications_sent_total") >= 3)
            accept(notifier, "shop", _now(), utc_now())
            await manager.webhook.until(lambda requests: len(requests) == 2)
    assert manager.notifications() == [[("firing", "minor")], [("resolved", "minor")]]


@pytest.mark.parametrize(
    ("bad", "status", "stored"),
    [
        ({"labels": {}}, 400, 1),
        ({"labels": {"a-b": "x"}}, 400, 1),
        ({"annotations": {"1a": "x"}}, 400, 1),
        ({"ends_at": BEGAN - timedelta(days=1)}, 400, 1),
        ({"url": "no url"}, 422, 0),
    ],
    ids=["no label", "label's name", "annotation's name", "end before start", "url"],
)
async def test_the_alerts_that_we_leave_out_would_be_refused(
    bad: dict[str, Any], status: int, stored: int, tmp_path: Path
) -> None:
    good = Alert({"alertname": "x", "severity": "minor"}, {"summary": "y"}, BEGAN)
    wrong = replace(Alert({"alertname": "z"}, {}, BEGAN), **bad)
    assert problems_of_alert(wrong)
    assert not problems_of_alert(good)
    async with alertmanager(tmp_path / "am") as manager:
        sender = HttpSender(Endpoint(f"{manager.url}/api/v2/alerts"), PATIENT)
        ends = utc_now() + timedelta(minutes=4)
        both = await sender.post(encode_alerts([(good, ends), (wrong, wrong.ends_at or ends)]), {})
        assert (both.status, len(await manager.alerts())) == (
            status,
            stored,
        )  # the answer does not name the invalid alert
        alone = await sender.post(encode_alerts([(good, ends)]), {})
        await sender.close()
        assert not alone.failed
        assert len(await manager.alerts()) == 1


@pytest.mark.skipif(shutil.which("amtool") is None, reason="no amtool on PATH (Debian: prometheus-alertmanager)")
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"severity": "major", "team": "checkout"}, "checkout"),
        ({"severity": "notice", "team": "checkout"}, "chat"),
        ({"severity": "major", "team": "store"}, "on-call"),
        ({"severity": "major"}, "platform"),
    ],
)
async def test_the_documented_route_by_team_reaches_the_team(
    tmp_path: Path, labels: dict[str, str], receiver: str
) -> None:
    text = (Path(__file__).parents[3] / "docs" / "notifications.md").read_text(encoding="utf-8")
    (config,) = (block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if 'team="checkout"' in block)
    file = tmp_path / "alertmanager.yml"
    file.write_text(config, encoding="utf-8")
    arguments = [f"{name}={value}" for name, value in {"alertname": "TagaeIncident", **labels}.items()]
    for command in (
        ["check-config", str(file)],
        ["config", "routes", "test", f"--config.file={file}", *arguments],
    ):
        process = await asyncio.create_subprocess_exec(
            "amtool", *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
    assert out.decode().split()[-1] == receiver
