"""Small servers that take what receivers of events send, and checks as strict as theirs and Alertmanager's."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qs, urlsplit

from serve_app.alerts.alert import Alert
from serve_app.alerts.delivery import Receivers
from serve_app.alerts.delivery import receivers as configured
from serve_app.settings import Settings
from tests.http_server import QuietHandler, serve_in_thread
from tests.serve_app.alerts.alerting import receivers

ROUTING_KEY = "0123456789abcdef0123456789abcdef"
GRAFANA_TOKEN = "glsa_t0ken"
LOST = "the request is done, and the response is lost"
S = TypeVar("S", bound="OtherSide")


@dataclass
class OtherSide(ABC):
    """What a receiver of events sends to.

    Attributes:
        kind, secret, options: of the receiver in the settings; the secret is the name of an option and its content.
        faults: used up, one for each request: a status that is answered without an effect, or ``LOST``.
        refusals: why requests were refused.
    """

    kind: ClassVar[str]
    secret: ClassVar[tuple[str, str] | None] = None
    options: ClassVar[Mapping[str, str]] = {}
    url: str = ""
    faults: list[int | str] = field(default_factory=list)
    refusals: list[list[str]] = field(default_factory=list)

    def secret_file(self, folder: Path) -> Path:
        """The file with the secret."""
        return folder / f"{self.kind}.secret"

    def chosen(self, folder: Path, **more: Any) -> dict[str, Any]:
        """The receiver in the settings. Its file with the secret is written unless it exists."""
        options = {"url": self.url, **self.options}
        if self.secret is not None:
            name, content = self.secret
            file = self.secret_file(folder)
            if not file.exists():
                file.write_text(f"{content}\n")
            options[name] = str(file)
        return {"kind": self.kind, "options": options, **more}

    def to(self, folder: Path, *, notices: bool = True, **more: Any) -> Receivers:
        """Where a notifier sends: only here."""
        settings = Settings.model_validate({"notify": {"receivers": [self.chosen(folder, notices=notices)]}})
        return receivers(events=configured(settings).events, **more)

    @abstractmethod
    def handler(self) -> type[BaseHTTPRequestHandler]:
        """What answers its requests."""


@dataclass
class Answering(OtherSide):
    """Answers every request with a status; as Slack's API does, with a refusal unless the status is good."""

    kind = "webhook"
    status: int = 200
    requests: list[tuple[str, Any]] = field(default_factory=list)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                self.send(server.status, b"[]")

            def do_POST(self) -> None:
                body = self.body()
                is_json = "json" in self.headers["content-type"]
                server.requests.append((self.path, json.loads(body) if is_json else body))
                answer = {"ok": server.status == 200, "error": "invalid_auth", "messages": [], "ts": "1.0"}
                self.send(server.status, json.dumps(answer).encode())

        return Handler


class JsonHandler(QuietHandler):
    """Answers with JSON documents."""

    def answer(self, status: int, document: Any, **headers: str) -> None:
        self.send(status, json.dumps(document).encode(), **headers)


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
class StandInPagerDuty(OtherSide):
    """The Events API v2 of PagerDuty."""

    kind = "pagerduty"
    secret = ("routing_key_file", ROUTING_KEY)
    events: list[dict[str, Any]] = field(default_factory=list)

    def alerts(self) -> dict[str, list[str]]:
        """The actions on each alert that had an effect, by its key: what was triggered once is triggered once."""
        by_key: dict[str, list[str]] = {}
        for event in self.events:
            actions = by_key.setdefault(event["dedup_key"], [])
            action = event["event_action"]
            if action == "trigger" and (not actions or actions[-1] == "resolve"):
                actions.append("trigger")
            elif action == "resolve" and actions and actions[-1] == "trigger":
                actions.append("resolve")
        return by_key

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
    wrong += [f"a link has no href: {link}" for link in event.get("links", ()) if not link.get("href")]
    return wrong + ([f"the event has {size} bytes"] if size > 512_000 else [])


BOT_TOKEN = "xoxb-12-34-s3cret"
CHANNEL = "C0123456789"
_FORM_ONLY = frozenset({"conversations.history", "conversations.replies", "files.getUploadURLExternal"})
_TEXT_LIMITS = {"header": 150, "section": 3000}  # characters of a block's text


@dataclass
class StandInSlack(OtherSide):
    """A channel of Slack, and the methods of its Web API that an app needs. ``faults`` are of the calls that write; one
    may be an error that Slack names."""

    kind = "slack"
    secret = ("bearer_token_file", BOT_TOKEN)
    options: ClassVar[Mapping[str, str]] = {"channel": CHANNEL}
    messages: list[dict[str, Any]] = field(default_factory=list)  # newest last; a reply has "thread_ts"
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    may_read: bool = True

    def roots(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if "thread_ts" not in message]

    def replies(self, ts: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message.get("thread_ts") == ts]

    def handler(self) -> type[BaseHTTPRequestHandler]:
        slack = self

        class Handler(JsonHandler):
            def do_POST(self) -> None:
                content, method = self.body(), self.path.removeprefix("/")
                if method.startswith("upload/"):
                    file = slack.files[method.removeprefix("upload/")]
                    if len(content) != file["length"] or self.headers["authorization"]:
                        self.answer(400, {"ok": False})
                    else:
                        file["content"] = content
                        self.answer(200, {})
                    return
                if self.headers["authorization"] != f"Bearer {BOT_TOKEN}":
                    self.answer(200, {"ok": False, "error": "invalid_auth"})
                    return
                is_form = self.headers["content-type"] == "application/x-www-form-urlencoded"
                if method in _FORM_ONLY and not is_form:
                    self.answer(200, {"ok": False, "error": "invalid_arguments"})
                    return
                fields = (
                    {name: values[0] for name, values in parse_qs(content.decode()).items()}
                    if is_form
                    else json.loads(content)
                )
                writes = method.startswith("chat.")
                fault = slack.faults.pop(0) if writes and slack.faults else 0
                if isinstance(fault, int) and fault:
                    self.answer(fault, {"ok": False, "error": "ratelimited"}, retry_after="0")
                elif fault and fault != LOST:
                    self.answer(200, {"ok": False, "error": fault})
                else:
                    answer = slack.call(method, fields)
                    if fault == LOST:
                        self.close_connection = True
                        return
                    self.answer(200, answer)

        return Handler

    def call(self, method: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Do what a method does, and return its answer."""
        if method.startswith("conversations.") and not self.may_read:
            return {"ok": False, "error": "missing_scope"}
        if method == "auth.test":
            return {"ok": True}
        if method != "files.getUploadURLExternal" and CHANNEL not in (fields.get("channel"), fields.get("channel_id")):
            return {"ok": False, "error": "channel_not_found"}
        match method:
            case "chat.postMessage" | "chat.update":
                if wrong := problems_of_message(fields):
                    self.refusals.append(wrong)
                    return {"ok": False, "error": "invalid_blocks"}
                if method == "chat.postMessage":
                    message = {**fields, "ts": f"{1_772_334_840 + len(self.messages)}.000100"}
                    self.messages.append(message)
                    return {"ok": True, "channel": CHANNEL, "ts": message["ts"]}
                root = next((message for message in self.messages if message["ts"] == fields["ts"]), None)
                if root is None:
                    return {"ok": False, "error": "message_not_found"}
                root.update(fields)
                return {"ok": True, "channel": CHANNEL, "ts": root["ts"]}
            case "conversations.history":
                oldest = float(fields["oldest"])
                page = [root for root in reversed(self.roots()) if float(root["ts"]) >= oldest]
                start, limit = int(fields.get("cursor") or 0), int(fields["limit"])
                following = str(start + limit) if start + limit < len(page) else ""
                return {
                    "ok": True,
                    "messages": page[start : start + limit],
                    "has_more": bool(following),
                    "response_metadata": {"next_cursor": following},
                }
            case "conversations.replies":
                roots = [root for root in self.roots() if root["ts"] == fields["ts"]]
                if not roots:
                    return {"ok": False, "error": "thread_not_found"}
                return {"ok": True, "messages": [*roots, *self.replies(fields["ts"])]}
            case "files.getUploadURLExternal":
                name = f"F{len(self.files):010}"
                self.files[name] = {"filename": fields["filename"], "length": int(fields["length"])}
                return {"ok": True, "upload_url": f"{self.url}/upload/{name}", "file_id": name}
            case "files.completeUploadExternal":
                for file in fields["files"]:
                    self.files[file["id"]] |= {"title": file["title"], "thread_ts": fields["thread_ts"]}
                return {"ok": True, "files": fields["files"]}
        return {"ok": False, "error": "unknown_method"}


def problems_of_message(fields: dict[str, Any]) -> list[str]:
    """Return why Slack would refuse a message."""
    wrong = [] if fields.get("text") else ["text is missing"]
    blocks = fields.get("blocks", [])
    if len(blocks) > 50:
        wrong.append(f"{len(blocks)} blocks")
    for block in blocks:
        texts = [block["text"]] if "text" in block else block.get("elements", [])
        limit = _TEXT_LIMITS.get(block["type"], 3000)
        wrong += [
            f"{block['type']}: {len(text['text'])} characters" for text in texts if not 0 < len(text["text"]) <= limit
        ]
    metadata = fields.get("metadata", {})
    if set(metadata) != {"event_type", "event_payload"}:
        wrong.append("metadata: expected event_type and event_payload")
    return wrong


@dataclass
class StandInGrafana(OtherSide):
    """The annotations of a Grafana. ``faults`` are of the requests that write."""

    kind = "grafana"
    secret = ("bearer_token_file", GRAFANA_TOKEN)
    annotations: dict[int, dict[str, Any]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    garbage: bool = False

    def handler(self) -> type[BaseHTTPRequestHandler]:
        grafana = self

        class Handler(JsonHandler):
            def do_GET(self) -> None:
                if self._may():
                    tags = parse_qs(urlsplit(self.path).query)["tags"]
                    matches = [
                        annotation
                        for annotation in grafana.annotations.values()
                        if set(tags) <= set(annotation["tags"])
                    ]
                    self.answer(200, {} if grafana.garbage else matches)

            def do_POST(self) -> None:
                if self._may():
                    number = len(grafana.annotations) + 1
                    self._write(number, {"id": number})

            def do_PATCH(self) -> None:
                if self._may():
                    number = int(self.path.rsplit("/", 1)[1])
                    self._write(number, grafana.annotations[number])

            def _write(self, number: int, before: dict[str, Any]) -> None:
                body = json.loads(self.body())
                fault = grafana.faults.pop(0) if grafana.faults else 0
                grafana.writes.append(self.command)
                if isinstance(fault, int) and fault:
                    self.answer(fault, {"message": "no"})
                    return
                grafana.annotations[number] = before | body
                if fault == LOST:
                    self.close_connection = True
                    return
                self.answer(200, {"id": number})

            def _may(self) -> bool:
                if self.headers["authorization"] == f"Bearer {GRAFANA_TOKEN}":
                    return True
                self.answer(401, {"message": "Unauthorized"})
                return False

        return Handler


@contextmanager
def serve(stand_in: S) -> Iterator[S]:
    """Run a server inside the block; it knows its URL."""
    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), stand_in.handler())) as stand_in.url:
        yield stand_in


def problems_of_alert(alert: Alert) -> list[str]:
    """Return why Alertmanager would refuse an alert, or a proxy before it."""
    pairs = [*alert.labels.items(), *alert.annotations.items()]
    wrong = [name for name, value in pairs if not value or not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name)]
    size = sum(len(text.encode()) for pair in pairs for text in pair)  # fails for what UTF-8 cannot encode
    wrong += [f"{size} bytes"] if size > 1 << 16 else []
    wrong += [] if alert.labels else ["no label"]
    wrong += ["a time without a zone"] if alert.starts_at.tzinfo is None else []
    wrong += ["an end before the start"] if alert.ends_at and alert.ends_at < alert.starts_at else []
    return wrong + ([f"URL {alert.url}"] if alert.url and not re.match(r"https?://[^\s/]", alert.url) else [])
