"""An event as a message for Slack's incoming webhooks, in Block Kit."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from model.names import list_first, readable
from serve_app.alerts.annotations import format_time, truncate
from serve_app.alerts.event_text import event_title, how_it_ended, named_links, news, next_step, what_happened
from serve_app.api.number_text import score_text

MAX_TITLE, MAX_TEXT = 150, 3000  # characters; Slack refuses longer messages
MAX_SUSPECTS, MAX_REASONS, MAX_AFFECTED, MAX_CHANGES = 3, 2, 10, 3  # the page shows the rest


def slack_message(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event's title, cause, impact and links as a message.

    Args:
        event: the document that other webhooks get.
    """
    incident, title = event["incident"], event_title(event)
    parts = {
        "": news(event) if _needs_news(event) else "",
        "*On it*\n": event.get("on_it", ""),
        "*Summary*\n": event["summary"],
        "*What to do*\n": next_step(event),
        "*Entry points*\n" if incident.get("scope") else "*Cause*\n": _causes(incident),
        "*Impact*\n": _impact(incident),
        "*Error budget*\n": "\n".join(budget["text"] for budget in incident["error_budgets"]),
        "*Team*\n": _team(incident),
        "*Changes*\n": "\n".join(change["text"] for change in incident["changes"][:MAX_CHANGES]),
    }
    sections = [name + escape(text, MAX_TEXT - len(name)) for name, text in parts.items() if text]
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": truncate(title, MAX_TITLE)}},
        *({"type": "section", "text": {"type": "mrkdwn", "text": section}} for section in sections),
        {"type": "context", "elements": [{"type": "mrkdwn", "text": _context(event)}]},
    ]
    fallback = escape(f"{what_happened(event)}: {event['summary']}", MAX_TEXT)  # for system notifications
    return {"text": fallback, "blocks": blocks, "unfurl_links": False}


def _needs_news(event: Mapping[str, Any]) -> bool:
    """Return whether the event changes more than the title and times show."""
    return (
        event["event"] in ("acted", "muted", "unmuted", "merged")
        or "previous_cause" in event
        or how_it_ended(event) not in ("", "resolved")
    )


def _causes(incident: Mapping[str, Any]) -> str:
    lines = []
    for suspect in incident["suspects"][:MAX_SUSPECTS]:
        reasons = "; ".join(reason["text"] for reason in suspect["reasons"][:MAX_REASONS])
        lines.append(f"{suspect['service']} ({score_text(suspect['score'])}){': ' + reasons if reasons else ''}")
    return "\n".join(lines)


def _impact(incident: Mapping[str, Any]) -> str:
    affected = incident["affected"]
    if not affected:
        return ""
    count = f"{len(affected)} service{'' if len(affected) == 1 else 's'} affected"
    impact = incident["impact"]
    return f"{impact['text'] if impact else count}: {list_first(affected, MAX_AFFECTED)}"


def _team(incident: Mapping[str, Any]) -> str:
    contacts = [text for name in ("team", "contact") if (text := incident[name])]
    other_teams = ", ".join(team for team in incident["teams"] if team != incident["team"])
    return "; ".join(filter(None, (", ".join(contacts), other_teams and f"also affected: {other_teams}")))


def _context(event: Mapping[str, Any]) -> str:
    """Return times, the incident's id, the cluster, and as many links as there is room for."""
    since, at = (datetime.fromisoformat(text) for text in (event["incident"]["since"], event["at"]))
    times = f"since {format_time(since)}"
    if event["event"] == "resolved":
        outcome = how_it_ended(event)
        times += f", {'last seen before' if outcome == 'closed, outcome unknown' else outcome} {format_time(at)}"
    name = f"incident {event['incident']['id']}"
    if event.get("continues"):
        name += f", which continues {event['continues']}"
    words = escape(f"{name} · cluster {event['cluster']} · {times}", MAX_TEXT)
    links, room = "", MAX_TEXT - len(words)
    for title, url in named_links(event):
        link = f"<{_escape_markup(url).replace('|', '%7C')}|{title}> · "
        if len(links) + len(link) <= room:
            links += link
    return links + words


def escape(text: str, max_length: int) -> str:
    """Escape a text for Slack, with original names instead of ids. A text longer than ``max_length`` characters is cut
    before it is escaped, so that no entity is cut."""
    text = truncate(readable(text), max_length)
    while (excess := len(_escape_markup(text)) - max_length) > 0:
        text = truncate(text, len(text) - (excess + 4) // 5)  # an entity has at most five characters
    return _escape_markup(text)


def _escape_markup(text: str) -> str:
    """Escape the three characters that begin links, mentions and entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
