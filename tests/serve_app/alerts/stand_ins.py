"""Small servers that take what PagerDuty, Opsgenie and Slack take, and check the format as strictly."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.http_server import serve_in_thread

ROUTING_KEY = "0123456789abcdef0123456789abcdef"
API_KEY = "eb243592-faa2-4ba2-a551-1afdf565c889"
LOST = "the request is done, and the response is lost"


class JsonHandler(BaseHTTPRequestHandler):
    """Answers with JSON documents."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def answer(self, status: int, document: Any, **headers: str) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def check(fields: dict[str, Any], *, required: tuple[str, ...] = (), **longest: int) -> list[str]:
    """Return what is wrong with a document whose text fields have these limits."""
    wrong = [f"'{name}' is missing or blank" for name in required if not fields.get(name)]
    wrong += [f"'{name}' is unknown" for name in fields if name not in longest and name not in required]
    for name, limit in longest.items():
        value = fields.get(name)
        if isinstance(value, str) and limit and len(value) > limit:
            wrong.append(f"'{name}' has {len(value)} characters, more than {limit}")
    return wrong


@dataclass
class StandInPagerDuty:
    """The Events API v2 of PagerDuty. ``faults`` are used up, one for each request: a status that is answered without
    an effect, or ``LOST``."""

    url: str = ""
    faults: list[int | str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[list[str]] = field(default_factory=list)

    def alerts(self) -> dict[str, list[str]]:
        """The actions on each alert that had an effect, by its key: what was triggered once is triggered once."""
        found: dict[str, list[str]] = {}
        for event in self.events:
            actions = found.setdefault(event["dedup_key"], [])
            action = event["event_action"]
            if action == "trigger" and (not actions or actions[-1] == "resolve"):
                actions.append("trigger")
            elif action == "resolve" and actions and actions[-1] == "trigger":
                actions.append("resolve")
        return found

    def handler(self) -> type[BaseHTTPRequestHandler]:
        pagerduty = self

        class Handler(JsonHandler):
            def do_POST(self) -> None:
                content = self.body()
                fault = pagerduty.faults.pop(0) if pagerduty.faults else 0
                if isinstance(fault, int) and fault:
                    self.answer(fault, {"status": "throttle exceeded"}, retry_after="0")
                    return
                event = json.loads(content)
                if wrong := problems_of_event(event, len(content)):
                    pagerduty.refusals.append(wrong)
                    self.answer(400, {"status": "invalid event", "message": "Event object is invalid", "errors": wrong})
                    return
                pagerduty.events.append(event)
                if fault == LOST:
                    self.close_connection = True
                    return
                self.answer(202, {"status": "success", "message": "Event processed", "dedup_key": event["dedup_key"]})

        return Handler


def problems_of_event(event: dict[str, Any], size: int) -> list[str]:
    """Return why PagerDuty would refuse an event."""
    wrong = check(
        event,
        required=("routing_key", "event_action", "dedup_key"),
        dedup_key=255,
        payload=0,
        client=0,
        client_url=0,
        links=0,
        images=0,
    )
    if len(event.get("routing_key", "")) != 32:
        wrong.append("Length of 'routing_key' is incorrect (should be 32 characters)")
    if event.get("event_action") not in ("trigger", "acknowledge", "resolve"):
        wrong.append("'event_action' is not one of trigger, acknowledge, resolve")
    payload = event.get("payload", {})
    wrong += check(
        payload,
        required=("summary", "source", "severity"),
        summary=1024,
        timestamp=0,
        component=0,
        group=0,
        **{"class": 0},
        custom_details=0,
    )
    if payload.get("severity") not in ("critical", "error", "warning", "info"):
        wrong.append("'payload.severity' is invalid (must be one of the following: 'critical', 'warning', 'error')")
    wrong += [f"a link has no href: {one}" for one in event.get("links", ()) if not one.get("href")]
    return wrong + ([f"the event has {size} bytes"] if size > 512_000 else [])


@dataclass
class StandInOpsgenie:
    """The Alert API v2 of Opsgenie. ``faults`` are as in :class:`StandInPagerDuty`, for requests that write."""

    url: str = ""
    faults: list[int | str] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)  # with "status", "count" and "notes"
    requests: list[str] = field(default_factory=list)
    refusals: list[list[str]] = field(default_factory=list)

    def open(self, alias: str) -> dict[str, Any] | None:
        return next((one for one in self.alerts if one["alias"] == alias and one["status"] == "open"), None)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        opsgenie = self

        class Handler(JsonHandler):
            def do_GET(self) -> None:
                if not self._may():
                    return
                alias, action = self._subject()
                alert = opsgenie.open(alias)
                if action != "notes" or alert is None:
                    self.answer(404, {"message": "Alert not found"})
                else:
                    self.answer(200, {"data": [{"note": text, "owner": "tagae"} for text in alert["notes"]]})

            def do_POST(self) -> None:
                self._write()

            def do_PUT(self) -> None:
                self._write()

            def _write(self) -> None:
                body = json.loads(self.body())
                fault = opsgenie.faults.pop(0) if opsgenie.faults else 0
                if isinstance(fault, int) and fault:
                    self.answer(fault, {"message": "try again"}, retry_after="0")
                    return
                if not self._may():
                    return
                path = urlsplit(self.path).path
                alias, action = ("", "") if path == "/v2/alerts" else self._subject()
                wrong = problems_of_request(self.command, action, body)
                if wrong:
                    opsgenie.refusals.append(wrong)
                    self.answer(422, {"message": "Request body is not processable", "errors": wrong})
                    return
                opsgenie.requests.append(f"{self.command} {action or 'create'}")
                opsgenie.change(alias, action, body)
                if fault == LOST:
                    self.close_connection = True
                    return
                self.answer(202, {"result": "Request will be processed", "took": 0.02, "requestId": "43a29c5c"})

            def _subject(self) -> tuple[str, str]:
                parts = urlsplit(self.path)
                assert parse_qs(parts.query)["identifierType"] == ["alias"]
                _, v2, alerts, alias, action = parts.path.split("/")
                assert (v2, alerts) == ("v2", "alerts")
                return unquote(alias), action

            def _may(self) -> bool:
                if self.headers["authorization"] == f"GenieKey {API_KEY}":
                    return True
                self.answer(403, {"message": "Key format is not valid!"})
                return False

        return Handler

    def change(self, alias: str, action: str, body: dict[str, Any]) -> None:
        """Do what was accepted. What concerns no open alert has no effect, as there."""
        if not action:
            known = self.open(body["alias"])
            if known is None:
                self.alerts.append({**body, "status": "open", "count": 1, "notes": []})
            else:
                known["count"] += 1
            return
        alert = self.open(alias)
        if alert is None:
            return
        if "note" in body:
            alert["notes"].append(body["note"])
        if action == "close":
            alert["status"] = "closed"
        elif action != "notes":
            alert[action] = body[action]


def problems_of_request(method: str, action: str, body: dict[str, Any]) -> list[str]:
    """Return why Opsgenie would refuse a request."""
    if method == "PUT":
        return check(body, required=(action,), message=130, description=15_000, priority=2) + (
            [] if action in ("priority", "message", "description") else [f"{action} cannot be put"]
        )
    if action in ("close", "notes"):
        return check(body, required=("note",) if action == "notes" else (), note=25_000, source=100, user=100)
    if action:
        return [f"{action} cannot be posted"]
    wrong = check(
        body,
        required=("message",),
        message=130,
        alias=512,
        description=15_000,
        responders=0,
        visibleTo=0,
        actions=0,
        tags=0,
        details=0,
        entity=512,
        source=100,
        priority=0,
        user=100,
        note=25_000,
    )
    if body.get("priority") not in ("P1", "P2", "P3", "P4", "P5"):
        wrong.append("priority: expected P1 to P5")
    if len(body.get("tags", ())) > 20 or any(len(tag) > 50 for tag in body.get("tags", ())):
        wrong.append("tags: expected at most 20 of 50 characters")
    named = body.get("details", {})
    if any(not isinstance(text, str) for text in named.values()):
        wrong.append("details: expected texts")
    elif sum(len(name) + len(text) for name, text in named.items()) > 8000:
        wrong.append("details: expected at most 8,000 characters")
    for one in body.get("responders", ()):
        if one.get("type") not in ("team", "user", "escalation", "schedule") or len(one) != 2:
            wrong.append(f"responder: expected a type and one name, got {one}")
    return wrong


@contextmanager
def serve(stand_in: Any) -> Iterator[None]:
    """Run a server inside the block; it knows its URL."""
    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), stand_in.handler())) as stand_in.url:
        yield
