"""Texts of the OpenAPI document as HTML."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

REFERENCE = "#/components/schemas/"
FORMATS = {"date-time": "time", "binary": "bytes"}
CODE = re.compile(r"(`+)(.+?)\1")  # of Markdown, and of docstrings


def prose(text: str) -> str:
    """A text with code in backticks."""
    return CODE.sub(lambda found: f"<code>{found[2]}</code>", escape(" ".join(text.split())))


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; empty without rows. The cells are HTML."""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    if not body:
        return ""
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    return f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def type_of(schema: Mapping[str, Any]) -> str:
    """The type of a value in words, with links to documents."""
    if reference := schema.get("$ref"):
        name = reference.removeprefix(REFERENCE)
        return f'<a href="#{name}">{name}</a>'
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(type_of, options)))
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(inner := schema.get("additionalProperties"), dict):
        return f"object of {type_of(inner)}"
    return FORMATS.get(schema.get("format", ""), str(schema.get("type", "any")))


def documents(schemas: Mapping[str, Any]) -> str:
    """All documents with their fields."""
    return "".join(
        f'<section class="document" id="{name}"><h3>{name}</h3><p>{prose(schema.get("description", ""))}</p>'
        f"{_fields(schema)}</section>"
        for name, schema in sorted(schemas.items())
    )


def _fields(schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = (
        (
            f"<code>{escape(name)}</code>{'' if name in needed else ' (optional)'}",
            type_of(field),
            prose(field.get("description", "")),
        )
        for name, field in schema.get("properties", {}).items()
    )
    return table(("field", "type", "meaning"), rows) or f"<p>{type_of(schema)}</p>"
