"""Settings on the command line: the flags that every command shares, and ``tagae config show``."""

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from serve_app.errors import BadSettings

ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file with settings. Also: TAGAE_CONFIG.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="Any setting, such as model.window_size=60. Repeatable."),
]

app = typer.Typer(no_args_is_help=True, help="Look at the settings.")


@app.callback()
def _config() -> None:
    """Look at the settings."""


@app.command()
def show(config: ConfigFile = None, settings: Assignments = None) -> None:
    """Print every setting in force and where it came from.

    What is printed is itself a configuration file: keep it, edit it, pass it with --config.
    Order, last wins: defaults, file, environment (TAGAE_MODEL__WINDOW_SIZE is model.window_size), flags.

    \b
    Example:
      tagae config show
      TAGAE_WINDOW_SIZE=60 tagae config show --set scorer.device=cpu > tagae.toml
    """
    from serve_app.settings import sources

    subject = ""
    for origin in sources(config, overrides(settings)):
        above, _, name = origin.name.rpartition(".")
        if above != subject:
            _print(Text(f"\n[{above}]" if subject else f"[{above}]", "bold"))
            subject = above
        if above:
            _print(_line(name, origin.value, origin.origin))


def overrides(assignments: list[str] | None, **flags: tuple[str, Any]) -> dict[str, Any]:
    """Nested values of ``--set NAME=VALUE``, and of own flags as ``(dotted name, value)``; None: not given.

    A value is read as TOML (``60``, ``0.5``, ``true``) and is text where it is none.

    Raises:
        BadSettings: an assignment is not ``NAME=VALUE``.
    """
    pairs = [_parsed(assignment) for assignment in assignments or ()]
    pairs += [pair for pair in flags.values() if pair[1] is not None]
    nested: dict[str, Any] = {}
    for name, value in pairs:
        *path, last = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def _parsed(assignment: str) -> tuple[str, Any]:
    name, equals, value = assignment.partition("=")
    if not (name and equals):
        raise BadSettings(f"--set: expected NAME=VALUE such as model.window_size=60, came {assignment!r}")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value


def _line(name: str, value: Any, origin: str) -> Text:
    style = {"default": "dim"}.get(origin, "green")
    if value is None:
        return Text(f"# {name} is not set", style)
    return Text(f"{name} = {_toml(value)}").append(f"  # {origin}", style)


def _toml(value: Any) -> str:
    """On one line; in a table, what is not set is left out."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {_toml(one)}' for name, one in value.items() if one is not None)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # inf and nan, which JSON lacks
    return json.dumps(value if isinstance(value, bool | int | float) else str(value))


def _print(line: Text) -> None:
    Console(highlight=False).print(line, soft_wrap=True)
