"""Load the settings, name each one's source, and describe errors."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from serve_app.errors import BadSettings
from serve_app.settings.settings import Layer, Settings, read_layers, setting_names


@dataclass(frozen=True, slots=True)
class Origin:
    """One setting: its path, effective value, and ``default``, ``file``, ``environment`` or ``override``."""

    path: tuple[str, ...]
    value: Any
    origin: str

    @property
    def name(self) -> str:
        return ".".join(self.path)


def load(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Load the settings.

    Args:
        config: a TOML file; None for ``TAGAE_CONFIG``, if it is set.
        overrides: nested values that take precedence over all other sources.

    Raises:
        BadSettings: a setting is invalid; the message names the allowed values and the source.
    """
    arguments = _arguments(config, overrides)
    try:
        return Settings(**arguments)
    except ValidationError as error:
        raise BadSettings("\n".join(_describe(e, read_layers(arguments)) for e in error.errors())) from None


def sources(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> list[Origin]:
    """Return every setting with its value and its source; see :func:`load`."""
    values = load(config, overrides).model_dump()
    layers = read_layers(_arguments(config, overrides))
    return [Origin(path, value, _origin(path, layers)) for path, value in _leaves(values)]


def _arguments(config: Path | None, overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    return {**(overrides or {}), **({} if config is None else {"config": config})}


def _leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _origin(path: tuple[str, ...], layers: list[Layer]) -> str:
    """Return the origin of the last layer that sets a setting, or any setting in a group."""
    layer = _layer_of(path, layers)
    return layer.origin if layer else "default"


def _layer_of(path: tuple[str, ...], layers: list[Layer]) -> Layer | None:
    return next((layer for layer in reversed(layers) if _has(layer.values, path)), None)


def _has(values: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(values, Mapping) or name not in values:
            return False
        values = values[name]
    return True


def _describe(error: ErrorDetails, layers: list[Layer]) -> str:
    path = tuple(str(part) for part in error["loc"] if part != "[key]")  # pydantic's mark of an invalid key
    # A missing setting, or one in a list, is named after its group or list.
    above = (path[:end] for end in range(len(path), 0, -1))
    layer = next(filter(None, (_layer_of(prefix, layers) for prefix in above)), None)
    subject = f"{'.'.join(path)} (from {layer.origin if layer else 'default'})"
    if error["type"] == "extra_forbidden":
        return f"{subject}: no such setting; expected one of {setting_names(_group(path))}"
    message = error["msg"].removeprefix("Value error, ")
    value = error["input"]
    if path[-1] in ("headers", "options", "source_options") and isinstance(value, Mapping):
        value = list(value)  # a value may be a secret in the wrong place
    quoted = re.sub(r"//[^/\s'\"]*@", "//...@", repr(value))  # keep passwords out of logs
    return f"{subject}: {message}; got {quoted}"


def _group(path: tuple[str, ...]) -> type[BaseModel]:
    """Return the group at a path, skipping positions in lists."""
    group: type[BaseModel] = Settings
    for name in (part for part in path[:-1] if not part.isdigit()):
        field = group.model_fields.get(name)
        inner = (field.annotation, *get_args(field.annotation)) if field else ()
        group = next((cls for cls in inner if isinstance(cls, type) and issubclass(cls, BaseModel)), group)
    return group
