"""Turns our SVG into PNG, for programs that show no SVG, such as Slack."""

import logging
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)
MAX_SVG_BYTES = 4 << 20
FONT = "DejaVu Sans"


def render_png(svg: str, width: int) -> bytes | None:
    """Return a picture as PNG, or None if there is none: resvg-py is not installed, or the picture is too large or
    cannot be drawn. The log has the reason, once for each reason.

    Args:
        svg: the picture. It refers to no other file.
        width: of the result, pixels.
    """
    if len(svg) > MAX_SVG_BYTES:
        _warn_once(f"expected a picture of at most {MAX_SVG_BYTES:,} bytes, got more")
        return None
    try:
        import resvg_py
    except ImportError:
        _warn_once("expected the package resvg-py, got none; pip install 'tagae[pictures]'")
        return None
    try:
        # Our own fonts: a container has none, and other letters have other widths.
        found = resvg_py.svg_to_bytes(
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
    return bytes(found)


@cache
def _fonts() -> tuple[Path, ...]:
    """The fonts that matplotlib brings along, regular and bold."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return folder / "DejaVuSans.ttf", folder / "DejaVuSans-Bold.ttf"


@cache
def _warn_once(problem: str) -> None:
    log.warning("messages come without the picture of the incident: %s", problem)
