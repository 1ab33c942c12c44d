"""Asks a tool one question about a service, within a deadline and a size. An answer is untrusted input."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from serve_app.errors import BadSettings
from serve_app.net.endpoint import Endpoint, join_url
from serve_app.net.http import Failure, HttpSender

MAX_BYTES = 2 << 20  # in an answer
MAX_TEXT = 300  # characters in a displayed text
T = TypeVar("T")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # terminal colours
_FAILURES: dict[Failure, str] = {
    "late": "did not answer within {within:.2g} s",
    "unreachable": "cannot be reached",
    "broken": "broke the connection off",
    "overloaded": "is overloaded ({status})",
    "failed": "failed ({status})",
    "forbidden": "refused the credentials of TAGAE ({status})",
    "refused": "refused the query ({status})",
    "secret": "was not asked: TAGAE cannot read the credentials for it",
}


class ToolFailed(Exception):
    """A tool has no usable answer. The message completes the sentence "Loki at HOST ..." on the page. The detail is for
    ``tagae doctor`` and the log: it may quote the tool and name files."""

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ToolQuestion:
    """A service, by its original names, and the time that the question is about."""

    namespace: str
    service: str
    start: datetime
    end: datetime

    @property
    def names(self) -> dict[str, str]:
        """The names for the placeholders of a query."""
        return {"namespace": self.namespace, "service": self.service}


@dataclass(frozen=True, slots=True)
class LogLine:
    """The newest of ``count`` log lines that differ only in numbers."""

    at: datetime
    text: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class FailingTrace:
    """A trace with a request that failed.

    Attributes:
        name: the first span's name, such as ``GET /checkout``.
        service: where it failed, as the tool names it.
        reason: status or message of the failing span; empty: unknown.
    """

    id: str
    at: datetime
    seconds: float
    name: str
    service: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer of a tool (``Loki at loki.example:3100``) about a service, or why there is none: see
    ``ToolFailed``."""

    tool: str
    failed: str = ""
    detail: str = ""
    lines: Sequence[LogLine] = ()
    trace: FailingTrace | None = None


async def ask(endpoint: Endpoint, path: str, parameters: Mapping[str, object], shape: type[T], within: float) -> T:
    """Return the answer to a GET request below the URL of ``endpoint``: JSON of this shape, within a deadline in s.

    Raises:
        ToolFailed: there is no such answer.
    """
    url = join_url(endpoint.url, path)
    query = f"{'&' if '?' in url else '?'}{urlencode(parameters)}"
    try:  # in a thread, because it reads certificates
        sender = await asyncio.to_thread(HttpSender, replace(endpoint, url=url), within)
    except BadSettings as error:
        raise ToolFailed("was not asked: TAGAE cannot read the certificates for it", str(error)) from error
    try:
        reply = await sender.send("GET", query, keep=MAX_BYTES + 1)
    finally:
        await sender.close()
    if reply.failed:
        raise ToolFailed(_FAILURES[reply.failed].format(within=within, status=reply.status), reply.detail)
    if len(reply.content) > MAX_BYTES:
        raise ToolFailed(f"sent more than {MAX_BYTES >> 20} MiB", "narrow the query")
    try:
        return msgspec.json.decode(reply.content, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ToolFailed("sent an answer of another format", f"{error}; check its URL and the query") from error


def plain_text(text: str) -> str:
    """Return an untrusted text in one line: without control characters, and without its middle if it is long."""
    if len(text) > 4 * MAX_TEXT:
        text = f"{text[: 2 * MAX_TEXT]} {text[-2 * MAX_TEXT :]}"
    words = " ".join("".join(char if char.isprintable() else " " for char in _COLOUR.sub("", text)).split())
    begin = 2 * MAX_TEXT // 3
    return words if len(words) <= MAX_TEXT else f"{words[:begin]} … {words[begin + 3 - MAX_TEXT :]}"


def read_nanoseconds(text: str) -> int:
    """Return a Unix time in ns that a tool sends as text.

    Raises:
        ToolFailed: the text is not a time.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):  # up to the year 2286
        raise ToolFailed("sent an answer of another format", f"expected a time in ns, got {text[:40]!r}")
    return int(text)


def instant_of(at: int) -> datetime:
    """Return the instant of a Unix time in ns."""
    return datetime.fromtimestamp(at / 1e9, UTC)
