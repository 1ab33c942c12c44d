"""An incident as one file, HTML, Markdown or SVG: headline, likely origin, spread, timeline, planned changes."""

from serve_app.web.report.page import report

__all__ = ["report"]
