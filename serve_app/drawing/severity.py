"""The shape of each severity, as the page draws it (``icons.js``): people without colours, or on paper, tell them apart
too.
"""

_MARK = (
    '<path d="M16 {top}V{bottom}" style="stroke:#fff;stroke-width:4;stroke-linecap:round"/>'
    '<circle cx="16" cy="{dot}" r="2.3" style="fill:#fff"/>'
)
_INSIDE = _MARK.format(top="7.5", bottom="18", dot="24")
_ON_TRIANGLE = _MARK.format(top="11.5", bottom="16.67", dot="25.33")  # lower, where there is room
# Styles instead of attributes: the rules for the paths of pictures would win over these.
SHAPES = {
    "critical": '<path d="M10 1.5h12L30.5 10v12L22 30.5H10L1.5 22V10z" style="fill:#b3151f;stroke:#fff"/>' + _INSIDE,
    "major": '<path d="M16 1.5 31 29.5H1z" style="fill:#c2410c;stroke:#c2410c;stroke-width:2;stroke-linejoin:round"/>'
    + _ON_TRIANGLE,
    "minor": '<circle cx="16" cy="16" r="15" style="fill:#8a5300"/>' + _INSIDE,
    "notice": '<path d="M16 1.2 30.8 16 16 30.8 1.2 16z" style="fill:#0f6674;stroke:none"/>',
}


def severity_icon(severity: str, size: int = 16) -> str:
    """The shape of a severity as SVG, of this many pixels; of an unknown one, the shape of a minor incident. The text
    beside it names the severity."""
    shape = SHAPES.get(severity, SHAPES["minor"])
    return f'<svg class="icon" viewBox="0 0 32 32" width="{size}" height="{size}" aria-hidden="true">{shape}</svg>'
