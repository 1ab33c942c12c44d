"""Messages for Slack: their text, and the limits of Slack."""

from pathlib import Path
from typing import Any

import pytest

from serve_app.alerts.receivers.slack import slack_message
from tests.serve_app.alerts.alerting import (
    NOW,
    accept,
    change,
    incident,
    notice,
    sending,
    verdict,
)

EVENT: dict[str, Any] = {
    "event": "opened",
    "at": "2026-03-01T03:14:00+00:00",
    "cluster": "eu-1",
    "mesh": "shop",
    "summary": "shop/cart is slow",
    "links": {},
    "incident": {
        "id": "20260301T031200Z-1f3870be",
        "since": "2026-03-01T03:12:00Z",
        "severity": "major",
        "suspects": [{"service": "shop/cart", "score": 0.6, "reasons": [{"text": "p99 latency 1.2 s"}]}],
        "affected": ["shop/cart", "shop/web"],
        "changes": [],
        "title": "",
        "next_step": "",
        "impact": None,
        "scope": "",
        "team": "",
        "contact": "",
        "teams": [],
        "error_budgets": [],
    },
}


def texts(message: dict[str, Any]) -> list[str]:
    """Return the texts of all blocks, the title first."""
    blocks = [block.get("text") or block["elements"][0] for block in message["blocks"]]
    return [text["text"] for text in blocks]


def test_people_read_original_names_and_no_markup() -> None:
    named = {"service": "shop/a~20~b", "score": 0.6, "reasons": [{"text": "calls from shop/~3C~!here~3E~ fail"}]}
    changed = {**EVENT["incident"], "suspects": [named], "affected": ["shop/订单服务"]}
    message_text = "\n".join(texts(slack_message({**EVENT, "incident": changed})))
    assert "shop/a b (0.60): calls from shop/&lt;!here&gt; fail" in message_text
    assert "shop/订单服务" in message_text


def test_an_event_that_waited_through_an_upgrade_is_sent() -> None:
    before = {name: value for name, value in EVENT["incident"].items() if name != "scope"}
    assert slack_message({**EVENT, "incident": before}) == slack_message(EVENT)


def test_the_team_is_named_and_teams_that_are_affected_too() -> None:
    owned = {**EVENT["incident"], "team": "checkout", "contact": "<#checkout>", "teams": ["store", "checkout"]}
    message_texts = texts(slack_message({**EVENT, "incident": owned}))
    assert "*Team*\ncheckout, &lt;#checkout&gt;; also affected: store" in message_texts
    assert not any(text.startswith("*Team*") for text in texts(slack_message(EVENT)))


async def test_a_channel_follows_an_incident(tmp_path: Path) -> None:
    """Over HTTP, from verdicts: opened, raised, resolved."""
    async with sending("webhooks", 200, tmp_path, format="slack") as (server, notifier, _):
        accept(notifier, "shop", verdict(incident("a", changes=(change(),))), NOW)
        accept(notifier, "shop", verdict(incident("a", severity="major")), NOW)
        accept(notifier, "shop", verdict(), NOW)
        requests = await server.until(lambda requests: len(requests) == 3)
    opened, raised, resolved = (texts(request.json) for request in requests)
    assert opened[0] == "Minor incident in shop: shop/cart"
    assert raised[0] == "Now a major incident in shop, was minor: shop/cart"
    assert resolved[0] == "Resolved: major incident in shop: shop/cart"
    summary, step, cause, impact, changes, context = opened[1:]
    assert step.startswith("*What to do*\nRoll back v1.4.2 of shop/cart: it was deployed 40 s before this began")
    assert not any(text.startswith("*What to do*") for text in resolved)
    assert summary.startswith("*Summary*\nCause uncertain, shop/cart or shop/web: shop/cart has been slow")
    assert cause.startswith("*Cause*\nshop/cart (0.60): p99 latency 1.2 s")
    assert "\nshop/web (0.30)" in cause
    assert impact == "*Impact*\n2 services affected: shop/cart, shop/web"
    assert "deploy of shop/cart (v1.4.2)" in changes
    assert "<https://tagae.example/#mesh=shop&amp;incident=a|Open the incident>" in context
    assert "<https://runbooks.example/shop?incident=a|Runbook>" in context
    assert context.endswith("incident a · cluster eu-1 · since 2026-03-01 03:12 UTC")
    assert resolved[-1].endswith("resolved 2026-03-01 03:14 UTC")
    assert requests[0].headers["idempotency-key"]
    assert requests[0].json["text"].startswith("Minor incident in shop: Cause uncertain, shop/cart or shop/web: ")


async def test_a_notice_is_no_incident(tmp_path: Path) -> None:
    async with sending("webhooks", 200, tmp_path, format="slack") as (server, notifier, _):
        accept(notifier, "shop", verdict(notice()), NOW)
        (request,) = await server.until(lambda requests: len(requests) == 1)
    title, *sections = texts(request.json)
    assert title == "Notice in shop: shop/cart"
    assert "reaches its limit in 40 minutes" in " ".join(sections)


def test_a_merged_incident_names_the_other_incident() -> None:
    assert texts(slack_message({**EVENT, "event": "merged", "merged_into": "b"}))[0] == (
        "Major incident in shop is now part of another incident"
    )


@pytest.mark.parametrize("missing", ["suspects", "affected"])
def test_unknown_values_are_left_out(missing: str) -> None:
    message = slack_message({**EVENT, "incident": {**EVENT["incident"], missing: []}})
    assert len(message["blocks"]) == len(slack_message(EVENT)["blocks"]) - 1
    assert all(texts(message))
