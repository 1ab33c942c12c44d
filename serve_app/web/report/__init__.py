"""An incident as one file, HTML or Markdown: what is wrong, where it began, how it spreads, since when, if planned."""

from serve_app.web.report.markdown import markdown_report
from serve_app.web.report.page import report

__all__ = ["markdown_report", "report"]
