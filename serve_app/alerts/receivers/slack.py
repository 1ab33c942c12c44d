"""The message that an incoming webhook of Slack shows for an event, in Slack's Block Kit."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from model.names import list_first, readable
from serve_app.alerts.annotations import format_time, truncate
from serve_app.alerts.event_text import event_title, how_it_ended, named_links, news, next_step, what_happened
from serve_app.api.number_text import score_text

MAX_TITLE, MAX_TEXT = 150, 3000  # characters that Slack takes; it refuses a message with more
MAX_SUSPECTS, MAX_REASONS, MAX_AFFECTED, MAX_CHANGES = 3, 2, 10, 3  # the page shows the rest


def slack_message(event: Mapping[str, Any]) -> dict[str, Any]:
    """Title, cause, impact and links of an event.

    Args:
        event: the document that other webhooks get.
    """
    incident, title = event["incident"], event_title(event)
    parts = [
        escape(news(event)) if _needs_news(event) else "",
        _bold("Summary", escape(event["summary"])),
        _bold("What to do", escape(next_step(event))),
        _bold("Entry points" if incident["scope"] else "Cause", _causes(incident)),
        _bold("Impact", _impact(incident)),
        _bold("Error budget", "\n".join(escape(one["text"]) for one in incident["error_budgets"])),
        _bold("Team", _team(incident)),
        _bold("Changes", "\n".join(escape(change["text"]) for change in incident["changes"][:MAX_CHANGES])),
    ]
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": truncate(title, MAX_TITLE)}},
        *({"type": "section", "text": {"type": "mrkdwn", "text": truncate(part, MAX_TEXT)}} for part in parts if part),
        {"type": "context", "elements": [{"type": "mrkdwn", "text": truncate(_context(event), MAX_TEXT)}]},
    ]
    fallback = escape(
        truncate(f"{what_happened(event)}: {event['summary']}", MAX_TEXT)
    )  # in notifications of the system
    return {"text": fallback, "blocks": blocks, "unfurl_links": False}


def _needs_news(event: Mapping[str, Any]) -> bool:
    """Whether title and times do not say all that the event changes."""
    return event["event"] == "merged" or "previous_cause" in event or how_it_ended(event) not in ("", "resolved")


def _causes(incident: Mapping[str, Any]) -> str:
    """A line for each of the first suspects, with their reasons."""
    lines = []
    for suspect in incident["suspects"][:MAX_SUSPECTS]:
        why = "; ".join(escape(reason["text"]) for reason in suspect["reasons"][:MAX_REASONS])
        lines.append(f"{escape(suspect['service'])} ({score_text(suspect['score'])}){': ' + why if why else ''}")
    return "\n".join(lines)


def _impact(incident: Mapping[str, Any]) -> str:
    affected = incident["affected"]
    if not affected:
        return ""
    count = f"{len(affected)} service{'' if len(affected) == 1 else 's'} affected"
    known = incident["impact"]
    return f"{escape(known['text']) if known else count}: {escape(list_first(affected, MAX_AFFECTED))}"


def _team(incident: Mapping[str, Any]) -> str:
    """The team that the incident belongs to, and how to reach it."""
    known = [escape(text) for name in ("team", "contact") if (text := incident[name])]
    others = ", ".join(escape(team) for team in incident["teams"] if team != incident["team"])
    return "; ".join(filter(None, (", ".join(known), others and f"also affected: {others}")))


def _context(event: Mapping[str, Any]) -> str:
    """Links, cluster, times and the incident's id."""
    links = [f"<{_escape_markup(url).replace('|', '%7C')}|{name}>" for name, url in named_links(event)]
    since, at = (datetime.fromisoformat(text) for text in (event["incident"]["since"], event["at"]))
    times = f"since {format_time(since)}"
    if event["event"] == "resolved":
        how = how_it_ended(event)
        times += f", {'last seen before' if how == 'closed, outcome unknown' else how} {format_time(at)}"
    name = f"incident {_escape_markup(event['incident']['id'])}"
    if event.get("continues"):
        name += f", which continues {_escape_markup(event['continues'])}"
    return " · ".join([*links, name, f"cluster {escape(event['cluster'])}", times])


def _bold(name: str, text: str) -> str:
    return text and f"*{name}*\n{text}"


def escape(text: str) -> str:
    """Text with original names instead of ids, in which Slack sees no markup."""
    return _escape_markup(readable(text))


def _escape_markup(text: str) -> str:
    """Text in which Slack sees no markup: these three characters begin links, mentions and entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
