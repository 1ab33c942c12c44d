"""The newest error lines of a service in Loki (``GET /loki/api/v1/query_range``)."""

import re
from collections.abc import Iterable

import msgspec

from serve_app.collect.tools.request import (
    LogLine,
    ToolAnswer,
    ToolQuestion,
    ask,
    instant_of,
    plain_text,
    read_nanoseconds,
)
from serve_app.net.query_template import fill_query
from serve_app.settings.tools import MeshLogSettings

MAX_READ = 200  # lines in an answer
MAX_SHOWN = 5
_VARIES = re.compile(r"\d+|\b[0-9a-f]{6,}\b", re.IGNORECASE)  # differs between otherwise equal lines


class _LokiLine(msgspec.Struct, array_like=True):
    at: str  # Unix time in ns
    text: str


class _LokiStream(msgspec.Struct):
    values: list[_LokiLine]


class _LokiResult(msgspec.Struct):
    result: list[_LokiStream]


class _LokiAnswer(msgspec.Struct):
    data: _LokiResult


async def read_error_lines(logs: MeshLogSettings, question: ToolQuestion, within: float) -> ToolAnswer:
    """Return the newest error lines of a service, newest first. Raises the errors of :func:`ask`."""
    parameters = {
        "query": fill_query(logs.query, question.names),
        "start": round(1e9 * question.start.timestamp()),
        "end": round(1e9 * question.end.timestamp()),
        "limit": MAX_READ,
        "direction": "backward",
    }
    answer = await ask(logs.target, "/loki/api/v1/query_range", parameters, _LokiAnswer, within)
    lines = _newest_lines(line for stream in answer.data.result for line in stream.values)
    return ToolAnswer(logs.name, lines=lines)


def _newest_lines(lines: Iterable[_LokiLine]) -> list[LogLine]:
    """Return the newest distinct lines. Raises the errors of :func:`ask`."""
    newest_by_text: dict[str, tuple[int, str, int]] = {}
    for line in lines:
        at, key = read_nanoseconds(line.at), _VARIES.sub("#", line.text[:2000])
        newest, text, count = newest_by_text.get(key, (at, line.text, 0))
        newest_by_text[key] = (*max((newest, text), (at, line.text)), count + 1)
    newest_first = sorted(newest_by_text.values(), reverse=True)[:MAX_SHOWN]
    return [LogLine(instant_of(at), plain_text(text), count) for at, text, count in newest_first]
