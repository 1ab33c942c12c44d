"""Examples of requests: commands that run once the mesh and the ids exist in the service."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from serve_app.web.api_page.markup import REFERENCE

ORIGIN = "http://127.0.0.1:8000"  # until the script of the page puts its own in place
JSON = "application/json"
FIRST_MESH = "shop"
LONG = 1000  # characters of a body, from which it is written on one line
INSTANTS = {  # the parts of an hour that a comparison, or a range, needs in order
    "start": "2026-03-01T03:00:00Z",
    "end": "2026-03-01T03:17:00Z",
    "first_from": "2026-03-01T03:00:00Z",
    "first_to": "2026-03-01T03:05:00Z",
    "second_from": "2026-03-01T03:12:00Z",
    "second_to": "2026-03-01T03:17:00Z",
}
SNAPSHOTS = [
    {
        "observed_at": f"2026-03-01T03:{minute:02}:00Z",
        "services": [{"namespace": "shop", "name": "web", "metrics": {"request_rate": 100 + minute % 3}}],
    }
    for minute in range(10)
]
BODIES: dict[str, object] = {  # by operation, where the schema has no example
    "score": {"snapshots": SNAPSHOTS},
    "metrics_of_calls": {"resourceMetrics": []},
    "roll_back": {},
}


def value_of(parameter: Mapping[str, Any]) -> str:
    """An example of a parameter; empty if it may be left out."""
    name, schema = parameter["name"], parameter["schema"]
    if name == "mesh":
        return FIRST_MESH
    if name in INSTANTS:
        return INSTANTS[name]
    if name == "incident":
        return "20260301T031200Z-1f3870be"
    if not parameter.get("required"):
        return ""
    return str(schema.get("examples", [name.upper()])[0])


def body_of(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> object | None:
    """An example of the body of an operation; None: it has none."""
    if operation["operationId"] in BODIES:
        return BODIES[operation["operationId"]]
    schema = operation.get("requestBody", {}).get("content", {}).get(JSON, {}).get("schema")
    if schema is None:
        return None
    first = next(iter(schema.get("anyOf", [schema])))
    examples: list[object] = schemas[first["$ref"].removeprefix(REFERENCE)]["examples"]
    return next(filter(None, examples), examples[0])  # an empty one shows little


def curl(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """The command as HTML. The script of the page replaces the elements with ``data-origin`` and ``data-address``."""
    words = ["curl -sS", *([] if method in ("GET", "POST") else [f"-X {method}"])]
    address = escape(_address(path, operation.get("parameters", ())), quote=False)
    words.append(f"'<span data-origin>{ORIGIN}</span><span data-address>{address}</span>'")
    body = body_of(operation, schemas)
    if body is not None:
        text = json.dumps(body, indent=1 if len(json.dumps(body)) < LONG else None, ensure_ascii=False)
        words += [f"-H 'Content-Type: {JSON}'", f"-d '{escape(text, quote=False)}'"]
    return " ".join(words)


def _address(path: str, parameters: Sequence[Mapping[str, Any]]) -> str:
    """Path and query with an example of each value that is needed."""
    for one in parameters:
        if one["in"] == "path":
            path = path.replace(f"{{{one['name']}}}", value_of(one))
    query = "&".join(f"{one['name']}={value_of(one)}" for one in parameters if one["in"] == "query" and value_of(one))
    return f"{path}?{query}" if query else path
