"""Settings as TOML."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

BARE_KEY = re.compile("[A-Za-z0-9_-]+")


def table_header(path: Iterable[str]) -> str:
    """Return a table's header: ``[meshes.shop]``, or ``[meshes."shop.eu"]`` where a name needs quotes."""
    return f"[{'.'.join(map(toml_key, path))}]"


def toml_key(name: str) -> str:
    """Return a key, in quotes if it needs them."""
    return name if BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def toml_value(value: Any) -> str:
    """Return a value on one line; keys of a table that are not set are omitted."""
    if isinstance(value, Mapping):
        pairs = [f"{toml_key(name)} = {toml_value(item)}" for name, item in value.items() if item is not None]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # inf and nan, which JSON lacks
    return json.dumps(value if isinstance(value, bool | int | float) else str(value))
