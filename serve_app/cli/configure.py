"""``tagae config``: show the settings and their sources."""

from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from serve_app.cli.options import Assignments, ConfigFile, overrides

app = typer.Typer(no_args_is_help=True, help="Show the settings.")


@app.command()
def show(config: ConfigFile = None, assignments: Assignments = None) -> None:
    """Print every setting and where its value comes from.

    The output is a configuration file: save it, edit it, and pass it with --config.
    Later sources take precedence: defaults, file, environment (TAGAE_MODEL__WINDOW_SIZE is model.window_size), flags.

    \b
    Example:
      tagae config show
      TAGAE_WINDOW_SIZE=60 tagae config show --set scorer.device=cpu > tagae.toml
    """
    from serve_app.settings import sources
    from serve_app.settings.toml import table_header

    tables: dict[tuple[str, ...], list[Text]] = {}  # a TOML table may begin only once
    for setting in sources(config, overrides(assignments)):
        tables.setdefault(setting.path[:-1], []).append(_line(setting.path[-1], setting.value, setting.origin))
    tables.pop((), None)  # the file's own path
    for number, (path, lines) in enumerate(tables.items()):
        _print(Text(f"\n{table_header(path)}" if number else table_header(path), "bold"))
        for line in lines:
            _print(line)


def _line(name: str, value: Any, origin: str) -> Text:
    from serve_app.settings.toml import toml_key, toml_value

    style = {"default": "dim"}.get(origin, "green")
    if value is None:
        return Text(f"# {name} is not set", style)
    return Text(f"{toml_key(name)} = {toml_value(value)}").append(f"  # {origin}", style)


def _print(line: Text) -> None:
    Console(highlight=False).print(line, soft_wrap=True)
