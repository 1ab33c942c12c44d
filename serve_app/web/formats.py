"""The forms of a report."""

from enum import StrEnum


class ReportFormat(StrEnum):
    """A page to read, send or print; or text for a post-mortem."""

    HTML = "html"
    MARKDOWN = "markdown"
