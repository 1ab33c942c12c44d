"""Templates of links to other tools: URLs with placeholders, whose values are encoded."""

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

PLACEHOLDERS = ("cluster", "mesh", "namespace", "service", "start_ms", "end_ms", "incident", "kind")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_KNOWN = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)


def check_template(template: str) -> str:
    """Return ``template`` if it is a URL with known placeholders after its host.

    Raises:
        ValueError: if it is not; the message says what to write.
    """
    parts = urlsplit(template)  # raises ValueError too
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("expected http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH")
    if "@" in parts.netloc:
        raise ValueError("expected no user or password in the URL; remove what is before @")
    if not template.isprintable() or " " in template:
        raise ValueError("expected a URL without spaces and control characters; write a space as %20")
    if set("{}") & set(parts.netloc):
        raise ValueError("expected no placeholder in the host; write the host itself")
    for name in _PLACEHOLDER.findall(template):
        if name not in PLACEHOLDERS:
            raise ValueError(f"expected only the placeholders {_KNOWN}, got {{{name}}}")
    if set("{}") & set(_PLACEHOLDER.sub("", template)):
        raise ValueError(f"expected braces only around the placeholders {_KNOWN}; write other braces as %7B and %7D")
    return template


def check_trace_template(template: str) -> str:
    """Return the template of a link to one trace. Raises the errors of :func:`check_template`."""
    if "{trace}" not in template:
        raise ValueError("expected {trace}, which stands for the id of the trace")
    check_template(template.replace("{trace}", "{incident}"))
    return template


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Return the URL with the encoded values; empty if a value that it needs is missing or empty."""
    if not all(values.get(name) for name in _PLACEHOLDER.findall(template)):
        return ""
    return _PLACEHOLDER.sub(lambda match: quote(values[match[1]], safe=""), template)
