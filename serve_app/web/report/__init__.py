"""An incident as one file, HTML or Markdown: headline, likely origin, spread, timeline, planned changes."""

from serve_app.web.report.page import markdown_report, report

__all__ = ["markdown_report", "report"]
