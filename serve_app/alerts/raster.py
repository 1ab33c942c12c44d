"""Converts our SVG to PNG, for programs that cannot show SVG, such as Slack."""

import logging
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)
MAX_SVG_BYTES = 4 << 20
FONT = "DejaVu Sans"


def render_png(svg: str, width: int) -> bytes | None:
    """Convert a picture, which refers to no other file, to PNG ``width`` pixels wide. Returns None if resvg-py is not
    installed, or the picture is too large or cannot be drawn; each reason is logged once."""
    if len(svg) > MAX_SVG_BYTES:
        _warn_once(f"the picture exceeds {MAX_SVG_BYTES:,} bytes")
        return None
    try:
        import resvg_py
    except ImportError:
        _warn_once("the package resvg-py is not installed; pip install 'tagae[pictures]'")
        return None
    try:
        # Fixed fonts, because a container has none, and other fonts have other widths.
        png = resvg_py.svg_to_bytes(
            svg_string=svg,
            width=width,
            skip_system_fonts=True,
            font_files=[str(file) for file in _fonts()],
            font_family=FONT,
            sans_serif_family=FONT,
        )
    except ValueError as error:
        _warn_once(f"the picture cannot be drawn: {error}")
        return None
    return bytes(png)


@cache
def _fonts() -> tuple[Path, ...]:
    """Return matplotlib's fonts, regular and bold."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return folder / "DejaVuSans.ttf", folder / "DejaVuSans-Bold.ttf"


@cache
def _warn_once(problem: str) -> None:
    log.warning("messages are sent without the incident's picture: %s", problem)
