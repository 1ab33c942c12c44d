"""The pages of the site of docs/, in the order of ``mkdocs.yml``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent


def site_pages() -> list[Path]:
    """Return the pages that the navigation names, in its order."""
    _, _, nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")  # what is above has tags of MkDocs
    return [ROOT / "docs" / name for name in _names(yaml.safe_load(nav))]


def _names(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values():
                yield from _names(inner)
