"""An incident as one file, HTML or Markdown: headline, likely origin, spread, timeline, planned changes."""

from serve_app.web.report.markdown import markdown_report
from serve_app.web.report.page import report

__all__ = ["markdown_report", "report"]
