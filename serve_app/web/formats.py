"""The forms of a report."""

from enum import StrEnum


class ReportFormat(StrEnum):
    """A page to read, send or print; text for a post-mortem; or a picture."""

    HTML = "html"
    MARKDOWN = "markdown"
    SVG = "svg"
