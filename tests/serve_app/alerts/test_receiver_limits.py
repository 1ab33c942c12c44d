"""What receivers get fits their limits by construction, however long and in whatever script the names and texts are."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from model.verdict import MuteInForce, MuteOrigin, Reason, Severity, Suspect
from serve_app.alerts.alert import IncidentEvent, MeshAlerts
from serve_app.alerts.links import Links
from serve_app.alerts.receivers import grafana, pagerduty, slack, webhook
from tests.serve_app.alerts.alerting import NOW, incident, transition, verdict
from tests.serve_app.alerts.stand_ins import ROUTING_KEY, problems_of_alert, problems_of_event, problems_of_message

TEXTS = {
    "ascii": "n",
    "markup": "&",
    "quotes": '"',
    "chinese": "订",
    "emoji": "🛒",
    "control": "\u200b",
}
MINUTE = timedelta(minutes=1)


def hostile_events(character: str) -> list[IncidentEvent]:
    """Return the events of an incident in which everything is long: opened, raised, muted, unmuted, resolved."""
    name = f"{'n' * 253}/{character * 253}"
    services = [f"{'n' * 253}/{character * 240}{i}" for i in range(5000)]
    reason = Reason(metric="p99_latency", observed=1.2, expected=0.08, since=NOW, source=name)
    hostile = replace(
        incident("20260301T031200Z-1f3870be", name, severity="major"),
        suspects=tuple(Suspect(service, 0.9, (reason,) * 5) for service in (name, *services[:20])),
        affected=tuple(services),
        teams=tuple(f"{character * 190}{i}" for i in range(300)),
    )
    mute = MuteInForce(MuteOrigin.API, (), character * 5000, "m", NOW + 20 * MINUTE, hides=(name,))
    links = Links(character * 400, "https://tagae.example", {"runbook": "https://runbooks.example/{service}/{service}"})
    events: list[IncidentEvent] = []
    alerts = MeshAlerts()
    verdicts = [
        verdict(hostile),
        verdict(replace(hostile, severity=Severity.CRITICAL)),
        replace(verdict(), muted=(mute,)),
        verdict(replace(hostile, severity=Severity.CRITICAL)),
        verdict(),
        verdict(at=NOW + 9 * MINUTE),
    ]
    for item in verdicts:
        change = transition(alerts, "m" * 63, item, NOW, links)
        alerts = change.alerts
        problems = [problems_of_alert(alert) for alert in (*change.ended, *(page.alert for page in alerts.open))]
        assert not any(problems), f"Alertmanager: {problems}"
        events += change.events
    kinds = [event.document["event"] for event in events]
    assert kinds == ["opened", "severity_raised", "muted", "unmuted", "resolved"]
    return events


def problems_of_annotation(event: Mapping[str, Any]) -> list[str]:
    """Grafana stores tags as Go's JSON in 500 bytes, each name and value in 100 characters, a text in 65,535 bytes."""
    document = grafana.annotation(event)
    stored = json.dumps(document["tags"], ensure_ascii=False, separators=(",", ":"))
    stored = re.sub("[<>&\u2028\u2029]", "\\\\u0000", stored)
    wrong = [f"{len(stored.encode())} bytes of tags"] if len(stored.encode()) > 500 else []
    wrong += [f"tag of {len(tag)}" for tag in document["tags"] if max(map(len, tag.split(":", 1))) > 100]
    return wrong + ([f"{len(document['text'])} text"] if len(document["text"].encode()) > 65_535 else [])


def problems_of_pagerduty(event: Mapping[str, Any]) -> list[str]:
    bodies = [pagerduty.encode(request, ROUTING_KEY) for request in pagerduty.pagerduty_events(event)]
    return [problem for body in bodies for problem in problems_of_event(json.loads(body), len(body))]


def problems_of_slack(event: Mapping[str, Any]) -> list[str]:
    message = slack.slack_message(event)
    wrong = problems_of_message({**message, "metadata": {"event_type": "", "event_payload": ""}})
    marked = [text["text"] for block in message["blocks"][1:] for text in (block.get("elements") or [block["text"]])]
    for text in (message["text"], *marked):
        plain = re.sub(r"<https?://[^<>|]+\|[\w ]+>", "", text)  # without links
        wrong += [f"an entity is cut: {text[-20:]}"] if re.search("&(?!amp;|lt;|gt;)", plain) else []
        wrong += [f"markup: {text[:20]}"] if re.search("[<>]", plain) else []
    return wrong + (["fallback"] if len(message["text"]) > 4000 else [])


def problems_of_webhook(event: Mapping[str, Any]) -> list[str]:
    body = webhook.encode(event)
    event_read = msgspec.json.decode(body)
    wrong = [] if event_read["incident"]["suspects"] and event_read["incident"]["affected"] else ["nothing is left"]
    return wrong + ([f"{len(body)} bytes"] if len(body) > 1 << 20 else [])


@pytest.mark.parametrize("character", TEXTS.values(), ids=TEXTS)
def test_every_receiver_gets_what_it_takes(character: str) -> None:
    receivers: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
        "grafana": problems_of_annotation,
        "pagerduty": problems_of_pagerduty,
        "slack": problems_of_slack,
        "webhook": problems_of_webhook,
    }
    for event in hostile_events(character):
        for name, problems in receivers.items():
            assert not problems(event.document), (name, event.document["event"])
