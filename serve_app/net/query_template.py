"""LogQL and TraceQL query templates, in which ``$namespace`` and ``$service`` stand for names.

A name comes from telemetry, so it can be any text. Both languages write a string in double quotes as Go does, and a
name stays inside its placeholder's string.
"""

import json
import re
from collections.abc import Mapping

_STRING = re.compile(r'((?:[=!]~|\|~)\s*)?"((?:[^"\\]|\\.)*)"|`[^`]*`', re.DOTALL)  # in backticks nothing is escaped
_PLACEHOLDER = re.compile(r"\$([A-Za-z]\w*)")


def check_query(query: str) -> str:
    """Return ``query`` if its placeholders are known and inside strings in double quotes.

    Raises:
        ValueError: if they are not; the message says what to write.
    """
    names = [name for match in _STRING.finditer(query) for name in _PLACEHOLDER.findall(match[2] or "")]
    if outside := _PLACEHOLDER.search(_STRING.sub(lambda match: "" if match[2] is not None else match[0], query)):
        raise ValueError(f'expected {outside[0]} inside a string in double quotes, such as app="$service"')
    if unknown := [name for name in names if name not in ("namespace", "service")]:
        raise ValueError(f"expected only the placeholders $namespace and $service, got ${unknown[0]}")
    if "service" not in names:
        raise ValueError("expected the placeholder $service: without it, the answer is the same for all services")
    return query


def fill_query(query: str, names: Mapping[str, str]) -> str:
    """Return a checked query with the names in its strings. In a regular expression, a name matches only itself."""

    def fill(match: re.Match[str]) -> str:
        operator, text = match[1] or "", match[2]
        if text is None:
            return match[0]
        string_names = {key: re.escape(name) if operator else name for key, name in names.items()}
        escaped_names = {key: json.dumps(name, ensure_ascii=False)[1:-1] for key, name in string_names.items()}
        return f'{operator}"{fill_name(text, escaped_names)}"'

    return _STRING.sub(fill, query)


def fill_name(template: str, names: Mapping[str, str]) -> str:
    """Return a plain text with the placeholders replaced by the names."""
    return _PLACEHOLDER.sub(lambda match: names[match[1]], template)
