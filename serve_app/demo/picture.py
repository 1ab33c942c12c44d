"""A screen of the demo as a picture, for those who have not run it yet."""

import io
import re
from dataclasses import replace
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from serve_app.demo.show import Show
from serve_app.demo.view import render

WIDTH, HEIGHT = 112, 32
# Fonts from the network would make the picture depend on it: any monospaced one will do.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def save(show: Show, path: Path) -> None:
    """Write a show as SVG, with its keys."""
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(render(replace(show, keys=True), WIDTH, HEIGHT))
    path.write_text(console.export_svg(title="tagae demo", code_format=_FORMAT), encoding="utf-8")
