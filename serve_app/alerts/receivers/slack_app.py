"""Follows incidents in a Slack channel, as an app with a bot token.

An incident is one message, which every event updates, and a thread with the changes. The incident's picture is the
first reply: an app cannot put a file into a message, and text must not wait for a picture. Slack has no idempotency
key. So each message has the incident's key and the event's id as metadata, and an event first looks for them. Without
permission to read the channel, it is sent anyway, since a duplicate message after a crash is better than none.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from serve_app.alerts.alert import IncidentEvent
from serve_app.alerts.event_queue import receiver_key
from serve_app.alerts.event_text import incident_key, news
from serve_app.alerts.receivers.receiver import Picture, ReceiverPlugin
from serve_app.alerts.receivers.slack import MAX_TEXT, escape, slack_message
from serve_app.net.endpoint import Endpoint, check_url
from serve_app.net.http import Failure, HttpSender, Reply
from serve_app.settings.receivers import SlackSettings

KIND = "slack"
EVENT_TYPE = "tagae_incident"  # in the metadata
MAX_KEY = 512  # characters
PAGE, MAX_PAGES = 200, 5  # messages in the channel that are searched for an incident's message
LOOK_BACK = timedelta(minutes=1)  # before the incident opened, because clocks differ
MAX_KNOWN = 200  # incidents whose messages are cached
PICTURED = frozenset({"opened", "cause_changed"})  # events with a new picture of the incident
MAX_PICTURE_AGE = timedelta(seconds=30)  # an older event gets no picture: it may have been sent before a restart
_MAX_BYTES = 4 << 20  # in an answer
_JSON, _FORM, _PNG = "application/json; charset=utf-8", "application/x-www-form-urlencoded", "image/png"
_OVERLOADED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
_TRANSIENT = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"})
_REFUSED = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_too_long", "no_text", "invalid_arguments"})
_GONE = frozenset({"message_not_found", "thread_not_found", "cant_update_message", "edit_window_closed"})
_MAY_NOT_READ = frozenset({"missing_scope", "not_in_channel", "no_permission"})
log = logging.getLogger(__name__)


class SlackApp:
    """Follows incidents in one channel."""

    kind = KIND

    def __init__(self, sender: HttpSender, settings: SlackSettings, deadline_seconds: float) -> None:
        self._sender = sender
        self._settings = settings
        self._deadline_seconds = deadline_seconds
        self.name = f"{sender.endpoint.origin}/{settings.channel}"
        self.key = receiver_key(KIND, sender.endpoint.url, settings.channel)
        self._messages: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._picture: Picture | None = None

    def use_pictures(self, picture: Picture) -> None:
        self._picture = picture

    async def deliver(self, event: IncidentEvent) -> Reply:
        """Post or update the incident's message, and report the change in its thread."""
        document = event.document
        search, message = await self._find_message(document)
        if search.failed:
            return search
        reply = Reply(status=200)
        if message and document["event"] != "opened":
            reply = await self._update(event, message)
            if reply.detail in _GONE:  # a person deleted it
                message = ""
            elif reply.failed:
                return reply
        if not message:
            reply, message = await self._post(event)
            if reply.failed:
                return reply
            self._remember(document, message)
        if document["event"] in PICTURED:
            await self._show_picture(event, message)
        return reply

    async def check(self) -> Reply:
        """Test the token."""
        reply, _ = await self._call("auth.test", {}, _FORM)
        return reply

    async def close(self) -> None:
        await self._sender.close()

    async def _post(self, event: IncidentEvent) -> tuple[Reply, str]:
        body = {"channel": self._settings.channel, **slack_message(event.document), "metadata": _metadata(event)}
        reply, answer = await self._call("chat.postMessage", body)
        return reply, str(answer.get("ts", ""))

    async def _update(self, event: IncidentEvent, message: str) -> Reply:
        """Update the message, which can be repeated, and then report the change once."""
        place = {"channel": self._settings.channel}
        body = {**place, "ts": message, **slack_message(event.document), "metadata": _metadata(event)}
        reply, _ = await self._call("chat.update", body)
        if reply.failed:
            return reply
        search, answer = await self._call(
            "conversations.replies", {**place, "ts": message, "limit": PAGE, "include_all_metadata": True}, _FORM
        )
        if search.failed and search.detail not in _MAY_NOT_READ:
            return search
        replies = [message_reply for message_reply in answer.get("messages", ()) if message_reply.get("ts") != message]
        if any(_payload(message_reply).get("event") == event.id for message_reply in replies):
            return Reply(status=200)
        text = {"text": escape(news(event.document), MAX_TEXT), "unfurl_links": False}
        reply, _ = await self._call(
            "chat.postMessage", {**place, "thread_ts": message, **text, "metadata": _metadata(event)}
        )
        return reply

    async def _find_message(self, event: Mapping[str, Any]) -> tuple[Reply, str]:
        """Find an incident's message in the cache or the channel; empty: there is none."""
        name = _name(event)
        if name in self._messages:
            return Reply(status=200), self._messages[name]
        opened_at = datetime.fromisoformat(event["opened_at"])
        query = {
            "channel": self._settings.channel,
            "oldest": f"{(opened_at - LOOK_BACK).timestamp():.6f}",
            "inclusive": True,
            "limit": PAGE,
            "include_all_metadata": True,
        }
        for _ in range(MAX_PAGES):
            reply, answer = await self._call("conversations.history", query, _FORM)
            if reply.detail in _MAY_NOT_READ:
                log.warning(
                    "slack %s: the app may not read the channel, so it may post twice: %s", self.name, reply.detail
                )
                return Reply(status=200), ""
            if reply.failed:
                return reply, ""
            for candidate in answer.get("messages", ()):
                payload = _payload(candidate)
                if (payload.get("incident"), payload.get("opened_at")) == name:
                    self._remember(event, str(candidate["ts"]))
                    return reply, str(candidate["ts"])
            query["cursor"] = answer.get("response_metadata", {}).get("next_cursor", "")
            if not query["cursor"]:
                break
        return Reply(status=200), ""

    def _remember(self, event: Mapping[str, Any], message: str) -> None:
        self._messages[_name(event)] = message
        while len(self._messages) > MAX_KNOWN:
            self._messages.popitem(last=False)

    async def _show_picture(self, event: IncidentEvent, message: str) -> None:
        """Add the picture to the thread if it is ready in time. A message is useful without it."""
        if self._picture is None or datetime.now(UTC) - event.at > MAX_PICTURE_AGE:
            return
        png = await self._picture(event.document["mesh"], event.document["incident"]["id"])
        reply = Reply(status=200) if png is None else await self._upload(png, event.document, message)
        if reply.failed:
            log.warning("slack %s: the picture of an incident could not be added: %s", self.name, reply.detail)

    async def _upload(self, png: bytes, event: Mapping[str, Any], message: str) -> Reply:
        name = f"{event['incident']['id']}.png"
        reply, place = await self._call("files.getUploadURLExternal", {"filename": name, "length": len(png)}, _FORM)
        if reply.failed:
            return reply
        try:
            endpoint = Endpoint(check_url(place["upload_url"]), ca_file=self._settings.ca_file)
            file = {"id": place["file_id"], "title": f"Incident {event['incident']['id']}"}
        except (KeyError, ValueError) as error:
            return Reply("broken", detail=f"expected an upload URL: {type(error).__name__}")
        upload = HttpSender(endpoint, self._deadline_seconds)
        try:
            reply = await upload.send("POST", "", png, {"content-type": _PNG})
        finally:
            await upload.close()
        if reply.failed:
            return reply
        body = {"files": [file], "channel_id": self._settings.channel, "thread_ts": message}
        reply, _ = await self._call("files.completeUploadExternal", body)
        return reply

    async def _call(self, method: str, fields: Mapping[str, Any], form: str = _JSON) -> tuple[Reply, dict[str, Any]]:
        """Call a Web API method. Slack answers 200 to most failures; the answer contains the error's name, which
        becomes the reply's detail."""
        body = (json.dumps(fields) if form == _JSON else urlencode(_plain(fields))).encode()
        reply = await self._sender.send("POST", f"/{method}", body, {"content-type": form}, _MAX_BYTES)
        if reply.failed:
            return reply, {}
        try:
            answer = json.loads(reply.content)
            if answer["ok"]:
                return Reply(status=reply.status), answer
            refusal = str(answer["error"])
        except (ValueError, TypeError, KeyError) as error:
            return Reply("broken", reply.status, f"expected an answer of Slack: {type(error).__name__}"), {}
        return Reply(_failure(refusal), reply.status, refusal), {}


def _failure(error: str) -> Failure:
    """Classify an error. Most need a person to add a permission or invite the app; the event waits until then."""
    if error in _OVERLOADED:
        return "overloaded"
    if error in _TRANSIENT:
        return "failed"
    return "refused" if error in _REFUSED else "forbidden"


def _name(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return an incident's key and opening time: an id that is opened again later has another message."""
    return incident_key(event, MAX_KEY), event["opened_at"]


def _metadata(event: IncidentEvent) -> dict[str, Any]:
    incident, opened_at = _name(event.document)
    return {
        "event_type": EVENT_TYPE,
        "event_payload": {"incident": incident, "opened_at": opened_at, "event": event.id},
    }


def _payload(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return our message's payload; empty for another message."""
    metadata = message.get("metadata") or {}
    payload: Mapping[str, Any] = metadata.get("event_payload") or {}
    return payload if metadata.get("event_type") == EVENT_TYPE else {}


def _plain(fields: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}


def _open(settings: SlackSettings, deadline_seconds: float) -> SlackApp:
    sender = HttpSender(settings.endpoint(settings.url.rstrip("/")), deadline_seconds)
    return SlackApp(sender, settings, deadline_seconds)


SLACK = ReceiverPlugin(options=SlackSettings, open=_open)
