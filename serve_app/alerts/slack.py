"""The message that an incoming webhook of Slack shows for an event, in Slack's Block Kit."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from model.names import list_first, readable
from serve_app.alerts.annotations import format_time, truncate

MAX_TITLE, MAX_TEXT = 150, 3000  # characters that Slack takes; it refuses a message with more
MAX_SUSPECTS, MAX_REASONS, MAX_AFFECTED, MAX_CHANGES = 3, 2, 10, 3  # the page shows the rest
LINKS = {
    "page_url": "Open the incident",
    "dashboard_url": "Dashboard",
    "traces_url": "Traces",
    "logs_url": "Logs",
    "runbook_url": "Runbook",
    "verdict_url": "Verdict",
}


def slack_message(event: Mapping[str, Any]) -> dict[str, Any]:
    """Title, cause, impact and links of an event.

    Args:
        event: the document that other webhooks get.
    """
    incident, title = event["incident"], _title(event)
    parts = [
        _bold("Summary", _escape(event["summary"])),
        _bold("Entry points" if incident.get("scope") else "Cause", _causes(incident)),
        _bold("Impact", _impact(incident)),
        _bold("Team", _team(incident)),
        _bold("Changes", "\n".join(_escape(change["text"]) for change in incident["changes"][:MAX_CHANGES])),
    ]
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": truncate(title, MAX_TITLE)}},
        *({"type": "section", "text": {"type": "mrkdwn", "text": truncate(part, MAX_TEXT)}} for part in parts if part),
        {"type": "context", "elements": [{"type": "mrkdwn", "text": truncate(_context(event), MAX_TEXT)}]},
    ]
    fallback = _escape(truncate(f"{title}: {event['summary']}", MAX_TEXT))  # in notifications of the system
    return {"text": fallback, "blocks": blocks, "unfurl_links": False}


def _title(event: Mapping[str, Any]) -> str:
    severity, where = event["incident"]["severity"], f"in {event['mesh']}"
    name = "Notice" if severity == "notice" else f"{severity.capitalize()} incident"
    if event["event"] == "severity_raised":
        return f"Now a {severity} incident {where}, was {event['previous_severity']}"
    if event["event"] == "merged":
        return f"{name} {where} is now part of another incident"
    if event["event"] == "resolved":
        return f"Resolved: {name[0].lower()}{name[1:]} {where}"
    return f"{name} {where}"


def _causes(incident: Mapping[str, Any]) -> str:
    """A line for each of the first suspects, with their reasons."""
    lines = []
    for suspect in incident["suspects"][:MAX_SUSPECTS]:
        why = "; ".join(_escape(reason["text"]) for reason in suspect["reasons"][:MAX_REASONS])
        lines.append(f"{_escape(suspect['service'])} ({suspect['score']:.0%}){': ' + why if why else ''}")
    return "\n".join(lines)


def _impact(incident: Mapping[str, Any]) -> str:
    affected = incident["affected"]
    if not affected:
        return ""
    count = f"{len(affected)} service{'' if len(affected) == 1 else 's'} affected"
    known = incident.get("impact")  # events that an earlier version stored have none
    return f"{_escape(known['text']) if known else count}: {_escape(list_first(affected, MAX_AFFECTED))}"


def _team(incident: Mapping[str, Any]) -> str:
    """The team that the incident belongs to, and how to reach it; events of an earlier version have none."""
    known = [_escape(text) for name in ("team", "contact") if (text := incident.get(name))]
    others = ", ".join(_escape(team) for team in incident.get("teams", ()) if team != incident.get("team"))
    return "; ".join(filter(None, (", ".join(known), others and f"also affected: {others}")))


def _context(event: Mapping[str, Any]) -> str:
    """Links, cluster and times."""
    page = event["links"].get("page_url")
    links = [
        f"<{_escape_markup(url).replace('|', '%7C')}|{LINKS[name]}>"
        for name, url in event["links"].items()
        if name in LINKS and (name == "page_url" or url != page)
    ]
    since, at = (datetime.fromisoformat(text) for text in (event["incident"]["since"], event["at"]))
    times = f"since {format_time(since)}"
    if event["event"] == "resolved":
        times += f", resolved {format_time(at)}"
    return " · ".join([*links, f"cluster {_escape(event['cluster'])}", times])


def _bold(name: str, text: str) -> str:
    return text and f"*{name}*\n{text}"


def _escape(text: str) -> str:
    """Text with original names instead of ids, in which Slack sees no markup."""
    return _escape_markup(readable(text))


def _escape_markup(text: str) -> str:
    """Text in which Slack sees no markup: these three characters begin links, mentions and entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
