"""Settings on the command line: the shared flags, and ``tagae config show``."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from serve_app.errors import BadSettings

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="TOML file with settings. Environment variable: TAGAE_CONFIG."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="Any setting, such as model.window_size=60. Repeatable."),
]

app = typer.Typer(no_args_is_help=True, help="Show the settings.")


@app.callback()
def _config() -> None:
    """Show the settings."""


@app.command()
def show(config: ConfigFile = None, settings: Assignments = None) -> None:
    """Print every setting and where its value comes from.

    The output is a configuration file: save it, edit it, and pass it with --config.
    Later sources win: defaults, file, environment (TAGAE_MODEL__WINDOW_SIZE is model.window_size), flags.

    \b
    Example:
      tagae config show
      TAGAE_WINDOW_SIZE=60 tagae config show --set scorer.device=cpu > tagae.toml
    """
    from serve_app.settings import sources
    from serve_app.settings.toml import table_header

    tables: dict[tuple[str, ...], list[Text]] = {}  # a table of TOML may begin only once
    for one in sources(config, overrides(settings)):
        tables.setdefault(one.path[:-1], []).append(_line(one.path[-1], one.value, one.origin))
    tables.pop((), None)  # the path of the file itself
    for number, (path, lines) in enumerate(tables.items()):
        _print(Text(f"\n{table_header(path)}" if number else table_header(path), "bold"))
        for line in lines:
            _print(line)


def overrides(assignments: list[str] | None, **flags: tuple[str, Any]) -> dict[str, Any]:
    """Return nested settings from ``--set NAME=VALUE`` and from flags.

    A value is read as TOML (``60``, ``0.5``, ``true``); anything else is text.

    Args:
        flags: dotted name and value; a value of None is left out.

    Raises:
        BadSettings: an assignment is not ``NAME=VALUE``.
    """
    pairs = [_parse(assignment) for assignment in assignments or ()]
    pairs += [pair for pair in flags.values() if pair[1] is not None]
    nested: dict[str, Any] = {}
    for name, value in pairs:
        *path, last = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def _parse(assignment: str) -> tuple[str, Any]:
    name, equals, value = assignment.partition("=")
    if not (name and equals):
        raise BadSettings(f"--set: expected NAME=VALUE such as model.window_size=60, got {assignment!r}")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value


def _line(name: str, value: Any, origin: str) -> Text:
    from serve_app.settings.toml import toml_key, toml_value

    style = {"default": "dim"}.get(origin, "green")
    if value is None:
        return Text(f"# {name} is not set", style)
    return Text(f"{toml_key(name)} = {toml_value(value)}").append(f"  # {origin}", style)


def _print(line: Text) -> None:
    Console(highlight=False).print(line, soft_wrap=True)
