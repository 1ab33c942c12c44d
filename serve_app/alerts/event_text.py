"""An event in words, for receivers that people read, and the key of its incident."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from model.names import readable
from serve_app.alerts.annotations import format_time
from serve_app.api.schemas.actions import ActionKind, KeptActionDocument

ENDS = frozenset({"resolved", "merged"})  # events that end an incident
_UNKNOWN_ENDS = frozenset({"unseen", "mesh_silent"})  # reasons of a resolution
_LINKS = {
    "page_url": "Open the incident",
    "dashboard_url": "Dashboard",
    "traces_url": "Traces",
    "logs_url": "Logs",
    "runbook_url": "Runbook",
    "verdict_url": "Verdict",
}


def incident_key(event: Mapping[str, Any], max_length: int) -> str:
    """Return the key of an event's incident, the same for all of its events: ``CLUSTER/MESH/INCIDENT``. If the key is
    too long, a hash replaces the cluster's name.

    Args:
        event: the document that webhooks get.
        max_length: maximum length of the key in characters, at least 200.
    """
    cluster, incident = event["cluster"], f"{event['mesh']}/{event['incident']['id']}"
    if len(cluster) + 1 + len(incident) > max_length:
        cluster = hashlib.blake2b(cluster.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{cluster}/{incident}"[:max_length]


def event_title(event: Mapping[str, Any]) -> str:
    """Return one line that says what happened, and at which service, calls or requests."""
    subject = event["incident"]["title"]
    return f"{what_happened(event)}: {readable(subject)}" if subject else what_happened(event)


def what_happened(event: Mapping[str, Any]) -> str:
    """Return one line that says what happened, for a text that names the service itself."""
    severity, mesh = event["incident"]["severity"], event["mesh"]
    name = "notice" if severity == "notice" else f"{severity} incident"
    match event["event"]:
        case "severity_raised":
            return f"Now a {severity} incident in {mesh}, was {event['previous_severity']}"
        case "cause_changed":
            return f"{name.capitalize()} in {mesh} has another cause"
        case "acted":
            return f"{_newest_action(event).head}: {name} in {mesh}"
        case "muted":
            return f"Muted{_until(event)}, still failing: {name} in {mesh}"
        case "unmuted":
            return f"No longer muted, still failing: {name} in {mesh}"
        case "merged":
            return f"{name.capitalize()} in {mesh} is now part of another incident"
        case "resolved":
            return f"{how_it_ended(event).capitalize()}: {name} in {mesh}"
        case _:
            return f"{name.capitalize()} in {mesh}"


def news(event: Mapping[str, Any]) -> str:
    """Return one sentence that says what an event changes, for people who know its incident."""
    match event["event"]:
        case "opened":
            earlier = event.get("continues")
            return f"It continues incident {earlier}." if earlier else "It began."
        case "severity_raised":
            cause = f" {_cause(event)}" if event.get("previous_cause") else ""
            return f"Now {event['incident']['severity']}, was {event['previous_severity']}.{cause}"
        case "cause_changed":
            return _cause(event)
        case "acted":
            return _newest_action(event).words
        case "muted":
            return muted_until(event)
        case "unmuted":
            return "Its mute ended, and it still fails."
        case "merged" if event.get("reason") == "unmuted":
            return f"Its mute ended, and it still fails: it continues as incident {event['merged_into']}."
        case "merged":
            return f"Now part of incident {event['merged_into']}."
        case _:
            return _end(event)


def how_it_ended(event: Mapping[str, Any]) -> str:
    """Return ``resolved`` or ``closed, outcome unknown``; empty if the event does not end it."""
    if event["event"] != "resolved":
        return ""
    return "closed, outcome unknown" if event.get("reason") in _UNKNOWN_ENDS else "resolved"


def muted_until(event: Mapping[str, Any]) -> str:
    """Return until when and why an incident is muted."""
    return f"Muted{_until(event)} ({event['mute_reason']}), still failing."


def who_is_on_it(actions: Iterable[Mapping[str, Any]]) -> str:
    """Return the people on an incident, and since when; empty: no one.

    Args:
        actions: people's actions on it, oldest first, as in events.
    """
    since: dict[str, str] = {}
    for action in actions:
        if action["kind"] == ActionKind.ACKNOWLEDGE:
            since.setdefault(action["by"] or "someone", format_time(datetime.fromisoformat(action["at"])))
    return ", ".join(f"{name} since {at}" for name, at in since.items())


def first_suspect(event: Mapping[str, Any]) -> str:
    """Return the first suspect, or the first affected service; empty if there is neither."""
    incident = event["incident"]
    services = [*(suspect["service"] for suspect in incident["suspects"]), *incident["affected"]]
    return services[0] if services else ""


def next_step(event: Mapping[str, Any]) -> str:
    """Return the next step; empty if the incident is over."""
    return "" if event["event"] in ENDS else readable(event["incident"]["next_step"])


def named_links(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each link's name and URL, without a second link to the page."""
    page = event["links"].get("page_url")
    for name, url in event["links"].items():
        if name in _LINKS and (name == "page_url" or url != page):
            yield _LINKS[name], url


def _newest_action(event: Mapping[str, Any]) -> KeptActionDocument:
    return KeptActionDocument.model_validate(event["actions"][-1])


def _until(event: Mapping[str, Any]) -> str:
    until = event.get("muted_until")
    return f" until {format_time(datetime.fromisoformat(until))}" if until else ""


def _cause(event: Mapping[str, Any]) -> str:
    return f"The first suspect is now {readable(first_suspect(event))}, was {readable(event['previous_cause'])}."


def _end(event: Mapping[str, Any]) -> str:
    at = format_time(datetime.fromisoformat(event["at"]))
    match event.get("reason"):
        case "unseen":
            return f"Closed, outcome unknown: no data received since, until {at}."
        case "mesh_silent":
            return f"Closed, outcome unknown: its mesh had no verdict for a day, until {at}."
        case "mesh_deleted":
            return f"Ended at {at}: its mesh was deleted."
        case _:
            return f"Resolved at {at}."
