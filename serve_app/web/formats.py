"""The formats of a report, and the time zones in which it writes times."""

from datetime import UTC, tzinfo
from enum import StrEnum
from zoneinfo import ZoneInfo

from serve_app.errors import InvalidParameter


class ReportFormat(StrEnum):
    """HTML to read, send or print; Markdown for a post-mortem; SVG: a picture."""

    HTML = "html"
    MARKDOWN = "markdown"
    SVG = "svg"


def read_zone(name: str) -> tzinfo:
    """Return the time zone with a name of the IANA database, such as ``Europe/Berlin``.

    Raises:
        InvalidParameter: there is no such zone.
    """
    if name == "UTC":  # needs no database
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, malformed, or a folder of the database
        raise InvalidParameter(
            f"timezone: expected a name of the IANA time zone database, got {name!r}; write for example Europe/Berlin "
            "or UTC",
            pointer="/timezone",
        ) from None
