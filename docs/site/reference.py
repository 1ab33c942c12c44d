"""Writes the reference pages of docs/reference from the code: settings, metrics, routes, commands.

``make reference`` runs it. A test fails if a page differs from what the code gives.
"""

import re
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_command

from serve_app.access.routes import need
from serve_app.cli import app
from serve_app.collect.loop import CollectorState
from serve_app.deployments.http.routes import ROUTERS
from serve_app.exporter import read_families
from serve_app.metrics import METRICS, MeshGauges, Metric
from serve_app.plugins import RECEIVERS
from serve_app.settings import PLAIN_NAMES, Settings
from serve_app.settings.base import AccessSettings

REFERENCE = Path(__file__).parent.parent / "reference"
WRITTEN = "<!-- Written by `make reference`. Change the code, not this page. -->"
HOME = str(Path.home())
WORDS = {int: "integer", float: "number", bool: "true or false", str: "text", Path: "path", Any: "any value"}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def pages() -> dict[str, str]:
    """The text of each page, by the name of its file."""
    return {
        "settings.md": settings_page(),
        "metrics.md": metrics_page(),
        "routes.md": routes_page(),
        "commands.md": commands_page(),
    }


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table. Line breaks and bars in its cells are escaped."""
    columns = list(header)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell if cell == '---' else escape(cell) for cell in line)} |" for line in lines)


def escape(text: str) -> str:
    """Text for a cell of a table, in which ``|``, ``<`` and ``*`` have no meaning outside of code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    plain = (part if part.startswith("`") else re.sub(r"[<*\[\]]", r"\\\g<0>", part) for part in parts)
    return "".join(plain).replace("|", "\\|")


def code(text: str) -> str:
    """Inline code; nothing for empty text."""
    return f"`{text}`" if text else ""


def document(title: str, *parts: str) -> str:
    """A page with its title, and a comment that names its source."""
    return "\n\n".join([f"# {title}", WRITTEN, *(part for part in parts if part)]) + "\n"


def plain(docstring: str | None) -> str:
    """The first paragraph of a docstring, with Markdown's code in place of other markup."""
    paragraph = (docstring or "").strip().partition("\n\n")[0]
    return re.sub(r"\[bold\](.*?)\[/\]", r"`\1`", " ".join(paragraph.split()).replace("``", "`"))


# Settings


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its dotted name, its type and default in words, and its description."""

    name: str
    type: str
    default: str
    description: str


def settings_page() -> str:
    """All settings, a section for each group."""
    alone = [row for name in Settings.model_fields for row in _settings(Settings, name, name)]
    sections = [_section("General", "", [row for row in alone if "." not in row.name]), _connection_section()]
    for name, field in Settings.model_fields.items():
        for place, group in _inner_groups(field.annotation):
            rows = [row for key in group.model_fields for row in _settings(group, key, f"{name}{place}.{key}")]
            sections.append(_section(name + place, plain(group.__doc__), rows))
    for kind in RECEIVERS.own:
        options = RECEIVERS.load_own(kind).options
        rows = [row for key in options.model_fields for row in _settings(options, key, f"{kind}: {key}")]
        sections.append(_section(f"notify.receivers[].options of the kind {kind}", plain(options.__doc__), rows))
    short = " and ".join(f"`{name}` (`{'.'.join(path)}`)" for name, path in PLAIN_NAMES.items())
    return document(
        "Settings",
        "A setting has the same name in each place: `model.window_size` is `window_size` in the table `[model]` of the "
        "TOML file, `--set model.window_size=60` on the command line, and `TAGAE_MODEL__WINDOW_SIZE=60` in the "
        "environment.",
        f"In the environment, {short} are short names, and `USE_GPU` sets `scorer.device`. "
        "[How the sources combine](../install.md#settings), with an example of a file. `tagae config show` prints the "
        "values in use.",
        "`NAME` stands for a name that you choose. `[]` marks a setting of each entry of a list.",
        *sections,
    )


def _connection_section() -> str:
    """The settings that every connection to another server has, and where they are."""
    places = [*_connections(Settings, ""), "`notify.receivers[].options`"]
    text = f"How to connect to another server, and to log in. {', '.join(places)} have these settings, too."
    rows = [row for key in AccessSettings.model_fields for row in _own(AccessSettings, key, key)]
    return _section("Connections", text, rows)


def _connections(group: type[BaseModel], name: str) -> Iterator[str]:
    """The tables below a group that describe a connection, as code."""
    for key, field in group.model_fields.items():
        for place, inner in _inner_groups(field.annotation):
            below = f"{name}{key}{place}"
            if issubclass(inner, AccessSettings):
                yield code(below)
            yield from _connections(inner, f"{below}.")


def _section(title: str, text: str, rows: list[Setting]) -> str:
    body = ((code(row.name), row.type, row.default, row.description) for row in rows)
    return "\n\n".join(
        part for part in (f"## {title}", text, table(("setting", "type", "default", "description"), body)) if part
    )


def _settings(group: type[BaseModel], key: str, name: str) -> Iterator[Setting]:
    """A setting of a group, under its dotted name, and the settings below it if it is a table or a list of tables.

    The settings that every connection to another server has are described once, in a section of their own.
    """
    field = group.model_fields[key]
    if issubclass(group, AccessSettings) and repr(field) == repr(AccessSettings.model_fields.get(key)):
        return
    yield from _own(group, key, name)


def _own(group: type[BaseModel], key: str, name: str) -> Iterator[Setting]:
    field = group.model_fields[key]
    if not _is_group(field.annotation):
        yield Setting(name, _bounded(field), _default(field), _description(group, key))
    for place, inner in _inner_groups(field.annotation):
        for below in inner.model_fields:
            yield from _settings(inner, below, f"{name}{place}.{below}")


def _description(group: type[BaseModel], key: str) -> str:
    """The description of a field. A group that only changes a default has it from its base class."""
    fields = (base.model_fields.get(key) for base in group.__mro__ if issubclass(base, BaseModel))
    return next((plain(field.description) for field in fields if field and field.description), "")


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _inner_groups(kind: Any) -> list[tuple[str, type[BaseModel]]]:
    """The groups that a type contains, each with what its name gets: ``.NAME`` in a table, ``[]`` in a list."""
    origin, inner = get_origin(kind), get_args(kind)
    if _is_group(kind):
        return [("", kind)]
    if origin is Annotated:
        return _inner_groups(inner[0])
    if origin is dict:
        return [(f".NAME{place}", group) for place, group in _inner_groups(inner[1])]
    if origin in (tuple, list):
        return [(f"[]{place}", group) for place, group in _inner_groups(inner[0])]
    if origin in (Union, types.UnionType):
        return [found for one in inner for found in _inner_groups(one)]
    return []


def _bounded(field: FieldInfo) -> str:
    limits = [
        f"{sign} {_number(getattr(rule, name))}"
        for rule in field.metadata
        for name, sign in BOUNDS.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join([" ".join([_type(field.annotation), *limits[:1]]), *limits[1:]])


def _type(kind: Any) -> str:
    """A type in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(inner[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" if value else "empty" for value in inner)
    if origin is dict:
        return "tables by name" if _is_group(inner[1]) else f"table of {_type(inner[1])}"
    if origin in (tuple, list):
        return "list of tables" if _is_group(inner[0]) else f"list of {_type(inner[0])}"
    if origin in (Union, types.UnionType):
        first, *others = dict.fromkeys(_type(one) for one in inner if one is not type(None))
        return " or ".join([first, *("a list of them" if one == f"list of {first}" else one for one in others)])
    if _is_group(kind):
        return "table"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{one.value}`" for one in kind)
    if getattr(kind, "__module__", "") == "ipaddress":
        return "network"
    return WORDS[kind]


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return _written(field.get_default(call_default_factory=True))


def _written(value: Any) -> str:
    """A default, as in a TOML file."""
    if value is None or value in ((), {}, ""):
        return "none"
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, float):
        return code(str(int(value)) if value.is_integer() else f"{value:g}")
    if isinstance(value, tuple):
        return ", ".join(_written(one) for one in value)
    return code(str(value.value if isinstance(value, Enum) else value).replace(HOME, "~"))


# Metrics


def metrics_page() -> str:
    """All metrics: of the processes, of the meshes, of the collector."""
    own = [(code(one.name), _kind(one), ", ".join(map(code, one.labels)) or "none", one.description) for one in METRICS]
    sections: dict[str, list[tuple[str, ...]]] = {"Meshes": [], "Collector": []}
    for family in read_families([MeshGauges("shop")], [CollectorState("shop")]):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(map(code, getattr(family, "_labelnames", ()))) or "none"
        place = {"mesh": "Meshes", "collector": "Collector"}[name.split("_")[1]]
        sections[place].append((code(name), family.type, labels, family.documentation))
    header = ("metric", "type", "labels", "meaning")
    return document(
        "Metrics",
        "`/metrics` of the service has these names. The metrics page of Ray has the metrics of replicas as "
        "`ray_tagae_*`, with labels for application, deployment and replica. [How to scrape them](../monitoring.md), "
        "and alerts and dashboards that use them.",
        "## Processes",
        table(header, own),
        *(part for title, rows in sections.items() for part in (f"## {title}", table(header, rows))),
    )


def _kind(metric: Metric) -> str:
    return "histogram" if metric.buckets else "gauge" if metric.gauge else "counter"


# Routes


def routes_page() -> str:
    """All HTTP routes: of the API, and of the page."""
    routes = [one for router in ROUTERS for one in router.routes if isinstance(one, APIRoute)]
    api = [row for one in routes if one.include_in_schema for row in _route(one)]
    others = [row for one in routes if not one.include_in_schema for row in _route(one)]
    header = ("route", "scope", "what it does")
    return document(
        "Routes",
        "[The API](../api.md) explains the documents and has examples. A running service describes each parameter, "
        "document and error at `/docs`, with commands to copy, and for programs in its OpenAPI document, "
        "`/openapi.json`. The same document is in the repository, as "
        "[openapi.json](../../tests/serve_app/golden/openapi.json).",
        "The [scope](../security.md#tokens) is what a token needs. A route that covers all meshes refuses tokens that "
        "are limited to some.",
        "## API",
        table(header, api),
        "## Page and login",
        table(header, [*others, (code("GET /openapi.json"), _scope("GET", "/openapi.json"), "The OpenAPI document.")]),
    )


def _route(route: APIRoute) -> Iterator[tuple[str, str, str]]:
    for method in sorted((route.methods or set()) - {"HEAD"}):
        yield code(f"{method} {route.path}"), _scope(method, route.path), plain(route.description)


def _scope(method: str, path: str) -> str:
    found = need(method, path)
    if found.scope is None:
        return "none"
    return f"`{found.scope.value}`" + (", all meshes" if found.all_meshes else "")


# Commands


def commands_page() -> str:
    """All commands with their arguments and options."""
    return document(
        "Commands",
        "`tagae COMMAND --help` prints the same, with examples. Every command has `--help`. Exit codes: 0 for success, "
        "1 for a failure, 2 for a wrong command line.",
        *_command_parts(get_command(app), "tagae"),
    )


def _command_parts(command: Any, name: str) -> Iterator[str]:
    """The section of a command, then the sections of its own commands."""
    text, _, example = (command.help or "").partition("\b\n")
    yield f"## {name}"
    yield "\n\n".join(plain(paragraph) for paragraph in text.strip().split("\n\n"))
    if rows := [_parameter(one) for one in command.params if one.name != "help" and not one.hidden]:
        yield table(("option", "default", "description"), rows)
    if lines := [line.strip() for line in example.splitlines() if line.strip().startswith("tagae ")]:
        yield "\n".join(["```text", *lines, "```"])
    for inner in getattr(command, "commands", {}):
        yield from _command_parts(command.commands[inner], f"{name} {inner}")


def _parameter(parameter: Any) -> tuple[str, str, str]:
    """The spelling, default and description of an option or argument."""
    if not parameter.opts[0].startswith("-"):
        spelling = code(parameter.metavar or parameter.name.upper())
    else:
        value = "" if parameter.is_flag else f" {parameter.metavar or _placeholder(parameter)}"
        spelling = ", ".join(code(f"{one}{value}") for one in (*parameter.opts, *parameter.secondary_opts))
    default = "required" if parameter.required else _written(parameter.default)
    variable = f" Environment: `{parameter.envvar}`." if parameter.envvar else ""
    return spelling, default, plain(parameter.help) + variable


def _placeholder(parameter: Any) -> str:
    """What stands for the value of an option that names none."""
    return _type(parameter.type_descriptor.annotation).split(" or ")[0].upper()


def main() -> None:
    """Write all pages."""
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
